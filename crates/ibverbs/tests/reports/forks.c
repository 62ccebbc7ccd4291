/* Children of fork neither use nor disturb the device of their parent: its traffic goes on while they
 * come, change their copy of registered memory, and go; what they ask of the device answers EIO. A child
 * whose parent has made nothing on its devices, or is done with it, opens its own. */

#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define CHILDREN 20
#define TOO_EARLY 77

static struct ibv_context *context;
static struct pair pair;
static atomic_int is_over, messages;

static void exchange(uint64_t id)
{
	pair.a.memory[0] = (uint8_t)id;
	SAME(receive(pair.b.qp, id, piece(&pair.b, 0, 1)), 0);
	SAME(send_piece(pair.a.qp, id, piece(&pair.a, 0, 1)), 0);
	COMPLETES(pair.a.cq, id, IBV_WC_SUCCESS);
	COMPLETES(pair.b.cq, id, IBV_WC_SUCCESS);
	SAME(pair.b.memory[0], (uint8_t)id);
}

static void *go_on(void *unused)
{
	(void)unused;
	for (uint64_t id = 0; !is_over; id++) {
		exchange(id);
		messages++;
	}
	return NULL;
}

/* Memory is the child's own from now on. */
static void touch(void)
{
	memset(pair.b.memory, 0xee, ROOM);
	memset(pair.a.memory, 0xee, ROOM);
}

static void ask(void)
{
	struct ibv_wc wc;
	struct ibv_device_attr attr;
	CHECK(!ibv_alloc_pd(context) && errno == EIO);
	CHECK(!ibv_reg_mr(pair.a.pd, pair.a.memory, 64, 0) && errno == EIO);
	CHECK(!ibv_create_cq(context, 1, NULL, NULL, 0) && errno == EIO);
	SAME(send_piece(pair.a.qp, 0, piece(&pair.a, 0, 1)), EIO);
	SAME(receive(pair.a.qp, 0, piece(&pair.a, 0, 1)), EIO);
	CHECK(ibv_poll_cq(pair.a.cq, 1, &wc) < 0);
	SAME(to_state(pair.a.qp, IBV_QPS_ERR), EIO);
	SAME(ibv_destroy_qp(pair.a.qp), EIO);
	SAME(ibv_dereg_mr(pair.a.mr), EIO);
	/* What is known without the device may be told. */
	(void)ibv_query_device(context, &attr);
}

static void open_anew(void)
{
	CHECK(!context || (!ibv_alloc_pd(context) && errno == EIO));
	context = ibv_open_device(ibv_get_device_list(NULL)[0]);
	if (!context)
		_exit(errno == EIO ? TOO_EARLY : 1);
	ibv_close_device(context);
	context = open_device();
	pair = make_pair(context, IBV_QPT_RC);
	exchange(0);
	free_pair(&pair);
	SAME(ibv_close_device(context), 0);
}

/* A thread of the device may take a moment longer to be gone than its end took. */
static void in_child_with_a_device(void)
{
	double until = seconds() + PATIENCE;
	int status;
	do {
		CHECK(seconds() < until);
		pid_t child = fork();
		CHECK(child >= 0);
		if (!child) {
			alarm(PATIENCE);
			open_anew();
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child);
	} while (WIFEXITED(status) && WEXITSTATUS(status) == TOO_EARLY);
	SAME(status, 0);
}

static void in_child(void (*job)(void))
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		alarm(PATIENCE);
		job();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	SAME(status, 0);
}

int main(void)
{
	pthread_t thread;
	SAME(ibv_fork_init(), 0);
	context = open_device();
	in_child_with_a_device();
	pair = make_pair(context, IBV_QPT_RC);
	exchange(0);
	SAME(pthread_create(&thread, NULL, go_on, NULL), 0);
	for (int number = 0; number < CHILDREN; number++) {
		int before = messages;
		in_child(number % 2 ? ask : touch);
		double until = seconds() + PATIENCE;
		while (messages == before)
			CHECK(seconds() < until);
	}
	is_over = 1;
	SAME(pthread_join(thread, NULL), 0);
	free_pair(&pair);
	SAME(ibv_close_device(context), 0);
	context = NULL;
	in_child_with_a_device();
	return 0;
}
