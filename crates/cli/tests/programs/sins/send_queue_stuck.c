#include "pair.h"

// Never asks for a completion.
static void send_silently(struct pair *pair)
{
	for (int i = 0; i < 40; i++) {
		int signal = !sinful && i % 8 == 7;
		post(&pair->a, (struct request){ IBV_WR_RDMA_WRITE, .length = 8,
						 .remote = (uintptr_t)pair->b.memory,
						 .rkey = pair->b.mr->rkey, .unsignaled = !signal });
		if (signal)
			completion(&pair->a);
	}
}

int main(void)
{
	struct pair pair = { 0 };
	pair_open(&pair);
	send_silently(&pair);
	pair_close(&pair);
}
