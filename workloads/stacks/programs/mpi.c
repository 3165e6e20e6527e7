/*
 * Latency of an all-reduce (float sum) or all-to-all (bytes), in the columns of the
 * OSU micro-benchmarks: TEST SIZE ITERATIONS BEATFILE. Three sizes up to SIZE, one
 * warm-up each. Every element of every result is checked, outside the time measured.
 * The number of the call that a rank is in stands in BEATFILE and the rank.
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LAST "# done"

static int rank, ranks, beat;

static void enter(void)
{
	static long calls;
	char text[24];
	int n = snprintf(text, sizeof text, "%ld\n", ++calls);
	if (beat >= 0 && pwrite(beat, text, n, 0) < 0)
		beat = -1;
}

/* Whole numbers, whose sums floats hold exactly in any order. */
static float element(int of, long i, int call) { return (float)((of * 31 + i * 7 + call) % 256); }

static int reduce(float *in, float *out, long n, int call, double *took)
{
	int wrong = 0;
	for (long i = 0; i < n; i++)
		in[i] = element(rank, i, call);
	memset(out, 0, n * sizeof *out);
	MPI_Barrier(MPI_COMM_WORLD);
	enter();
	double start = MPI_Wtime();
	MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	*took += MPI_Wtime() - start;
	for (long i = 0; i < n; i++) {
		float want = 0;
		for (int r = 0; r < ranks; r++)
			want += element(r, i, call);
		wrong += out[i] != want;
	}
	return wrong;
}

static int exchange(char *in, char *out, long n, int call, double *took)
{
	int wrong = 0;
	for (int to = 0; to < ranks; to++)
		for (long i = 0; i < n; i++)
			in[to * n + i] = (char)(rank * 31 + to * 17 + i * 7 + call);
	memset(out, 0, n * ranks);
	MPI_Barrier(MPI_COMM_WORLD);
	enter();
	double start = MPI_Wtime();
	MPI_Alltoall(in, n, MPI_BYTE, out, n, MPI_BYTE, MPI_COMM_WORLD);
	*took += MPI_Wtime() - start;
	for (int from = 0; from < ranks; from++)
		for (long i = 0; i < n; i++)
			wrong += out[from * n + i] != (char)(from * 31 + rank * 17 + i * 7 + call);
	return wrong;
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 5)
		MPI_Abort(MPI_COMM_WORLD, 2);
	int toall = !strcmp(argv[1], "all-to-all"), iterations = atoi(argv[3]);
	long size = atol(argv[2]);
	char name[256];
	snprintf(name, sizeof name, "%s%d", argv[4], rank);
	unlink(name); /* of an earlier run; others can write to the directory, so the file is a new one */
	beat = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
	size_t room = toall ? (size_t)size * ranks : (size_t)size;
	void *in = malloc(room), *out = malloc(room);
	if (!in || !out)
		MPI_Abort(MPI_COMM_WORLD, 3);
	if (rank == 0)
		printf("# OSU MPI %s Latency Test\n# Size Avg Latency(us) Min Latency(us) Max Latency(us) Iterations Validation\n",
			toall ? "All-to-All Personalized Exchange" : "Allreduce");
	long last = 0;
	for (int part = 64; part >= 1; part /= 8) {
		long n = size / part / 4 * 4;
		if (n < 4 || n == last)
			continue;
		last = n;
		double took = 0;
		int wrong = 0, all = 0;
		for (int i = 0; i <= iterations; i++) {
			if (i == 1)
				took = 0; /* the warm-up */
			wrong += toall ? exchange(in, out, n, i, &took) : reduce(in, out, n / 4, i, &took);
		}
		double mine = took * 1e6 / iterations, sum, least, most;
		MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
		MPI_Reduce(&mine, &least, 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
		MPI_Reduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
		MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
		if (rank == 0) {
			printf("%-12ld %12.2f %12.2f %12.2f %10d %s\n", n, sum / ranks, least, most, iterations, all ? "Fail" : "Pass");
			fflush(stdout);
		}
	}
	/* MPICH over UCX can hang in MPI_Finalize (pmodels/mpich#6596), and does so less
	 * where nothing of the last messages is under way. Then LAST tells that all is said. */
	for (int i = 0; i < 30; i++) {
		MPI_Barrier(MPI_COMM_WORLD);
		usleep(1000);
	}
	if (rank == 0) {
		puts(LAST);
		fflush(stdout);
	}
	MPI_Finalize();
	return 0;
}
