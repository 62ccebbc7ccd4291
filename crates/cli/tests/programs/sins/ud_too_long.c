#include "pair.h"

static void send_a_long_datagram(struct pair *pair)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1,
				    .grh = { .dgid = pair->gid, .hop_limit = 1 } };
	struct ibv_ah *ah = ibv_create_ah(pair->pd, &attr);
	static char large[8192];
	struct ibv_mr *mr = ibv_reg_mr(pair->pd, large, sizeof(large), IBV_ACCESS_LOCAL_WRITE);
	int refused;
	receive(&pair->b, SIZE);
	refused = post(&pair->a, (struct request){ IBV_WR_SEND, .length = sinful ? 8000 : 1000,
						   .addr = (uintptr_t)large, .lkey = mr->lkey,
						   .ah = ah, .qpn = pair->b.qp->qp_num });
	if (!refused)
		completion(&pair->a);
	ibv_destroy_ah(ah);
	ibv_dereg_mr(mr);
}

int main(void)
{
	struct pair pair = { .type = IBV_QPT_UD };
	pair_open(&pair);
	send_a_long_datagram(&pair);
	pair_close(&pair);
}
