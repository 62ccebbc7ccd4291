#include "pair.h"

// Reads from a region that the other side has deregistered.
static void read_the_dead(struct pair *pair)
{
	uint32_t rkey = pair->b.mr->rkey;
	if (sinful) {
		expect(!ibv_dereg_mr(pair->b.mr), "ibv_dereg_mr");
		pair->b.mr = NULL;
	}
	post(&pair->a, (struct request){ IBV_WR_RDMA_READ, .length = 64,
					 .remote = (uintptr_t)pair->b.memory, .rkey = rkey });
	completion(&pair->a);
}

int main(void)
{
	struct pair pair = { 0 };
	pair_open(&pair);
	read_the_dead(&pair);
	pair_close(&pair);
}
