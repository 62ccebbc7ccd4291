/* Two thousand connections between two processes, one after the other, each of which carries a
 * message: the last is made as the first, and nothing is left behind. */

#include "ends.h"

#include <dirent.h>

#define CYCLES 2000

static int descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;
	CHECK(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

/* KiB in memory. */
static long resident(void)
{
	long pages, resident;
	FILE *file = fopen("/proc/self/statm", "r");
	CHECK(file && fscanf(file, "%ld %ld", &pages, &resident) == 2);
	fclose(file);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* What there was after a quarter is what there is at the end. */
static void nothing_is_left(int cycle)
{
	static int before;
	static long memory;
	if (cycle == CYCLES / 4) {
		before = descriptors();
		memory = resident();
	}
	if (cycle == CYCLES - 1) {
		CHECK(descriptors() <= before + 8);
		CHECK(resident() < memory + 16 * 1024);
	}
}

static void serve(struct rdma_cm_id *listener)
{
	for (int cycle = 0; cycle < CYCLES; cycle++) {
		struct rdma_cm_id *id;
		char text[MESSAGE], expected[MESSAGE] = { 0 };
		struct ibv_wc wc;
		SAME(rdma_get_request(listener, &id), 0);
		struct ibv_mr *mr = rdma_reg_msgs(id, text, MESSAGE);
		CHECK(mr);
		SAME(rdma_post_recv(id, NULL, text, MESSAGE, mr), 0);
		SAME(rdma_accept(id, NULL), 0);
		SAME(rdma_get_recv_comp(id, &wc), 1);
		SAME(wc.status, IBV_WC_SUCCESS);
		snprintf(expected, sizeof expected, "connection %d", cycle);
		CHECK(!memcmp(text, expected, MESSAGE));
		/* The other end disconnects, or this one does. */
		CHECK(!rdma_disconnect(id) || errno == EINVAL || errno == ENOTCONN);
		rdma_dereg_mr(mr);
		rdma_destroy_ep(id);
		nothing_is_left(cycle);
	}
}

static void connect_often(const char *address, uint16_t port)
{
	for (int cycle = 0; cycle < CYCLES; cycle++) {
		char text[MESSAGE] = { 0 };
		struct ibv_wc wc;
		struct rdma_cm_id *id = endpoint(address, port);
		SAME(rdma_connect(id, NULL), 0);
		snprintf(text, sizeof text, "connection %d", cycle);
		SAME(rdma_post_send(id, NULL, text, MESSAGE, NULL, IBV_SEND_INLINE), 0);
		SAME(rdma_get_send_comp(id, &wc), 1);
		CHECK(!rdma_disconnect(id) || errno == EINVAL || errno == ENOTCONN);
		rdma_destroy_ep(id);
		nothing_is_left(cycle);
	}
}

int main(void)
{
	return !both("127.0.0.1", serve, connect_often);
}
