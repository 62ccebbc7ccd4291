/* Whatever a program passes in, it gets an error number, or its request does what it says; it does not
 * crash, and the device goes on. */

#include "check.h"

#include <limits.h>
#include <stddef.h>

static struct ibv_context *context;

/* The call fails, with a number that says so. */
#define FAILS(call)                                                                     \
	do {                                                                            \
		int status_ = (call);                                                   \
		if (status_ != EINVAL && status_ != ENOMEM && status_ != EOPNOTSUPP &&  \
		    status_ != EFAULT && status_ != EBUSY) {                            \
			fprintf(stderr, "%s:%d: %s answers %d\n", __FILE__, __LINE__,   \
				#call, status_);                                        \
			exit(1);                                                        \
		}                                                                       \
	} while (0)

/* The call makes nothing, and errno says why. */
#define MAKES_NOTHING(call)             \
	do {                            \
		errno = 0;              \
		int is_none_ = !(call); \
		int errno_ = errno;     \
		CHECK(is_none_);        \
		FAILS(errno_);          \
	} while (0)

static void posting(void)
{
	struct pair pair = make_pair(context, IBV_QPT_RC);
	struct ibv_sge sge = piece(&pair.a, 0, 8);
	struct ibv_send_wr wr, *bad;
	struct ibv_recv_wr recv, *bad_recv;
	const struct ibv_send_wr good = request(1, IBV_WR_RDMA_WRITE, &sge, 1);
	static const int counts[] = { -1, 5, 31, 32, 33, 1000, INT_MAX, INT_MIN };
	static const int flags[] = { 0, IBV_SEND_INLINE };

	/* No list at all. */
	SAME(ibv_post_send(pair.a.qp, NULL, &bad), 0);
	SAME(ibv_post_recv(pair.a.qp, NULL, &bad_recv), 0);
	/* No pieces need no list of them, some do. */
	for (int i = 0; i < 2; i++) {
		wr = good;
		wr.sg_list = NULL;
		wr.send_flags = flags[i];
		FAILS(ibv_post_send(pair.a.qp, &wr, &bad));
		wr.num_sge = 0;
		wr.wr.rdma.remote_addr = (uintptr_t)pair.b.memory;
		wr.wr.rdma.rkey = pair.b.mr->rkey;
		SAME(ibv_post_send(pair.a.qp, &wr, &bad), 0);
		COMPLETES(pair.a.cq, 1, IBV_WC_SUCCESS);
	}
	recv = (struct ibv_recv_wr){ .num_sge = 1 };
	FAILS(ibv_post_recv(pair.a.qp, &recv, &bad_recv));
	recv.num_sge = 0;
	SAME(ibv_post_recv(pair.a.qp, &recv, &bad_recv), 0);
	/* Numbers of pieces. */
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		for (int j = 0; j < 2; j++) {
			wr = good;
			wr.num_sge = counts[i];
			wr.send_flags = flags[j];
			FAILS(ibv_post_send(pair.a.qp, &wr, &bad));
			CHECK(bad == &wr);
		}
		recv = (struct ibv_recv_wr){ .sg_list = &sge, .num_sge = counts[i] };
		FAILS(ibv_post_recv(pair.a.qp, &recv, &bad_recv));
		CHECK(bad_recv == &recv);
	}
	/* Inline: too much, far too much, and from nowhere. */
	static const uint32_t lengths[] = { 65, 1025, 1 << 20, UINT_MAX };
	for (int i = 0; i < 4; i++) {
		struct ibv_sge list[2] = { sge, piece(&pair.a, 0, lengths[i]) };
		wr = request(1, IBV_WR_SEND, list, 2);
		wr.send_flags = IBV_SEND_INLINE;
		FAILS(ibv_post_send(pair.a.qp, &wr, &bad));
	}
	static const uint64_t nowhere[] = { 0, 1, UINT64_MAX - 3, UINT64_MAX / 2 };
	for (int i = 0; i < 4; i++) {
		struct ibv_sge list = { nowhere[i], 8, 0 };
		wr = request(1, IBV_WR_SEND, &list, 1);
		wr.send_flags = IBV_SEND_INLINE;
		FAILS(ibv_post_send(pair.a.qp, &wr, &bad));
	}
	/* Nobody wants to know which one it was. */
	wr = good;
	wr.opcode = (enum ibv_wr_opcode)99;
	FAILS(ibv_post_send(pair.a.qp, &wr, NULL));
	recv.num_sge = -1;
	FAILS(ibv_post_recv(pair.a.qp, &recv, NULL));
	/* Windows that are none. */
	wr = request(1, IBV_WR_BIND_MW, NULL, 0);
	FAILS(ibv_post_send(pair.a.qp, &wr, &bad));
	SAME(state_of(pair.a.qp), IBV_QPS_RTS);
	free_pair(&pair);
}

