#include "pair.h"

// Sends from a region of another domain.
static void send_from_elsewhere(struct pair *pair)
{
	struct ibv_pd *pd = ibv_alloc_pd(pair->context);
	struct ibv_mr *mr = ibv_reg_mr(pd, pair->a.memory, SIZE, ALL_RIGHTS);
	receive(&pair->b, 64);
	post(&pair->a, (struct request){ IBV_WR_SEND, .length = 64,
					 .lkey = sinful ? mr->lkey : 0 });
	completion(&pair->a);
	ibv_dereg_mr(mr);
	ibv_dealloc_pd(pd);
}

int main(void)
{
	struct pair pair = { 0 };
	pair_open(&pair);
	send_from_elsewhere(&pair);
	pair_close(&pair);
}
