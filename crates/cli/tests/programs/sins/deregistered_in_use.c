#include "pair.h"

// Takes away the memory of a receive that is posted.
static void pull_away(struct pair *pair)
{
	receive(&pair->b, 64);
	if (!sinful) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
		ibv_modify_qp(pair->b.qp, &attr, IBV_QP_STATE);
		completion(&pair->b);
	}
	expect(!ibv_dereg_mr(pair->b.mr), "ibv_dereg_mr");
	pair->b.mr = NULL;
}

int main(void)
{
	struct pair pair = { 0 };
	pair_open(&pair);
	pull_away(&pair);
	pair_close(&pair);
}
