/* What must not be accepted is refused at once, and the first request of a list that is refused is
 * named: those before it are carried out, it and those behind it are not. */

#include "check.h"

static void unknown_types(struct ibv_context *context)
{
	static const int types[] = { 0, 1, 5, 6, 7, 100, 255, -1 };
	struct side side = make_parts(context);
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		struct ibv_qp_init_attr init = making(&side, (enum ibv_qp_type)types[i]);
		errno = 0;
		struct ibv_qp *qp = ibv_create_qp(side.pd, &init);
		int error = errno;
		CHECK(!qp);
		CHECK(error == EINVAL || error == EOPNOTSUPP);
	}
	struct ibv_qp_init_attr without = making(&side, IBV_QPT_RC);
	without.send_cq = NULL;
	errno = 0;
	struct ibv_qp *qp = ibv_create_qp(side.pd, &without);
	int error = errno;
	CHECK(!qp);
	SAME(error, EINVAL);
	free_side(&side);
}

/* The queue takes as many as it was made for, and refuses the next one. */
static void full_queues(struct ibv_context *context)
{
	struct pair pair = make_pair(context, IBV_QPT_RC);
	struct ibv_send_wr wrs[100], *bad = NULL;
	for (int i = 0; i < 100; i++) {
		wrs[i] = request(i, IBV_WR_RDMA_READ, NULL, 0);
		wrs[i].wr.rdma.remote_addr = (uintptr_t)pair.b.memory;
		wrs[i].wr.rdma.rkey = pair.b.mr->rkey;
		wrs[i].next = i < 99 ? &wrs[i + 1] : NULL;
	}
	SAME(ibv_post_send(pair.a.qp, wrs, &bad), ENOMEM);
	SAME(bad - wrs, 64);
	for (int i = 0; i < 64; i++)
		COMPLETES(pair.a.cq, i, IBV_WC_SUCCESS);
	/* Now there is room again, for what was refused. */
	SAME(ibv_post_send(pair.a.qp, bad, &bad), 0);
	for (int i = 64; i < 100; i++)
		COMPLETES(pair.a.cq, i, IBV_WC_SUCCESS);

	struct ibv_recv_wr receives[70], *bad_receive = NULL;
	for (int i = 0; i < 70; i++)
		receives[i] = (struct ibv_recv_wr){
			.wr_id = i,
			.next = i < 69 ? &receives[i + 1] : NULL,
		};
	SAME(ibv_post_recv(pair.b.qp, receives, &bad_receive), ENOMEM);
	SAME(bad_receive - receives, 64);

	struct ibv_srq_init_attr init = { .attr = { .max_wr = 10, .max_sge = 1 } };
	struct ibv_srq *srq;
	CHECK(srq = ibv_create_srq(pair.b.pd, &init));
	uint32_t room = init.attr.max_wr;
	CHECK(room >= 10 && room < 70);
	SAME(ibv_post_srq_recv(srq, receives, &bad_receive), ENOMEM);
	SAME(bad_receive - receives, room);
	SAME(ibv_destroy_srq(srq), 0);
	free_pair(&pair);
}

/* Lists whose fourth request cannot be. */
static void bad_requests(struct ibv_context *context)
{
	struct pair pair = make_pair(context, IBV_QPT_RC);
	struct ibv_sge five[5];
	for (int i = 0; i < 5; i++)
		five[i] = piece(&pair.a, 0, 1);
	for (int kind = 0; kind < 5; kind++) {
		struct ibv_sge sge = piece(&pair.a, 0, 8), long_sge = piece(&pair.a, 0, 65);
		struct ibv_send_wr wrs[6], *bad = NULL;
		for (int i = 0; i < 6; i++) {
			wrs[i] = request(i, IBV_WR_RDMA_WRITE, &sge, 1);
			wrs[i].wr.rdma.remote_addr = (uintptr_t)pair.b.memory;
			wrs[i].wr.rdma.rkey = pair.b.mr->rkey;
			wrs[i].next = i < 5 ? &wrs[i + 1] : NULL;
		}
		switch (kind) {
		case 0:
			wrs[3].opcode = (enum ibv_wr_opcode)200;
			break;
		case 1: /* more pieces than the queue pair has room for */
			wrs[3].sg_list = five;
			wrs[3].num_sge = 5;
			break;
		case 2:
			wrs[3].num_sge = -1;
			break;
		case 3: /* more inline than the queue pair has room for */
			wrs[3].sg_list = &long_sge;
			wrs[3].send_flags = IBV_SEND_INLINE;
			break;
		case 4: /* not for this transport */
			wrs[3].opcode = IBV_WR_TSO;
			break;
		}
		int error = ibv_post_send(pair.a.qp, wrs, &bad);
		CHECK(error == EINVAL || error == EOPNOTSUPP || error == ENOMEM);
		SAME(bad - wrs, 3);
		for (int i = 0; i < 3; i++)
			COMPLETES(pair.a.cq, i, IBV_WC_SUCCESS);
		struct ibv_wc more;
		SAME(ibv_poll_cq(pair.a.cq, 1, &more), 0);
		SAME(state_of(pair.a.qp), IBV_QPS_RTS);
	}
	free_pair(&pair);
}

