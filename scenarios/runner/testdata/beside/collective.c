// The loop of the OSU micro-benchmarks (osu_allreduce, osu_alltoall): a barrier, operations
// that are not timed, a barrier, operations after each other, and the mean of the ranks'
// times. Arguments: allreduce or alltoall, then BYTES:WARMUP:ITERATIONS for each line of
// the output, "BYTES MICROSECONDS".
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *in, *out;

static void operate(int alltoall, int count, int ranks) {
	if (alltoall)
		MPI_Alltoall(in, count / ranks, MPI_FLOAT, out, count / ranks, MPI_FLOAT, MPI_COMM_WORLD);
	else
		MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
	int rank, ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int alltoall = !strcmp(argv[1], "alltoall");
	for (int a = 2; a < argc; a++) {
		int bytes, warmup, iterations;
		if (sscanf(argv[a], "%d:%d:%d", &bytes, &warmup, &iterations) != 3) return 2;
		int count = bytes / sizeof(float);
		in = malloc(bytes);
		out = malloc(bytes);
		for (int i = 0; i < count; i++) {
			in[i] = rank + 1;
			out[i] = 0;
		}
		MPI_Barrier(MPI_COMM_WORLD);
		for (int i = 0; i < warmup; i++) operate(alltoall, count, ranks);
		MPI_Barrier(MPI_COMM_WORLD);
		double begin = MPI_Wtime();
		for (int i = 0; i < iterations; i++) operate(alltoall, count, ranks);
		double own = (MPI_Wtime() - begin) / iterations * 1e6, mean;
		for (int i = 0; i < count / ranks * ranks; i++)
			if (out[i] != (alltoall ? i / (count / ranks) + 1 : ranks * (ranks + 1) / 2)) MPI_Abort(MPI_COMM_WORLD, 3);
		MPI_Reduce(&own, &mean, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
		if (rank == 0) printf("%d %f\n", bytes, mean / ranks);
		free(in);
		free(out);
	}
	MPI_Finalize();
	return 0;
}
