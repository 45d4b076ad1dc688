/* NCCL's collectives over the sizes asked for, each element checked, and the bus bandwidth as NCCL's own tests define it.
 *
 * One rank per process: RANK and WORLD_SIZE say which, LOCAL_RANK which GPU (several ranks may share one, if each has its own
 * NCCL_HOSTID). Rank 0 writes the communicator's id to the file ID_FILE, the others wait for it there.
 *
 * usage: collectives [--min BYTES] [--max BYTES] [--factor N] [--rounds N] [--ops all_gather,all_reduce,reduce_scatter,send_recv]
 */
#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>
#include <vector>

#define CUDA(call) must((call) == cudaSuccess, #call, cudaGetErrorString(cudaGetLastError()))
#define NCCL(call)                                                   \
	do {                                                         \
		ncclResult_t r = (call);                             \
		must(r == ncclSuccess, #call, ncclGetErrorString(r)); \
	} while (0)

static int rank_, world;

static void must(bool holds, const char *what, const char *why)
{
	if (holds)
		return;
	fprintf(stderr, "rank %d: %s: %s\n", rank_, what, why);
	exit(1);
}

static int number(const char *name, int otherwise)
{
	const char *v = getenv(name);
	return v && *v ? atoi(v) : otherwise;
}

/* Element i of what rank r sends in this round: a small integer, so that sums are exact in float. */
__host__ __device__ static float element(int r, size_t i, int round)
{
	return (float)((i * 2654435761u + (unsigned)r * 97u + (unsigned)round * 131u) % 1021u);
}

__global__ static void fill(float *to, size_t n, int r, int round)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
		to[i] = element(r, i, round);
}

/* Counts elements that are not the sum of those of ranks [from, to). */
__global__ static void check(const float *got, size_t n, size_t first, int from, int to, int round, unsigned long long *bad)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
		float want = 0;
		for (int r = from; r < to; r++)
			want += element(r, first + i, round);
		if (got[i] != want)
			atomicAdd(bad, 1ull);
	}
}

struct op {
	const char *name;
	/* Elements that a rank gives and gets, of n in all; and bus bandwidth over size by time. */
	size_t (*gives)(size_t n), (*gets)(size_t n);
	double (*factor)();
};

static size_t whole(size_t n) { return n; }
static size_t part(size_t n) { return n / world; }
static double ring() { return (world - 1.0) / world; }
static double twice() { return 2.0 * (world - 1.0) / world; }
static double once() { return 1.0; }

static const op OPS[] = {
	{ "all_gather", part, whole, ring },
	{ "all_reduce", whole, whole, twice },
	{ "reduce_scatter", whole, part, ring },
	{ "send_recv", whole, whole, once },
};

static void start(const op &o, const float *give, float *get, size_t n, ncclComm_t comm, cudaStream_t stream)
{
	if (!strcmp(o.name, "all_gather"))
		NCCL(ncclAllGather(give, get, n / world, ncclFloat, comm, stream));
	else if (!strcmp(o.name, "all_reduce"))
		NCCL(ncclAllReduce(give, get, n, ncclFloat, ncclSum, comm, stream));
	else if (!strcmp(o.name, "reduce_scatter"))
		NCCL(ncclReduceScatter(give, get, n / world, ncclFloat, ncclSum, comm, stream));
	else {
		NCCL(ncclGroupStart());
		NCCL(ncclSend(give, n, ncclFloat, (rank_ + 1) % world, comm, stream));
		NCCL(ncclRecv(get, n, ncclFloat, (rank_ + world - 1) % world, comm, stream));
		NCCL(ncclGroupEnd());
	}
}

/* Launches the check of what came. */
static void verify(const op &o, const float *got, size_t n, int round, unsigned long long *bad, cudaStream_t stream)
{
	if (!strcmp(o.name, "all_gather"))
		for (int r = 0; r < world; r++)
			check<<<64, 256, 0, stream>>>(got + r * (n / world), n / world, 0, r, r + 1, round, bad);
	else if (!strcmp(o.name, "all_reduce"))
		check<<<64, 256, 0, stream>>>(got, n, 0, 0, world, round, bad);
	else if (!strcmp(o.name, "reduce_scatter"))
		check<<<64, 256, 0, stream>>>(got, n / world, rank_ * (n / world), 0, world, round, bad);
	else {
		int from = (rank_ + world - 1) % world;
		check<<<64, 256, 0, stream>>>(got, n, 0, from, from + 1, round, bad);
	}
}

