#include "pair.h"

// Writes into the buffer of a SEND that has not completed.
static void spoil(struct pair *pair)
{
	receive(&pair->b, SIZE);
	expect(!post(&pair->a, (struct request){ IBV_WR_SEND, .length = 512 }), "post");
	if (sinful)
		pair->a.memory[300] = 1;
	expect(completion(&pair->a) == IBV_WC_SUCCESS, "completion");
	if (!sinful)
		pair->a.memory[300] = 1;
	completion(&pair->b);
}

int main(void)
{
	struct pair pair = { 0 };
	pair_open(&pair);
	spoil(&pair);
	pair_close(&pair);
}
