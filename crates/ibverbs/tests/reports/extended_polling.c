/* Polling by the functions inside a queue: to its end and on, with nothing in it, and from several
 * threads. No completion is seen twice, none is lost, and no lock is kept by a call that failed. */

#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

static struct pair pair;
static struct ibv_cq_ex *cq;

static int write_one(uint64_t id)
{
	return remote_piece(pair.a.qp, id, IBV_WR_RDMA_WRITE, piece(&pair.a, 0, 8),
			    (uintptr_t)pair.b.memory, pair.b.mr->rkey);
}

/* Waits until there is a completion, and looks at it. */
static void start(void)
{
	struct ibv_poll_cq_attr attr = { 0 };
	double end = seconds() + PATIENCE;
	int status;
	while ((status = ibv_start_poll(cq, &attr)) == ENOENT)
		CHECK(seconds() < end);
	SAME(status, 0);
}

static void to_the_end_and_on(void)
{
	struct ibv_poll_cq_attr attr = { 0 }, wrong = { .comp_mask = 1 };
	for (uint64_t id = 0; id < 500; id++) {
		SAME(ibv_start_poll(cq, &attr), ENOENT);
		CHECK(ibv_start_poll(cq, &wrong) != 0);
		SAME(write_one(id), 0);
		start();
		SAME(cq->wr_id, id);
		SAME(cq->status, IBV_WC_SUCCESS);
		SAME(ibv_wc_read_opcode(cq), IBV_WC_RDMA_WRITE);
		SAME(ibv_next_poll(cq), ENOENT);
		if (id % 2)
			SAME(ibv_next_poll(cq), ENOENT);
		ibv_end_poll(cq);
	}
	/* Some of those that are there, and the rest later, by either way. */
	for (uint64_t id = 0; id < 32; id++)
		SAME(write_one(id), 0);
	for (uint64_t id = 0; id < 32;) {
		start();
		do
			SAME(cq->wr_id, id++);
		while (id % 5 && !ibv_next_poll(cq));
		ibv_end_poll(cq);
		if (id < 32)
			COMPLETES(pair.a.cq, id++, IBV_WC_SUCCESS);
	}
	SAME(ibv_start_poll(cq, &attr), ENOENT);
}

static atomic_int entered;

static void *enter(void *unused)
{
	start();
	atomic_store(&entered, 1);
	SAME(cq->wr_id, 2);
	ibv_end_poll(cq);
	return unused;
}

/* Who polls has the queue to himself until he ends it, though there is nothing more in it. */
static void to_himself(void)
{
	pthread_t thread;
	SAME(write_one(1), 0);
	start();
	SAME(ibv_next_poll(cq), ENOENT);
	SAME(write_one(2), 0);
	CHECK(!pthread_create(&thread, NULL, enter, NULL));
	usleep(50000);
	CHECK(!atomic_load(&entered));
	SAME(cq->wr_id, 1);
	ibv_end_poll(cq);
	CHECK(!pthread_join(thread, NULL));
}

#define THREADS 4
#define EACH 500

static int seen[THREADS * EACH];
static atomic_uint taken;

static void *take(void *number)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int count = 0;
	while (count < EACH) {
		if (ibv_start_poll(cq, &attr))
			continue;
		do {
			CHECK(!seen[cq->wr_id]++);
			atomic_fetch_add(&taken, 1);
			count++;
		} while (count < EACH && !ibv_next_poll(cq));
		ibv_end_poll(cq);
	}
	return number;
}

static void by_threads(void)
{
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, take, NULL));
	double end = seconds() + PATIENCE;
	for (unsigned id = 0; id < THREADS * EACH; id++) {
		/* No more than the queues have room for. */
		while (id - atomic_load(&taken) >= 60)
			CHECK(seconds() < end);
		SAME(write_one(id), 0);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	for (int i = 0; i < THREADS * EACH; i++)
		SAME(seen[i], 1);
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_cq_init_attr_ex init = { .cqe = 100, .wc_flags = IBV_WC_STANDARD_FLAGS };
	pair.a = make_parts(context);
	SAME(ibv_destroy_cq(pair.a.cq), 0);
	CHECK(cq = ibv_create_cq_ex(context, &init));
	pair.a.cq = ibv_cq_ex_to_cq(cq);
	struct ibv_qp_init_attr making_a = making(&pair.a, IBV_QPT_RC);
	CHECK(pair.a.qp = ibv_create_qp(pair.a.pd, &making_a));
	pair.b = make_side(context, IBV_QPT_RC);
	join(pair.a.qp, pair.b.qp, USUAL);
	to_the_end_and_on();
	to_himself();
	by_threads();
	free_pair(&pair);
	return 0;
}
