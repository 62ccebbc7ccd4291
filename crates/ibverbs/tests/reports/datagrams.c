/* A datagram that is too long for whom it reaches is nobody's fault: it is dropped, and the queue pair
 * goes on. One that is too long for the port is the sender's: it is told, and nothing is sent. */

#include "check.h"

static struct pair pair;
static struct ibv_ah *ah;

static int send_datagram(uint64_t id, uint32_t length, int is_inline)
{
	struct ibv_sge sge = piece(&pair.a, 0, length);
	struct ibv_send_wr wr = request(id, IBV_WR_SEND, &sge, 1);
	wr.send_flags = is_inline ? IBV_SEND_INLINE : 0;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = pair.b.qp->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	return post(pair.a.qp, &wr);
}

static void too_long_for_the_buffer(void)
{
	for (int round = 0; round < 20; round++) {
		uint32_t room = GRH + 10 + round;
		SAME(receive(pair.b.qp, round, piece(&pair.b, 0, room)), 0);
		memset(pair.b.memory, 0xee, 5000);
		/* Longer by one byte, by a packet, and as long as the header alone. */
		static const uint32_t more[] = { 1, 30, 4000 };
		for (int i = 0; i < 3; i++) {
			SAME(send_datagram(1, room - GRH + more[i], 0), 0);
			COMPLETES(pair.a.cq, 1, IBV_WC_SUCCESS);
		}
		/* The one that fits finds the buffer that they did not. */
		memset(pair.a.memory, 'a' + round, 5000);
		SAME(send_datagram(2, room - GRH, 0), 0);
		COMPLETES(pair.a.cq, 2, IBV_WC_SUCCESS);
		struct ibv_wc wc = next_wc(pair.b.cq);
		SAME(wc.status, IBV_WC_SUCCESS);
		SAME(wc.wr_id, round);
		SAME(wc.byte_len, room);
		CHECK(!memcmp(pair.b.memory + GRH, pair.a.memory, room - GRH));
		for (uint32_t i = room; i < 5000; i++)
			SAME(pair.b.memory[i], 0xee);
		SAME(state_of(pair.b.qp), IBV_QPS_RTS);
	}
}

static void too_long_for_the_port(struct ibv_context *context)
{
	struct ibv_port_attr port;
	SAME(ibv_query_port(context, 1, &port), 0);
	uint32_t most = 128u << port.active_mtu;
	SAME(receive(pair.b.qp, 1, piece(&pair.b, 0, GRH + most)), 0);
	SAME(send_datagram(1, most, 0), 0);
	COMPLETES(pair.a.cq, 1, IBV_WC_SUCCESS);
	COMPLETES(pair.b.cq, 1, IBV_WC_SUCCESS);
	static const uint32_t more[] = { 1, 1000, 50000 };
	for (int i = 0; i < 3; i++) {
		SAME(receive(pair.b.qp, 2, piece(&pair.b, 0, ROOM)), 0);
		int refused = send_datagram(3, most + more[i], 0);
		if (refused) {
			SAME(refused, EINVAL);
		} else {
			COMPLETES(pair.a.cq, 3, IBV_WC_LOC_LEN_ERR);
			SAME(state_of(pair.a.qp), IBV_QPS_SQE);
			SAME(to_state(pair.a.qp, IBV_QPS_RTS), 0);
		}
		/* Nothing of it has come, and what comes next does. */
		SAME(send_datagram(4, 8, i % 2), 0);
		COMPLETES(pair.a.cq, 4, IBV_WC_SUCCESS);
		struct ibv_wc wc = next_wc(pair.b.cq);
		SAME(wc.status, IBV_WC_SUCCESS);
		SAME(wc.byte_len, GRH + 8);
	}
}

int main(void)
{
	struct ibv_context *context = open_device();
	pair = make_pair(context, IBV_QPT_UD);
	struct ibv_ah_attr to = way(context);
	CHECK(ah = ibv_create_ah(pair.a.pd, &to));
	too_long_for_the_buffer();
	too_long_for_the_port(context);
	SAME(ibv_destroy_ah(ah), 0);
	free_pair(&pair);
	return 0;
}
