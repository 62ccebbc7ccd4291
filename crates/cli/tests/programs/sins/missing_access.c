#include "pair.h"

// Receives into memory that may only be read.
static void receive_read_only(struct pair *pair)
{
	receive(&pair->b, 64);
	post(&pair->a, (struct request){ IBV_WR_SEND, .length = 64 });
	completion(&pair->b);
	completion(&pair->a);
}

int main(void)
{
	struct pair pair = { .rights = sinful ? IBV_ACCESS_REMOTE_READ : ALL_RIGHTS };
	pair_open(&pair);
	receive_read_only(&pair);
	pair_close(&pair);
}
