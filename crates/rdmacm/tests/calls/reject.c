/* rdma_reject(3), rdma_reject_ece(3): what the other side hears, and that ids can be used again. */
#include "check.h"

enum { INVALID_SERVICE = 8, CONSUMER = 28, VENDOR_OPTION = 35 };

static void refused(struct rdma_event_channel *client, int status, const char *said)
{
	struct rdma_cm_event *event = await(client, RDMA_CM_EVENT_REJECTED);

	CHECK(event->status == status);
	if (said)
		CHECK(!memcmp(event->param.conn.private_data, said, strlen(said)));
	CHECK(!rdma_ack_cm_event(event));
}

int main(void)
{
	struct rdma_event_channel *server = rdma_create_event_channel();
	struct rdma_event_channel *client = rdma_create_event_channel();
	struct rdma_cm_id *listener = listener_at(server, RDMA_PS_TCP, "127.0.0.1"), *id;
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_cm_event *event;

	for (int ece = 0; ece < 2; ece++) {
		id = routed(client, listener, "127.0.0.1");
		make_qp(id);
		CHECK(!rdma_connect(id, &param));
		event = await(server, RDMA_CM_EVENT_CONNECT_REQUEST);
		if (ece)
			CHECK(!rdma_reject_ece(event->id, "no option", 9));
		else
			CHECK(!rdma_reject(event->id, "not now", 7));
		CHECK(rdma_reject(event->id, NULL, 0) == -1);
		CHECK(rdma_accept(event->id, &param) == -1);
		struct rdma_cm_id *child = event->id;
		CHECK(!rdma_ack_cm_event(event));
		CHECK(!rdma_destroy_id(child));
		refused(client, ece ? VENDOR_OPTION : CONSUMER, ece ? "no option" : "not now");
		part(id);
	}

	/* Whoever destroys a request refuses it. */
	id = routed(client, listener, "127.0.0.1");
	make_qp(id);
	CHECK(!rdma_connect(id, &param));
	event = await(server, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *child = event->id;
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_destroy_id(child));
	refused(client, CONSUMER, NULL);
	part(id);

	/* More to say than there is room for. */
	id = routed(client, listener, "127.0.0.1");
	make_qp(id);
	param.private_data = "";
	param.private_data_len = 57;
	REFUSED(rdma_connect(id, &param), EINVAL);
	param.private_data_len = 0;
	CHECK(!rdma_connect(id, &param));
	event = await(server, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(rdma_reject(event->id, "", 149) == -1);
	CHECK(!rdma_reject(event->id, NULL, 0));
	child = event->id;
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_destroy_id(child));
	refused(client, CONSUMER, NULL);
	part(id);

	/* Nobody listens any more. */
	id = routed(client, listener, "127.0.0.1");
	make_qp(id);
	CHECK(!rdma_destroy_id(listener));
	CHECK(!rdma_connect(id, &param));
	refused(client, INVALID_SERVICE, NULL);
	part(id);
	return 0;
}
