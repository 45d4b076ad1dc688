# shellcheck shell=bash
# perftest: the client names how many WRs of how many bytes it posts (-n, -s).

# perftest PROGRAM OPTIONS CLAIM...
perftest() {
    local program=$1 options=$2 way=linked
    shift 2
    [[ $options == *-R* ]] && way="linked, rdma_cm"
    row "$program $options" "$way" "${known:-n × size}" \
        "$program -d rxeB -x 1 -F $options" "$program -d rxeA -x 1 -F $options 10.2.0.1" "$@"
}

# One way, n WRs of so many bytes: sends arrive, the other side of WRITE, READ and atomics sees nothing.
one_way() { # PROGRAM WRS BYTES_EACH OPTIONS
    local claims=("A.sent=$(($2 * $3))" "A.wrs=$2" B.wrs=0)
    case $1,$4 in
        ib_send*UD*) claims+=("B.got=$(($2 * ($3 + 40)))" "B.recvs=$2") ;; # a UD receive has 40 bytes of address before the data
        ib_send*) claims+=("B.got=$(($2 * $3))" "B.recvs=$2") ;;
    esac
    perftest "$1" "$4" "${claims[@]}"
}

# There and back, n WRs on both sides.
both_ways() { # PROGRAM WRS BYTES_EACH OPTIONS
    local claims=("A.sent=$(($2 * $3))" "A.wrs=$2" "B.sent=$(($2 * $3))" "B.wrs=$2") arrives=$3
    [[ $4 != *UD* ]] || arrives=$(($3 + 40))
    [[ $1 != ib_send* ]] || claims+=("A.got=$(($2 * arrives))" "B.got=$(($2 * arrives))")
    perftest "$1" "$4" "${claims[@]}"
}

one_way ib_write_bw 100 65536 "-n 100 -s 65536"
one_way ib_write_bw 100 4096 "-c UC -n 100 -s 4096"
one_way ib_read_bw 100 65536 "-n 100 -s 65536"
one_way ib_send_bw 100 65536 "-n 100 -s 65536"
one_way ib_send_bw 100 4096 "-c UC -n 100 -s 4096"
one_way ib_send_bw 100 4096 "-c UD -n 100 -s 4096"
one_way ib_atomic_bw 100 8 "-n 100"
one_way ib_atomic_bw 100 8 "-A CMP_AND_SWAP -n 100"
both_ways ib_write_lat 50 64 "-n 50 -s 64"
both_ways ib_write_lat 50 64 "-c UC -n 50 -s 64"
one_way ib_read_lat 50 64 "-n 50 -s 64"
both_ways ib_send_lat 50 64 "-n 50 -s 64"
both_ways ib_send_lat 50 64 "-c UC -n 50 -s 64"
both_ways ib_send_lat 50 64 "-c UD -n 50 -s 64"
one_way ib_atomic_lat 50 8 "-n 50"

one_way ib_send_bw 100 65536 "-e -n 100 -s 65536"
both_ways ib_send_lat 50 64 "-e -n 50 -s 64"
one_way ib_write_bw 320 4096 "-q 16 -n 20 -s 4096"
one_way ib_send_bw 320 4096 "-q 16 -n 20 -s 4096"
one_way ib_read_bw 320 4096 "-q 16 -n 20 -s 4096"
one_way ib_send_bw 100 4096 "--use-srq -n 100 -s 4096"
both_ways ib_send_lat 50 64 "--use-srq -n 50 -s 64"
both_ways ib_send_bw 100 4096 "-b -n 100 -s 4096"
one_way ib_write_bw 160 4096 "-l 16 -n 160 -s 4096"

# With rdma_cm, both sides also tell each other, in as many SENDs of their own, what they otherwise tell by TCP.
known="n × size; what both sides tell each other is as much in both directions"
heard=(A.got=B.SEND B.got=A.SEND)
perftest ib_write_bw "-R -n 100 -s 65536" A.RDMA_WRITE=6553600 A.RDMA_WRITE.wrs=100 A.SEND=B.SEND A.wrs=100+B.wrs "${heard[@]}"
perftest ib_read_bw "-R -n 100 -s 65536" A.RDMA_READ=6553600 A.RDMA_READ.wrs=100 A.SEND=B.SEND A.wrs=100+B.wrs "${heard[@]}"
perftest ib_atomic_bw "-R -n 100" A.ATOMIC_FETCH_AND_ADD=800 A.SEND=B.SEND A.wrs=100+B.wrs "${heard[@]}"
perftest ib_send_bw "-R -n 100 -s 65536" A.sent=6553600+B.sent A.wrs=100+B.wrs "${heard[@]}"
perftest ib_write_lat "-R -n 50 -s 64" A.RDMA_WRITE=3200 B.RDMA_WRITE=3200 A.SEND=B.SEND A.wrs=B.wrs "${heard[@]}"
perftest ib_send_lat "-R -n 50 -s 64" A.sent\>=3200 A.sent=B.sent A.wrs=B.wrs "${heard[@]}"
unset known

# For so many seconds: how many WRs, only the program can tell, and it tells of those in the middle of that time.
reported() { awk '$1 == 65536 { print $1 * $2 }' "$ran/client.txt"; }
known="its own report, a lower bound; the network port's bytes, an upper one"
perftest ib_write_bw "-D 3 -s 65536" A.sent\>=@reported A.wire\>=A.sent
perftest ib_read_bw "-D 3 -s 65536" A.sent\>=@reported B.wire\>=A.sent
perftest ib_send_bw "-D 3 -s 65536" A.sent\>=@reported A.wire\>=A.sent B.got\>=@reported
unset known
