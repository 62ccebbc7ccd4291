#include "pair.h"

// Names a key that the other side does not have.
static void write_under_a_wrong_key(struct pair *pair)
{
	uint32_t rkey = pair->b.mr->rkey ^ (sinful ? 0x5500 : 0);
	post(&pair->a, (struct request){ IBV_WR_RDMA_WRITE, .length = 64,
					 .remote = (uintptr_t)pair->b.memory, .rkey = rkey });
	completion(&pair->a);
}

int main(void)
{
	struct pair pair = { 0 };
	pair_open(&pair);
	write_under_a_wrong_key(&pair);
	pair_close(&pair);
}