/* Lists of a hundred thousand requests, and one that never ends. */
static void long_lists(void)
{
	enum { MANY = 100000 };
	struct pair pair = make_pair(context, IBV_QPT_RC);
	struct ibv_send_wr *wrs = calloc(MANY, sizeof *wrs), *bad;
	struct ibv_recv_wr *recvs = calloc(MANY, sizeof *recvs), *bad_recv;
	CHECK(wrs && recvs);
	for (int circle = 0; circle < 2; circle++) {
		for (int i = 0; i < MANY; i++) {
			wrs[i] = request(i, IBV_WR_RDMA_WRITE, NULL, 0);
			wrs[i].wr.rdma.remote_addr = (uintptr_t)pair.b.memory;
			wrs[i].wr.rdma.rkey = pair.b.mr->rkey;
			wrs[i].next = i < MANY - 1 ? &wrs[i + 1] : circle ? wrs : NULL;
			recvs[i].next = i < MANY - 1 ? &recvs[i + 1] : circle ? recvs : NULL;
		}
		struct ibv_send_wr *from = circle ? &wrs[MANY - 10] : wrs;
		SAME(ibv_post_send(pair.a.qp, from, &bad), ENOMEM);
		SAME((bad - from + MANY) % MANY, 64);
		for (int i = 0; i < 64; i++)
			COMPLETES(pair.a.cq, (from - wrs + i) % MANY, IBV_WC_SUCCESS);
		if (!circle)
			SAME(ibv_post_recv(pair.a.qp, recvs, &bad_recv), ENOMEM);
		if (!circle)
			SAME(bad_recv - recvs, 64);
	}
	/* In batches: all of them, one after the other. */
	for (int i = 0; i < MANY; i++)
		wrs[i].next = i % 64 == 63 || i == MANY - 1 ? NULL : &wrs[i + 1];
	for (int i = 0; i < MANY; i += 64) {
		SAME(ibv_post_send(pair.a.qp, &wrs[i], &bad), 0);
		for (int j = i; j < i + 64 && j < MANY; j++)
			COMPLETES(pair.a.cq, j, IBV_WC_SUCCESS);
	}
	free(wrs);
	free(recvs);
	free_pair(&pair);
}

/* Operations that there are not, or not on this transport. */
static void opcodes(void)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	for (int type = 0; type < 3; type++) {
		struct side side = make_side(context, types[type]);
		bring_up(side.qp, side.qp->qp_num, USUAL);
		struct ibv_sge sge = piece(&side, 0, 8);
		struct ibv_send_wr *bad;
		for (int code = -3; code < 300; code++) {
			int is_there = (code >= 0 && code <= 9) || code == 14 || code == 15;
			if (is_there && types[type] == IBV_QPT_RC)
				continue;
			if (is_there && types[type] == IBV_QPT_UC && code != 4 && code != 5 &&
			    code != 6 && code != 15)
				continue;
			struct ibv_send_wr wr = request(1, (enum ibv_wr_opcode)code, &sge, 1);
			FAILS(ibv_post_send(side.qp, &wr, &bad));
			CHECK(bad == &wr);
		}
		SAME(state_of(side.qp), IBV_QPS_RTS);
		free_side(&side);
	}
}

