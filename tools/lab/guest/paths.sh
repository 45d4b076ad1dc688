# The state of each path: rate, delay, loss, up or down. Kept in $STATE/N/, put into the kernel by the functions below.

STATE=/run/lab/path
ROUTING=/run/lab/routing

first_state() {
    local i name list values folders=()
    for ((i = 1; i <= LAB_PATHS; i++)); do folders+=("$STATE/$i"); done
    mkdir -p "${folders[@]}"
    for name in rate delay loss; do
        list=LAB_${name^^}
        IFS=, read -ra values <<<"${!list}"
        for ((i = 1; i <= LAB_PATHS; i++)); do
            echo "${values[${#values[@]} == 1 ? 0 : i - 1]}" >"$STATE/$i/$name"
        done
    done
    for ((i = 1; i <= LAB_PATHS; i++)); do echo up >"$STATE/$i/state"; done
    echo "$LAB_ROUTING" >"$ROUTING"
}

shape_all() {
    local i
    [ "$LAB_RATE$LAB_DELAY$LAB_LOSS" != nonenonenone ] || return 0
    for ((i = 1; i <= LAB_PATHS; i++)); do shape_path "$i"; done
}

# netem outside (delay, loss), tbf inside (rate): always both, so that a change never drops what is queued.
shape_path() { # PATH
    local side rate delay loss core=core$1
    read -r rate <"$STATE/$1/rate"
    read -r delay <"$STATE/$1/delay"
    read -r loss <"$STATE/$1/loss"
    for side in $(sides); do
        if [ "$rate$delay$loss" = nonenonenone ]; then
            tc -n "fab$side" qdisc del dev "$core" root 2>/dev/null || true
            continue
        fi
        {
            echo "qdisc replace dev $core root handle 1: netem limit 20000 delay ${delay/none/0} loss ${loss/none/0%}"
            if [ "$rate" != none ]; then
                echo "qdisc replace dev $core parent 1:1 handle 10: tbf rate $rate $(queue_for "$rate")"
            elif has_rate "$side" "$core"; then
                echo "qdisc del dev $core parent 1:1"
            fi
        } | tc -n "fab$side" -batch -
    done
}

# The queue before a shaped link: 200 ms of it, but at least 1 MiB. One soft-RoCE queue pair keeps up to 128 packets
# (540 kB) in flight whatever the rate, and a link that cannot hold them loses packets for ever.
queue_for() { # RATE
    local bytes=${1%?bit} burst=65536 limit
    case $1 in
        *kbit) bytes=$((bytes * 125)) ;;
        *mbit) bytes=$((bytes * 125000)) ;;
        *gbit) bytes=$((bytes * 125000000)) ;;
    esac
    limit=$((bytes / 5))
    [ "$limit" -ge 1048576 ] || limit=1048576
    [ "$burst" -ge $((bytes / 200)) ] || burst=$((bytes / 200))
    echo "burst $burst limit $limit"
}

has_rate() { [[ $(tc -n "fab$1" qdisc show dev "$2") == *"qdisc tbf"* ]]; }

path_state() { # PATH up|down
    local side
    echo "$2" >"$STATE/$1/state"
    for side in $(sides); do
        # The kernel forgets the routes of a link that goes down.
        {
            echo "link set core$1 $2"
            route_lines "$side"
        } | ip -n "fab$side" -batch -
    done
}

route_all() { # static|ecmp
    local side net peer i
    echo "$1" >"$ROUTING"
    for side in $(sides); do
        nets "$side"
        {
            for ((i = 1; i <= LAB_PATHS; i++)); do echo "route del 10.$peer.0.$i/32"; done
            echo "route del 10.$peer.0.0/16"
        } | ip -n "fab$side" -force -batch - 2>/dev/null || true
        route_lines "$side" | ip -n "fab$side" -batch -
    done
}
