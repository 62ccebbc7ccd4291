/* rdma_set_option(3), rdma_bind_addr(3), rdma_get_src_port(3), rdma_get_dst_port(3). */
#include "check.h"

int main(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id, *other, *listener;
	uint8_t byte = 0x68;
	int flag = 1;

	/* Values of the right size, on ids that can have them. */
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, sizeof byte));
	REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &flag, sizeof flag),
		EINVAL);
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &flag, sizeof flag));
	REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &byte, sizeof byte),
		EINVAL);
	byte = 14;
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte,
			       sizeof byte));
	byte = 32;
	REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte,
				sizeof byte), EINVAL);
	flag = 0;
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &flag, sizeof flag));
	REFUSED(rdma_set_option(id, RDMA_OPTION_ID, 99, &flag, sizeof flag), ENOSYS);
	REFUSED(rdma_set_option(id, 99, 0, &flag, sizeof flag), ENOSYS);
	CHECK(rdma_get_src_port(id) == 0 && rdma_get_dst_port(id) == 0);

	/* A timeout and a traffic class go into the path and the queue pair. */
	listener = listener_at(channel, RDMA_PS_TCP, "127.0.0.1");
	byte = 14;
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte,
			       sizeof byte));
	CHECK(!rdma_resolve_addr(id, NULL,
				 address("127.0.0.1", ntohs(rdma_get_src_port(listener))), 2000));
	pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(id, 2000));
	pass(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(id->route.path_rec->traffic_class == 0x68);
	CHECK(rdma_get_src_port(id) != 0);
	make_qp(id);
	{
		struct rdma_event_channel *server = rdma_create_event_channel();
		struct rdma_cm_id *child;
		struct ibv_qp_attr attr;
		struct ibv_qp_init_attr init;

		CHECK(!rdma_migrate_id(listener, server));
		child = joined(server, channel, id);
		CHECK(!ibv_query_qp(id->qp, &attr, IBV_QP_TIMEOUT | IBV_QP_AV, &init));
		CHECK(attr.timeout == 14 && attr.ah_attr.grh.traffic_class == 0x68);
		CHECK(!ibv_query_qp(child->qp, &attr, IBV_QP_TIMEOUT | IBV_QP_AV, &init));
		CHECK(attr.ah_attr.grh.traffic_class == 0x68);
		talk(id, child);
		CHECK(!rdma_disconnect(id));
		pass(channel, RDMA_CM_EVENT_DISCONNECTED);
		pass(server, RDMA_CM_EVENT_DISCONNECTED);
		part(child);
		part(id);
		CHECK(!rdma_destroy_id(listener));
		rdma_destroy_event_channel(server);
	}

	/* A port at all addresses. */
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(id, address("0.0.0.0", 0)));
	CHECK(!id->verbs && rdma_get_src_port(id) != 0);
	CHECK(rdma_bind_addr(id, address("127.0.0.1", 0)) == -1);
	CHECK(!rdma_create_id(channel, &other, NULL, RDMA_PS_TCP));
	REFUSED(rdma_bind_addr(other, address("127.0.0.1", ntohs(rdma_get_src_port(id)))),
		EADDRINUSE);
	/* Another port space has ports of its own. */
	CHECK(!rdma_destroy_id(other));
	CHECK(!rdma_create_id(channel, &other, NULL, RDMA_PS_UDP));
	CHECK(!rdma_bind_addr(other, address("127.0.0.1", ntohs(rdma_get_src_port(id)))));
	CHECK(rdma_get_src_port(other) == rdma_get_src_port(id) && other->verbs);
	CHECK(!rdma_destroy_id(other));
	/* And it is free again at once. */
	uint16_t port = ntohs(rdma_get_src_port(id));
	CHECK(!rdma_destroy_id(id));
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(id, address("127.0.0.1", port)));
	CHECK(!rdma_destroy_id(id));
	/* Somebody else's address. */
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	REFUSED(rdma_bind_addr(id, address("192.0.2.77", 0)), EADDRNOTAVAIL);
	CHECK(!rdma_destroy_id(id));

	/* Shared: both are bound, one listens. */
	flag = 1;
	struct rdma_cm_id *both[2];
	for (int i = 0; i < 2; i++) {
		CHECK(!rdma_create_id(channel, &both[i], NULL, RDMA_PS_TCP));
		CHECK(!rdma_set_option(both[i], RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &flag,
				       sizeof flag));
		CHECK(!rdma_bind_addr(both[i], address("127.0.0.1", port)));
	}
	CHECK(!rdma_listen(both[0], 1));
	REFUSED(rdma_listen(both[1], 1), EADDRINUSE);
	CHECK(!rdma_destroy_id(both[0]) && !rdma_destroy_id(both[1]));

	/* A listener that binds nothing has a port all the same. */
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_listen(id, 0) && rdma_get_src_port(id) != 0);
	CHECK(!rdma_destroy_id(id));

	/* One that is gone. */
	REFUSED(rdma_resolve_addr(id, NULL, address("127.0.0.1", port), 2000), EINVAL);
	REFUSED(rdma_destroy_id(id), EINVAL);
	rdma_destroy_event_channel(channel);
	return 0;
}
