/* Who destroys an object waits for the events of it that were taken and not acknowledged, and for no
 * others: not for those that nobody took, and not for those of its neighbours. */

#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

static struct ibv_context *context;
static atomic_int acknowledged;

static void *acknowledge(void *cq)
{
	usleep(50000);
	atomic_store(&acknowledged, 1);
	ibv_ack_cq_events(cq, 3);
	return NULL;
}

/* One event waits in the channel. */
static void raise_event(struct side *side, uint64_t id)
{
	SAME(ibv_req_notify_cq(side->cq, 0), 0);
	SAME(receive(side->qp, id, piece(side, 0, 8)), 0);
	COMPLETES(side->cq, id, IBV_WC_WR_FLUSH_ERR);
}

static struct side with_channel(struct ibv_comp_channel *channel)
{
	struct side side = make_parts(context);
	SAME(ibv_destroy_cq(side.cq), 0);
	CHECK(side.cq = ibv_create_cq(context, 16, NULL, channel, 0));
	struct ibv_qp_init_attr init = making(&side, IBV_QPT_RC);
	CHECK(side.qp = ibv_create_qp(side.pd, &init));
	SAME(to_init(side.qp), 0);
	SAME(to_state(side.qp, IBV_QPS_ERR), 0);
	return side;
}

int main(void)
{
	context = open_device();
	struct ibv_comp_channel *channel;
	CHECK(channel = ibv_create_comp_channel(context));
	for (int round = 0; round < 10; round++) {
		struct side one = with_channel(channel), other = with_channel(channel);
		struct ibv_cq *cq;
		void *cq_context;
		for (int i = 0; i < 3; i++) {
			raise_event(&one, i);
			SAME(ibv_get_cq_event(channel, &cq, &cq_context), 0);
			CHECK(cq == one.cq);
		}
		/* Those that nobody takes go with their queues, */
		raise_event(&other, 7);
		raise_event(&one, 8);
		/* which does not wait for the neighbour's. */
		free_side(&other);
		pthread_t thread;
		atomic_store(&acknowledged, 0);
		CHECK(!pthread_create(&thread, NULL, acknowledge, one.cq));
		SAME(ibv_destroy_qp(one.qp), 0);
		one.qp = NULL;
		free_side(&one);
		CHECK(atomic_load(&acknowledged));
		CHECK(!pthread_join(thread, NULL));
	}
	SAME(ibv_destroy_comp_channel(channel), 0);
	return 0;
}
