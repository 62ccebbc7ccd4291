// Two queue pairs of one process that are connected to each other: what every program here begins
// with. A program is built twice, with its mistake and with CLEAN in its place.
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef CLEAN
enum { sinful = 0 };
#else
enum { sinful = 1 };
#endif

enum { SIZE = 4096 };

static void expect(int is_true, const char *what)
{
	if (!is_true) {
		fprintf(stderr, "%s\n", what);
		exit(3);
	}
}

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *memory;
};

struct pair {
	struct ibv_device **list;
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd;
	union ibv_gid gid;
	struct end a, b;
	// Before pair_open; 0 stands for what is usual.
	enum ibv_qp_type type;
	int cqe, sends, rights, qp_rights, rnr_retry, has_channel;
};

enum {
	ALL_RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC,
};

static void end_open(struct pair *pair, struct end *end)
{
	struct ibv_qp_init_attr init = {
		.qp_type = pair->type,
		.cap = { .max_send_wr = pair->sends, .max_recv_wr = 16, .max_send_sge = 2,
			 .max_recv_sge = 2 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7,
				    .qp_access_flags = pair->qp_rights };
	end->cq = ibv_create_cq(pair->context, pair->cqe, NULL, pair->channel, 0);
	expect(end->cq != NULL, "ibv_create_cq");
	init.send_cq = init.recv_cq = end->cq;
	end->qp = ibv_create_qp(pair->pd, &init);
	expect(end->qp != NULL, "ibv_create_qp");
	end->memory = aligned_alloc(4096, SIZE);
	memset(end->memory, 0, SIZE);
	end->mr = ibv_reg_mr(pair->pd, end->memory, SIZE, pair->rights);
	expect(end->mr != NULL, "ibv_reg_mr");
	expect(!ibv_modify_qp(end->qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				      (pair->type == IBV_QPT_UD ? IBV_QP_QKEY :
								  IBV_QP_ACCESS_FLAGS)),
	       "INIT");
}

static void end_connect(struct pair *pair, struct end *end, struct end *peer)
{
	int is_ud = pair->type == IBV_QPT_UD, is_rc = pair->type == IBV_QPT_RC;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = pair->gid, .hop_limit = 1 } },
	};
	expect(!ibv_modify_qp(end->qp, &attr,
			      is_ud ? IBV_QP_STATE :
				      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					      IBV_QP_RQ_PSN |
					      (is_rc ? IBV_QP_MAX_DEST_RD_ATOMIC |
							       IBV_QP_MIN_RNR_TIMER :
						       0)),
	       "RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7,
				     .rnr_retry = pair->rnr_retry, .max_rd_atomic = 4 };
	expect(!ibv_modify_qp(end->qp, &attr,
			      IBV_QP_STATE | IBV_QP_SQ_PSN |
				      (is_rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC :
					       0)),
	       "RTS");
}

static void pair_open(struct pair *pair)
{
	int count = 0;
	pair->list = ibv_get_device_list(&count);
	for (int i = 0; i < count; i++)
		if (!strcmp(ibv_get_device_name(pair->list[i]), "hirail_lo"))
			pair->context = ibv_open_device(pair->list[i]);
	expect(pair->context != NULL, "hirail_lo");
	ibv_free_device_list(pair->list);
	expect(!ibv_query_gid(pair->context, 1, 0, &pair->gid), "ibv_query_gid");
	if (!pair->type)
		pair->type = IBV_QPT_RC;
	if (!pair->cqe)
		pair->cqe = 64;
	if (!pair->sends)
		pair->sends = 16;
	if (!pair->rights)
		pair->rights = ALL_RIGHTS;
	if (!pair->qp_rights)
		pair->qp_rights = ALL_RIGHTS;
	if (pair->has_channel)
		pair->channel = ibv_create_comp_channel(pair->context);
	pair->pd = ibv_alloc_pd(pair->context);
	expect(pair->pd != NULL, "ibv_alloc_pd");
	end_open(pair, &pair->a);
	end_open(pair, &pair->b);
	end_connect(pair, &pair->a, &pair->b);
	end_connect(pair, &pair->b, &pair->a);
}

static void end_close(struct end *end)
{
	expect(!ibv_destroy_qp(end->qp), "ibv_destroy_qp");
	expect(!end->mr || !ibv_dereg_mr(end->mr), "ibv_dereg_mr");
	expect(!ibv_destroy_cq(end->cq), "ibv_destroy_cq");
	free(end->memory);
}

static void pair_close(struct pair *pair)
{
	end_close(&pair->a);
	end_close(&pair->b);
	expect(!pair->channel || !ibv_destroy_comp_channel(pair->channel), "channel");
	expect(!ibv_dealloc_pd(pair->pd), "ibv_dealloc_pd");
	expect(!ibv_close_device(pair->context), "ibv_close_device");
}

// Posts a receive of `length` bytes at the beginning of the memory.
static int receive(struct end *end, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)end->memory, length, end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1 }, *bad;
	return ibv_post_recv(end->qp, &wr, &bad);
}

struct request {
	enum ibv_wr_opcode opcode;
	uint32_t length, lkey, rkey;
	uint64_t addr, remote;
	int unsignaled;
	struct ibv_ah *ah;
	uint32_t qpn;
};

// Posts a request from the beginning of the memory, unless it says otherwise.
static int post(struct end *end, struct request request)
{
	struct ibv_sge sge = { request.addr ? request.addr : (uintptr_t)end->memory, request.length,
			       request.lkey ? request.lkey : end->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 9, .sg_list = &sge, .num_sge = 1,
				  .opcode = request.opcode,
				  .send_flags = request.unsignaled ? 0 : IBV_SEND_SIGNALED },
			   *bad;
	if (request.ah) {
		wr.wr.ud.ah = request.ah;
		wr.wr.ud.remote_qpn = request.qpn;
		wr.wr.ud.remote_qkey = 7;
	} else {
		wr.wr.rdma.remote_addr = request.remote;
		wr.wr.rdma.rkey = request.rkey;
	}
	return ibv_post_send(end->qp, &wr, &bad);
}

// Waits for a completion; its status.
static enum ibv_wc_status completion(struct end *end)
{
	struct ibv_wc wc;
	int count;
	while ((count = ibv_poll_cq(end->cq, 1, &wc)) == 0)
		;
	expect(count == 1, "ibv_poll_cq");
	return wc.status;
}
