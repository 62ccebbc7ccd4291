#include "pair.h"

// Does not poll.
static void look_away(struct pair *pair)
{
	struct ibv_wc wc;
	for (int i = 0; i < 12; i++) {
		post(&pair->a, (struct request){ IBV_WR_RDMA_WRITE, .length = 8,
						 .remote = (uintptr_t)pair->b.memory,
						 .rkey = pair->b.mr->rkey });
		if (!sinful)
			completion(&pair->a);
	}
	for (int i = 0; sinful && i < 100; i++) {
		ibv_poll_cq(pair->b.cq, 1, &wc);
		usleep(1000);
	}
}

int main(void)
{
	struct pair pair = { .cqe = 8 };
	pair_open(&pair);
	look_away(&pair);
	pair_close(&pair);
}