static void making_objects(void)
{
	struct side side = make_side(context, IBV_QPT_RC);
	static const int sizes[] = { 0, -1, INT_MAX, INT_MIN };
	for (int i = 0; i < 4; i++) {
		MAKES_NOTHING(ibv_create_cq(context, sizes[i], NULL, NULL, 0));
		FAILS(ibv_resize_cq(side.cq, sizes[i]));
	}
	MAKES_NOTHING(ibv_create_cq(context, 10, NULL, NULL, -1));
	MAKES_NOTHING(ibv_create_cq(context, 10, NULL, NULL, 1 << 20));
	static const size_t fields[] = {
		offsetof(struct ibv_qp_cap, max_send_wr),
		offsetof(struct ibv_qp_cap, max_recv_wr),
		offsetof(struct ibv_qp_cap, max_send_sge),
		offsetof(struct ibv_qp_cap, max_recv_sge),
		offsetof(struct ibv_qp_cap, max_inline_data),
	};
	static const uint32_t values[] = { UINT_MAX, INT_MAX, 1u << 31, 1 << 20 };
	for (int i = 0; i < 5; i++)
		for (int j = 0; j < 4; j++) {
			struct ibv_qp_init_attr init = making(&side, IBV_QPT_RC);
			memcpy((char *)&init.cap + fields[i], &values[j], 4);
			MAKES_NOTHING(ibv_create_qp(side.pd, &init));
		}
	for (int j = 0; j < 4; j++) {
		struct ibv_srq_init_attr srq = { .attr = { .max_wr = values[j], .max_sge = 1 } };
		MAKES_NOTHING(ibv_create_srq(side.pd, &srq));
		srq.attr = (struct ibv_srq_attr){ .max_wr = 1, .max_sge = values[j] };
		MAKES_NOTHING(ibv_create_srq(side.pd, &srq));
	}
	MAKES_NOTHING(ibv_reg_mr(side.pd, side.memory, SIZE_MAX, 0));
	MAKES_NOTHING(ibv_reg_mr(side.pd, side.memory, ROOM, 1 << 19));
	MAKES_NOTHING(ibv_reg_mr(side.pd, side.memory, ROOM, IBV_ACCESS_REMOTE_WRITE));
	MAKES_NOTHING(ibv_alloc_mw(side.pd, (enum ibv_mw_type)0));
	MAKES_NOTHING(ibv_alloc_mw(side.pd, (enum ibv_mw_type)99));
	for (int i = 0; i < 4; i++) {
		struct ibv_ah_attr to = way(context);
		switch (i) {
		case 0:
			to.is_global = 0;
			break;
		case 1:
			to.port_num = 7;
			break;
		case 2:
			to.grh.sgid_index = 255;
			break;
		case 3:
			to.sl = 200;
			break;
		}
		MAKES_NOTHING(ibv_create_ah(side.pd, &to));
	}
	/* What others use stays. */
	SAME(ibv_destroy_cq(side.cq), EBUSY);
	SAME(ibv_dealloc_pd(side.pd), EBUSY);
	free_side(&side);
}

static void asking(void)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	__be16 pkey;
	static const int wrong[] = { -1, 2, 255, 1000000, INT_MAX };
	for (int i = 0; i < 5; i++) {
		FAILS(ibv_query_port(context, (uint8_t)wrong[i], &port));
		CHECK(ibv_query_gid(context, 1, wrong[i] + 300 * (i == 1), &gid));
		CHECK(ibv_query_pkey(context, 1, wrong[i], &pkey));
		CHECK(ibv_wc_status_str((enum ibv_wc_status)wrong[i]));
		CHECK(ibv_event_type_str((enum ibv_event_type)wrong[i]));
		CHECK(ibv_port_state_str((enum ibv_port_state)wrong[i]));
		CHECK(ibv_node_type_str((enum ibv_node_type)wrong[i]));
		CHECK(ibv_rate_to_mbps((enum ibv_rate)wrong[i]) <= INT_MAX);
		CHECK(ibv_rate_to_mult((enum ibv_rate)wrong[i]) <= INT_MAX);
		CHECK(mbps_to_ibv_rate(wrong[i]) >= 0);
		CHECK(mult_to_ibv_rate(wrong[i]) >= 0);
	}
}

