/* rdma_join_multicast(3), rdma_join_multicast_ex(3), rdma_leave_multicast(3): two groups on one id,
 * a member that only sends, and what arrives after one group was left. */
#include "check.h"

static struct rdma_cm_id *member(struct rdma_event_channel *channel, const char *group)
{
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_UDP));
	CHECK(!rdma_bind_addr(id, address("127.0.0.1", 0)));
	CHECK(!rdma_resolve_addr(id, NULL, address(group, 0), 2000));
	pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	make_qp(id);
	return id;
}

static struct rdma_ud_param joined_group(struct rdma_event_channel *channel, struct rdma_cm_id *id,
					 void *context)
{
	struct rdma_cm_event *event = await(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
	struct rdma_ud_param ud = event->param.ud;

	CHECK(event->status == 0 && event->id == id);
	CHECK(ud.private_data == context && ud.qp_num == 0xffffff);
	CHECK(!rdma_ack_cm_event(event));
	return ud;
}

static void post(struct rdma_cm_id *id, char *buffer, struct ibv_mr *mr)
{
	CHECK(!rdma_post_recv(id, buffer, buffer, 64, mr));
}

static void send_to(struct rdma_cm_id *id, struct rdma_ud_param *ud, const char *word)
{
	struct ibv_ah *ah = ibv_create_ah(id->pd, &ud->ah_attr);
	struct ibv_wc wc;

	CHECK(ah);
	CHECK(!rdma_post_ud_send(id, NULL, (void *)word, strlen(word) + 1, NULL, IBV_SEND_INLINE,
				 ah, ud->qp_num));
	CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(!ibv_destroy_ah(ah));
}

static void hears(struct rdma_cm_id *id, const char *word)
{
	struct ibv_wc wc;

	CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(wc.wc_flags & IBV_WC_GRH);
	char *got = (char *)(uintptr_t)wc.wr_id + sizeof(struct ibv_grh);
	if (strcmp(got, word))
		fprintf(stderr, "got %s\n", got);
	CHECK(!strcmp(got, word));
}

int main(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *receiver = member(channel, "239.1.2.3");
	struct rdma_cm_id *sender = member(channel, "239.1.2.3");
	char buffers[4][64];
	struct ibv_mr *mr = rdma_reg_msgs(receiver, buffers, sizeof buffers);
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
		.addr = address("239.1.2.3", 0),
	};
	struct rdma_ud_param first, second;
	int one, two;

	CHECK(mr);
	for (int i = 0; i < 4; i++)
		post(receiver, buffers[i], mr);
	CHECK(!rdma_join_multicast(receiver, address("239.1.2.3", 0), &one));
	first = joined_group(channel, receiver, &one);
	attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS;
	attr.addr = address("239.1.2.4", 0);
	CHECK(!rdma_join_multicast_ex(receiver, &attr, &two));
	second = joined_group(channel, receiver, &two);
	CHECK(memcmp(&first.ah_attr.grh.dgid, &second.ah_attr.grh.dgid, 16));
	REFUSED(rdma_join_multicast(receiver, address("127.0.0.1", 0), NULL), EINVAL);

	/* Only sends: its own words do not come back to it. */
	attr.comp_mask |= RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	attr.addr = address("239.1.2.3", 0);
	CHECK(!rdma_join_multicast_ex(sender, &attr, NULL));
	first = joined_group(channel, sender, NULL);
	attr.join_flags = 7;
	REFUSED(rdma_join_multicast_ex(sender, &attr, NULL), EINVAL);
	attr.comp_mask = 0;
	REFUSED(rdma_join_multicast_ex(sender, &attr, NULL), EINVAL);

	send_to(sender, &first, "to the first");
	hears(receiver, "to the first");
	send_to(sender, &second, "to the second");
	hears(receiver, "to the second");

	CHECK(!rdma_leave_multicast(receiver, address("239.1.2.3", 0)));
	CHECK(rdma_leave_multicast(receiver, address("239.1.2.3", 0)) == -1);
	send_to(sender, &first, "nobody hears this");
	send_to(sender, &second, "but this");
	hears(receiver, "but this");
	CHECK(!rdma_leave_multicast(receiver, address("239.1.2.4", 0)));
	CHECK(!rdma_leave_multicast(sender, address("239.1.2.3", 0)));
	CHECK(is_silent(channel));
	CHECK(!rdma_dereg_mr(mr));
	part(receiver);
	part(sender);
	rdma_destroy_event_channel(channel);
	return 0;
}
