/* What the programs of this folder share: a device, queue pairs that are connected with each other in
 * one process, and checks that say where they failed. */

#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                       \
	do {                                                                              \
		errno = 0;                                                                \
		if (!(what)) {                                                            \
			fprintf(stderr, "%s:%d: %s does not hold (errno %d)\n", __FILE__, \
				__LINE__, #what, errno);                                  \
			exit(1);                                                          \
		}                                                                         \
	} while (0)

/* The number is this one; both are shown if not. */
#define SAME(got, expected)                                                                \
	do {                                                                               \
		long long got_ = (long long)(got), expected_ = (long long)(expected);      \
		if (got_ != expected_) {                                                   \
			fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, \
				#got, got_, expected_);                                    \
			exit(1);                                                           \
		}                                                                          \
	} while (0)

#define ALL_RIGHTS                                                                    \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)

#define QKEY 0x1234
#define ROOM (1 << 16)
#define GRH 40

/* Long enough for a busy machine. */
#define PATIENCE 60

static inline double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline struct ibv_context *open_named(const char *name)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context = NULL;
	for (int i = 0; i < count && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	if (!context)
		fprintf(stderr, "no device %s\n", name);
	CHECK(context);
	return context;
}

/* The loopback device, unless the environment names another. */
static inline struct ibv_context *open_device(void)
{
	const char *name = getenv("CHECK_DEVICE");
	return open_named(name ? name : "hirail_lo");
}

/* Which entry of the GID table: 0 unless the environment says otherwise. */
static inline uint8_t gid_index(void)
{
	const char *index = getenv("CHECK_GID");
	return index ? (uint8_t)atoi(index) : 0;
}

/* One end: a queue pair with all that it needs. */
struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
};

/* Everything of a side but the queue pair. */
static inline struct side make_parts(struct ibv_context *context)
{
	struct side side = { .context = context };
	CHECK(side.pd = ibv_alloc_pd(context));
	CHECK(side.cq = ibv_create_cq(context, 1024, NULL, NULL, 0));
	CHECK(side.memory = aligned_alloc(4096, ROOM));
	memset(side.memory, 0, ROOM);
	CHECK(side.mr = ibv_reg_mr(side.pd, side.memory, ROOM, ALL_RIGHTS));
	return side;
}

static inline struct ibv_qp_init_attr making(const struct side *side, enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
		.send_cq = side->cq,
		.recv_cq = side->cq,
		.srq = side->srq,
		.cap = { .max_send_wr = 64,
			 .max_recv_wr = side->srq ? 0 : 64,
			 .max_send_sge = 4,
			 .max_recv_sge = side->srq ? 0 : 4,
			 .max_inline_data = 64 },
		.qp_type = type,
		.sq_sig_all = 1,
	};
}

static inline struct side make_side(struct ibv_context *context, enum ibv_qp_type type)
{
	struct side side = make_parts(context);
	struct ibv_qp_init_attr init = making(&side, type);
	CHECK(side.qp = ibv_create_qp(side.pd, &init));
	return side;
}

static inline int to_init(struct ibv_qp *qp)
{
	int is_ud = qp->qp_type == IBV_QPT_UD;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = QKEY,
		.qp_access_flags = ALL_RIGHTS & ~IBV_ACCESS_MW_BIND,
	};
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				     (is_ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

static inline struct ibv_ah_attr way(struct ibv_context *context)
{
	struct ibv_ah_attr way = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .hop_limit = 64, .sgid_index = gid_index() },
	};
	CHECK(!ibv_query_gid(context, 1, gid_index(), &way.grh.dgid));
	return way;
}

/* Where sequence numbers begin: a queue pair that is connected again begins elsewhere, so that no old
 * packet is taken for a new one. */
static uint32_t first_psn = 100;

/* What is not always the same about a connection. */
struct agreement {
	enum ibv_mtu mtu;
	uint8_t depth, timeout, retries, rnr_retries;
};

#define USUAL ((struct agreement){ IBV_MTU_1024, 16, 14, 7, 7 })

static inline int to_rtr(struct ibv_qp *qp, uint32_t peer, struct agreement agreed)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = agreed.mtu,
		.dest_qp_num = peer,
		.rq_psn = first_psn,
		.max_dest_rd_atomic = agreed.depth,
		.min_rnr_timer = 12,
	};
	int mask = IBV_QP_STATE;
	if (qp->qp_type != IBV_QPT_UD) {
		attr.ah_attr = way(qp->context);
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	}
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(qp, &attr, mask);
}

static inline int to_rts(struct ibv_qp *qp, struct agreement agreed)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = first_psn,
		.timeout = agreed.timeout,
		.retry_cnt = agreed.retries,
		.rnr_retry = agreed.rnr_retries,
		.max_rd_atomic = agreed.depth,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(qp, &attr, mask);
}

