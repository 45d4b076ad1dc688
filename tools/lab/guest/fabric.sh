# The network: roceA and roceB, a leaf switch for each (namespaces fabA, fabB), K core links between the leaves.
#
#   rxeA/roceA --- fabA === core 1..K === fabB --- roceB/rxeB
#
# soft-RoCE serves the first namespace only, so with one kernel both hosts live there, and rules keep the kernel
# from taking its short cut through loopback. With two kernels each guest has its own half.

MTU=4200 # lets RoCE use its largest payload, 4096

build_fabric() {
    local side
    set -e
    modprobe -a rdma_rxe crc32_generic ib_uverbs rdma_ucm veth sch_tbf sch_netem
    ip link set lo up
    no_short_cuts
    for side in $(sides); do
        build_leaf "$side"
        build_host "$side"
    done
    join_leaves
    for side in $(sides); do
        leaf_routes "$side"
        rdma link add "rxe$side" type rxe netdev "roce$side"
    done
    first_shape
    await_gids
    set +e
}

# The sides that this guest holds.
sides() {
    if [ "$LAB_KERNELS" = 1 ]; then echo A B; else echo "${LAB_HOST^^}"; fi
}

net_of() { if [ "$1" = A ]; then echo 1; else echo 2; fi; }
peer_of() { if [ "$1" = A ]; then echo B; else echo A; fi; }

no_short_cuts() {
    local conf=/proc/sys/net/ipv4/conf
    echo 0 >$conf/all/rp_filter
    echo 0 >$conf/default/rp_filter
    echo 1 >$conf/all/accept_local
    echo 1 >$conf/default/accept_local
    # Without a shape, the only queue between two ends of a veth pair is this one.
    echo 100000 >/proc/sys/net/core/netdev_max_backlog
    echo 67108864 >/proc/sys/net/core/rmem_max
    echo 67108864 >/proc/sys/net/core/wmem_max
}

build_leaf() { # SIDE
    local fab=fab$1 net
    net=$(net_of "$1")
    ip netns add "$fab"
    ip link add "roce$1" mtu $MTU txqueuelen 10000 type veth peer name edge netns "$fab" mtu $MTU txqueuelen 10000
    ip -n "$fab" link set lo up
    ip -n "$fab" addr add "10.$net.255.254/16" dev edge
    ip -n "$fab" link set edge up
    ip netns exec "$fab" bash -c '
        cd /proc/sys/net/ipv4
        echo 1 >ip_forward
        echo 1 >fib_multipath_hash_policy
        echo 0 >conf/all/rp_filter
        echo 0 >conf/default/rp_filter
        echo 0 >conf/all/send_redirects
        echo 0 >conf/edge/send_redirects'
}

build_host() { # SIDE
    local side=$1 net peer_net i table
    net=$(net_of "$side")
    peer_net=$(net_of "$(peer_of "$side")")
    table=10$net
    ip link set "roce$side" up
    for ((i = 1; i <= LAB_PATHS; i++)); do echo "addr add 10.$net.0.$i/16 dev roce$side"; done | ip -batch -
    ip route add "10.$peer_net.0.0/16" via "10.$net.255.254" dev "roce$side" src "10.$net.0.1" table "$table"
    if [ "$LAB_KERNELS" = 2 ]; then
        ip rule add pref 20 to "10.$peer_net.0.0/16" lookup "$table"
        return
    fi
    ip rule add pref "$net" from "10.$net.0.0/16" to "10.$net.0.0/16" lookup local
    ip rule add pref $((9 + net)) iif "roce$side" lookup local
    ip rule add pref $((19 + net)) from "10.$net.0.0/16" to "10.$peer_net.0.0/16" lookup "$table"
    ip rule add pref $((21 + net)) oif "roce$side" to "10.$peer_net.0.0/16" lookup "$table"
    # Programs that name no source address must not loop back inside the device that they mean to reach.
    ip rule add pref $((29 + net)) iif lo to "10.$peer_net.0.0/16" lookup "$table"
    if [ "$side" = B ]; then
        ip rule add pref 100 lookup local
        ip rule del pref 0
    fi
}

join_leaves() {
    local i mac device
    for ((i = 1; i <= LAB_PATHS; i++)); do
        if [ "$LAB_KERNELS" = 1 ]; then
            ip -n fabA link add "core$i" mtu $MTU txqueuelen 10000 type veth \
                peer name "core$i" netns fabB mtu $MTU txqueuelen 10000
        else
            mac=$(printf '52:54:00:1a:%02x:%02x' "$(net_of "${LAB_HOST^^}")" "$i")
            device=$(basename "$(dirname "$(grep -lx "$mac" /sys/class/net/*/address)")")
            ip link set "$device" netns "fab${LAB_HOST^^}" name "core$i" mtu $MTU
        fi
    done
    for side in $(sides); do
        for ((i = 1; i <= LAB_PATHS; i++)); do
            echo "addr add 10.100.$i.$(net_of "$side")/24 dev core$i"
            echo "link set core$i up"
        done | ip -n "fab$side" -batch -
    done
}

# static: alias i of the peer is reached over core link i. ecmp: every alias over any link, chosen by the flow's ports.
leaf_routes() { # SIDE
    local peer fab=fab$1 hops="" i
    peer=$(net_of "$(peer_of "$1")")
    for ((i = 1; i <= LAB_PATHS; i++)); do
        if [ "$LAB_ROUTING" = static ]; then
            ip -n "$fab" route replace "10.$peer.0.$i/32" via "10.100.$i.$peer" dev "core$i" 2>/dev/null || true
        else
            ip -n "$fab" route del "10.$peer.0.$i/32" 2>/dev/null || true
            ip -n "$fab" link show "core$i" | grep -q '[<,]UP[,>]' &&
                hops+=" nexthop via 10.100.$i.$peer dev core$i"
        fi
    done
    ip -n "$fab" route del "10.$peer.0.0/16" 2>/dev/null || true
    # shellcheck disable=SC2086
    [ -z "$hops" ] || ip -n "$fab" route add "10.$peer.0.0/16" $hops
}

# Every alias becomes an entry of the device's GID table a moment after it was added.
await_gids() {
    local side turn last ready
    for side in $(sides); do
        ready=""
        last=/sys/class/infiniband/rxe$side/ports/1/gids/$LAB_PATHS
        for ((turn = 0; turn < 200; turn++)); do
            if ! grep -q '^0000:0000:0000:0000:0000:0000:0000:0000$' "$last"; then
                ready=1
                break
            fi
            sleep 0.05
        done
        [ -n "$ready" ] || { echo "rxe$side has no GID $LAB_PATHS after 10 s"; return 1; }
    done
}
