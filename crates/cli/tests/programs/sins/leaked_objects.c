#include "pair.h"

// Registers memory and forgets it.
static struct ibv_mr *forget(struct pair *pair)
{
	return ibv_reg_mr(pair->pd, pair->a.memory, 64, IBV_ACCESS_LOCAL_WRITE);
}

int main(void)
{
	struct pair pair = { 0 };
	pair_open(&pair);
	struct ibv_mr *mr = forget(&pair);
	if (!sinful) {
		ibv_dereg_mr(mr);
		pair_close(&pair);
		return 0;
	}
	end_close(&pair.a);
	end_close(&pair.b);
}
