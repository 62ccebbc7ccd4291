#include "pair.h"
#include <pthread.h>

static void *acknowledge_late(void *cq)
{
	usleep(600 * 1000);
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

// Destroys a completion queue before its event is acknowledged: it waits for the other thread.
static void forget_to_acknowledge(struct pair *pair)
{
	struct ibv_cq *cq;
	void *context;
	pthread_t thread;
	ibv_req_notify_cq(pair->a.cq, 0);
	post(&pair->a, (struct request){ IBV_WR_RDMA_WRITE, .length = 8,
					 .remote = (uintptr_t)pair->b.memory,
					 .rkey = pair->b.mr->rkey });
	expect(!ibv_get_cq_event(pair->channel, &cq, &context), "ibv_get_cq_event");
	completion(&pair->a);
	if (sinful)
		pthread_create(&thread, NULL, acknowledge_late, cq);
	else
		ibv_ack_cq_events(cq, 1);
	pair_close(pair);
	if (sinful)
		pthread_join(thread, NULL);
}

int main(void)
{
	struct pair pair = { .has_channel = 1 };
	pair_open(&pair);
	forget_to_acknowledge(&pair);
}