static void modifying(void)
{
	struct side side = make_side(context, IBV_QPT_RC);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	FAILS(ibv_modify_qp(side.qp, &attr, -1));
	FAILS(ibv_modify_qp(side.qp, &attr, init | 1 << 30));
	FAILS(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE));
	attr.port_num = 0;
	FAILS(ibv_modify_qp(side.qp, &attr, init));
	attr.port_num = 77;
	FAILS(ibv_modify_qp(side.qp, &attr, init));
	attr.port_num = 1;
	attr.pkey_index = 9999;
	FAILS(ibv_modify_qp(side.qp, &attr, init));
	attr.pkey_index = 0;
	attr.qp_access_flags = ~0u;
	FAILS(ibv_modify_qp(side.qp, &attr, init));
	SAME(state_of(side.qp), IBV_QPS_RESET);
	SAME(to_init(side.qp), 0);
	struct agreement agreed = USUAL;
	agreed.mtu = (enum ibv_mtu)99;
	FAILS(to_rtr(side.qp, 5, agreed));
	agreed = USUAL;
	agreed.depth = 255;
	FAILS(to_rtr(side.qp, 5, agreed));
	SAME(to_rtr(side.qp, 5, USUAL), 0);
	static const struct agreement wrong[] = {
		{ IBV_MTU_1024, 16, 32, 7, 7 },
		{ IBV_MTU_1024, 16, 14, 8, 7 },
		{ IBV_MTU_1024, 16, 14, 7, 8 },
		{ IBV_MTU_1024, 255, 14, 7, 7 },
	};
	for (int i = 0; i < 4; i++)
		FAILS(to_rts(side.qp, wrong[i]));
	SAME(state_of(side.qp), IBV_QPS_RTR);
	free_side(&side);

	side = make_parts(context);
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 10, .max_sge = 1 } };
	CHECK(side.srq = ibv_create_srq(side.pd, &srq));
	struct ibv_srq_attr srq_attr = { .max_wr = UINT_MAX, .srq_limit = UINT_MAX };
	FAILS(ibv_modify_srq(side.srq, &srq_attr, IBV_SRQ_LIMIT));
	FAILS(ibv_modify_srq(side.srq, &srq_attr, IBV_SRQ_MAX_WR));
	FAILS(ibv_modify_srq(side.srq, &srq_attr, 1 << 20));
	free_side(&side);
}

static void polling(void)
{
	struct side side = make_side(context, IBV_QPT_RC);
	SAME(ibv_poll_cq(side.cq, 0, NULL), 0);
	CHECK(ibv_poll_cq(side.cq, -1, NULL) <= 0);
	SAME(ibv_poll_cq(side.cq, INT_MAX, NULL), 0);
	free_side(&side);
}

/* Requests that are built wrongly are refused when they are complete, and do not spoil the next. */
static void building(void)
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
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_BIND_MW,
	};
	CHECK(a.qp = ibv_create_qp_ex(context, &init));
	join(a.qp, b.qp, USUAL);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a.qp);
	CHECK(qp);
	struct ibv_sge *many = calloc(5000, sizeof *many);
	CHECK(many);
	uint64_t base = (uintptr_t)b.memory;
	for (int kind = 0; kind < 9; kind++) {
		ibv_wr_start(qp);
		qp->wr_id = 1;
		qp->wr_flags = 0;
		if (kind > 0)
			ibv_wr_rdma_write(qp, b.mr->rkey, base);
		switch (kind) {
		case 0: /* nothing was begun */
			ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.memory, 8);
			break;
		case 1:
			ibv_wr_set_sge_list(qp, 5000, many);
			break;
		case 2:
			ibv_wr_set_sge_list(qp, SIZE_MAX, many);
			break;
		case 3:
			ibv_wr_set_inline_data(qp, a.memory, 65);
			break;
		case 4:
			ibv_wr_set_inline_data(qp, a.memory, SIZE_MAX);
			break;
		case 5:
			ibv_wr_set_inline_data(qp, NULL, 8);
			break;
		case 6: /* not asked for when it was made */
			ibv_wr_send(qp);
			break;
		case 7:
			ibv_wr_set_sge_list(qp, 3, NULL);
			break;
		case 8:
			ibv_wr_bind_mw(qp, NULL, 1, &(struct ibv_mw_bind_info){ 0 });
			break;
		}
		FAILS(ibv_wr_complete(qp));
		ibv_wr_start(qp);
		ibv_wr_rdma_write(qp, b.mr->rkey, base);
		ibv_wr_set_inline_data(qp, a.memory, 8);
		SAME(ibv_wr_complete(qp), 0);
		COMPLETES(a.cq, 1, IBV_WC_SUCCESS);
	}
	free(many);
	free_side(&a);
	free_side(&b);
}

