/* A completion queue is not made smaller than what waits in it. */

#include "check.h"

static int write_one(struct pair *pair, uint64_t id)
{
	return remote_piece(pair->a.qp, id, IBV_WR_RDMA_WRITE, piece(&pair->a, 0, 8),
			    (uintptr_t)pair->b.memory, pair->b.mr->rkey);
}

int main(void)
{
	struct pair pair = make_pair(open_device(), IBV_QPT_RC);
	struct ibv_cq *cq = pair.a.cq;
	/* In an error state requests complete at once, so all of them wait in the queue now. */
	SAME(to_state(pair.a.qp, IBV_QPS_ERR), 0);
	for (uint64_t id = 0; id <= 50; id++)
		SAME(write_one(&pair, id), 0);
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
		COMPLETES(cq, id, IBV_WC_WR_FLUSH_ERR);
	SAME(ibv_resize_cq(cq, 1), 0);
	rejoin(&pair);
	SAME(write_one(&pair, 51), 0);
	COMPLETES(cq, 51, IBV_WC_SUCCESS);
	SAME(ibv_resize_cq(cq, 1000), 0);
	free_pair(&pair);
	return 0;
}
