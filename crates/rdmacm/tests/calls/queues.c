/* rdma_create_qp_ex(3), rdma_create_srq(3), rdma_create_srq_ex(3), and rdma_verbs.h on them. */
#include "check.h"

static void one_sided(struct rdma_cm_id *id, struct rdma_cm_id *peer)
{
	char here[32] = "written", there[32] = "";
	struct ibv_mr *local = rdma_reg_msgs(id, here, sizeof here);
	struct ibv_mr *written = rdma_reg_write(peer, there, sizeof there);
	struct ibv_mr *read = rdma_reg_read(peer, there, sizeof there);
	struct ibv_wc wc;

	CHECK(local && written && read);
	CHECK(!rdma_post_write(id, NULL, here, sizeof here, local, 0, (uintptr_t)there,
			       written->rkey));
	CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(!strcmp(there, "written"));
	strcpy(there, "to be read");
	CHECK(!rdma_post_read(id, id, here, sizeof here, local, 0, (uintptr_t)there, read->rkey));
	CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(wc.wr_id == (uintptr_t)id && !strcmp(here, "to be read"));
	CHECK(!rdma_dereg_mr(local) && !rdma_dereg_mr(written) && !rdma_dereg_mr(read));
}

static void by_shared_queue(struct rdma_cm_id *id, struct rdma_cm_id *child)
{
	char got[16] = "";
	struct ibv_mr *mr = rdma_reg_msgs(child, got, sizeof got);
	struct ibv_sge sge = { (uintptr_t)got, sizeof got, mr->lkey };
	struct ibv_recv_wr receive = { .wr_id = 7, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_wc wc;

	CHECK(!ibv_post_srq_recv(child->srq, &receive, &bad));
	CHECK(!rdma_post_send(id, NULL, "shared", 7, NULL, IBV_SEND_INLINE));
	CHECK(rdma_get_recv_comp(child, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(wc.wr_id == 7 && !strcmp(got, "shared"));
	CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(!rdma_dereg_mr(mr));
}

int main(void)
{
	struct rdma_event_channel *server = rdma_create_event_channel();
	struct rdma_event_channel *client = rdma_create_event_channel();
	struct rdma_cm_id *listener = listener_at(server, RDMA_PS_TCP, "127.0.0.1");

	for (int extended = 0; extended < 2; extended++) {
		struct rdma_cm_id *id = routed(client, listener, "127.0.0.1"), *child;
		struct ibv_qp_init_attr plain = usual(id);
		struct ibv_qp_init_attr_ex init = { 0 };
		struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1,
						 .retry_count = 7, .rnr_retry_count = 7 };
		struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 1 } };
		struct ibv_srq_init_attr_ex shared_ex = {
			.attr = { .max_wr = 4, .max_sge = 1 },
			.comp_mask = IBV_SRQ_INIT_ATTR_TYPE, .srq_type = IBV_SRQT_BASIC,
		};
		struct rdma_cm_event *event;

		memcpy(&init, &plain, sizeof plain);
		if (extended) {
			CHECK(!rdma_create_qp_ex(id, &init));
			CHECK(init.comp_mask & IBV_QP_INIT_ATTR_PD && init.pd == id->pd);
		} else {
			CHECK(!rdma_create_qp(id, NULL, &plain));
		}
		CHECK(id->qp && id->send_cq && id->recv_cq && id->qp->send_cq == id->send_cq);
		REFUSED(rdma_create_qp(id, NULL, &plain), EINVAL);

		CHECK(!rdma_connect(id, &param));
		event = await(server, RDMA_CM_EVENT_CONNECT_REQUEST);
		child = event->id;
		CHECK(!rdma_ack_cm_event(event));
		if (extended) {
			CHECK(!rdma_create_srq_ex(child, &shared_ex));
			CHECK(shared_ex.attr.max_wr >= 4);
		} else {
			CHECK(!rdma_create_srq(child, NULL, &shared));
			CHECK(shared.attr.max_wr >= 4);
		}
		REFUSED(rdma_create_srq(child, NULL, &shared), EINVAL);
		make_qp(child);
		CHECK(child->qp->srq == child->srq);
		CHECK(!rdma_accept(child, &param));
		event = await(client, RDMA_CM_EVENT_ESTABLISHED);
		CHECK(event->param.conn.srq == 1);
		CHECK(!rdma_ack_cm_event(event));
		pass(server, RDMA_CM_EVENT_ESTABLISHED);

		by_shared_queue(id, child);
		one_sided(id, child);

		CHECK(!rdma_disconnect(id));
		pass(client, RDMA_CM_EVENT_DISCONNECTED);
		pass(server, RDMA_CM_EVENT_DISCONNECTED);
		rdma_destroy_qp(child);
		CHECK(!child->qp && !child->recv_cq);
		rdma_destroy_srq(child);
		CHECK(!child->srq && !rdma_destroy_id(child));
		part(id);
	}
	CHECK(!rdma_destroy_id(listener));
	return 0;
}
