/* Memory on demand: a region may be registered before there is memory, keeps working when the memory
 * is replaced, and one of all memory needs no others. Advice is taken or refused as the manual says. */

#include "check.h"

#include <sys/mman.h>

#define LENGTH (16 * 4096)
#define ON_DEMAND (ALL_RIGHTS | IBV_ACCESS_ON_DEMAND)

static struct pair pair;

static void *map(void *at)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);
	void *memory = mmap(at, LENGTH, PROT_READ | PROT_WRITE, flags, -1, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

/* A writes one page of its memory to B's `to`. */
static enum ibv_wc_status write_page(uint8_t *to, uint32_t rkey, uint8_t byte)
{
	memset(pair.a.memory, byte, 4096);
	struct ibv_sge from = piece(&pair.a, 0, 4096);
	SAME(remote_piece(pair.a.qp, 1, IBV_WR_RDMA_WRITE, from, (uintptr_t)to, rkey), 0);
	return next_wc(pair.a.cq).status;
}

static int advise(enum ibv_advise_mr_advice advice, struct ibv_mr *mr, void *at, uint32_t length)
{
	struct ibv_sge part = { (uintptr_t)at, length, mr->lkey };
	return ibv_advise_mr(mr->pd, advice, IBV_ADVISE_MR_FLAG_FLUSH, &part, 1);
}

static int are_resident(void *at)
{
	unsigned char pages[LENGTH / 4096];
	int count = 0;
	CHECK(!mincore(at, LENGTH, pages));
	for (int page = 0; page < LENGTH / 4096; page++)
		count += pages[page] & 1;
	return count;
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_device_attr_ex attr;
	SAME(ibv_query_device_ex(context, NULL, &attr), 0);
	SAME(attr.odp_caps.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
	pair = make_pair(context, IBV_QPT_RC);

	/* Registered while nothing is there. */
	uint8_t *memory = map(NULL);
	struct ibv_mr *mr;
	SAME(munmap(memory, LENGTH), 0);
	CHECK(mr = ibv_reg_mr(pair.b.pd, memory, LENGTH, ON_DEMAND));
	SAME(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, mr, memory, LENGTH), EFAULT);
	CHECK(write_page(memory, mr->rkey, 1) != IBV_WC_SUCCESS);
	/* The responder has failed as well; nobody waits for it. */
	rejoin(&pair);
	map(memory);
	SAME(write_page(memory, mr->rkey, 2), IBV_WC_SUCCESS);
	SAME(memory[4095], 2);

	/* Other pages at the same place. */
	map(memory);
	SAME(memory[4095], 0);
	SAME(write_page(memory, mr->rkey, 3), IBV_WC_SUCCESS);
	SAME(memory[0], 3);

	/* Paged in before it is needed. */
	map(memory);
	SAME(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, mr, memory, LENGTH), 0);
	SAME(are_resident(memory), 0);
	SAME(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, mr, memory, 3 * 4096), 0);
	SAME(are_resident(memory), 3);
	SAME(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, mr, memory + 1, LENGTH), EFAULT);
	SAME(advise((enum ibv_advise_mr_advice)99, mr, memory, 1), EOPNOTSUPP);
	SAME(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, pair.b.mr, pair.b.memory, 1), EINVAL);
	SAME(ibv_advise_mr(pair.b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 2, NULL, 0), EINVAL);
	SAME(ibv_dereg_mr(mr), 0);
	CHECK(mr = ibv_reg_mr(pair.b.pd, memory, LENGTH, IBV_ACCESS_ON_DEMAND));
	SAME(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, mr, memory, 1), EPERM);
	struct ibv_sge foreign = { (uintptr_t)memory, 1, mr->lkey };
	SAME(ibv_advise_mr(pair.a.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &foreign, 1), EPERM);
	SAME(ibv_dereg_mr(mr), 0);

	/* All memory: only on demand, and only from its beginning. */
	CHECK(!ibv_reg_mr(pair.b.pd, NULL, SIZE_MAX, ALL_RIGHTS) && errno == EINVAL);
	CHECK(!ibv_reg_mr(pair.b.pd, memory, SIZE_MAX, ON_DEMAND) && errno == EINVAL);
	CHECK(mr = ibv_reg_mr(pair.b.pd, NULL, SIZE_MAX, ON_DEMAND));
	uint8_t stack[4096] = { 0 };
	SAME(write_page(stack, mr->rkey, 4), IBV_WC_SUCCESS);
	SAME(stack[4095], 4);
	SAME(write_page(memory, mr->rkey, 5), IBV_WC_SUCCESS);
	SAME(memory[4095], 5);
	SAME(munmap(memory, LENGTH), 0);
	CHECK(write_page(memory, mr->rkey, 6) != IBV_WC_SUCCESS);
	SAME(ibv_dereg_mr(mr), 0);

	free_pair(&pair);
	SAME(ibv_close_device(context), 0);
	return 0;
}
