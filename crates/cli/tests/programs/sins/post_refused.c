#include "pair.h"

// Posts with more entries than the queue pair was made for.
static void post_too_many_entries(struct pair *pair)
{
	struct ibv_sge sges[3];
	struct ibv_send_wr wr = { .sg_list = sges, .num_sge = sinful ? 3 : 2,
				  .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	for (int i = 0; i < 3; i++)
		sges[i] = (struct ibv_sge){ (uintptr_t)pair->a.memory, 8, pair->a.mr->lkey };
	receive(&pair->b, 64);
	if (!ibv_post_send(pair->a.qp, &wr, &bad))
		completion(&pair->a);
}

int main(void)
{
	struct pair pair = { 0 };
	pair_open(&pair);
	post_too_many_entries(&pair);
	pair_close(&pair);
}
