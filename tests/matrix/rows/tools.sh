# shellcheck shell=bash
# qperf, fio and libfabric.

# qperf runs for a time and then tells how much it sent and received; it stops in the midst of what it posted. Its server
# ends when it is told so.
qperf_says() { awk -v what="$1" '$1 == what { print $3 }' "$ran/client.txt"; }
received() { qperf_says recv_bytes; }
received_here() { qperf_says loc_recv_bytes; }
qperf_row() { # TEST CLAIM...
    local test=$1
    shift
    row "qperf -cm 1 $test" "rdma_cm" "its own report, a lower bound; the network port's bytes, an upper one" "qperf" \
        "qperf -cm 1 -t 1 -m 4096 -vvs -uu -e 12 10.2.0.1 $test; code=\$?; qperf 10.2.0.1 quit; exit \$code" "$@"
}
qperf_row rc_rdma_write_bw B.got\>=@received A.posted\>=B.got A.wire\>=B.got
qperf_row rc_rdma_read_bw A.sent\>=@received B.wire\>=A.sent
qperf_row rc_bw B.got\>=@received A.posted\>=B.got A.wire\>=B.got
qperf_row rc_lat A.got\>=@received_here A.posted\>=B.got B.posted\>=A.got

# fio's client says what it wants and that it is done, its server answers once, in SENDs of one fixed structure.
told=8208
port=7700
fio_row() { # VERB[ --thread] CLAIM...
    local verb=$1 threads=
    shift
    [[ $verb != *--thread ]] || threads=--thread
    port=$((port + 1)) # a listener that is gone may hold its port for a while
    row "fio --ioengine=rdma --verb=$verb" "rdma_cm" "its size, and SENDs of $told bytes for what both sides tell each other" \
        "fio --name=s --ioengine=rdma --hostname=10.2.0.1 --port=$port --rw=read --bs=64k --size=2m --iodepth=16 $threads" \
        "fio --name=c --ioengine=rdma --hostname=10.2.0.1 --port=$port --verb=$verb --rw=write --bs=64k --size=2m" "$@"
}
# Unless it is told to use threads, each side's work is done by a child process that leaves by _exit.
fio_row write A.RDMA_WRITE=2097152 A.SEND=$((2 * told)) B.got=$((2 * told)) B.SEND=$told A.got=$told A.wrs=34
fio_row read A.RDMA_READ=2097152 A.SEND=$((2 * told)) B.got=$((2 * told)) B.SEND=$told A.got=$told A.wrs=34
fio_row send A.SEND=$((2097152 + told)) B.got=$((2097152 + told)) B.SEND=$told A.got=$told A.wrs=33
fio_row "write --thread" A.RDMA_WRITE=2097152 A.SEND=$((2 * told)) B.got=$((2 * told)) B.SEND=$told A.got=$told A.wrs=34

# fi_row OPTIONS WAY SETTINGS [SUFFIX OF THE DEVICE]
fi_row() {
    row "fi_pingpong $1" "$2" "n × size, both ways, a lower bound; the network port's bytes, an upper one" "$3 fi_pingpong -d rxeB${4:-} $1 -I 50 -S 2048 -c" \
        "$3 fi_pingpong -d rxeA${4:-} $1 -I 50 -S 2048 -c 10.2.0.1" \
        A.sent\>=102400 B.sent\>=102400 AB.wire\>=AB.sent
}
fi_row "-p verbs -e msg" "libfabric, rdma_cm" ""
fi_row "-p 'verbs;ofi_rxm' -e rdm" "libfabric, rdma_cm" "FI_UNIVERSE_SIZE=8"
fi_row "-p verbs -e dgram" "libfabric, UD" "FI_VERBS_GID_IDX=1" -dgram
