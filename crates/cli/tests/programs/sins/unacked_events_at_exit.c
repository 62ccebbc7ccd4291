#include "pair.h"

// Takes an event and exits.
static void take_an_event(struct pair *pair)
{
	struct ibv_cq *cq;
	void *context;
	ibv_req_notify_cq(pair->a.cq, 0);
	post(&pair->a, (struct request){ IBV_WR_RDMA_WRITE, .length = 8,
					 .remote = (uintptr_t)pair->b.memory,
					 .rkey = pair->b.mr->rkey });
	expect(!ibv_get_cq_event(pair->channel, &cq, &context), "ibv_get_cq_event");
	completion(&pair->a);
	if (!sinful)
		ibv_ack_cq_events(cq, 1);
}

int main(void)
{
	struct pair pair = { .has_channel = 1 };
	pair_open(&pair);
	take_an_event(&pair);
	if (!sinful)
		pair_close(&pair);
}
