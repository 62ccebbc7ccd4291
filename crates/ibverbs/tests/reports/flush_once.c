/* Each request completes once and in its turn, whenever the queue pair fails: in the middle of a
 * message, while acknowledgements come, while others are being posted. */

#include "check.h"

#include <pthread.h>

#define REQUESTS 48
#define ROUNDS 200

static struct pair pair;

static void *fail(void *delay)
{
	usleep((useconds_t)(uintptr_t)delay);
	/* The end that sends, or the one that answers. */
	struct ibv_qp *qp = (uintptr_t)delay % 4 ? pair.a.qp : pair.b.qp;
	SAME(to_state(qp, IBV_QPS_ERR), 0);
	return NULL;
}

static void round_of(unsigned delay)
{
	pthread_t thread;
	uint64_t next = 0, flushed = 0;
	CHECK(!pthread_create(&thread, NULL, fail, (void *)(uintptr_t)delay));
	for (uint64_t id = 0; id < REQUESTS; id++)
		SAME(remote_piece(pair.a.qp, id, IBV_WR_RDMA_WRITE, piece(&pair.a, 0, 3000),
				  (uintptr_t)pair.b.memory, pair.b.mr->rkey),
		     0);
	CHECK(!pthread_join(thread, NULL));
	/* If the other end failed, this one has not yet. */
	if (delay % 4 == 0)
		SAME(to_state(pair.a.qp, IBV_QPS_ERR), 0);
	while (next < REQUESTS) {
		struct ibv_wc wc = next_wc(pair.a.cq);
		SAME(wc.wr_id, next);
		SAME(wc.qp_num, pair.a.qp->qp_num);
		CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR);
		CHECK(!flushed || wc.status == IBV_WC_WR_FLUSH_ERR);
		flushed += wc.status != IBV_WC_SUCCESS;
		next++;
	}
	struct ibv_wc more;
	for (int i = 0; i < 100; i++)
		SAME(ibv_poll_cq(pair.a.cq, 1, &more), 0);
}

int main(void)
{
	pair = make_pair(open_device(), IBV_QPT_RC);
	srand(1);
	for (int i = 0; i < ROUNDS; i++) {
		round_of((unsigned)rand() % 400);
		rejoin(&pair);
	}
	free_pair(&pair);
	return 0;
}
