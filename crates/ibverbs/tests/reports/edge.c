/* No completion event is lost to a program that waits edge-triggered: it takes all events when it is
 * woken, arms the queues, polls them empty, and waits for the next edge. */

#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>

#define QUEUES 3
#define MESSAGES 3000

struct waiter {
	struct ibv_comp_channel *channel;
	struct side sides[QUEUES];
	int epoll;
};

static struct waiter waiter;
static struct side senders[QUEUES];

/* Sends one message after the other, with pauses of all kinds in between. */
static void *send_all(void *number)
{
	int at = (int)(uintptr_t)number;
	unsigned seed = (unsigned)at + 1;
	for (uint64_t id = 0; id < MESSAGES; id++) {
		SAME(send_piece(senders[at].qp, id, piece(&senders[at], 0, 8)), 0);
		COMPLETES(senders[at].cq, id, IBV_WC_SUCCESS);
		switch (rand_r(&seed) % 16) {
		case 0:
			usleep((useconds_t)rand_r(&seed) % 200);
			break;
		case 1:
			sched_yield();
			break;
		}
	}
	return NULL;
}

static int take_events(void)
{
	struct ibv_cq *cq;
	void *context;
	int count = 0;
	while (!ibv_get_cq_event(waiter.channel, &cq, &context)) {
		struct side *side = context;
		CHECK(side->cq == cq);
		ibv_ack_cq_events(cq, 1);
		SAME(ibv_req_notify_cq(cq, 0), 0);
		count++;
	}
	SAME(errno, EAGAIN);
	return count;
}

int main(void)
{
	struct ibv_context *context = open_device();
	CHECK(waiter.channel = ibv_create_comp_channel(context));
	int fd = waiter.channel->fd;
	CHECK(!fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK));
	CHECK((waiter.epoll = epoll_create1(0)) >= 0);
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	CHECK(!epoll_ctl(waiter.epoll, EPOLL_CTL_ADD, fd, &event));
	for (int i = 0; i < QUEUES; i++) {
		struct side *side = &waiter.sides[i];
		*side = make_parts(context);
		SAME(ibv_destroy_cq(side->cq), 0);
		CHECK(side->cq = ibv_create_cq(context, 256, side, waiter.channel, 0));
		struct ibv_qp_init_attr init = making(side, IBV_QPT_RC);
		CHECK(side->qp = ibv_create_qp(side->pd, &init));
		senders[i] = make_side(context, IBV_QPT_RC);
		join(side->qp, senders[i].qp, USUAL);
		for (int j = 0; j < 64; j++)
			SAME(receive(side->qp, j, piece(side, 0, 8)), 0);
		SAME(ibv_req_notify_cq(side->cq, 0), 0);
	}
	/* Nothing has happened: no edge, and nothing to take. */
	SAME(epoll_wait(waiter.epoll, &event, 1, 0), 0);
	SAME(take_events(), 0);

	pthread_t threads[QUEUES];
	for (uintptr_t i = 0; i < QUEUES; i++)
		CHECK(!pthread_create(&threads[i], NULL, send_all, (void *)i));
	int received = 0;
	while (received < QUEUES * MESSAGES) {
		int ready = epoll_wait(waiter.epoll, &event, 1, PATIENCE * 1000);
		if (ready < 0 && errno == EINTR)
			continue;
		if (ready != 1) {
			fprintf(stderr, "asleep after %d messages\n", received);
			return 1;
		}
		take_events();
		for (int i = 0; i < QUEUES; i++) {
			struct side *side = &waiter.sides[i];
			struct ibv_wc wcs[16];
			int count;
			while ((count = ibv_poll_cq(side->cq, 16, wcs)) > 0) {
				received += count;
				for (int j = 0; j < count; j++) {
					SAME(wcs[j].status, IBV_WC_SUCCESS);
					SAME(receive(side->qp, 1, piece(side, 0, 8)), 0);
				}
			}
			SAME(count, 0);
		}
	}
	for (int i = 0; i < QUEUES; i++)
		CHECK(!pthread_join(threads[i], NULL));
	take_events();
	for (int i = 0; i < QUEUES; i++) {
		free_side(&senders[i]);
		free_side(&waiter.sides[i]);
	}
	SAME(ibv_destroy_comp_channel(waiter.channel), 0);
	return 0;
}
