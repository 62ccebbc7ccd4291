#include "pair.h"

// Sends before the other side has posted a receive.
static void send_too_early(struct pair *pair)
{
	if (!sinful)
		receive(&pair->b, 64);
	post(&pair->a, (struct request){ IBV_WR_SEND, .length = 64 });
	if (sinful) {
		struct ibv_wc wc;
		for (int i = 0; i < 200; i++) {
			ibv_poll_cq(pair->a.cq, 1, &wc);
			usleep(100);
		}
		receive(&pair->b, 64);
	}
	expect(completion(&pair->a) == IBV_WC_SUCCESS, "completion");
	completion(&pair->b);
}

int main(void)
{
	struct pair pair = { .rnr_retry = 7 };
	pair_open(&pair);
	send_too_early(&pair);
	pair_close(&pair);
}
