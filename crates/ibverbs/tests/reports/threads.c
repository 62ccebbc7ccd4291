/* Threads do with one device whatever they like at once: some make and destroy queue pairs, with work
 * left in them; several post to one queue pair and poll one queue; others register, ask and open. */

#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define MAKERS 4
#define ROUNDS 40
#define POSTERS 4
#define MESSAGES 500

static struct ibv_context *context;

/* A message of eight bytes goes over and arrives as it was. */
static void exchange(struct side *from, struct side *to, uint64_t id)
{
	uint64_t sent = id * 0x9e3779b97f4a7c15, arrived;
	memcpy(from->memory, &sent, sizeof sent);
	SAME(receive(to->qp, id, piece(to, 64, sizeof sent)), 0);
	SAME(send_piece(from->qp, id, piece(from, 0, sizeof sent)), 0);
	COMPLETES(from->cq, id, IBV_WC_SUCCESS);
	COMPLETES(to->cq, id, IBV_WC_SUCCESS);
	memcpy(&arrived, to->memory + 64, sizeof arrived);
	CHECK(arrived == sent);
}

static void *make_and_destroy(void *number)
{
	unsigned seed = (unsigned)(uintptr_t)number;
	for (int round = 0; round < ROUNDS; round++) {
		struct pair pair = make_pair(context, IBV_QPT_RC);
		for (uint64_t id = 0; id < 8; id++) {
			exchange(&pair.a, &pair.b, id);
			exchange(&pair.b, &pair.a, id);
		}
		/* Receives that nobody fills, sends that nobody polls, and one that nobody takes. */
		int left = rand_r(&seed) % 5;
		for (int id = 0; id < left; id++) {
			SAME(receive(pair.b.qp, 0, piece(&pair.b, 0, 64)), 0);
			SAME(send_piece(pair.a.qp, 0, piece(&pair.a, 0, 64)), 0);
		}
		if (round % 3 == 0)
			SAME(send_piece(pair.b.qp, 0, piece(&pair.b, 0, 64)), 0);
		free_pair(&pair);
	}
	return NULL;
}

static struct pair shared;
static atomic_int sent, received, each[POSTERS];

/* Posts its messages to the queue pair that all post to; where that is full, it waits. */
static void *post_to_one(void *number)
{
	uint64_t id = (uintptr_t)number;
	for (int count = 0; count < MESSAGES;) {
		struct ibv_sge bytes = piece(&shared.a, 0, 32);
		int refused = send_piece(shared.a.qp, id, bytes);
		CHECK(refused == 0 || refused == ENOMEM);
		if (refused)
			sched_yield();
		else
			count++;
	}
	return NULL;
}

/* Polls one end, and keeps receives posted there. Both ends have two such threads. */
static void *poll_one(void *end)
{
	struct side *side = end;
	atomic_int *seen = side == &shared.a ? &sent : &received;
	double until = seconds() + 2 * PATIENCE;
	while (*seen < POSTERS * MESSAGES) {
		struct ibv_wc wcs[4];
		int count = ibv_poll_cq(side->cq, 4, wcs);
		CHECK(count >= 0 && seconds() < until);
		for (int at = 0; at < count; at++) {
			SAME(wcs[at].status, IBV_WC_SUCCESS);
			if (side == &shared.a)
				each[wcs[at].wr_id]++;
			else
				SAME(receive(side->qp, 0, piece(side, 1024, 32)), 0);
		}
		*seen += count;
		if (!count)
			sched_yield();
	}
	return NULL;
}

static void *ask_and_register(void *unused)
{
	(void)unused;
	struct ibv_pd *pd;
	static uint8_t memory[1 << 16];
	CHECK(pd = ibv_alloc_pd(context));
	for (int round = 0; round < 20 * ROUNDS; round++) {
		struct ibv_mr *mr;
		struct ibv_mw *mw;
		struct ibv_device_attr attr;
		union ibv_gid gid;
		CHECK(mr = ibv_reg_mr(pd, memory, sizeof memory, ALL_RIGHTS));
		CHECK(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2));
		SAME(ibv_query_device(context, &attr), 0);
		SAME(ibv_query_gid(context, 1, gid_index(), &gid), 0);
		SAME(ibv_dealloc_mw(mw), 0);
		SAME(ibv_dereg_mr(mr), 0);
		if (round % ROUNDS == 0) {
			struct ibv_context *other = open_device();
			SAME(ibv_close_device(other), 0);
		}
	}
	SAME(ibv_dealloc_pd(pd), 0);
	return NULL;
}

int main(void)
{
	pthread_t threads[MAKERS + POSTERS + 6];
	int count = 0;
	context = open_device();
	shared = make_pair(context, IBV_QPT_RC);
	for (int id = 0; id < 64; id++)
		SAME(receive(shared.b.qp, 0, piece(&shared.b, 1024, 32)), 0);
#define START(job, argument) \
	SAME(pthread_create(&threads[count++], NULL, job, (void *)(argument)), 0)
	for (uintptr_t number = 0; number < MAKERS; number++)
		START(make_and_destroy, number + 1);
	for (uintptr_t number = 0; number < POSTERS; number++)
		START(post_to_one, number);
	for (int twice = 0; twice < 2; twice++) {
		START(poll_one, &shared.a);
		START(poll_one, &shared.b);
		START(ask_and_register, NULL);
	}
	for (int at = 0; at < count; at++)
		SAME(pthread_join(threads[at], NULL), 0);
	for (int number = 0; number < POSTERS; number++)
		SAME(each[number], MESSAGES);
	free_pair(&shared);
	SAME(ibv_close_device(context), 0);
	return 0;
}
