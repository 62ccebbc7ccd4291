/* The datagram port space: a question and its answer, a refusal, and data by what they say. IPv6. */
#include "check.h"

int main(void)
{
	struct rdma_event_channel *server = rdma_create_event_channel();
	struct rdma_event_channel *client = rdma_create_event_channel();
	struct rdma_cm_id *listener = listener_at(server, RDMA_PS_UDP, "::1");
	struct rdma_cm_id *id = routed(client, listener, "::1"), *child;
	struct rdma_conn_param param = { .private_data = "who", .private_data_len = 3 };
	struct rdma_cm_event *event;
	char got[64] = "";
	struct ibv_wc wc;

	make_qp(id);
	CHECK(!rdma_connect(id, &param));
	event = await(server, RDMA_CM_EVENT_CONNECT_REQUEST);
	child = event->id;
	CHECK(!memcmp(event->param.ud.private_data, "who", 3));
	CHECK(!rdma_ack_cm_event(event));
	make_qp(child);
	struct ibv_mr *mr = rdma_reg_msgs(child, got, sizeof got);
	CHECK(mr && !rdma_post_recv(child, NULL, got, sizeof got, mr));
	param.private_data = "me";
	param.private_data_len = 2;
	param.qp_num = child->qp->qp_num;
	CHECK(!rdma_accept(child, &param));
	event = await(client, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(event->param.ud.qp_num == child->qp->qp_num && event->param.ud.qkey != 0);
	CHECK(!memcmp(event->param.ud.private_data, "me", 2));
	struct ibv_ah *ah = ibv_create_ah(id->pd, &event->param.ud.ah_attr);
	CHECK(ah);
	CHECK(!rdma_post_ud_send(id, NULL, "word", 5, NULL, IBV_SEND_INLINE, ah,
				 event->param.ud.qp_num));
	CHECK(!rdma_ack_cm_event(event));
	CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(rdma_get_recv_comp(child, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(!strcmp(got + sizeof(struct ibv_grh), "word"));
	CHECK(!ibv_destroy_ah(ah) && !rdma_dereg_mr(mr));
	part(id);
	part(child);

	id = routed(client, listener, "::1");
	make_qp(id);
	CHECK(!rdma_connect(id, NULL));
	event = await(server, RDMA_CM_EVENT_CONNECT_REQUEST);
	child = event->id;
	CHECK(!rdma_reject(child, NULL, 0));
	CHECK(!rdma_ack_cm_event(event) && !rdma_destroy_id(child));
	event = await(client, RDMA_CM_EVENT_UNREACHABLE);
	CHECK(event->status == 2);
	CHECK(!rdma_ack_cm_event(event));
	part(id);
	CHECK(!rdma_destroy_id(listener));
	return 0;
}
