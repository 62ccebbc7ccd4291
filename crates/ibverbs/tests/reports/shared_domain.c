/* The buffers of a shared receive queue belong to its protection domain, whatever domains the queue
 * pairs are in that receive from it. */

#include "check.h"

int main(void)
{
	struct ibv_context *context = open_device();
	struct side shared = make_parts(context);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 16, .max_sge = 1 } };
	CHECK(shared.srq = ibv_create_srq(shared.pd, &init));
	struct pair pair = { make_side(context, IBV_QPT_RC), make_parts(context) };
	struct side *b = &pair.b;
	struct ibv_qp_init_attr making_b = making(b, IBV_QPT_RC);
	making_b.srq = shared.srq;
	CHECK(b->qp = ibv_create_qp(b->pd, &making_b));
	join(pair.a.qp, b->qp, USUAL);

	/* A buffer of the queue's domain is received into, */
	memset(pair.a.memory, 'x', 5000);
	for (int i = 0; i < 4; i++) {
		memset(shared.memory, 0, 5000);
		SAME(receive_shared(shared.srq, i, piece(&shared, 0, 5000)), 0);
		SAME(send_piece(pair.a.qp, 1, piece(&pair.a, 0, 5000)), 0);
		COMPLETES(pair.a.cq, 1, IBV_WC_SUCCESS);
		COMPLETES(b->cq, i, IBV_WC_SUCCESS);
		CHECK(!memcmp(shared.memory, pair.a.memory, 5000));
	}
	/* one of the queue pair's own domain is not, */
	SAME(receive_shared(shared.srq, 7, piece(b, 0, 5000)), 0);
	SAME(send_piece(pair.a.qp, 1, piece(&pair.a, 0, 8)), 0);
	COMPLETES(b->cq, 7, IBV_WC_LOC_PROT_ERR);
	COMPLETES(pair.a.cq, 1, IBV_WC_REM_OP_ERR);
	rejoin(&pair);
	/* and what peers reach and what is sent are in the queue pair's. */
	SAME(remote_piece(pair.a.qp, 2, IBV_WR_RDMA_WRITE, piece(&pair.a, 0, 8),
			  (uintptr_t)b->memory, b->mr->rkey),
	     0);
	COMPLETES(pair.a.cq, 2, IBV_WC_SUCCESS);
	SAME(receive(pair.a.qp, 3, piece(&pair.a, 0, 8)), 0);
	SAME(send_piece(b->qp, 4, piece(b, 0, 8)), 0);
	COMPLETES(b->cq, 4, IBV_WC_SUCCESS);
	COMPLETES(pair.a.cq, 3, IBV_WC_SUCCESS);
	SAME(remote_piece(pair.a.qp, 2, IBV_WR_RDMA_WRITE, piece(&pair.a, 0, 8),
			  (uintptr_t)shared.memory, shared.mr->rkey),
	     0);
	COMPLETES(pair.a.cq, 2, IBV_WC_REM_ACCESS_ERR);

	free_pair(&pair);
	free_side(&shared);
	return 0;
}
