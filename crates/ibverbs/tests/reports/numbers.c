/* The number of a queue pair that is gone is not given to another one while packets for it may still
 * be on their way: nobody hears what was meant for it. */

#include "check.h"

#define SEEN 2000

/* No number comes again for a long time. */
static void no_number_twice(struct ibv_context *context)
{
	static uint32_t seen[SEEN];
	struct side side = make_parts(context);
	for (int i = 0; i < SEEN; i++) {
		struct ibv_qp_init_attr init = making(&side, IBV_QPT_RC);
		CHECK(side.qp = ibv_create_qp(side.pd, &init));
		seen[i] = side.qp->qp_num;
		for (int j = 0; j < i; j++)
			CHECK(seen[j] != seen[i]);
		SAME(ibv_destroy_qp(side.qp), 0);
	}
	side.qp = NULL;
	free_side(&side);
}

/* A peer goes on sending to one that is gone, while others come and go that expect the same sequence
 * numbers from the same peer. */
static void old_packets(struct ibv_context *context)
{
	struct agreement agreed = { IBV_MTU_1024, 16, 8 /* 1 ms */, 7, 7 };
	struct side sender = make_side(context, IBV_QPT_RC);
	for (int round = 0; round < 20; round++) {
		struct side gone = make_side(context, IBV_QPT_RC);
		join(sender.qp, gone.qp, agreed);
		for (int i = 0; i < 8; i++)
			SAME(send_piece(sender.qp, i, piece(&sender, 0, 5000)), 0);
		uint32_t number = gone.qp->qp_num;
		free_side(&gone);
		struct side next = make_side(context, IBV_QPT_RC);
		CHECK(next.qp->qp_num != number);
		bring_up(next.qp, sender.qp->qp_num, agreed);
		for (int i = 0; i < 8; i++)
			SAME(receive(next.qp, i, piece(&next, 0, 5000)), 0);
		COMPLETES(sender.cq, 0, IBV_WC_RETRY_EXC_ERR);
		for (int i = 1; i < 8; i++)
			COMPLETES(sender.cq, i, IBV_WC_WR_FLUSH_ERR);
		struct ibv_wc more;
		SAME(ibv_poll_cq(next.cq, 1, &more), 0);
		SAME(state_of(next.qp), IBV_QPS_RTS);
		free_side(&next);
		SAME(to_state(sender.qp, IBV_QPS_RESET), 0);
	}
	free_side(&sender);
}

int main(void)
{
	struct ibv_context *context = open_device();
	no_number_twice(context);
	old_packets(context);
	return 0;
}
