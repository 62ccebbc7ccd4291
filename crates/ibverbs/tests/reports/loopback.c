/* Queue pairs of one host reach each other by each of its device's addresses, on each transport: as
 * 127.0.0.1, as ::1, and as any other address of its own. */

#include "check.h"

static void reach(struct ibv_context *context, enum ibv_qp_type type)
{
	struct pair pair = make_pair(context, type);
	struct side *a = &pair.a, *b = &pair.b;
	uint32_t length = type == IBV_QPT_UD ? 1000 : 10000;
	uint32_t front = type == IBV_QPT_UD ? GRH : 0;
	memset(a->memory, 'x', length);
	SAME(receive(b->qp, 1, piece(b, 0, length + front)), 0);
	struct ibv_sge sge = piece(a, 0, length);
	struct ibv_send_wr wr = request(2, IBV_WR_SEND, &sge, 1);
	struct ibv_ah *ah = NULL;
	if (type == IBV_QPT_UD) {
		struct ibv_ah_attr to = way(context);
		CHECK(ah = ibv_create_ah(a->pd, &to));
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = b->qp->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	}
	SAME(post(a->qp, &wr), 0);
	COMPLETES(a->cq, 2, IBV_WC_SUCCESS);
	COMPLETES(b->cq, 1, IBV_WC_SUCCESS);
	CHECK(!memcmp(b->memory + front, a->memory, length));
	if (ah)
		SAME(ibv_destroy_ah(ah), 0);
	free_pair(&pair);
}

/* By all addresses of a device; how many there are. */
static int reach_by_all(struct ibv_device *device)
{
	struct ibv_context *context;
	struct ibv_port_attr port;
	union ibv_gid gid, none = { .raw = { 0 } };
	int found = 0;
	CHECK(context = ibv_open_device(device));
	SAME(ibv_query_port(context, 1, &port), 0);
	for (int index = 0; index < port.gid_tbl_len && port.state == IBV_PORT_ACTIVE; index++) {
		if (ibv_query_gid(context, 1, index, &gid) || !memcmp(&gid, &none, sizeof gid))
			continue;
		char text[16];
		snprintf(text, sizeof text, "%d", index);
		setenv("CHECK_GID", text, 1);
		reach(context, IBV_QPT_RC);
		reach(context, IBV_QPT_UC);
		reach(context, IBV_QPT_UD);
		found++;
	}
	printf("%s: %d addresses\n", ibv_get_device_name(device), found);
	SAME(ibv_close_device(context), 0);
	return found;
}

int main(void)
{
	int count, found = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count > 0);
	for (int i = 0; i < count; i++)
		found += reach_by_all(list[i]);
	ibv_free_device_list(list);
	/* As many as there are at least. */
	const char *expected = getenv("CHECK_ADDRESSES");
	CHECK(found >= (expected ? atoi(expected) : 1));
	return 0;
}
