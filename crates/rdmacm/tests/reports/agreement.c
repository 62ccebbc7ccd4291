/* Whoever asks for more READs and atomics than the other end can serve gets fewer, and a connection;
 * as many as were agreed are under way, and more are posted. When one end disconnects, what is posted
 * for receiving is flushed at both, at once and without being asked for. */

#include "ends.h"

#define READS 60
#define RECEIVES 8

static uint8_t memory[ROOM];

/* Where an end's memory is, which it tells the other one. */
struct place {
	uint64_t addr;
	uint32_t rkey;
};

static struct ibv_mr *expose(struct rdma_cm_id *id, struct place *place)
{
	struct ibv_mr *mr = ibv_reg_mr(id->pd, memory, ROOM, ALL_RIGHTS);
	CHECK(mr);
	*place = (struct place){ (uintptr_t)memory, mr->rkey };
	return mr;
}

static void post_receives(struct rdma_cm_id *id, struct ibv_mr *mr)
{
	for (uintptr_t i = 0; i < RECEIVES; i++)
		SAME(rdma_post_recv(id, (void *)i, memory, 8, mr), 0);
}

static void read_often(struct rdma_cm_id *id, struct ibv_mr *mr, struct place from)
{
	struct ibv_wc wc;
	for (uintptr_t i = 0; i < READS; i++)
		SAME(rdma_post_read(id, (void *)i, memory + ROOM / 2, 3000, mr, 0, from.addr,
				    from.rkey),
		     0);
	for (uintptr_t i = 0; i < READS; i++) {
		SAME(rdma_get_send_comp(id, &wc), 1);
		SAME(wc.status, IBV_WC_SUCCESS);
		SAME(wc.wr_id, i);
	}
}

/* One end says that it has read everything; when the other one has heard it and has read everything
 * itself, it disconnects. */
static void end(struct rdma_cm_id *id, int disconnects)
{
	struct ibv_wc wc;
	char nothing;
	if (disconnects) {
		SAME(rdma_get_recv_comp(id, &wc), 1);
		SAME(wc.status, IBV_WC_SUCCESS);
		SAME(rdma_disconnect(id), 0);
	} else {
		SAME(rdma_post_send(id, NULL, &nothing, 0, NULL, IBV_SEND_INLINE), 0);
		CHECK(rdma_get_send_comp(id, &wc) == 1);
	}
	double start = seconds();
	for (uintptr_t i = disconnects; i < RECEIVES; i++) {
		SAME(rdma_get_recv_comp(id, &wc), 1);
		SAME(wc.status, IBV_WC_WR_FLUSH_ERR);
		SAME(wc.wr_id, i);
	}
	CHECK(seconds() - start < PATIENCE / 2);
	SAME(state_of(id->qp), IBV_QPS_ERR);
	if (!disconnects)
		CHECK(!rdma_disconnect(id) || errno == EINVAL || errno == ENOTCONN);
}

/* What is asked for by the connecting and by the accepting end. */
static const struct {
	uint8_t connecting, accepting;
	int server_ends;
} rounds[] = { { 128, 128, 0 }, { 128, 4, 1 }, { 2, 128, 0 }, { 255, 255, 1 }, { 16, 16, 0 } };
#define ROUNDS (int)(sizeof rounds / sizeof *rounds)

static void serve(struct rdma_cm_id *listener)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct rdma_cm_id *id;
		struct ibv_device_attr device;
		struct place own, other;
		SAME(rdma_get_request(listener, &id), 0);
		SAME(ibv_query_device(id->verbs, &device), 0);
		const struct rdma_conn_param *asked = &id->event->param.conn;
		CHECK(asked->responder_resources <= device.max_qp_rd_atom);
		CHECK(asked->initiator_depth <= device.max_qp_init_rd_atom);
		CHECK(asked->responder_resources > 0 && asked->initiator_depth > 0);
		memcpy(&other, asked->private_data, sizeof other);
		struct ibv_mr *mr = expose(id, &own);
		post_receives(id, mr);
		struct rdma_conn_param param = {
			.private_data = &own,
			.private_data_len = sizeof own,
			.responder_resources = rounds[i].accepting,
			.initiator_depth = rounds[i].accepting,
			.rnr_retry_count = 7,
		};
		SAME(rdma_accept(id, &param), 0);
		read_often(id, mr, other);
		end(id, rounds[i].server_ends);
		rdma_dereg_mr(mr);
		rdma_destroy_ep(id);
	}
}

static void connect_all(const char *address, uint16_t port)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct rdma_cm_id *id = endpoint(address, port);
		struct place own, other;
		struct ibv_mr *mr = expose(id, &own);
		post_receives(id, mr);
		struct rdma_conn_param param = {
			.private_data = &own,
			.private_data_len = sizeof own,
			.responder_resources = rounds[i].connecting,
			.initiator_depth = rounds[i].connecting,
			.retry_count = 7,
			.rnr_retry_count = 7,
		};
		SAME(rdma_connect(id, &param), 0);
		memcpy(&other, id->event->param.conn.private_data, sizeof other);
		read_often(id, mr, other);
		end(id, !rounds[i].server_ends);
		rdma_dereg_mr(mr);
		rdma_destroy_ep(id);
	}
}

int main(void)
{
	/* A process of its own for each, since nobody forks who has used the library. */
	static const char *const addresses[] = { "127.0.0.1", "::1" };
	for (int i = 0; i < 2; i++) {
		int status;
		pid_t child = fork();
		if (child == 0)
			return !both(addresses[i], serve, connect_all);
		CHECK(waitpid(child, &status, 0) == child);
		SAME(status, 0);
	}
	return 0;
}
