/* Operations on nothing need no key, and neither do messages of nothing; a receive request without room
 * takes them (IBTA 9.7: an R_Key is not checked when the length is zero). */

#include "check.h"

int main(void)
{
	struct ibv_context *context = open_device();
	struct pair pair = make_pair(context, IBV_QPT_RC);
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						      IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND };
	for (int i = 0; i < 40; i++) {
		enum ibv_wr_opcode opcode = opcodes[i % 4];
		struct ibv_sge empty = piece(&pair.a, 0, 0);
		struct ibv_send_wr wr = request(i, opcode, i % 3 ? &empty : NULL, i % 3 ? 1 : 0);
		struct ibv_recv_wr recv = { .wr_id = 100 }, *bad;
		if (opcode != IBV_WR_SEND) {
			wr.wr.rdma.remote_addr = 0x1234;
			wr.wr.rdma.rkey = 0xdead00;
		}
		if (i % 4 >= 2)
			SAME(ibv_post_recv(pair.b.qp, &recv, &bad), 0);
		SAME(post(pair.a.qp, &wr), 0);
		COMPLETES(pair.a.cq, i, IBV_WC_SUCCESS);
		if (i % 4 >= 2) {
			struct ibv_wc wc = next_wc(pair.b.cq);
			SAME(wc.status, IBV_WC_SUCCESS);
			SAME(wc.byte_len, 0);
		}
	}
	SAME(state_of(pair.b.qp), IBV_QPS_RTS);
	free_pair(&pair);
	return 0;
}
