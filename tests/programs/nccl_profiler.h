/* NCCL's profiler interface, versions 4 and 5, as far as a driver of it needs: layouts from its documentation of the ABI. */
#ifndef PROGRAMS_NCCL_PROFILER_H
#define PROGRAMS_NCCL_PROFILER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { KIND_GROUP = 1, KIND_COLL = 2, KIND_P2P = 4, KIND_PROXY_OP = 8, KIND_PROXY_STEP = 16, KIND_PROXY_CTRL = 32 };

enum {
	STEP_SEND_GPU_WAIT = 8,
	STEP_SEND_WAIT = 9,
	STEP_RECV_WAIT = 10,
	STEP_RECV_FLUSH_WAIT = 11,
	STEP_RECV_GPU_WAIT = 12,
	OP_IN_PROGRESS = 19,
	STEP_SEND_PEER_WAIT = 20,
};

struct coll {
	uint64_t sequence_number;
	const char *func;
	const void *send_buffer;
	void *recv_buffer;
	size_t count;
	int root;
	const char *datatype;
	uint8_t channels, warps;
	const char *algorithm, *protocol;
};

struct p2p {
	const char *func;
	void *buffer;
	const char *datatype;
	size_t count;
	int peer;
	uint8_t channels;
};

struct proxy_op {
	pid_t pid;
	uint8_t channel;
	int peer, steps, chunk_bytes, is_send;
};

struct event_v4 {
	uint8_t kind;
	void *parent;
	int rank;
	union {
		struct coll coll;
		struct p2p p2p;
		struct proxy_op proxy_op;
		int proxy_step;
	};
};

struct event_v5 {
	uint64_t kind;
	void *parent;
	int rank;
	union {
		struct {
			struct coll of;
			void *group;
		} coll;
		struct {
			struct p2p of;
			void *group;
		} p2p;
		struct proxy_op proxy_op;
		int proxy_step;
	};
};

#define AT(type, field, offset) _Static_assert(offsetof(struct type, field) == (offset), #type "." #field)
AT(event_v4, kind, 0);
AT(event_v4, parent, 8);
AT(event_v4, rank, 16);
AT(event_v4, coll, 24);
AT(event_v5, parent, 8);
AT(event_v5, rank, 16);
AT(event_v5, coll, 24);
AT(event_v5, proxy_op, 24);
AT(coll, func, 8);
AT(coll, channels, 56);
AT(p2p, func, 0);
AT(p2p, channels, 36);
AT(proxy_op, channel, 4);
AT(proxy_op, peer, 8);
AT(proxy_op, is_send, 20);
_Static_assert(sizeof(struct coll) == 80 && sizeof(struct event_v4) == 104 && sizeof(struct event_v5) == 112, "sizes");

typedef int init_v4(void **context, int *mask, const char *name, uint64_t id, int nodes, int ranks, int rank, void *log);
typedef int init_v5(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank, void *log);

struct plugin {
	const char *name;
	union {
		init_v4 *v4;
		init_v5 *v5;
	} init;
	int (*start)(void *context, void **handle, void *event);
	int (*stop)(void *handle);
	int (*record)(void *handle, int state, void *args);
	int (*finalize)(void *context);
};

#endif
