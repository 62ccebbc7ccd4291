/* A request that was not to complete completes all the same when it fails, and so do those behind it;
 * and a queue of completions that overruns is no silent loss. */

#include "check.h"

#include <poll.h>

static struct ibv_context *context;

static void unsignaled(void)
{
	struct pair pair = { make_parts(context), make_side(context, IBV_QPT_RC) };
	struct ibv_qp_init_attr init = making(&pair.a, IBV_QPT_RC);
	init.sq_sig_all = 0;
	CHECK(pair.a.qp = ibv_create_qp(pair.a.pd, &init));
	join(pair.a.qp, pair.b.qp, USUAL);
	uint64_t base = (uintptr_t)pair.b.memory;
	uint32_t rkey = pair.b.mr->rkey;
	for (int kind = 0; kind < 2; kind++) {
		struct ibv_sge good = piece(&pair.a, 0, 8), bad = { 1, 8, 0xdead00 };
		for (uint64_t id = 1; id <= 4; id++)
			SAME(remote_piece(pair.a.qp, id, IBV_WR_RDMA_WRITE,
					  id == 3 && kind == 0 ? bad : good, base,
					  id == 3 && kind == 1 ? 0xdead00 : rkey),
			     0);
		COMPLETES(pair.a.cq, 3,
			  kind == 0 ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR);
		COMPLETES(pair.a.cq, 4, IBV_WC_WR_FLUSH_ERR);
		struct ibv_wc more;
		SAME(ibv_poll_cq(pair.a.cq, 1, &more), 0);
		rejoin(&pair);
	}
	/* As often as the queue has room, many times over, without a completion: one at the end. */
	for (uint64_t id = 0; id < 6400; id++) {
		struct ibv_sge sge = piece(&pair.a, 0, 8);
		struct ibv_send_wr wr = request(id, IBV_WR_RDMA_WRITE, &sge, 1);
		wr.wr.rdma.remote_addr = base;
		wr.wr.rdma.rkey = rkey;
		wr.send_flags = id % 32 == 31 ? IBV_SEND_SIGNALED : 0;
		SAME(post(pair.a.qp, &wr), 0);
		if (id % 32 == 31)
			COMPLETES(pair.a.cq, id, IBV_WC_SUCCESS);
	}
	free_pair(&pair);
}

static void overrun(void)
{
	struct pair pair = { make_parts(context), make_side(context, IBV_QPT_RC) };
	SAME(ibv_destroy_cq(pair.a.cq), 0);
	CHECK(pair.a.cq = ibv_create_cq(context, 4, NULL, NULL, 0));
	int room = pair.a.cq->cqe;
	struct ibv_qp_init_attr init = making(&pair.a, IBV_QPT_RC);
	CHECK(pair.a.qp = ibv_create_qp(pair.a.pd, &init));
	join(pair.a.qp, pair.b.qp, USUAL);
	CHECK(room >= 4 && room < 60);
	for (int id = 0; id <= room; id++)
		SAME(remote_piece(pair.a.qp, id, IBV_WR_RDMA_WRITE, piece(&pair.a, 0, 8),
				  (uintptr_t)pair.b.memory, pair.b.mr->rkey),
		     0);
	int queue = 0, fatal = 0;
	while (!queue || !fatal) {
		struct ibv_async_event event;
		struct pollfd fd = { context->async_fd, POLLIN, 0 };
		SAME(poll(&fd, 1, PATIENCE * 1000), 1);
		SAME(ibv_get_async_event(context, &event), 0);
		if (event.event_type == IBV_EVENT_CQ_ERR)
			queue += event.element.cq == pair.a.cq;
		if (event.event_type == IBV_EVENT_QP_FATAL)
			fatal += event.element.qp == pair.a.qp;
		ibv_ack_async_event(&event);
	}
	SAME(state_of(pair.a.qp), IBV_QPS_ERR);
	free_pair(&pair);
}

int main(void)
{
	context = open_device();
	unsignaled();
	overrun();
	return 0;
}