static inline int to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static inline void bring_up(struct ibv_qp *qp, uint32_t peer, struct agreement agreed)
{
	SAME(to_init(qp), 0);
	SAME(to_rtr(qp, peer, agreed), 0);
	SAME(to_rts(qp, agreed), 0);
}

static inline void join(struct ibv_qp *a, struct ibv_qp *b, struct agreement agreed)
{
	bring_up(a, b->qp_num, agreed);
	bring_up(b, a->qp_num, agreed);
}

struct pair {
	struct side a, b;
};

/* Two queue pairs that are connected. */
static inline struct pair make_pair(struct ibv_context *context, enum ibv_qp_type type)
{
	struct pair pair = { make_side(context, type), make_side(context, type) };
	join(pair.a.qp, pair.b.qp, USUAL);
	return pair;
}

/* Both have failed or are new: they are connected again. */
static inline void rejoin(struct pair *pair)
{
	SAME(to_state(pair->a.qp, IBV_QPS_RESET), 0);
	SAME(to_state(pair->b.qp, IBV_QPS_RESET), 0);
	first_psn = (first_psn + 1000003) & 0xffffff;
	join(pair->a.qp, pair->b.qp, USUAL);
}

static inline void free_side(struct side *side)
{
	if (side->qp)
		SAME(ibv_destroy_qp(side->qp), 0);
	if (side->srq)
		SAME(ibv_destroy_srq(side->srq), 0);
	SAME(ibv_dereg_mr(side->mr), 0);
	SAME(ibv_destroy_cq(side->cq), 0);
	SAME(ibv_dealloc_pd(side->pd), 0);
	free(side->memory);
}

static inline void free_pair(struct pair *pair)
{
	free_side(&pair->a);
	free_side(&pair->b);
}

/* The next completion, whatever it says. */
static inline struct ibv_wc next_wc(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	double end = seconds() + PATIENCE;
	int count;
	while (!(count = ibv_poll_cq(cq, 1, &wc)))
		if (seconds() > end) {
			fprintf(stderr, "no completion comes\n");
			abort();
		}
	SAME(count, 1);
	return wc;
}

/* The next completion, which is of this request with this result. */
#define COMPLETES(cq, id, result)                                                            \
	do {                                                                                 \
		struct ibv_wc wc_ = next_wc(cq);                                             \
		if (wc_.wr_id != (uint64_t)(id) || wc_.status != (result)) {                 \
			fprintf(stderr, "%s:%d: request %llu completes: %s; not %llu: %s\n", \
				__FILE__, __LINE__, (unsigned long long)wc_.wr_id,           \
				ibv_wc_status_str(wc_.status), (unsigned long long)(id),     \
				ibv_wc_status_str(result));                                  \
			exit(1);                                                             \
		}                                                                            \
	} while (0)

static inline struct ibv_sge piece(const struct side *side, uint32_t at, uint32_t length)
{
	return (struct ibv_sge){ (uintptr_t)side->memory + at, length, side->mr->lkey };
}

static inline struct ibv_send_wr request(uint64_t id, enum ibv_wr_opcode opcode,
					 struct ibv_sge *pieces, int count)
{
	return (struct ibv_send_wr){
		.wr_id = id,
		.opcode = opcode,
		.sg_list = pieces,
		.num_sge = count,
	};
}

static inline int post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	return ibv_post_send(qp, wr, &bad);
}

/* One request of one piece without anything remote. */
static inline int send_piece(struct ibv_qp *qp, uint64_t id, struct ibv_sge piece)
{
	struct ibv_send_wr wr = request(id, IBV_WR_SEND, &piece, 1);
	return post(qp, &wr);
}

/* One request of one piece that reads, writes or changes the peer's memory. */
static inline int remote_piece(struct ibv_qp *qp, uint64_t id, enum ibv_wr_opcode opcode,
			       struct ibv_sge piece, uint64_t addr, uint32_t rkey)
{
	struct ibv_send_wr wr = request(id, opcode, &piece, 1);
	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
		wr.wr.atomic.swap = 2;
	}
	return post(qp, &wr);
}

static inline int receive(struct ibv_qp *qp, uint64_t id, struct ibv_sge piece)
{
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &piece, .num_sge = 1 }, *bad;
	return ibv_post_recv(qp, &wr, &bad);
}

static inline int receive_shared(struct ibv_srq *srq, uint64_t id, struct ibv_sge piece)
{
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &piece, .num_sge = 1 }, *bad;
	return ibv_post_srq_recv(srq, &wr, &bad);
}

static inline enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	memset(&attr, 0xee, sizeof attr);
	SAME(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

/* Waits until a queue pair is in a state. */
static inline void await_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	double end = seconds() + PATIENCE;
	while (state_of(qp) != state)
		CHECK(seconds() < end);
}

#endif
