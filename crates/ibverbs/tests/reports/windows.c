/* Windows of type 2: the program sees the new key at once; only the queue pair that bound a window can
 * reach it, and so only its peer can invalidate it; nothing beyond its ends is reached; and a queue
 * pair with bound windows is destroyed without waiting for anybody. */

#include "check.h"

static struct ibv_context *context;

static uint32_t bind_to(struct side *side, struct ibv_mw *mw, uint32_t at, uint32_t length)
{
	uint32_t key = ibv_inc_rkey(mw->rkey);
	struct ibv_send_wr wr = request(7, IBV_WR_BIND_MW, NULL, 0);
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = key;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = side->mr,
		.addr = (uintptr_t)side->memory + at,
		.length = length,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	SAME(post(side->qp, &wr), 0);
	SAME(mw->rkey, key);
	struct ibv_wc wc = next_wc(side->cq);
	SAME(wc.status, IBV_WC_SUCCESS);
	SAME(wc.opcode, IBV_WC_BIND_MW);
	SAME(mw->rkey, key);
	return key;
}

static void unbind(struct side *side, uint32_t key)
{
	struct ibv_send_wr wr = request(8, IBV_WR_LOCAL_INV, NULL, 0);
	wr.invalidate_rkey = key;
	SAME(post(side->qp, &wr), 0);
	struct ibv_wc wc = next_wc(side->cq);
	SAME(wc.status, IBV_WC_SUCCESS);
	SAME(wc.opcode, IBV_WC_LOCAL_INV);
}

static enum ibv_wc_status reach(struct pair *pair, enum ibv_wr_opcode opcode, int64_t at,
				uint32_t length, uint32_t key)
{
	SAME(remote_piece(pair->a.qp, 1, opcode, piece(&pair->a, 0, length),
			  (uintptr_t)pair->b.memory + (uint64_t)at, key),
	     0);
	return next_wc(pair->a.cq).status;
}

static void keys_and_ends(void)
{
	struct pair pair = make_pair(context, IBV_QPT_RC);
	struct ibv_mw *mw;
	CHECK(mw = ibv_alloc_mw(pair.b.pd, IBV_MW_TYPE_2));
	static const struct {
		int64_t at;
		uint32_t length;
	} outside[] = { { 999, 1 },    { 1100, 1 }, { 999, 101 }, { 1000, 101 },
			{ 1099, 2 },   { 0, 1 },    { 998, 3 },	  { 5000, 8 } };
	memset(pair.a.memory, 'x', 200);
	for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
		memset(pair.b.memory, 0, 6000);
		uint32_t key = bind_to(&pair.b, mw, 1000, 100);
		SAME(reach(&pair, IBV_WR_RDMA_WRITE, 1000, 100, key), IBV_WC_SUCCESS);
		SAME(reach(&pair, IBV_WR_RDMA_READ, 1099, 1, key), IBV_WC_SUCCESS);
		enum ibv_wr_opcode opcode = i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
		SAME(reach(&pair, opcode, outside[i].at, outside[i].length, key),
		     IBV_WC_REM_ACCESS_ERR);
		for (int j = 0; j < 6000; j++)
			SAME(pair.b.memory[j], j >= 1000 && j < 1100 ? 'x' : 0);
		await_state(pair.b.qp, IBV_QPS_ERR);
		rejoin(&pair);
		unbind(&pair.b, key);
		SAME(reach(&pair, IBV_WR_RDMA_WRITE, 1000, 1, key), IBV_WC_REM_ACCESS_ERR);
		rejoin(&pair);
	}
	SAME(ibv_dealloc_mw(mw), 0);
	free_pair(&pair);
}

