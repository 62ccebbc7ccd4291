/* Queue pairs of the program's own: rdma_init_qp_attr(3), rdma_establish(3), and what the events
 * say. The library does not know them, so the program leads them through their states. */
#include "check.h"

static struct ibv_qp *own_qp(struct rdma_cm_id *id, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = usual(id);
	struct ibv_qp *qp;

	init.send_cq = init.recv_cq = cq;
	qp = ibv_create_qp(id->pd, &init);
	CHECK(qp);
	return qp;
}

static void lead(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	CHECK(!rdma_init_qp_attr(id, &attr, &mask));
	CHECK(mask & IBV_QP_STATE && attr.qp_state == state);
	CHECK(!ibv_modify_qp(qp, &attr, mask));
}

static void wait_for(struct ibv_cq *cq, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;
	int count;

	do
		count = ibv_poll_cq(cq, 1, &wc);
	while (count == 0);
	CHECK(count == 1 && wc.status == IBV_WC_SUCCESS && wc.opcode == opcode);
}

int main(void)
{
	struct rdma_event_channel *server = rdma_create_event_channel();
	struct rdma_event_channel *client = rdma_create_event_channel();
	struct rdma_cm_id *listener = listener_at(server, RDMA_PS_TCP, "127.0.0.1");
	struct rdma_cm_id *id = routed(client, listener, "127.0.0.1"), *child;
	struct ibv_cq *cqs[2] = { ibv_create_cq(id->verbs, 16, NULL, NULL, 0),
				  ibv_create_cq(id->verbs, 16, NULL, NULL, 0) };
	struct ibv_qp *ours = own_qp(id, cqs[0]), *theirs;
	struct rdma_conn_param param = { .responder_resources = 3, .initiator_depth = 5,
					 .retry_count = 6, .rnr_retry_count = 4,
					 .private_data = "hello", .private_data_len = 5,
					 .qp_num = ours->qp_num };
	struct rdma_cm_event *event;
	char buffers[2][8] = { "a word", "" };
	struct ibv_mr *mr = ibv_reg_mr(id->pd, buffers, sizeof buffers, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = { (uintptr_t)buffers[1], 8, mr->lkey };
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad_receive;
	struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED }, *bad_send;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	struct ibv_qp_init_attr init;
	int mask;

	CHECK(mr);
	lead(id, ours, IBV_QPS_INIT);
	/* The peer is not known yet. */
	CHECK(rdma_init_qp_attr(id, &attr, &mask) == -1);
	CHECK(!rdma_connect(id, &param));
	CHECK(rdma_establish(id) == -1);

	event = await(server, RDMA_CM_EVENT_CONNECT_REQUEST);
	child = event->id;
	CHECK(event->listen_id == listener);
	CHECK(event->param.conn.qp_num == ours->qp_num);
	CHECK(event->param.conn.responder_resources == 5);
	CHECK(event->param.conn.initiator_depth == 3);
	CHECK(event->param.conn.retry_count == 6 && event->param.conn.rnr_retry_count == 4);
	CHECK(event->param.conn.private_data_len >= 5);
	CHECK(!memcmp(event->param.conn.private_data, "hello", 5));
	CHECK(!rdma_ack_cm_event(event));

	theirs = own_qp(child, cqs[1]);
	lead(child, theirs, IBV_QPS_INIT);
	lead(child, theirs, IBV_QPS_RTR);
	CHECK(!ibv_post_recv(theirs, &receive, &bad_receive));
	lead(child, theirs, IBV_QPS_RTS);
	param.qp_num = theirs->qp_num;
	param.private_data = "welcome";
	param.private_data_len = 7;
	CHECK(!rdma_accept(child, &param));

	event = await(client, RDMA_CM_EVENT_CONNECT_RESPONSE);
	CHECK(event->id == id && event->param.conn.qp_num == theirs->qp_num);
	CHECK(!memcmp(event->param.conn.private_data, "welcome", 7));
	CHECK(!rdma_ack_cm_event(event));
	CHECK(is_silent(server));
	lead(id, ours, IBV_QPS_RTR);
	lead(id, ours, IBV_QPS_RTS);
	CHECK(!ibv_query_qp(ours, &attr, IBV_QP_RETRY_CNT, &init) && attr.retry_cnt == 6);
	CHECK(!rdma_establish(id));
	pass(server, RDMA_CM_EVENT_ESTABLISHED);
	REFUSED(rdma_notify(child, IBV_EVENT_COMM_EST), EISCONN);
	REFUSED(rdma_notify(child, IBV_EVENT_QP_FATAL), EINVAL);

	sge.addr = (uintptr_t)buffers[0];
	CHECK(!ibv_post_send(ours, &send, &bad_send));
	wait_for(cqs[0], IBV_WC_SEND);
	wait_for(cqs[1], IBV_WC_RECV);
	CHECK(!strcmp(buffers[1], "a word"));

	CHECK(!rdma_disconnect(child));
	pass(client, RDMA_CM_EVENT_DISCONNECTED);
	pass(server, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!ibv_destroy_qp(ours) && !ibv_destroy_qp(theirs));
	CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cqs[0]) && !ibv_destroy_cq(cqs[1]));
	CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(child) && !rdma_destroy_id(listener));
	return 0;
}
