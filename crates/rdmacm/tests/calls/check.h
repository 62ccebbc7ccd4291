/* What the programs share: two ends of a connection in one process, on the loopback. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define CHECK(condition)                                                              \
	do {                                                                          \
		if (!(condition)) {                                                   \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__,        \
				#condition, strerror(errno));                         \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

/* Refused, with this number. */
#define REFUSED(call, number)                                                         \
	do {                                                                          \
		errno = 0;                                                            \
		CHECK((call) == -1 && errno == (number));                             \
	} while (0)

static inline struct sockaddr *address(const char *ip, int port)
{
	static struct sockaddr_storage all[4];
	static int next;
	struct sockaddr_storage *to = &all[next++ % 4];
	struct sockaddr_in *v4 = (void *)to;
	struct sockaddr_in6 *v6 = (void *)to;

	memset(to, 0, sizeof *to);
	if (inet_pton(AF_INET, ip, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
	} else {
		CHECK(inet_pton(AF_INET6, ip, &v6->sin6_addr) == 1);
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
	}
	return (struct sockaddr *)to;
}

/* The next event, which is to be of this kind. */
static inline struct rdma_cm_event *await(struct rdma_event_channel *channel, int kind)
{
	struct rdma_cm_event *event;

	CHECK(!rdma_get_cm_event(channel, &event));
	if ((int)event->event != kind)
		fprintf(stderr, "%s (%d) in place of %s\n", rdma_event_str(event->event),
			event->status, rdma_event_str(kind));
	CHECK((int)event->event == kind);
	return event;
}

static inline void pass(struct rdma_event_channel *channel, int kind)
{
	struct rdma_cm_event *event = await(channel, kind);

	CHECK(event->status == 0);
	CHECK(!rdma_ack_cm_event(event));
}

static inline int is_silent(struct rdma_event_channel *channel)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };

	return poll(&fd, 1, 20) == 0;
}

static inline struct rdma_cm_id *listener_at(struct rdma_event_channel *channel,
					     enum rdma_port_space space, const char *ip)
{
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(channel, &id, NULL, space));
	CHECK(!rdma_bind_addr(id, address(ip, 0)));
	CHECK(!rdma_listen(id, 8));
	CHECK(rdma_get_src_port(id) != 0);
	return id;
}

/* An id that has a way to a listener. */
static inline struct rdma_cm_id *routed(struct rdma_event_channel *channel,
					struct rdma_cm_id *listener, const char *ip)
{
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(channel, &id, NULL, listener->ps));
	CHECK(!rdma_resolve_addr(id, NULL, address(ip, ntohs(rdma_get_src_port(listener))),
				 2000));
	pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(id, 2000));
	pass(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(rdma_get_dst_port(id) == rdma_get_src_port(listener));
	return id;
}

static inline struct ibv_qp_init_attr usual(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = id->qp_type,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1,
			 .max_recv_sge = 1, .max_inline_data = 64 },
		.sq_sig_all = 1,
	};
	return init;
}

static inline void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = usual(id);

	CHECK(!rdma_create_qp(id, NULL, &init));
}

/* A connection of two ids that have queue pairs; the child of the listener. */
static inline struct rdma_cm_id *joined(struct rdma_event_channel *server,
					struct rdma_event_channel *client,
					struct rdma_cm_id *id)
{
	struct rdma_conn_param param = { .responder_resources = 4, .initiator_depth = 4,
					 .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_cm_event *event;
	struct rdma_cm_id *child;

	CHECK(!rdma_connect(id, &param));
	event = await(server, RDMA_CM_EVENT_CONNECT_REQUEST);
	child = event->id;
	CHECK(!rdma_ack_cm_event(event));
	if (!child->qp)
		make_qp(child);
	CHECK(!rdma_accept(child, &param));
	pass(client, RDMA_CM_EVENT_ESTABLISHED);
	pass(server, RDMA_CM_EVENT_ESTABLISHED);
	return child;
}

/* Bytes from one end to the other. */
static inline void talk(struct rdma_cm_id *from, struct rdma_cm_id *to)
{
	char sent[16] = "some data", got[16] = "";
	struct ibv_mr *mr = rdma_reg_msgs(to, got, sizeof got);
	struct ibv_wc wc;

	CHECK(mr);
	CHECK(!rdma_post_recv(to, NULL, got, sizeof got, mr));
	CHECK(!rdma_post_send(from, NULL, sent, sizeof sent, NULL, IBV_SEND_INLINE));
	CHECK(rdma_get_send_comp(from, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(rdma_get_recv_comp(to, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(wc.byte_len == sizeof sent && !memcmp(sent, got, sizeof sent));
	CHECK(!rdma_dereg_mr(mr));
}

static inline void part(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id));
}
