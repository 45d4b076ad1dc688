# shellcheck shell=bash
# libibverbs' own examples: n messages there and n back, their contents checked (-c).

# pingpong PROGRAM OPTIONS WAY WRS BYTES_EACH ARRIVES_EACH
pingpong() {
    row "$1 $2" "$3" "n × size, both ways" "$1 -d rxeB -g 1 $2" "$1 -d rxeA -g 1 $2 10.2.0.1" \
        "A.sent=$(($4 * $5))" "B.sent=$(($4 * $5))" "A.got=$(($4 * $6))" "B.got=$(($4 * $6))" \
        "A.wrs=$4" "B.wrs=$4" "A.recvs=$4" "B.recvs=$4"
}

pingpong ibv_rc_pingpong "-c -n 50" linked 50 4096 4096
pingpong ibv_rc_pingpong "-c -e -n 50" linked 50 4096 4096
pingpong ibv_rc_pingpong "-c -N -n 50" "linked, ibv_wr_*" 50 4096 4096
pingpong ibv_uc_pingpong "-c -n 50" linked 50 4096 4096
pingpong ibv_ud_pingpong "-c -n 50" linked 50 1024 1064 # a UD receive has 40 bytes of address before the data
pingpong ibv_srq_pingpong "-c -n 50" linked 50 4096 4096
