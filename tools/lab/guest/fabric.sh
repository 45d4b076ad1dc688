# The network: roceA and roceB, a leaf switch for each (namespaces fabA, fabB), K core links between the leaves.
#
#   rxeA/roceA --- fabA === core 1..K === fabB --- roceB/rxeB
#
# soft-RoCE serves the first namespace only, so with one kernel both hosts live there, and rules keep the kernel
# from taking its short cut through loopback. With two kernels each guest has its own half.
#
# A process costs 50 ms here, so every namespace is set up by one batch: the functions below print its lines.

MTU=4200 # lets RoCE use its largest payload, 4096
LINK="mtu $MTU txqueuelen 10000"

build_fabric() {
    local side
    first_state
    host_sysctl
    {
        echo "link set lo up"
        for side in $(sides); do host_lines "$side"; done
        [ "$LAB_KERNELS" = 2 ] || one_kernel_lines
    } | ip -batch - || return
    if [ "$LAB_KERNELS" = 2 ]; then adopt_core_links || return; fi
    for side in $(sides); do
        leaf_sysctl "$side" && leaf_lines "$side" | ip -n "fab$side" -batch - || return
        route_lines "$side" | ip -n "fab$side" -batch - || return
        rdma link add "rxe$side" type rxe netdev "roce$side" || return
    done
    shape_all
    await_gids
}

# The sides that this guest holds.
sides() {
    if [ "$LAB_KERNELS" = 1 ]; then echo A B; else echo "${LAB_HOST^^}"; fi
}

# net and peer: the second number of a side's addresses and of its peer's.
nets() { if [ "$1" = A ]; then net=1 peer=2; else net=2 peer=1; fi; }

host_sysctl() {
    local conf=/proc/sys/net/ipv4/conf core=/proc/sys/net/core
    echo 0 >$conf/all/rp_filter
    echo 0 >$conf/default/rp_filter
    echo 1 >$conf/all/accept_local
    echo 1 >$conf/default/accept_local
    # Without a shape, the only queue between the two ends of a link is this one.
    echo 100000 >$core/netdev_max_backlog
    echo 67108864 >$core/rmem_max
    echo 67108864 >$core/wmem_max
}

host_lines() { # SIDE
    local side=$1 net peer i
    nets "$side"
    echo "netns add fab$side"
    echo "link add roce$side $LINK type veth peer name edge netns fab$side $LINK"
    echo "link set roce$side up"
    for ((i = 1; i <= LAB_PATHS; i++)); do echo "addr add 10.$net.0.$i/16 dev roce$side"; done
    echo "route add 10.$peer.0.0/16 via 10.$net.255.254 dev roce$side src 10.$net.0.1 table 10$net"
    if [ "$LAB_KERNELS" = 2 ]; then
        echo "rule add pref 20 to 10.$peer.0.0/16 lookup 10$net"
        return
    fi
    echo "rule add pref $net from 10.$net.0.0/16 to 10.$net.0.0/16 lookup local"
    echo "rule add pref $((9 + net)) iif roce$side lookup local"
    echo "rule add pref $((19 + net)) from 10.$net.0.0/16 to 10.$peer.0.0/16 lookup 10$net"
    echo "rule add pref $((21 + net)) oif roce$side to 10.$peer.0.0/16 lookup 10$net"
    # Programs that name no source address must not loop back inside the device that they mean to reach.
    echo "rule add pref $((29 + net)) iif lo to 10.$peer.0.0/16 lookup 10$net"
}

one_kernel_lines() {
    local i
    echo "rule add pref 100 lookup local"
    echo "rule del pref 0"
    for ((i = 1; i <= LAB_PATHS; i++)); do
        echo "link add core$i netns fabA $LINK type veth peer name core$i netns fabB $LINK"
    done
}

# With two kernels the core links are network cards of the guest, known by their addresses.
adopt_core_links() {
    local side=${LAB_HOST^^} net peer i card mac
    nets "$side"
    for ((i = 1; i <= LAB_PATHS; i++)); do
        mac=$(printf '52:54:00:1a:%02x:%02x' "$net" "$i")
        for card in /sys/class/net/*; do
            [ "$(<"$card/address")" = "$mac" ] || continue
            echo "link set ${card##*/} netns fab$side name core$i"
            continue 2
        done
        echo "no network card has the address $mac" >&2
        return 1
    done | ip -batch -
}

leaf_sysctl() { # SIDE
    ip netns exec "fab$1" /bin/busybox sysctl -q -w net.ipv4.ip_forward=1 net.ipv4.fib_multipath_hash_policy=1 \
        net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 \
        net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.edge.send_redirects=0
}

leaf_lines() { # SIDE
    local net peer i
    nets "$1"
    echo "link set lo up"
    echo "addr add 10.$net.255.254/16 dev edge"
    echo "link set edge up"
    for ((i = 1; i <= LAB_PATHS; i++)); do
        echo "addr add 10.100.$i.$net/24 dev core$i"
        echo "link set core$i mtu $MTU up"
    done
}

# static: alias i of the peer is reached over core link i. ecmp: every alias over any link, chosen by the flow's ports.
route_lines() { # SIDE
    local net peer i state routing hops=""
    nets "$1"
    read -r routing <"$ROUTING"
    for ((i = 1; i <= LAB_PATHS; i++)); do
        read -r state <"$STATE/$i/state"
        [ "$state" = up ] || continue
        hops+=" nexthop via 10.100.$i.$peer dev core$i"
        [ "$routing" = ecmp ] || echo "route replace 10.$peer.0.$i/32 via 10.100.$i.$peer dev core$i"
    done
    [ "$routing" = static ] || [ -z "$hops" ] || echo "route replace 10.$peer.0.0/16$hops"
}

# Every alias becomes an entry of the device's GID table a moment after it was added.
await_gids() {
    local side turn gid
    for side in $(sides); do
        for ((turn = 0; turn < 200; turn++)); do
            gid=$(<"/sys/class/infiniband/rxe$side/ports/1/gids/$LAB_PATHS") 2>/dev/null
            [[ $gid =~ ^[0:]*$ ]] || continue 2
            pause 0.05
        done
        echo "rxe$side has no GID $LAB_PATHS after $turn looks" >&2
        return 1
    done
}
