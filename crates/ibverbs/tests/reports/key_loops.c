/* Regions and windows come and go by the thousand while a peer writes with their keys. A key is dead
 * when the call that ends it has returned, and what comes next is not reached by it. */

#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

#define REGIONS 4000
#define WINDOWS 4000
#define PLACES 4
#define LENGTH 2048

static struct pair pair;
static _Atomic uint64_t current; /* The place, and the key of its region. */
static atomic_int stop;
static uint64_t written, refused;

/* Writes to where a region was a moment ago. */
static void *write_on(void *memory)
{
	while (!atomic_load(&stop)) {
		uint64_t now = atomic_load(&current);
		uint64_t place = now >> 32;
		SAME(remote_piece(pair.a.qp, 1, IBV_WR_RDMA_WRITE, piece(&pair.a, 0, LENGTH),
				  (uintptr_t)memory + place * LENGTH, (uint32_t)now),
		     0);
		struct ibv_wc wc = next_wc(pair.a.cq);
		if (wc.status == IBV_WC_SUCCESS) {
			written++;
			continue;
		}
		SAME(wc.status, IBV_WC_REM_ACCESS_ERR);
		refused++;
		rejoin(&pair);
	}
	return NULL;
}

static void regions(void)
{
	static uint8_t memory[PLACES * LENGTH];
	pthread_t thread;
	memset(pair.a.memory, 'x', LENGTH);
	memset(memory, 0xee, sizeof memory);
	struct ibv_mr *mr;
	CHECK(mr = ibv_reg_mr(pair.b.pd, memory, LENGTH, ALL_RIGHTS));
	atomic_store(&current, mr->rkey);
	CHECK(!pthread_create(&thread, NULL, write_on, memory));
	for (uint64_t count = 1; count < REGIONS; count++) {
		uint64_t place = count % PLACES, before = (count - 1) % PLACES;
		uint32_t old = mr->rkey;
		if (count % 3 == 0)
			usleep(20);
		SAME(ibv_dereg_mr(mr), 0);
		/* The program's own again, and the next owner's. */
		memset(memory + before * LENGTH, 0xee, LENGTH);
		CHECK(mr = ibv_reg_mr(pair.b.pd, memory + place * LENGTH, LENGTH, ALL_RIGHTS));
		CHECK(mr->rkey != old);
		/* The place is not told to the writer yet: nobody may reach it. */
		for (int i = 0; i < LENGTH; i++) {
			SAME(memory[place * LENGTH + i], 0xee);
			SAME(memory[before * LENGTH + i], 0xee);
		}
		atomic_store(&current, place << 32 | mr->rkey);
		if (count % 5 == 0)
			sched_yield();
	}
	atomic_store(&stop, 1);
	CHECK(!pthread_join(thread, NULL));
	SAME(ibv_dereg_mr(mr), 0);
	CHECK(written > 0 && refused > 0);
}

/* The same with windows: bound, written to, and invalidated while the writes are on their way. */
static void windows(void)
{
	struct ibv_mw *mw;
	CHECK(mw = ibv_alloc_mw(pair.b.pd, IBV_MW_TYPE_2));
	uint8_t *memory = pair.b.memory;
	uint64_t flushed = 0;
	written = 0;
	for (uint64_t count = 0; count < WINDOWS; count++) {
		uint64_t at = count % 8 * LENGTH;
		uint32_t key = ibv_inc_rkey(mw->rkey);
		struct ibv_send_wr bind = request(1, IBV_WR_BIND_MW, NULL, 0);
		bind.bind_mw.mw = mw;
		bind.bind_mw.rkey = key;
		bind.bind_mw.bind_info = (struct ibv_mw_bind_info){
			.mr = pair.b.mr,
			.addr = (uintptr_t)memory + at,
			.length = LENGTH,
			.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
		};
		memset(memory + at, 0xee, LENGTH);
		SAME(post(pair.b.qp, &bind), 0);
		COMPLETES(pair.b.cq, 1, IBV_WC_SUCCESS);
		int writes = (int)(count % 4);
		for (int i = 0; i < writes; i++)
			SAME(remote_piece(pair.a.qp, 2, IBV_WR_RDMA_WRITE,
					  piece(&pair.a, 0, LENGTH), (uintptr_t)memory + at, key),
			     0);
		struct ibv_send_wr invalidate = request(3, IBV_WR_LOCAL_INV, NULL, 0);
		invalidate.invalidate_rkey = key;
		SAME(post(pair.b.qp, &invalidate), 0);
		struct ibv_wc end = next_wc(pair.b.cq);
		if (end.status == IBV_WC_SUCCESS) {
			/* What comes now, comes too late. */
			memset(memory + at, 0xee, LENGTH);
		} else {
			SAME(end.status, IBV_WC_WR_FLUSH_ERR);
		}
		for (int i = 0; i < writes; i++) {
			struct ibv_wc wc = next_wc(pair.a.cq);
			written += wc.status == IBV_WC_SUCCESS;
			flushed += wc.status != IBV_WC_SUCCESS;
			CHECK(wc.status == IBV_WC_SUCCESS ||
			      wc.status == IBV_WC_REM_ACCESS_ERR ||
			      wc.status == IBV_WC_WR_FLUSH_ERR);
		}
		if (end.status == IBV_WC_SUCCESS)
			for (int i = 0; i < LENGTH; i++)
				SAME(memory[at + i], 0xee);
		if (end.status != IBV_WC_SUCCESS || state_of(pair.a.qp) != IBV_QPS_RTS) {
			rejoin(&pair);
			if (end.status != IBV_WC_SUCCESS) {
				SAME(post(pair.b.qp, &invalidate), 0);
				COMPLETES(pair.b.cq, 3, IBV_WC_SUCCESS);
			}
		}
		/* The old key is dead for good. */
		if (count % 64 == 0) {
			SAME(remote_piece(pair.a.qp, 4, IBV_WR_RDMA_WRITE,
					  piece(&pair.a, 0, 1), (uintptr_t)memory + at, key),
			     0);
			COMPLETES(pair.a.cq, 4, IBV_WC_REM_ACCESS_ERR);
			rejoin(&pair);
		}
	}
	SAME(ibv_dealloc_mw(mw), 0);
}

int main(void)
{
	pair = make_pair(open_device(), IBV_QPT_RC);
	regions();
	rejoin(&pair);
	windows();
	free_pair(&pair);
	return 0;
}
