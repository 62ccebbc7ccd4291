#include "pair.h"

static void receive_little(struct pair *pair)
{
	receive(&pair->b, sinful ? 32 : 64);
	post(&pair->a, (struct request){ IBV_WR_SEND, .length = 64 });
	completion(&pair->b);
	completion(&pair->a);
}

int main(void)
{
	struct pair pair = { 0 };
	pair_open(&pair);
	receive_little(&pair);
	pair_close(&pair);
}