static ncclUniqueId meet()
{
	const char *file = getenv("ID_FILE");
	ncclUniqueId id;
	must(file && *file, "ID_FILE", "not set");
	if (rank_ == 0) {
		std::string temporary = std::string(file) + ".tmp";
		NCCL(ncclGetUniqueId(&id));
		FILE *f = fopen(temporary.c_str(), "w");
		must(f && fwrite(&id, sizeof(id), 1, f) == 1 && !fclose(f), file, "cannot be written");
		must(!rename(temporary.c_str(), file), file, "cannot be renamed");
		return id;
	}
	for (int tries = 0; tries < 600; tries++) {
		if (FILE *f = fopen(file, "r")) {
			bool whole = fread(&id, sizeof(id), 1, f) == 1;
			fclose(f);
			if (whole)
				return id;
		}
		usleep(100000);
	}
	must(false, file, "rank 0 wrote none");
	return id;
}

int main(int argc, char **argv)
{
	size_t least = 8, most = 1 << 26, step = 8;
	int rounds = 20;
	std::string which = ",all_gather,all_reduce,reduce_scatter,send_recv,";

	for (int i = 1; i + 1 < argc; i += 2) {
		std::string a = argv[i];
		if (a == "--min") least = strtoull(argv[i + 1], nullptr, 0);
		else if (a == "--max") most = strtoull(argv[i + 1], nullptr, 0);
		else if (a == "--factor") step = strtoull(argv[i + 1], nullptr, 0);
		else if (a == "--rounds") rounds = atoi(argv[i + 1]);
		else if (a == "--ops") which = "," + std::string(argv[i + 1]) + ",";
		else must(false, argv[i], "not an option");
	}
	must(step > 1 && rounds > 0, "--factor, --rounds", "too small");
	rank_ = number("RANK", 0);
	world = number("WORLD_SIZE", 1);
	int gpus;
	CUDA(cudaGetDeviceCount(&gpus));
	CUDA(cudaSetDevice(number("LOCAL_RANK", rank_) % gpus));

	ncclUniqueId id = meet();
	ncclComm_t comm;
	NCCL(ncclCommInitRank(&comm, world, id, rank_));
	cudaStream_t stream;
	CUDA(cudaStreamCreate(&stream));
	float *give, *get;
	unsigned long long *bad, none = 0, wrong = 0;
	size_t room = most + 4 * (size_t)world;
	CUDA(cudaMalloc((void **)&give, room));
	CUDA(cudaMalloc((void **)&get, room));
	CUDA(cudaMalloc((void **)&bad, sizeof(*bad)));
	CUDA(cudaMemcpy(bad, &none, sizeof(none), cudaMemcpyHostToDevice));
	if (rank_ == 0) {
		int version;
		NCCL(ncclGetVersion(&version));
		printf("NCCL %d, %d ranks, %d rounds\n%-15s %12s %12s %10s %8s\n", version, world, rounds, "collective", "bytes", "us",
		       "bus GB/s", "wrong");
	}
	for (const op &o : OPS) {
		if (which.find("," + std::string(o.name) + ",") == std::string::npos)
			continue;
		for (size_t bytes = least; bytes <= most; bytes *= step) {
			/* A whole number of elements for each rank. */
			size_t n = (bytes / 4 + world - 1) / world * world;
			double us = 0;

			for (int round = -2; round < rounds; round++) {
				fill<<<64, 256, 0, stream>>>(give, o.gives(n), rank_, round);
				CUDA(cudaMemsetAsync(get, 0xff, o.gets(n) * 4, stream));
				CUDA(cudaStreamSynchronize(stream));
				auto begun = std::chrono::steady_clock::now();
				start(o, give, get, n, comm, stream);
				CUDA(cudaStreamSynchronize(stream));
				std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begun;
				us += round < 0 ? 0 : took.count();
				verify(o, get, n, round, bad, stream);
			}
			CUDA(cudaMemcpy(&wrong, bad, sizeof(wrong), cudaMemcpyDeviceToHost));
			us /= rounds;
			if (rank_ == 0)
				printf("%-15s %12zu %12.1f %10.3f %8llu\n", o.name, n * 4, us, n * 4 / us / 1e3 * o.factor(), wrong);
			fflush(stdout);
			if (wrong)
				break;
		}
	}
	NCCL(ncclCommFinalize(comm));
	NCCL(ncclCommDestroy(comm));
	if (wrong)
		fprintf(stderr, "rank %d: %llu elements are wrong\n", rank_, wrong);
	return wrong ? 1 : 0;
}
