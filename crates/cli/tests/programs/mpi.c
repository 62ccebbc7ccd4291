/* What the ranks do: sums, a ring, an exchange of all with all, and writes into each other's memory.
 * Each compares what it gets, and says so. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 20000 };

static int rank, ranks;

static void must(int is_right, const char *what)
{
	if (!is_right) {
		fprintf(stderr, "rank %d: %s went wrong\n", rank, what);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

/* Short ones go eagerly, long ones by rendezvous. */
static void sums(void)
{
	static long mine[LENGTH], sum[LENGTH];
	for (int length = 1; length <= LENGTH; length *= 20) {
		for (int i = 0; i < length; i++)
			mine[i] = (long)rank * i + length;
		MPI_Allreduce(mine, sum, length, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
		for (int i = 0; i < length; i++)
			must(sum[i] == (long)ranks * (ranks - 1) / 2 * i + (long)ranks * length,
			     "a sum");
	}
}

static void ring(void)
{
	int token = rank, next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
	for (int step = 1; step <= ranks; step++) {
		int got;
		MPI_Sendrecv(&token, 1, MPI_INT, next, step, &got, 1, MPI_INT, last, step,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		must(got == (rank + ranks - step) % ranks, "the ring");
		token = got;
	}
}

static void exchange(void)
{
	int *to = malloc(sizeof(int) * ranks * LENGTH), *from = malloc(sizeof(int) * ranks * LENGTH);
	for (int peer = 0; peer < ranks; peer++)
		for (int i = 0; i < LENGTH; i++)
			to[peer * LENGTH + i] = rank * 1000003 + peer * 1009 + i;
	MPI_Alltoall(to, LENGTH, MPI_INT, from, LENGTH, MPI_INT, MPI_COMM_WORLD);
	for (int peer = 0; peer < ranks; peer++)
		for (int i = 0; i < LENGTH; i++)
			must(from[peer * LENGTH + i] == peer * 1000003 + rank * 1009 + i,
			     "the exchange");
	free(to);
	free(from);
}

static void windows(void)
{
	long *memory, one = 1;
	MPI_Win window;
	MPI_Win_allocate(sizeof(long) * (ranks + 1), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD,
			 &memory, &window);
	for (int i = 0; i <= ranks; i++)
		memory[i] = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, window);
	for (int peer = 0; peer < ranks; peer++) {
		long value = 100 * rank + peer, before;
		MPI_Put(&value, 1, MPI_LONG, peer, rank, 1, MPI_LONG, window);
		MPI_Fetch_and_op(&one, &before, MPI_LONG, peer, ranks, MPI_SUM, window);
		MPI_Win_flush(peer, window);
	}
	MPI_Win_unlock_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int peer = 0; peer < ranks; peer++)
		must(memory[peer] == 100 * peer + rank, "a write");
	must(memory[ranks] == ranks, "counting");
	MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	sums();
	ring();
	exchange();
	windows();
	MPI_Finalize();
	puts("all is right");
	return 0;
}
