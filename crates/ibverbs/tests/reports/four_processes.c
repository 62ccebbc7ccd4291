/* Four processes of one host share the UDP port, and each is connected with all others: ring buffers
 * are written, messages sent, and words counted, all at once. */

#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define RANKS 4
#define ROUNDS 300
#define LENGTH 5000

/* What they tell each other before. */
static struct shared {
	pthread_barrier_t barrier;
	uint32_t numbers[RANKS][RANKS];
	uint64_t addrs[RANKS];
	uint32_t keys[RANKS];
} *shared;

static void meet(void)
{
	int result = pthread_barrier_wait(&shared->barrier);
	CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
}

/* Bytes that no two messages have in common. */
static void fill(uint8_t *to, int from, int round)
{
	for (int i = 0; i < LENGTH; i++)
		to[i] = (uint8_t)(i + 31 * round + 101 * from);
}

static int run(int rank)
{
	struct ibv_context *context = open_device();
	struct side side = make_parts(context);
	struct ibv_qp *qps[RANKS];
	for (int peer = 0; peer < RANKS; peer++) {
		struct ibv_qp_init_attr init = making(&side, IBV_QPT_RC);
		CHECK(qps[peer] = ibv_create_qp(side.pd, &init));
		shared->numbers[rank][peer] = qps[peer]->qp_num;
	}
	shared->addrs[rank] = (uintptr_t)side.memory;
	shared->keys[rank] = side.mr->rkey;
	meet();
	/* Incoming messages of each peer have a place, the outgoing one has the last, and the first
	 * word behind counts. */
	const uint32_t out = RANKS * LENGTH, counter = 32 * 1024, old = 40 * 1024;
	for (int peer = 0; peer < RANKS; peer++) {
		bring_up(qps[peer], shared->numbers[peer][rank], USUAL);
		SAME(receive(qps[peer], peer, piece(&side, peer * LENGTH, LENGTH)), 0);
	}
	meet();
	/* A peer may be a round ahead. */
	int seen[RANKS] = { 0 }, behind, sent;
	for (int round = 0; round < ROUNDS; round++) {
		fill(side.memory + out, rank, round);
		for (int peer = 0; peer < RANKS; peer++) {
			SAME(send_piece(qps[peer], 100, piece(&side, out, LENGTH)), 0);
			SAME(remote_piece(qps[peer], 200, IBV_WR_ATOMIC_FETCH_AND_ADD,
					  piece(&side, old + 8 * peer, 8),
					  shared->addrs[peer] + counter, shared->keys[peer]),
			     0);
		}
		sent = 0;
		do {
			struct ibv_wc wc = next_wc(side.cq);
			SAME(wc.status, IBV_WC_SUCCESS);
			if (wc.wr_id < RANKS) {
				int peer = (int)wc.wr_id;
				uint8_t expected[LENGTH];
				fill(expected, peer, seen[peer]++);
				SAME(wc.byte_len, LENGTH);
				CHECK(!memcmp(side.memory + peer * LENGTH, expected, LENGTH));
				SAME(receive(qps[peer], peer, piece(&side, peer * LENGTH, LENGTH)),
				     0);
			} else {
				sent++;
			}
			behind = 0;
			for (int peer = 0; peer < RANKS; peer++)
				behind += seen[peer] <= round;
		} while (behind || sent < 2 * RANKS);
	}
	meet();
	SAME(*(uint64_t *)(side.memory + counter), RANKS * ROUNDS);
	for (int peer = 0; peer < RANKS; peer++)
		SAME(ibv_destroy_qp(qps[peer]), 0);
	free_side(&side);
	SAME(ibv_close_device(context), 0);
	return 0;
}

int main(void)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	CHECK(shared != MAP_FAILED);
	pthread_barrierattr_t attr;
	CHECK(!pthread_barrierattr_init(&attr));
	CHECK(!pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
	CHECK(!pthread_barrier_init(&shared->barrier, &attr, RANKS));
	pid_t children[RANKS];
	for (int rank = 0; rank < RANKS; rank++)
		if ((children[rank] = fork()) == 0) {
			alarm(PATIENCE);
			exit(run(rank));
		}
	int failed = 0;
	for (int count = 0; count < RANKS; count++) {
		int status;
		pid_t child = wait(&status);
		CHECK(child > 0);
		for (int rank = 0; rank < RANKS; rank++) {
			if (children[rank] == child)
				children[rank] = 0;
			/* The others would wait for it. */
			if (status && children[rank])
				kill(children[rank], SIGTERM);
		}
		failed |= status != 0;
	}
	return failed;
}
