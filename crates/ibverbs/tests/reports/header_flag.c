/* IBV_WC_GRH says that forty bytes of header are in front of a datagram. In front of nothing else they
 * are, so nothing else has the flag. */

#include "check.h"

static void connected(struct ibv_context *context, enum ibv_qp_type type)
{
	struct pair pair = make_pair(context, type);
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++) {
		int is_received = opcodes[i] != IBV_WR_RDMA_WRITE;
		int has_imm = is_received && opcodes[i] != IBV_WR_SEND;
		if (is_received)
			SAME(receive(pair.b.qp, 2, piece(&pair.b, 0, 100)), 0);
		SAME(remote_piece(pair.a.qp, 1, opcodes[i], piece(&pair.a, 0, 8),
				  (uintptr_t)pair.b.memory, pair.b.mr->rkey),
		     0);
		struct ibv_wc wc = next_wc(pair.a.cq);
		SAME(wc.status, IBV_WC_SUCCESS);
		SAME(wc.wc_flags, 0);
		if (!is_received)
			continue;
		wc = next_wc(pair.b.cq);
		SAME(wc.status, IBV_WC_SUCCESS);
		SAME(wc.byte_len, 8);
		SAME(wc.wc_flags, has_imm ? IBV_WC_WITH_IMM : 0);
	}
	free_pair(&pair);
}

static void datagrams(struct ibv_context *context)
{
	struct pair pair = make_pair(context, IBV_QPT_UD);
	struct ibv_ah_attr to = way(context);
	struct ibv_ah *ah;
	CHECK(ah = ibv_create_ah(pair.a.pd, &to));
	memset(pair.a.memory, 'x', 8);
	SAME(receive(pair.b.qp, 2, piece(&pair.b, 0, GRH + 8)), 0);
	struct ibv_sge sge = piece(&pair.a, 0, 8);
	struct ibv_send_wr wr = request(1, IBV_WR_SEND, &sge, 1);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = pair.b.qp->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	SAME(post(pair.a.qp, &wr), 0);
	SAME(next_wc(pair.a.cq).wc_flags, 0);
	struct ibv_wc wc = next_wc(pair.b.cq);
	SAME(wc.status, IBV_WC_SUCCESS);
	SAME(wc.wc_flags, IBV_WC_GRH);
	SAME(wc.byte_len, GRH + 8);
	SAME(wc.src_qp, pair.a.qp->qp_num);
	CHECK(!memcmp(pair.b.memory + GRH, "xxxxxxxx", 8));
	/* With its help the way back is found. */
	struct ibv_ah *back;
	CHECK(back = ibv_create_ah_from_wc(pair.b.pd, &wc, (struct ibv_grh *)pair.b.memory, 1));
	SAME(ibv_destroy_ah(back), 0);
	SAME(ibv_destroy_ah(ah), 0);
	free_pair(&pair);
}

int main(void)
{
	struct ibv_context *context = open_device();
	connected(context, IBV_QPT_RC);
	connected(context, IBV_QPT_UC);
	datagrams(context);
	return 0;
}