/* Two connections in one domain. */
static void other_queue_pairs(void)
{
	struct pair owner = make_pair(context, IBV_QPT_RC);
	struct side b = { .context = context, .pd = owner.b.pd, .cq = owner.b.cq,
			  .mr = owner.b.mr, .memory = owner.b.memory };
	struct pair other = { make_side(context, IBV_QPT_RC), b };
	struct ibv_qp_init_attr init = making(&other.b, IBV_QPT_RC);
	CHECK(other.b.qp = ibv_create_qp(other.b.pd, &init));
	join(other.a.qp, other.b.qp, USUAL);
	struct ibv_mw *mw;
	CHECK(mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2));
	uint32_t key = bind_to(&owner.b, mw, 0, 100);

	/* Another peer cannot write, */
	SAME(reach(&other, IBV_WR_RDMA_WRITE, 0, 8, key), IBV_WC_REM_ACCESS_ERR);
	rejoin(&other);
	/* not invalidate, */
	SAME(receive(other.b.qp, 20, piece(&b, 200, 8)), 0);
	struct ibv_sge sge = piece(&other.a, 0, 8);
	struct ibv_send_wr wr = request(2, IBV_WR_SEND_WITH_INV, &sge, 1);
	wr.invalidate_rkey = key;
	SAME(post(other.a.qp, &wr), 0);
	COMPLETES(other.a.cq, 2, IBV_WC_REM_ACCESS_ERR);
	CHECK(next_wc(b.cq).status != IBV_WC_SUCCESS);
	rejoin(&other);
	/* nor can the other queue pair here. */
	wr = request(3, IBV_WR_LOCAL_INV, NULL, 0);
	wr.invalidate_rkey = key;
	if (post(other.b.qp, &wr) == 0) {
		CHECK(next_wc(b.cq).status != IBV_WC_SUCCESS);
		rejoin(&other);
	}

	/* The owner's peer goes on, and invalidates. */
	SAME(reach(&owner, IBV_WR_RDMA_WRITE, 0, 8, key), IBV_WC_SUCCESS);
	SAME(receive(owner.b.qp, 21, piece(&b, 200, 8)), 0);
	sge = piece(&owner.a, 0, 8);
	wr = request(4, IBV_WR_SEND_WITH_INV, &sge, 1);
	wr.invalidate_rkey = key;
	SAME(post(owner.a.qp, &wr), 0);
	COMPLETES(owner.a.cq, 4, IBV_WC_SUCCESS);
	struct ibv_wc wc = next_wc(b.cq);
	SAME(wc.status, IBV_WC_SUCCESS);
	SAME(wc.wc_flags, IBV_WC_WITH_INV);
	SAME(wc.invalidated_rkey, key);
	SAME(reach(&owner, IBV_WR_RDMA_WRITE, 0, 8, key), IBV_WC_REM_ACCESS_ERR);

	SAME(ibv_dealloc_mw(mw), 0);
	SAME(ibv_destroy_qp(other.b.qp), 0);
	free_side(&other.a);
	free_pair(&owner);
}

/* In every order. */
static void destroying(void)
{
	for (int order = 0; order < 3; order++) {
		struct pair pair = make_pair(context, IBV_QPT_RC);
		struct ibv_mw *mws[4];
		uint32_t key = 0;
		for (int i = 0; i < 4; i++) {
			CHECK(mws[i] = ibv_alloc_mw(pair.b.pd, IBV_MW_TYPE_2));
			key = bind_to(&pair.b, mws[i], 0, 100);
		}
		double start = seconds();
		if (order == 0) /* with requests that use them */
			for (int i = 0; i < 32; i++)
				SAME(remote_piece(pair.a.qp, i, IBV_WR_RDMA_WRITE,
						  piece(&pair.a, 0, 100),
						  (uintptr_t)pair.b.memory, key),
				     0);
		if (order == 1)
			SAME(to_state(pair.b.qp, IBV_QPS_ERR), 0);
		if (order == 2)
			SAME(ibv_dereg_mr(pair.b.mr), EBUSY);
		SAME(ibv_destroy_qp(pair.b.qp), 0);
		CHECK(seconds() - start < PATIENCE / 2);
		pair.b.qp = NULL;
		for (int i = 0; i < 4; i++)
			SAME(ibv_dealloc_mw(mws[i]), 0);
		free_pair(&pair);
	}
}

int main(void)
{
	context = open_device();
	keys_and_ends();
	other_queue_pairs();
	destroying();
	return 0;
}
