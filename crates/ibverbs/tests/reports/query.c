/* ibv_query_qp says in which state a queue pair is, in both places. */

#include "check.h"

static void is_in(struct ibv_qp *qp, enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	memset(&attr, 0xee, sizeof attr);
	SAME(ibv_query_qp(qp, &attr, mask, &init), 0);
	SAME(attr.qp_state, state);
	SAME(attr.cur_qp_state, state);
	SAME(qp->state, state);
	SAME(init.qp_type, qp->qp_type);
	CHECK(init.send_cq == qp->send_cq && init.recv_cq == qp->recv_cq);
}

int main(void)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	static const int masks[] = { 0, IBV_QP_STATE, IBV_QP_CUR_STATE, 0xfffff };
	struct ibv_context *context = open_device();
	for (int type = 0; type < 3; type++) {
		for (int i = 0; i < 4; i++) {
			struct side side = make_side(context, types[type]);
			is_in(side.qp, IBV_QPS_RESET, masks[i]);
			SAME(to_init(side.qp), 0);
			is_in(side.qp, IBV_QPS_INIT, masks[i]);
			SAME(to_rtr(side.qp, side.qp->qp_num, USUAL), 0);
			is_in(side.qp, IBV_QPS_RTR, masks[i]);
			SAME(to_rts(side.qp, USUAL), 0);
			is_in(side.qp, IBV_QPS_RTS, masks[i]);
			SAME(to_state(side.qp, IBV_QPS_SQD), 0);
			is_in(side.qp, IBV_QPS_SQD, masks[i]);
			SAME(to_state(side.qp, IBV_QPS_RTS), 0);
			is_in(side.qp, IBV_QPS_RTS, masks[i]);
			if (types[type] == IBV_QPT_UD) {
				/* One without a place to come from fails the send queue. */
				struct ibv_sge sge = { 1, 1, 0xdead };
				struct ibv_send_wr wr = request(1, IBV_WR_SEND, &sge, 1);
				struct ibv_ah_attr to = way(context);
				struct ibv_ah *ah;
				CHECK(ah = ibv_create_ah(side.pd, &to));
				wr.wr.ud.ah = ah;
				wr.wr.ud.remote_qpn = side.qp->qp_num;
				wr.wr.ud.remote_qkey = QKEY;
				SAME(post(side.qp, &wr), 0);
				COMPLETES(side.cq, 1, IBV_WC_LOC_PROT_ERR);
				is_in(side.qp, IBV_QPS_SQE, masks[i]);
				SAME(to_state(side.qp, IBV_QPS_RTS), 0);
				is_in(side.qp, IBV_QPS_RTS, masks[i]);
				SAME(ibv_destroy_ah(ah), 0);
			}
			SAME(to_state(side.qp, IBV_QPS_ERR), 0);
			is_in(side.qp, IBV_QPS_ERR, masks[i]);
			SAME(to_state(side.qp, IBV_QPS_RESET), 0);
			is_in(side.qp, IBV_QPS_RESET, masks[i]);
			free_side(&side);
		}
	}
	/* A queue pair that failed by itself says so, too. */
	struct pair pair = make_pair(context, IBV_QPT_RC);
	SAME(send_piece(pair.a.qp, 1, (struct ibv_sge){ 1, 1, 0xdead }), 0);
	COMPLETES(pair.a.cq, 1, IBV_WC_LOC_PROT_ERR);
	is_in(pair.a.qp, IBV_QPS_ERR, IBV_QP_STATE);
	free_pair(&pair);
	return 0;
}
