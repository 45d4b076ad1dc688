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
pingpong ibv_srq_pingpong "-c -q 1 -n 50" linked 50 4096 4096
# With several QPs it stops posting once n sends have completed: those in flight on the other QPs come on top.
row "ibv_srq_pingpong -c -n 50" linked "n × size, a lower bound: the sends then in flight come on top; the network port's bytes, an upper one" \
    "ibv_srq_pingpong -d rxeB -g 1 -c -n 50" "ibv_srq_pingpong -d rxeA -g 1 -c -n 50 10.2.0.1" \
    A.sent\>=204800 A.got\>=204800 B.sent\>=204800 B.got\>=204800 A.posted\>=B.got B.posted\>=A.got AB.wire\>=AB.posted
