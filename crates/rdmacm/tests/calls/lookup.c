/* rdma_getaddrinfo(3) by hints, and what later releases have: rdma_resolve_addrinfo(3),
 * rdma_query_addrinfo(3), rdma_write_cm_event(3). The headers may be older than those. */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <netdb.h>

enum { RESOLVED = 16, USER = 18, BY_SUBNET = 0x10 };

static void hints(void)
{
	struct rdma_addrinfo want = { .ai_flags = RAI_NUMERICHOST | RAI_FAMILY,
				      .ai_family = AF_IB, .ai_port_space = RDMA_PS_TCP }, *got;

	/* Nothing here has addresses of InfiniBand. */
	REFUSED(rdma_getaddrinfo("fe80::1", "7471", &want, &got), EOPNOTSUPP);
	want.ai_family = AF_INET6;
	CHECK(rdma_getaddrinfo("127.0.0.1", "7471", &want, &got) != 0);
	CHECK(!rdma_getaddrinfo("::1", "7471", &want, &got));
	CHECK(got->ai_family == AF_INET6 && got->ai_dst_len == sizeof(struct sockaddr_in6));
	CHECK(!got->ai_src_addr && !got->ai_next);
	rdma_freeaddrinfo(got);
	memset(&want, 0, sizeof want);
	want.ai_flags = RAI_PASSIVE;
	want.ai_port_space = RDMA_PS_UDP;
	CHECK(!rdma_getaddrinfo(NULL, "7471", &want, &got));
	CHECK(got->ai_src_addr && !got->ai_dst_addr && got->ai_qp_type == IBV_QPT_UD);
	rdma_freeaddrinfo(got);
	want.ai_flags = 0;
	want.ai_port_space = RDMA_PS_IB;
	want.ai_qp_type = IBV_QPT_XRC_SEND;
	want.ai_src_addr = address("127.0.0.1", 99);
	want.ai_src_len = sizeof(struct sockaddr_in);
	CHECK(!rdma_getaddrinfo("127.0.0.1", "7471", &want, &got));
	CHECK(got->ai_qp_type == IBV_QPT_XRC_SEND && got->ai_port_space == RDMA_PS_IB);
	CHECK(got->ai_src_len == want.ai_src_len && got->ai_src_addr != want.ai_src_addr);
	CHECK(!memcmp(got->ai_src_addr, want.ai_src_addr, want.ai_src_len));
	rdma_freeaddrinfo(got);
}

int main(void)
{
	int (*resolve)(struct rdma_cm_id *, const char *, const char *,
		       const struct rdma_addrinfo *);
	int (*query)(struct rdma_cm_id *, struct rdma_addrinfo **);
	int (*write_event)(struct rdma_cm_id *, unsigned, int, uint64_t);
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_addrinfo want = { .ai_flags = RAI_NUMERICHOST }, *got;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	uint64_t argument;

	hints();
	*(void **)&resolve = dlvsym(RTLD_DEFAULT, "rdma_resolve_addrinfo", "RDMACM_1.4");
	*(void **)&query = dlvsym(RTLD_DEFAULT, "rdma_query_addrinfo", "RDMACM_1.4");
	*(void **)&write_event = dlvsym(RTLD_DEFAULT, "rdma_write_cm_event", "RDMACM_1.4");
	CHECK(resolve && query && write_event);

	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	REFUSED(query(id, &got), ENOENT);
	REFUSED(resolve(id, "no address", "7471", &want), EADDRNOTAVAIL);
	CHECK(!resolve(id, "127.0.0.1", "7471", &want));
	REFUSED(resolve(id, "127.0.0.1", "7471", &want), EBUSY);
	pass(channel, RESOLVED);
	CHECK(!query(id, &got));
	CHECK(((struct sockaddr_in *)got->ai_dst_addr)->sin_port == htons(7471));
	CHECK(!rdma_resolve_addr(id, NULL, got->ai_dst_addr, 2000));
	pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	rdma_freeaddrinfo(got);
	REFUSED(query(id, &got), ENOENT);
	want.ai_flags = BY_SUBNET;
	REFUSED(resolve(id, NULL, "7471", &want), EOPNOTSUPP);
	/* What nobody asks for goes with the id. */
	want.ai_flags = 0;
	CHECK(!resolve(id, "127.0.0.1", "7471", &want));
	pass(channel, RESOLVED);

	REFUSED(write_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), EINVAL);
	CHECK(!write_event(id, USER, -5, 0x0123456789abcdef));
	event = await(channel, USER);
	memcpy(&argument, &event->param, sizeof argument);
	CHECK(event->id == id && event->status == -5 && argument == 0x0123456789abcdef);
	CHECK(!strcmp(rdma_event_str(event->event), "RDMA_CM_EVENT_USER"));
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	return 0;
}
