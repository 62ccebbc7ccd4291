/* Completions of a queue pair that was reset, or is gone, are not taken for those of the next one: a
 * reset leaves none behind, and numbers tell queue pairs apart. */

#include "check.h"

int main(void)
{
	struct ibv_context *context = open_device();
	struct pair pair = make_pair(context, IBV_QPT_RC);
	for (int round = 0; round < 50; round++) {
		for (int i = 0; i < 8; i++) {
			SAME(receive(pair.a.qp, 100 + i, piece(&pair.a, 0, 8)), 0);
			SAME(remote_piece(pair.a.qp, i, IBV_WR_RDMA_WRITE, piece(&pair.a, 0, 8),
					  (uintptr_t)pair.b.memory, pair.b.mr->rkey),
			     0);
		}
		if (round % 2)
			SAME(to_state(pair.a.qp, IBV_QPS_ERR), 0);
		rejoin(&pair);
		struct ibv_wc old;
		SAME(ibv_poll_cq(pair.a.cq, 1, &old), 0);
		SAME(remote_piece(pair.a.qp, 55, IBV_WR_RDMA_WRITE, piece(&pair.a, 0, 8),
				  (uintptr_t)pair.b.memory, pair.b.mr->rkey),
		     0);
		COMPLETES(pair.a.cq, 55, IBV_WC_SUCCESS);
	}
	/* The same queue, the next queue pair. */
	for (int round = 0; round < 50; round++) {
		uint32_t before = pair.a.qp->qp_num;
		for (int i = 0; i < 8; i++)
			SAME(receive(pair.a.qp, i, piece(&pair.a, 0, 8)), 0);
		SAME(to_state(pair.a.qp, IBV_QPS_ERR), 0);
		SAME(ibv_destroy_qp(pair.a.qp), 0);
		struct ibv_qp_init_attr init = making(&pair.a, IBV_QPT_RC);
		CHECK(pair.a.qp = ibv_create_qp(pair.a.pd, &init));
		CHECK(pair.a.qp->qp_num != before);
		struct ibv_wc wc;
		while (ibv_poll_cq(pair.a.cq, 1, &wc) == 1)
			SAME(wc.qp_num, before);
		rejoin(&pair);
		SAME(remote_piece(pair.a.qp, 66, IBV_WR_RDMA_WRITE, piece(&pair.a, 0, 8),
				  (uintptr_t)pair.b.memory, pair.b.mr->rkey),
		     0);
		wc = next_wc(pair.a.cq);
		SAME(wc.wr_id, 66);
		SAME(wc.qp_num, pair.a.qp->qp_num);
	}
	free_pair(&pair);
	return 0;
}
