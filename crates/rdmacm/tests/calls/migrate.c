/* rdma_migrate_id(3): events go to another channel, those included that nobody has taken yet. */
#include "check.h"

int main(void)
{
	struct rdma_event_channel *server = rdma_create_event_channel();
	struct rdma_event_channel *client = rdma_create_event_channel();
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct rdma_cm_id *listener = listener_at(server, RDMA_PS_TCP, "127.0.0.1");
	struct rdma_cm_id *id, *child, *second;
	uint16_t port = rdma_get_src_port(listener);

	/* A connection. */
	id = routed(client, listener, "127.0.0.1");
	make_qp(id);
	child = joined(server, client, id);
	CHECK(!rdma_migrate_id(child, other) && child->channel == other);
	CHECK(!rdma_disconnect(id));
	pass(client, RDMA_CM_EVENT_DISCONNECTED);
	pass(other, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(is_silent(server));
	part(id);
	part(child);

	/* What waits already goes along. */
	CHECK(!rdma_create_id(client, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, address("127.0.0.1", ntohs(port)), 2000));
	CHECK(!rdma_migrate_id(id, other));
	CHECK(is_silent(client));
	pass(other, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_destroy_id(id));

	/* A listener keeps its port. */
	CHECK(!rdma_migrate_id(listener, other));
	CHECK(rdma_get_src_port(listener) == port);
	id = routed(client, listener, "127.0.0.1");
	make_qp(id);
	child = joined(other, client, id);
	talk(id, child);
	talk(child, id);

	/* Without a channel calls wait. */
	CHECK(!rdma_migrate_id(id, NULL));
	CHECK(id->channel && id->channel != client);
	CHECK(!rdma_disconnect(id));
	CHECK(id->event && id->event->event == RDMA_CM_EVENT_DISCONNECTED);
	pass(other, RDMA_CM_EVENT_DISCONNECTED);

	/* And back again. */
	CHECK(!rdma_migrate_id(id, client) && id->channel == client);
	part(id);
	part(child);
	second = routed(client, listener, "127.0.0.1");
	CHECK(!rdma_destroy_id(second));
	CHECK(!rdma_destroy_id(listener));
	rdma_destroy_event_channel(server);
	rdma_destroy_event_channel(client);
	rdma_destroy_event_channel(other);
	return 0;
}
