/* A mistake about local memory completes as what it is: LOC_PROT_ERR where the memory cannot be
 * accessed, LOC_LEN_ERR where it is too little. It does not hang, it is no LOC_QP_OP_ERR, and only what
 * comes behind it is flushed. */

#include "check.h"

static struct pair pair;
static struct ibv_mr *read_only, *gone;
static uint32_t gone_key;

/* Memory that cannot be read, or written, as the caller wants. */
enum wrong { UNKNOWN_KEY, DEAD_KEY, BEFORE, BEHIND, ACROSS_THE_END, WRAPS, READ_ONLY, WRONGS };

static struct ibv_sge wrong_piece(struct side *side, enum wrong wrong)
{
	struct ibv_sge sge = piece(side, 0, 64);
	switch (wrong) {
	case UNKNOWN_KEY:
		sge.lkey = 0xdead00;
		break;
	case DEAD_KEY:
		sge.lkey = gone_key;
		break;
	case BEFORE:
		sge.addr -= 1;
		break;
	case BEHIND:
		sge.addr += ROOM;
		break;
	case ACROSS_THE_END:
		sge.addr += ROOM - 7;
		break;
	case WRAPS:
		sge.addr = UINT64_MAX - 10;
		break;
	case READ_ONLY:
		sge.lkey = read_only->lkey;
		break;
	case WRONGS:
		abort();
	}
	return sge;
}

/* What was posted before succeeds, the one itself fails, and what follows is flushed. */
static void fails_in_its_turn(enum ibv_wr_opcode opcode, struct ibv_sge wrong)
{
	uint64_t base = (uintptr_t)pair.b.memory;
	uint32_t rkey = pair.b.mr->rkey;
	int is_atomic = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	wrong.length = is_atomic ? 8 : wrong.length;
	SAME(receive(pair.a.qp, 9, piece(&pair.a, 0, 8)), 0);
	if (opcode == IBV_WR_SEND)
		SAME(receive(pair.b.qp, 8, piece(&pair.b, 0, 64)), 0);
	SAME(remote_piece(pair.a.qp, 1, IBV_WR_RDMA_WRITE, piece(&pair.a, 0, 8), base, rkey), 0);
	SAME(remote_piece(pair.a.qp, 2, opcode, wrong, base, rkey), 0);
	SAME(remote_piece(pair.a.qp, 3, IBV_WR_RDMA_WRITE, piece(&pair.a, 0, 8), base, rkey), 0);
	COMPLETES(pair.a.cq, 1, IBV_WC_SUCCESS);
	COMPLETES(pair.a.cq, 2, IBV_WC_LOC_PROT_ERR);
	/* Flushed ones come in order within their queues only. */
	int sent = 0, received = 0;
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = next_wc(pair.a.cq);
		SAME(wc.status, IBV_WC_WR_FLUSH_ERR);
		sent += wc.wr_id == 3;
		received += wc.wr_id == 9;
	}
	CHECK(sent == 1 && received == 1);
	SAME(state_of(pair.a.qp), IBV_QPS_ERR);
	SAME(to_state(pair.b.qp, IBV_QPS_ERR), 0);
	rejoin(&pair);
}

static void senders(void)
{
	for (enum wrong wrong = 0; wrong < WRONGS; wrong++) {
		if (wrong != READ_ONLY) {
			fails_in_its_turn(IBV_WR_SEND, wrong_piece(&pair.a, wrong));
			fails_in_its_turn(IBV_WR_RDMA_WRITE, wrong_piece(&pair.a, wrong));
		}
		fails_in_its_turn(IBV_WR_RDMA_READ, wrong_piece(&pair.a, wrong));
		fails_in_its_turn(IBV_WR_ATOMIC_FETCH_AND_ADD, wrong_piece(&pair.a, wrong));
	}
}

/* A receive request is looked at when a message comes: its completion tells what is wrong with it,
 * and the peer hears that it was not his fault. */
static void receivers(void)
{
	for (enum wrong wrong = 0; wrong < WRONGS; wrong++) {
		SAME(receive(pair.b.qp, 1, wrong_piece(&pair.b, wrong)), 0);
		SAME(receive(pair.b.qp, 2, piece(&pair.b, 0, 64)), 0);
		SAME(send_piece(pair.a.qp, 3, piece(&pair.a, 0, 64)), 0);
		COMPLETES(pair.b.cq, 1, IBV_WC_LOC_PROT_ERR);
		COMPLETES(pair.b.cq, 2, IBV_WC_WR_FLUSH_ERR);
		COMPLETES(pair.a.cq, 3, IBV_WC_REM_OP_ERR);
		await_state(pair.b.qp, IBV_QPS_ERR);
		rejoin(&pair);
	}
}

static void lengths(void)
{
	/* Too little room for the message, over one packet and over several. */
	static const uint32_t sizes[] = { 9, 1024, 1025, 5000 };
	for (int i = 0; i < 4; i++) {
		SAME(receive(pair.b.qp, 1, piece(&pair.b, 0, sizes[i] - 1)), 0);
		SAME(send_piece(pair.a.qp, 3, piece(&pair.a, 0, sizes[i])), 0);
		COMPLETES(pair.b.cq, 1, IBV_WC_LOC_LEN_ERR);
		COMPLETES(pair.a.cq, 3, IBV_WC_REM_INV_REQ_ERR);
		rejoin(&pair);
	}
	/* More than a message can be long. */
	struct ibv_sge halves[3];
	for (int i = 0; i < 3; i++) {
		halves[i] = piece(&pair.a, 0, 1u << 30);
		halves[i].length += i == 2;
	}
	struct ibv_send_wr wr = request(4, IBV_WR_SEND, halves, 3), *bad = NULL;
	int refused = ibv_post_send(pair.a.qp, &wr, &bad);
	if (refused) {
		SAME(refused, EINVAL);
		CHECK(bad == &wr);
	} else {
		COMPLETES(pair.a.cq, 4, IBV_WC_LOC_LEN_ERR);
		rejoin(&pair);
	}
}

int main(void)
{
	pair = make_pair(open_device(), IBV_QPT_RC);
	CHECK(gone = ibv_reg_mr(pair.a.pd, pair.a.memory, ROOM, ALL_RIGHTS));
	gone_key = gone->lkey;
	SAME(ibv_dereg_mr(gone), 0);
	CHECK(read_only = ibv_reg_mr(pair.a.pd, pair.a.memory, ROOM, 0));
	senders();
	struct ibv_mr *of_a = read_only;
	CHECK(read_only = ibv_reg_mr(pair.b.pd, pair.b.memory, ROOM, 0));
	receivers();
	lengths();
	SAME(ibv_dereg_mr(of_a), 0);
	SAME(ibv_dereg_mr(read_only), 0);
	free_pair(&pair);
	return 0;
}