/* Requests of anything at all. */
static void anything(void)
{
	unsigned seed = 7;
	struct pair pair = make_pair(context, IBV_QPT_RC);
	for (int i = 0; i < 20000; i++) {
		struct ibv_sge list[8];
		for (int j = 0; j < 8; j++) {
			list[j] = piece(&pair.a, 0, rand_r(&seed) % 100);
			if (rand_r(&seed) % 8 == 0)
				list[j].addr += (uint64_t)rand_r(&seed) << rand_r(&seed) % 40;
			if (rand_r(&seed) % 8 == 0)
				list[j].lkey = (uint32_t)rand_r(&seed);
			if (rand_r(&seed) % 8 == 0)
				list[j].length = (uint32_t)rand_r(&seed) * 3;
		}
		struct ibv_send_wr wr = request(i, (enum ibv_wr_opcode)(rand_r(&seed) % 18), list,
						rand_r(&seed) % 10 - 1);
		/* A window is a pointer, which the program answers for. */
		if (wr.opcode == IBV_WR_BIND_MW)
			continue;
		wr.send_flags = (unsigned)rand_r(&seed) % 32;
		wr.imm_data = (uint32_t)rand_r(&seed);
		wr.wr.atomic.remote_addr = (uintptr_t)pair.b.memory + rand_r(&seed) % 4 * 7;
		wr.wr.atomic.rkey = rand_r(&seed) % 4 ? pair.b.mr->rkey : (uint32_t)rand_r(&seed);
		if (wr.opcode <= IBV_WR_RDMA_READ)
			wr.wr.rdma.rkey = wr.wr.atomic.rkey;
		int status = post(pair.a.qp, &wr);
		if (rand_r(&seed) % 4 == 0)
			receive(pair.b.qp, i, list[7]);
		struct ibv_wc wcs[16];
		int has_failed = 0, count;
		if (status == ENOMEM)
			usleep(100);
		for (int side = 0; side < 2; side++) {
			struct ibv_cq *cq = side ? pair.b.cq : pair.a.cq;
			while ((count = ibv_poll_cq(cq, 16, wcs)) > 0)
				while (count--)
					has_failed |= wcs[count].status != IBV_WC_SUCCESS;
		}
		if (has_failed || i % 256 == 255)
			rejoin(&pair);
	}
	free_pair(&pair);
	/* The device is as good as new. */
	pair = make_pair(context, IBV_QPT_RC);
	SAME(receive(pair.b.qp, 1, piece(&pair.b, 0, 8)), 0);
	SAME(send_piece(pair.a.qp, 2, piece(&pair.a, 0, 8)), 0);
	COMPLETES(pair.b.cq, 1, IBV_WC_SUCCESS);
	COMPLETES(pair.a.cq, 2, IBV_WC_SUCCESS);
	free_pair(&pair);
}

int main(void)
{
	context = open_device();
	posting();
	long_lists();
	opcodes();
	making_objects();
	asking();
	modifying();
	polling();
	building();
	anything();
	return 0;
}