/* Nothing is sent before a queue pair may, nor received before it is initialised. */
static void states(struct ibv_context *context)
{
	struct side side = make_side(context, IBV_QPT_RC);
	struct ibv_sge sge = piece(&side, 0, 8);
	struct ibv_send_wr send = request(1, IBV_WR_SEND, &sge, 1), *bad_send = NULL;
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv = NULL;
	SAME(ibv_post_recv(side.qp, &recv, &bad_recv), EINVAL);
	CHECK(bad_recv == &recv);
	for (int step = 0; step < 3; step++) {
		bad_send = NULL;
		SAME(ibv_post_send(side.qp, &send, &bad_send), EINVAL);
		CHECK(bad_send == &send);
		SAME(step == 0 ? to_init(side.qp) :
		     step == 1 ? to_rtr(side.qp, side.qp->qp_num, USUAL) :
				 to_rts(side.qp, USUAL),
		     0);
	}
	SAME(to_state(side.qp, (enum ibv_qp_state)77), EINVAL);
	SAME(to_state(side.qp, IBV_QPS_INIT), EINVAL);
	free_side(&side);
}

/* Memory, addresses and windows of another protection domain are out of reach. */
static void other_domains(struct ibv_context *context)
{
	struct pair pair = make_pair(context, IBV_QPT_RC);
	struct side other = make_parts(context);
	/* Its memory cannot be sent from, */
	SAME(send_piece(pair.a.qp, 1, piece(&other, 0, 8)), 0);
	COMPLETES(pair.a.cq, 1, IBV_WC_LOC_PROT_ERR);
	rejoin(&pair);
	/* not be received into, */
	SAME(receive(pair.b.qp, 2, piece(&other, 0, 8)), 0);
	SAME(send_piece(pair.a.qp, 3, piece(&pair.a, 0, 8)), 0);
	COMPLETES(pair.b.cq, 2, IBV_WC_LOC_PROT_ERR);
	COMPLETES(pair.a.cq, 3, IBV_WC_REM_OP_ERR);
	rejoin(&pair);
	/* nor be reached by peers, */
	SAME(remote_piece(pair.a.qp, 4, IBV_WR_RDMA_WRITE, piece(&pair.a, 0, 8),
			  (uintptr_t)other.memory, other.mr->rkey),
	     0);
	COMPLETES(pair.a.cq, 4, IBV_WC_REM_ACCESS_ERR);
	rejoin(&pair);
	/* and its windows cannot be bound here, nor ours to its memory. */
	struct ibv_mw *foreign, *own;
	CHECK(foreign = ibv_alloc_mw(other.pd, IBV_MW_TYPE_2));
	CHECK(own = ibv_alloc_mw(pair.b.pd, IBV_MW_TYPE_2));
	for (int i = 0; i < 2; i++) {
		struct ibv_mw *mw = i ? own : foreign;
		struct ibv_mr *mr = i ? other.mr : pair.b.mr;
		struct ibv_send_wr wr = request(5, IBV_WR_BIND_MW, NULL, 0), *bad;
		wr.bind_mw.mw = mw;
		wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
		wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
			.mr = mr,
			.addr = (uintptr_t)mr->addr,
			.length = 100,
			.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
		};
		if (ibv_post_send(pair.b.qp, &wr, &bad) == 0) {
			COMPLETES(pair.b.cq, 5, IBV_WC_MW_BIND_ERR);
			rejoin(&pair);
		}
	}
	SAME(ibv_dealloc_mw(foreign), 0);
	SAME(ibv_dealloc_mw(own), 0);
	free_pair(&pair);

	/* Address handles belong to domains as well. */
	struct side sender = make_side(context, IBV_QPT_UD);
	bring_up(sender.qp, 0, USUAL);
	struct ibv_ah_attr to = way(context);
	struct ibv_ah *ah;
	CHECK(ah = ibv_create_ah(other.pd, &to));
	struct ibv_sge sge = piece(&sender, 0, 8);
	struct ibv_send_wr wr = request(6, IBV_WR_SEND, &sge, 1), *bad = NULL;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = sender.qp->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	SAME(ibv_post_send(sender.qp, &wr, &bad), EINVAL);
	CHECK(bad == &wr);
	SAME(ibv_destroy_ah(ah), 0);
	free_side(&sender);
	free_side(&other);
}

int main(void)
{
	struct ibv_context *context = open_device();
	unknown_types(context);
	full_queues(context);
	bad_requests(context);
	states(context);
	other_domains(context);
	return 0;
}
