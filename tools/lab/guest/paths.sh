# The state of each path: rate, delay, loss, up or down. Kept in /run/lab/path/N/, put into the kernel by shape_path.

STATE=/run/lab/path

first_shape() {
    local i name values
    for name in rate delay loss; do
        local list=LAB_${name^^}
        IFS=, read -ra values <<<"${!list}"
        for ((i = 1; i <= LAB_PATHS; i++)); do
            mkdir -p "$STATE/$i"
            echo "${values[$((${#values[@]} == 1 ? 0 : i - 1))]}" >"$STATE/$i/$name"
        done
    done
    for ((i = 1; i <= LAB_PATHS; i++)); do
        echo up >"$STATE/$i/state"
        shape_path "$i"
    done
}

# netem outside (delay, loss), tbf inside (rate): always both, so that a change never drops what is queued.
shape_path() { # PATH
    local side rate delay loss
    read -r rate <"$STATE/$1/rate"
    read -r delay <"$STATE/$1/delay"
    read -r loss <"$STATE/$1/loss"
    for side in $(sides); do
        if [ "$rate$delay$loss" = nonenonenone ]; then
            tc -n "fab$side" qdisc del dev "core$1" root 2>/dev/null || true
            continue
        fi
        tc -n "fab$side" qdisc replace dev "core$1" root handle 1: netem limit 20000 \
            delay "${delay/none/0}" loss "${loss/none/0%}"
        if [ "$rate" = none ]; then
            tc -n "fab$side" qdisc del dev "core$1" parent 1:1 2>/dev/null || true
        else
            tc -n "fab$side" qdisc replace dev "core$1" parent 1:1 handle 10: tbf rate "$rate" burst 64k latency 200ms
        fi
    done
}

path_state() { # PATH up|down
    local side
    for side in $(sides); do ip -n "fab$side" link set "core$1" "$2"; done
    echo "$2" >"$STATE/$1/state"
    # The kernel forgets the routes of a link that goes down.
    for side in $(sides); do leaf_routes "$side"; done
}
