#include "pair.h"

// Writes beyond the end of the other side's region.
static void write_beyond(struct pair *pair)
{
	post(&pair->a, (struct request){ IBV_WR_RDMA_WRITE, .length = 64,
					 .remote = (uintptr_t)pair->b.memory + SIZE -
						   (sinful ? 60 : 64),
					 .rkey = pair->b.mr->rkey });
	expect((completion(&pair->a) == IBV_WC_REM_ACCESS_ERR) == sinful, "completion");
}

int main(void)
{
	struct pair pair = { 0 };
	pair_open(&pair);
	write_beyond(&pair);
	pair_close(&pair);
}
