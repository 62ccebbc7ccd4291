#include "pair.h"

static void expect_too_much(struct pair *pair)
{
	for (int i = 0; i < 12; i++)
		receive(&pair->b, 64);
}

int main(void)
{
	struct pair pair = { .cqe = sinful ? 8 : 16 };
	pair_open(&pair);
	expect_too_much(&pair);
	pair_close(&pair);
}
