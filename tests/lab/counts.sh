#!/usr/bin/env bash
# Inside the laboratory: the counters of real programs on real verbs are exactly what the programs posted.
cd "$(dirname "$0")/../.." || exit 1
. tests/lab/check.sh
. tests/lab/perftest.sh

sent='.ports[0] | [.wr_posted, .wr_completed, .wr_outstanding, .bytes_posted, .bytes_completed, .bytes_outstanding]'
received='.ports[0].recv | [.wr_completed, .wr_outstanding, .bytes_completed]'
clean='[.missed.objects_untracked, .missed.completions_unmatched, .missed.panics]'

# posted NAME OPCODE WRS BYTES_EACH PROGRAM [OPTION...]: the client posts exactly this.
posted() {
    local name=$1 opcode=$2 n=$3 bytes=$4
    shift 4
    pair "$name" "$@"
    is "$name: perftest succeeds under the library" 0 "$code"
    is "$name: the port's WRs and bytes are those posted" "[$n,$n,0,$((n * bytes)),$((n * bytes)),0]" "$(field "$name" client "$sent")"
    is "$name: so are the QPs'" "[$n,$((n * bytes)),0]" \
        "$(field "$name" client '[([.qps[].wr_completed] | add), ([.qps[].bytes_completed] | add), ([.qps[].wr_outstanding] | add)]')"
    is "$name: by opcode" "{\"$opcode\":{\"wr\":$n,\"bytes\":$((n * bytes))}}" "$(field "$name" client '.ports[0].opcodes')"
    is "$name: nothing was missed" '[0,0,0]' "$(field "$name" client "$clean")"
}

packets() { cat /sys/class/infiniband/rxeA/ports/1/hw_counters/sent_pkts; }

before=$(packets)
posted write RDMA_WRITE 1000 65536 ib_write_bw -n 1000 -s 65536
after=$(packets)
# 16 packets of 4096 bytes each; retries and runs that were made again come on top.
holds "write: the port's own counter saw at least the 16,000 packets" [ $((after - before)) -ge 16000 ]
is "write: the peer is 10.2.0.1, with all of it" '["10.2.0.1",1000,65536000]' \
    "$(field write client '.peers[0] | [.ip, .wr_completed, .bytes_completed]')"
is "write: the QP knows its peer's number" true "$(field write client '.qps[0].dest_qp_num > 0')"

# Warm-up posts one send queue of WRs (128) before the 1,000.
posted write_warm_up RDMA_WRITE 1128 65536 ib_write_bw -n 1000 -s 65536 --perform_warm_up
posted send SEND 500 65536 ib_send_bw -n 500 -s 65536
is "send: the server received all of it" "[500,0,$((500 * 65536))]" "$(field send server "$received")"
posted read RDMA_READ 500 65536 ib_read_bw -n 500 -s 65536
posted atomic ATOMIC_FETCH_AND_ADD 500 8 ib_atomic_bw -n 500
posted ud_send SEND 500 4096 ib_send_bw -c UD -n 500 -s 4096
# A UD receive holds 40 bytes of routing header before the payload.
is "ud_send: the server received all of it" "[500,0,$((500 * 4136))]" "$(field ud_send server "$received")"
posted uc_write RDMA_WRITE 500 4096 ib_write_bw -c UC -n 500 -s 4096
posted uc_send SEND 200 4096 ib_send_bw -c UC -n 200 -s 4096
posted many_qps RDMA_WRITE 1600 4096 ib_write_bw -q 16 -n 100 -s 4096
is "many_qps: each of the 16 has its share" '[16,100,100]' \
    "$(field many_qps client '[(.qps | length), ([.qps[].wr_completed] | min), ([.qps[].wr_completed] | max)]')"
posted events SEND 200 65536 ib_send_bw -e -n 200 -s 65536
posted shared_receive_queue SEND 300 4096 ib_send_bw --use-srq -n 300 -s 4096
is "shared_receive_queue: the server received all of it" "[300,0,$((300 * 4096))]" \
    "$(field shared_receive_queue server "$received")"
is "no segment is left" '' "$(find /dev/shm -name "telereduce.*")"
finish
