/* Two processes that connect with each other by rdma_cm, over the loopback. */

#ifndef ENDS_H
#define ENDS_H

#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define MESSAGE 64

static inline struct ibv_qp_init_attr for_connections(void)
{
	return (struct ibv_qp_init_attr){
		.cap = { 64, 64, 1, 1, MESSAGE },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
}

/* An address of this host, as rdma_create_ep wants it; who listens names no port. */
static inline struct rdma_addrinfo *resolve(const char *address, uint16_t port, int listens)
{
	char service[8];
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP,
				       .ai_flags = listens ? RAI_PASSIVE : 0 },
			     *found;
	snprintf(service, sizeof service, "%u", port);
	SAME(rdma_getaddrinfo(address, service, &hints, &found), 0);
	return found;
}

static inline struct rdma_cm_id *listen_at(const char *address)
{
	struct ibv_qp_init_attr init = for_connections();
	struct rdma_addrinfo *info = resolve(address, 0, 1);
	struct rdma_cm_id *id;
	SAME(rdma_create_ep(&id, info, NULL, &init), 0);
	rdma_freeaddrinfo(info);
	SAME(rdma_listen(id, 10), 0);
	return id;
}

static inline struct rdma_cm_id *endpoint(const char *address, uint16_t port)
{
	struct ibv_qp_init_attr init = for_connections();
	struct rdma_addrinfo *info = resolve(address, port, 0);
	struct rdma_cm_id *id;
	SAME(rdma_create_ep(&id, info, NULL, &init), 0);
	rdma_freeaddrinfo(info);
	return id;
}

/* Runs both, the client in a process of its own; whether both succeeded. */
static inline int both(const char *address, void (*server)(struct rdma_cm_id *),
		       void (*client)(const char *, uint16_t))
{
	int ports[2], status;
	uint16_t port;
	CHECK(!pipe(ports));
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		CHECK(read(ports[0], &port, sizeof port) == sizeof port);
		client(address, port);
		exit(0);
	}
	alarm(4 * PATIENCE);
	struct rdma_cm_id *listener = listen_at(address);
	port = ntohs(rdma_get_src_port(listener));
	CHECK(write(ports[1], &port, sizeof port) == sizeof port);
	server(listener);
	rdma_destroy_ep(listener);
	CHECK(waitpid(child, &status, 0) == child);
	return !status;
}

#endif
