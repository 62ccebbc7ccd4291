/* A completion queue is not made smaller than what waits in it. */

#include "check.h"

/* Waits until all that was posted has completed, without polling. */
static void drain(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	double end = seconds() + PATIENCE;
	SAME(to_state(qp, IBV_QPS_SQD), 0);
	do {
		SAME(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
		CHECK(seconds() < end);
	} while (attr.sq_draining);
	SAME(to_state(qp, IBV_QPS_RTS), 0);
}

static int write_one(struct pair *pair, uint64_t id)
{
	return remote_piece(pair->a.qp, id, IBV_WR_RDMA_WRITE, piece(&pair->a, 0, 8),
			    (uintptr_t)pair->b.memory, pair->b.mr->rkey);
}

int main(void)
{
	struct pair pair = make_pair(open_device(), IBV_QPT_RC);
	struct ibv_cq *cq = pair.a.cq;
	for (uint64_t id = 0; id <= 50; id++)
		SAME(write_one(&pair, id), 0);
	drain(pair.a.qp);
	int before = cq->cqe;
	for (int less = 50; less > 0; less -= 7)
		SAME(ibv_resize_cq(cq, less), EINVAL);
	SAME(ibv_resize_cq(cq, 0), EINVAL);
	SAME(ibv_resize_cq(cq, -1), EINVAL);
	SAME(cq->cqe, before);
	SAME(ibv_resize_cq(cq, 51), 0);
	CHECK(cq->cqe >= 51);
	/* None of them is lost, and the queue goes on. */
	for (uint64_t id = 0; id <= 50; id++)
		COMPLETES(cq, id, IBV_WC_SUCCESS);
	SAME(ibv_resize_cq(cq, 1), 0);
	SAME(write_one(&pair, 51), 0);
	COMPLETES(cq, 51, IBV_WC_SUCCESS);
	SAME(ibv_resize_cq(cq, 1000), 0);
	free_pair(&pair);
	return 0;
}
