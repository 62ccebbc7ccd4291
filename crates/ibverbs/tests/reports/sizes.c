/* Messages of one byte less than some packets, of some packets, and of one byte more: all operations
 * at every MTU, over both versions of IP where the device has them. */

#include "check.h"

static void fill(struct side *side, uint32_t length, unsigned salt)
{
	for (uint32_t i = 0; i < length; i++)
		side->memory[i] = (uint8_t)(i * 7 + i / 251 + salt);
}

static void check_and_clear(struct side *to, const struct side *from, uint32_t length)
{
	CHECK(!memcmp(to->memory, from->memory, length));
	for (uint32_t i = length; i < ROOM; i++)
		SAME(to->memory[i], 0xee);
	memset(to->memory, 0xee, ROOM);
}

static void carry(struct pair *pair, enum ibv_qp_type type, uint32_t length)
{
	struct side *a = &pair->a, *b = &pair->b;
	uint64_t base = (uintptr_t)b->memory;
	fill(a, length, length);
	SAME(receive(b->qp, 1, piece(b, 0, length)), 0);
	SAME(send_piece(a->qp, 2, piece(a, 0, length)), 0);
	COMPLETES(a->cq, 2, IBV_WC_SUCCESS);
	struct ibv_wc wc = next_wc(b->cq);
	SAME(wc.status, IBV_WC_SUCCESS);
	SAME(wc.byte_len, length);
	check_and_clear(b, a, length);

	fill(a, length, length + 1);
	SAME(receive(b->qp, 3, piece(b, 0, length)), 0);
	SAME(remote_piece(a->qp, 4, IBV_WR_RDMA_WRITE_WITH_IMM, piece(a, 0, length), base,
			  b->mr->rkey),
	     0);
	COMPLETES(a->cq, 4, IBV_WC_SUCCESS);
	wc = next_wc(b->cq);
	SAME(wc.status, IBV_WC_SUCCESS);
	SAME(wc.byte_len, length);
	check_and_clear(b, a, length);

	if (type != IBV_QPT_RC)
		return;
	fill(b, length, length + 2);
	memset(a->memory, 0xee, ROOM);
	SAME(remote_piece(a->qp, 5, IBV_WR_RDMA_READ, piece(a, 0, length), base, b->mr->rkey), 0);
	COMPLETES(a->cq, 5, IBV_WC_SUCCESS);
	check_and_clear(a, b, length);
	memset(b->memory, 0xee, ROOM);
}

int main(void)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC };
	static const uint32_t packets[] = { 1, 2, 3, 8 };
	struct ibv_context *context = open_device();
	for (int type = 0; type < 2; type++) {
		for (enum ibv_mtu mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++) {
			struct pair pair = { make_side(context, types[type]),
					     make_side(context, types[type]) };
			struct agreement agreed = USUAL;
			agreed.mtu = mtu;
			join(pair.a.qp, pair.b.qp, agreed);
			memset(pair.b.memory, 0xee, ROOM);
			for (int i = 0; i < 4; i++) {
				uint32_t whole = packets[i] * (128u << mtu);
				carry(&pair, types[type], whole - 1);
				carry(&pair, types[type], whole);
				carry(&pair, types[type], whole + 1);
			}
			carry(&pair, types[type], 0);
			carry(&pair, types[type], 1);
			free_pair(&pair);
		}
	}
	return 0;
}
