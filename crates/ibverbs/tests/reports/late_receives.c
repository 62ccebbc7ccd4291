/* Requests that are posted to a queue pair in error are flushed as well: receive requests and send
 * requests, on every transport, and events tell of them. */

#include "check.h"

#include <poll.h>

static void of_type(struct ibv_context *context, enum ibv_qp_type type)
{
	struct pair pair = make_pair(context, type);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 5; i++)
			SAME(receive(pair.b.qp, i, piece(&pair.b, 0, 100)), 0);
		SAME(to_state(pair.b.qp, IBV_QPS_ERR), 0);
		for (int i = 5; i < 10; i++)
			SAME(receive(pair.b.qp, i, piece(&pair.b, 0, 100)), 0);
		for (int i = 0; i < 10; i++)
			COMPLETES(pair.b.cq, i, IBV_WC_WR_FLUSH_ERR);
		/* More than the queue has room for, one after the other. */
		for (int i = 0; i < 200; i++) {
			SAME(receive(pair.b.qp, i, piece(&pair.b, 0, 100)), 0);
			COMPLETES(pair.b.cq, i, IBV_WC_WR_FLUSH_ERR);
		}
		for (int i = 0; i < 200; i++) {
			if (type == IBV_QPT_UD)
				break;
			SAME(send_piece(pair.b.qp, i, piece(&pair.b, 0, 100)), 0);
			COMPLETES(pair.b.cq, i, IBV_WC_WR_FLUSH_ERR);
		}
		struct ibv_wc more;
		SAME(ibv_poll_cq(pair.b.cq, 1, &more), 0);
		rejoin(&pair);
	}
	free_pair(&pair);
}

/* Who sleeps until the completion comes is woken. */
static void sleepers(struct ibv_context *context)
{
	struct ibv_comp_channel *channel;
	CHECK(channel = ibv_create_comp_channel(context));
	struct side side = make_parts(context);
	SAME(ibv_destroy_cq(side.cq), 0);
	CHECK(side.cq = ibv_create_cq(context, 16, NULL, channel, 0));
	struct ibv_qp_init_attr init = making(&side, IBV_QPT_RC);
	CHECK(side.qp = ibv_create_qp(side.pd, &init));
	SAME(to_init(side.qp), 0);
	SAME(to_state(side.qp, IBV_QPS_ERR), 0);
	SAME(ibv_req_notify_cq(side.cq, 0), 0);
	SAME(receive(side.qp, 1, piece(&side, 0, 8)), 0);
	struct pollfd fd = { channel->fd, POLLIN, 0 };
	SAME(poll(&fd, 1, PATIENCE * 1000), 1);
	struct ibv_cq *cq;
	void *cq_context;
	SAME(ibv_get_cq_event(channel, &cq, &cq_context), 0);
	ibv_ack_cq_events(cq, 1);
	COMPLETES(side.cq, 1, IBV_WC_WR_FLUSH_ERR);
	free_side(&side);
	SAME(ibv_destroy_comp_channel(channel), 0);
}

int main(void)
{
	struct ibv_context *context = open_device();
	of_type(context, IBV_QPT_RC);
	of_type(context, IBV_QPT_UC);
	of_type(context, IBV_QPT_UD);
	sleepers(context);
	return 0;
}
