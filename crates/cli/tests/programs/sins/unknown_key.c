#include "pair.h"

static void send_under_a_wrong_key(struct pair *pair)
{
	receive(&pair->b, 64);
	post(&pair->a, (struct request){ IBV_WR_SEND, .length = 64,
					 .lkey = sinful ? 0x123456 : 0 });
	expect((completion(&pair->a) == IBV_WC_LOC_PROT_ERR) == sinful, "completion");
}

int main(void)
{
	struct pair pair = { 0 };
	pair_open(&pair);
	send_under_a_wrong_key(&pair);
	pair_close(&pair);
}
