/* Who answers is told by an asynchronous event why a queue pair failed; and a queue pair on a shared
 * receive queue says when it will take no request of it any more. */

#include "check.h"

#include <fcntl.h>
#include <poll.h>

static struct ibv_context *context;

/* The next event is this one of this queue pair, and there is no other. */
static void event_is(enum ibv_event_type type, struct ibv_qp *qp)
{
	struct ibv_async_event event;
	struct pollfd fd = { context->async_fd, POLLIN, 0 };
	SAME(poll(&fd, 1, PATIENCE * 1000), 1);
	SAME(ibv_get_async_event(context, &event), 0);
	if (event.event_type != type)
		fprintf(stderr, "%s\n", ibv_event_type_str(event.event_type));
	SAME(event.event_type, type);
	CHECK(event.element.qp == qp);
	ibv_ack_async_event(&event);
	SAME(poll(&fd, 1, 20), 0);
}

static void access_errors(void)
{
	struct pair pair = make_pair(context, IBV_QPT_RC);
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_ATOMIC_CMP_AND_SWP,
	};
	for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++) {
		uint64_t base = (uintptr_t)pair.b.memory;
		struct {
			uint64_t addr;
			uint32_t rkey;
		} wrong[] = { { base, 0xdead00 }, { base + ROOM, pair.b.mr->rkey } };
		for (int j = 0; j < 2; j++) {
			SAME(remote_piece(pair.a.qp, 1, opcodes[i], piece(&pair.a, 0, 8),
					  wrong[j].addr, wrong[j].rkey),
			     0);
			COMPLETES(pair.a.cq, 1, IBV_WC_REM_ACCESS_ERR);
			event_is(IBV_EVENT_QP_ACCESS_ERR, pair.b.qp);
			await_state(pair.b.qp, IBV_QPS_ERR);
			rejoin(&pair);
		}
	}
	free_pair(&pair);
}

static void request_errors(void)
{
	struct pair pair = make_pair(context, IBV_QPT_RC);
	/* A word that is none. */
	SAME(remote_piece(pair.a.qp, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, piece(&pair.a, 0, 8),
			  (uintptr_t)pair.b.memory + 4, pair.b.mr->rkey),
	     0);
	COMPLETES(pair.a.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	event_is(IBV_EVENT_QP_REQ_ERR, pair.b.qp);
	/* What the queue pair does not allow to anybody. */
	SAME(to_state(pair.a.qp, IBV_QPS_RESET), 0);
	SAME(to_state(pair.b.qp, IBV_QPS_RESET), 0);
	bring_up(pair.a.qp, pair.b.qp->qp_num, USUAL);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	SAME(ibv_modify_qp(pair.b.qp, &attr,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	     0);
	SAME(to_rtr(pair.b.qp, pair.a.qp->qp_num, USUAL), 0);
	SAME(to_rts(pair.b.qp, USUAL), 0);
	SAME(remote_piece(pair.a.qp, 1, IBV_WR_RDMA_WRITE, piece(&pair.a, 0, 8),
			  (uintptr_t)pair.b.memory, pair.b.mr->rkey),
	     0);
	COMPLETES(pair.a.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	event_is(IBV_EVENT_QP_REQ_ERR, pair.b.qp);
	free_pair(&pair);
}

static void last_request_reached(void)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct side b = make_parts(context);
	CHECK(b.srq = ibv_create_srq(b.pd, &srq));
	struct ibv_qp_init_attr init = making(&b, IBV_QPT_RC);
	CHECK(b.qp = ibv_create_qp(b.pd, &init));
	struct pair pair = { make_side(context, IBV_QPT_RC), b };
	join(pair.a.qp, pair.b.qp, USUAL);
	/* When it is failed by the program, */
	SAME(receive_shared(b.srq, 2, piece(&b, 0, 8)), 0);
	SAME(to_state(b.qp, IBV_QPS_ERR), 0);
	event_is(IBV_EVENT_QP_LAST_WQE_REACHED, b.qp);
	rejoin(&pair);
	/* and when it fails by itself: the request of the message is flushed, the other one stays. */
	SAME(receive_shared(b.srq, 3, piece(&b, 0, 8)), 0);
	SAME(send_piece(pair.a.qp, 1, piece(&pair.a, 0, 9)), 0);
	COMPLETES(pair.a.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	COMPLETES(b.cq, 2, IBV_WC_LOC_LEN_ERR);
	event_is(IBV_EVENT_QP_LAST_WQE_REACHED, b.qp);
	rejoin(&pair);
	SAME(send_piece(pair.a.qp, 1, piece(&pair.a, 0, 8)), 0);
	COMPLETES(b.cq, 3, IBV_WC_SUCCESS);
	free_pair(&pair);
}

int main(void)
{
	context = open_device();
	access_errors();
	request_errors();
	last_request_reached();
	return 0;
}
