/* The limit of a shared receive queue is told once, when the queue falls below it, and again only when
 * it was set again; the queue is not made smaller than what waits in it. */

#include "check.h"

#include <poll.h>

static struct ibv_context *context;

/* Events of the limit that have come. */
static int told(struct ibv_srq *srq, int patience)
{
	struct ibv_async_event event;
	struct pollfd fd = { context->async_fd, POLLIN, 0 };
	if (poll(&fd, 1, patience) == 0)
		return 0;
	SAME(ibv_get_async_event(context, &event), 0);
	SAME(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	CHECK(event.element.srq == srq);
	ibv_ack_async_event(&event);
	return 1;
}

int main(void)
{
	context = open_device();
	struct side b = make_parts(context);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 32, .max_sge = 1 } };
	CHECK(b.srq = ibv_create_srq(b.pd, &init));
	struct ibv_qp_init_attr making_b = making(&b, IBV_QPT_RC);
	CHECK(b.qp = ibv_create_qp(b.pd, &making_b));
	struct pair pair = { make_side(context, IBV_QPT_RC), b };
	join(pair.a.qp, pair.b.qp, USUAL);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 10; i++)
			SAME(receive_shared(b.srq, i, piece(&b, 0, 8)), 0);
		struct ibv_srq_attr attr = { .srq_limit = 6 };
		SAME(ibv_modify_srq(b.srq, &attr, IBV_SRQ_LIMIT), 0);
		SAME(ibv_query_srq(b.srq, &attr), 0);
		SAME(attr.srq_limit, 6);
		for (int i = 0; i < 10; i++) {
			SAME(send_piece(pair.a.qp, 1, piece(&pair.a, 0, 8)), 0);
			COMPLETES(pair.a.cq, 1, IBV_WC_SUCCESS);
			COMPLETES(b.cq, i, IBV_WC_SUCCESS);
			/* Ten, nine, …: the fifth message leaves five. */
			SAME(told(b.srq, i == 4 ? PATIENCE * 1000 : 5), i == 4);
		}
		SAME(ibv_query_srq(b.srq, &attr), 0);
		SAME(attr.srq_limit, 0);
	}
	for (int i = 0; i < 10; i++)
		SAME(receive_shared(b.srq, i, piece(&b, 0, 8)), 0);
	struct ibv_srq_attr smaller = { .max_wr = 9 };
	CHECK(ibv_modify_srq(b.srq, &smaller, IBV_SRQ_MAX_WR) != 0);
	free_pair(&pair);
	return 0;
}
