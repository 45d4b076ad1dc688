/* Two MPI ranks send each other ROUNDS messages of each size and check every byte. Prints the payload bytes that both sent. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 5

static unsigned char pattern(int rank, int round, int i)
{
	return (unsigned char)(rank * 101 + round * 31 + i * 7 + (i >> 8));
}

int main(int argc, char **argv)
{
	static const int sizes[] = { 8, 1024, 8192, 65536, 262144 };
	enum { LARGEST = 262144 };
	unsigned char *out = malloc(LARGEST), *in = malloc(LARGEST);
	long payload = 0;
	int rank, ranks, wrong = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks != 2 || !out || !in) {
		fprintf(stderr, "mpi_exchange: needs two ranks, has %d\n", ranks);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
		for (int round = 0; round < ROUNDS; round++) {
			for (int i = 0; i < sizes[s]; i++)
				out[i] = pattern(rank, round, i);
			MPI_Sendrecv(out, sizes[s], MPI_BYTE, 1 - rank, round, in, sizes[s], MPI_BYTE, 1 - rank, round,
				     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			for (int i = 0; i < sizes[s]; i++)
				wrong += in[i] != pattern(1 - rank, round, i);
			payload += sizes[s];
		}
	if (wrong)
		fprintf(stderr, "mpi_exchange: rank %d: %d bytes are wrong\n", rank, wrong);
	if (rank == 0)
		printf("payload %ld\n", 2 * payload);
	MPI_Finalize();
	free(out);
	free(in);
	return wrong != 0;
}
