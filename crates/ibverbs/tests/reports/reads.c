/* As many READs and atomics as were agreed are under way at once, sixteen here, and more are posted
 * than that: those wait, and none is refused. */

#include "check.h"

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_device_attr device;
	SAME(ibv_query_device(context, &device), 0);
	CHECK(device.max_qp_rd_atom >= 16 && device.max_qp_init_rd_atom >= 16);
	for (int depth = 1; depth <= 16; depth++) {
		struct pair pair = { make_side(context, IBV_QPT_RC),
				     make_side(context, IBV_QPT_RC) };
		struct agreement agreed = USUAL;
		agreed.depth = (uint8_t)depth;
		join(pair.a.qp, pair.b.qp, agreed);
		for (int i = 0; i < ROOM; i++)
			pair.b.memory[i] = (uint8_t)(i * 7 + i / 251);
		/* Of one packet and of several, and atomics among them. */
		for (uint64_t id = 0; id < 60; id++) {
			uint32_t length = id % 3 == 0 ? 8 : id % 3 == 1 ? 1000 : 3000;
			enum ibv_wr_opcode opcode = id % 6 == 3 ? IBV_WR_ATOMIC_FETCH_AND_ADD :
								  IBV_WR_RDMA_READ;
			uint64_t at = opcode == IBV_WR_RDMA_READ ? id * 1000 : ROOM - 8;
			SAME(remote_piece(pair.a.qp, id, opcode, piece(&pair.a, id * 1000, length),
					  (uintptr_t)pair.b.memory + at, pair.b.mr->rkey),
			     0);
		}
		for (uint64_t id = 0; id < 60; id++)
			COMPLETES(pair.a.cq, id, IBV_WC_SUCCESS);
		/* The last of each kind has not been overwritten by the next. */
		CHECK(!memcmp(pair.a.memory + 59000, pair.b.memory + 59000, 3000));
		SAME(state_of(pair.b.qp), IBV_QPS_RTS);
		free_pair(&pair);
	}
	/* Both ends at once. */
	struct pair pair = make_pair(context, IBV_QPT_RC);
	for (uint64_t id = 0; id < 60; id++) {
		SAME(remote_piece(pair.a.qp, id, IBV_WR_RDMA_READ, piece(&pair.a, 0, 20000),
				  (uintptr_t)pair.b.memory + 30000, pair.b.mr->rkey),
		     0);
		SAME(remote_piece(pair.b.qp, id, IBV_WR_RDMA_READ, piece(&pair.b, 0, 20000),
				  (uintptr_t)pair.a.memory + 30000, pair.a.mr->rkey),
		     0);
	}
	for (uint64_t id = 0; id < 60; id++) {
		COMPLETES(pair.a.cq, id, IBV_WC_SUCCESS);
		COMPLETES(pair.b.cq, id, IBV_WC_SUCCESS);
	}
	free_pair(&pair);
	return 0;
}
