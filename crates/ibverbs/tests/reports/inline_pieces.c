/* Inline data of several pieces is copied in order, when it is posted, whatever keys the pieces have. */

#include "check.h"

#define LENGTHS 5

static void fill(uint8_t *bytes, size_t length, size_t salt)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(i * 7 + salt);
}

/* Pieces of 13, 0, 1, 40 and 10 bytes: 64, the most that was asked for. */
static const size_t lengths[LENGTHS] = { 13, 0, 1, 40, 10 };

static void by_request(struct pair *pair, enum ibv_wr_opcode opcode, size_t count, size_t salt)
{
	uint8_t parts[LENGTHS][40], expected[64];
	struct ibv_sge pieces[LENGTHS];
	size_t total = 0;
	for (size_t i = 0; i < count; i++) {
		fill(parts[i], lengths[i], salt + i);
		memcpy(expected + total, parts[i], lengths[i]);
		total += lengths[i];
		/* A piece of nothing may be anywhere. */
		uintptr_t addr = lengths[i] ? (uintptr_t)parts[i] : 0;
		pieces[i] = (struct ibv_sge){ addr, (uint32_t)lengths[i], 0xdead };
	}
	memset(pair->b.memory, 0xee, 128);
	struct ibv_send_wr wr = request(1, opcode, pieces, (int)count);
	wr.send_flags = IBV_SEND_INLINE;
	wr.wr.rdma.remote_addr = (uintptr_t)pair->b.memory;
	wr.wr.rdma.rkey = pair->b.mr->rkey;
	if (opcode == IBV_WR_SEND)
		SAME(receive(pair->b.qp, 2, piece(&pair->b, 0, 128)), 0);
	SAME(post(pair->a.qp, &wr), 0);
	/* The program's own again. */
	memset(parts, 0x55, sizeof parts);
	memset(pieces, 0x55, sizeof pieces);
	COMPLETES(pair->a.cq, 1, IBV_WC_SUCCESS);
	if (opcode == IBV_WR_SEND) {
		struct ibv_wc wc = next_wc(pair->b.cq);
		SAME(wc.status, IBV_WC_SUCCESS);
		SAME(wc.byte_len, total);
	}
	CHECK(!memcmp(pair->b.memory, expected, total));
	for (size_t i = total; i < 128; i++)
		SAME(pair->b.memory[i], 0xee);
}

static void by_functions(struct ibv_context *context)
{
	struct side a = make_parts(context), b = make_side(context, IBV_QPT_RC);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = a.cq,
		.recv_cq = a.cq,
		.cap = { 16, 16, 4, 4, 64 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = a.pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};
	CHECK(a.qp = ibv_create_qp_ex(context, &init));
	join(a.qp, b.qp, USUAL);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a.qp);
	CHECK(qp);
	uint8_t parts[2][3][20], expected[2][60];
	ibv_wr_start(qp);
	for (int k = 0; k < 2; k++) {
		struct ibv_data_buf pieces[3];
		for (int i = 0; i < 3; i++) {
			fill(parts[k][i], 20, 31 * k + i);
			memcpy(expected[k] + 20 * i, parts[k][i], 20);
			pieces[i] = (struct ibv_data_buf){ parts[k][i], 20 };
		}
		qp->wr_id = k;
		qp->wr_flags = 0;
		ibv_wr_rdma_write(qp, b.mr->rkey, (uintptr_t)b.memory + 100 * k);
		ibv_wr_set_inline_data_list(qp, 3, pieces);
		memset(parts[k], 0x55, sizeof parts[k]);
	}
	SAME(ibv_wr_complete(qp), 0);
	COMPLETES(a.cq, 0, IBV_WC_SUCCESS);
	COMPLETES(a.cq, 1, IBV_WC_SUCCESS);
	CHECK(!memcmp(b.memory, expected[0], 60));
	CHECK(!memcmp(b.memory + 100, expected[1], 60));
	free_side(&a);
	free_side(&b);
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct side a = make_parts(context), b = make_side(context, IBV_QPT_RC);
	struct ibv_qp_init_attr init = making(&a, IBV_QPT_RC);
	init.cap.max_send_sge = LENGTHS;
	CHECK(a.qp = ibv_create_qp(a.pd, &init));
	struct pair pair = { a, b };
	join(pair.a.qp, pair.b.qp, USUAL);
	for (size_t count = 0; count <= LENGTHS; count++) {
		by_request(&pair, IBV_WR_SEND, count, 3 * count);
		by_request(&pair, IBV_WR_RDMA_WRITE, count, 5 * count);
	}
	free_pair(&pair);
	by_functions(context);
	return 0;
}
