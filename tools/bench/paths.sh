#!/usr/bin/env bash
# Inside the laboratory: one flow over several paths. usage: paths.sh CASE, which tools/bench/run calls with the laboratory
# that each needs. Native and preloaded runs take turns in one boot; the median of each counts, and its part of what the
# paths carry together. The guest's clock counts instructions, so the figures are those of the shaped paths.
cd "$(dirname "$0")/../.." || exit 1
library=$PWD/target/release/libtelereduce.so
litmus=$PWD/target/litmus/litmus
rounds=${BENCH_ROUNDS:-5}
work=$(mktemp -d)

# With that clock idle time leaps ahead, and so it does while files come from outside: limits are long, and programs are
# loaded once before.
"$litmus" list >/dev/null

# flood MODE PATHS ARG...: one run; its line, or nothing. MODE: native, strict, notify.
flood() {
    local mode=$1 paths=$2 target preload=()
    shift 2
    [ "$mode" = native ] || preload=(env "LD_PRELOAD=$library" "TELEREDUCE_PATHS=$paths" "TELEREDUCE_ORDER=$mode")
    for _ in 1 2 3; do
        "${preload[@]}" "$litmus" flood --ip 10.2.0.1 --limit 2000 "$@" >"$work/target" 2>&1 &
        target=$!
        "${preload[@]}" "$litmus" flood --ip 10.1.0.1 --peer 10.2.0.1 --warm 1500 --limit 2000 "$@" >"$work/source" 2>&1 && break
        # Soft-RoCE breaks a connection now and then, without us too.
        echo "# $mode: $(tail -n 1 "$work/source")" >&2
        kill "$target" 2>/dev/null
        wait "$target" 2>/dev/null
    done
    wait "$target" 2>/dev/null
    sed -n 's/^flood: //p' "$work/source"
}

# of FIELD: the numbers of that name in the lines of standard input.
of() { sed -n "s|.*[ ,]$1 \([0-9.]*\).*|\1|p"; }
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# bandwidth SUM PATHS ARG...: rows of Mb/s; SUM is what the paths carry together.
bandwidth() {
    local sum=$1 paths=$2 mode
    shift 2
    for _ in $(seq "$rounds"); do
        for mode in native strict notify; do
            # One path's speed is known soon.
            if [ "$mode" = native ]; then flood native 1 --rounds 3 --depth 2 "$@"; else flood "$mode" "$paths" --rounds 8 --depth 2 "$@"; fi |
                tee -a "$work/$mode.txt" | sed "s/^/# $mode /" >&2
        done
    done
    for mode in native strict notify; do
        of Mb/s <"$work/$mode.txt" | median | awk -v m="$mode" -v sum="$sum" -v p="$paths" -v a="$*" \
            '{ printf "%-8s %2d paths of %d Mb/s together, %s: %.1f Mb/s, %.3f of the sum\n", m, p, sum, a, $1, $1 / sum }'
        rm "$work/$mode.txt"
    done
}

rates() {
    local path=1 rate
    for rate in "$@"; do
        lab path "$path" rate "$rate"
        path=$((path + 1))
    done
}

case $1 in
    equal)
        rates 40mbit 40mbit 40mbit 40mbit
        bandwidth 160 4 --size 8388608
        bandwidth 160 4 --size 8388608 --read
        ;;
    ten)
        # shellcheck disable=SC2046
        rates $(printf '15mbit %.0s' $(seq 10))
        bandwidth 150 10 --size 8388608
        bandwidth 150 10 --size 8388608 --read
        ;;
    uneven)
        rates 40mbit 20mbit 10mbit 10mbit
        bandwidth 80 4 --size 8388608
        bandwidth 80 4 --size 8388608 --read
        ;;
    ecmp)
        rates 40mbit 40mbit 40mbit 40mbit
        export TELEREDUCE_PATH_KEY=flowlabel
        bandwidth 160 16 --size 8388608
        ;;
    fct)
        # shellcheck disable=SC2046
        rates $(printf '20mbit %.0s' $(seq 10))
        for _ in $(seq "$rounds"); do
            for k in 1 2 4 6 8 10; do
                mode=strict
                [ "$k" != 1 ] || mode=native
                flood "$mode" "$k" --size 67108864 --rounds 1 | tee -a "$work/$k.txt" | sed "s/^/# $k paths: /" >&2
            done
        done
        one=$(of median_ms <"$work/1.txt" | median)
        for k in 1 2 4 6 8 10; do
            of median_ms <"$work/$k.txt" | median | awk -v k="$k" -v one="$one" \
                '{ printf "64 MiB over %2d paths of 20 Mb/s: %.0f ms, %.3f of that of one, times the number of paths %.3f\n", k, $1, $1 / one, $1 / one * k }'
        done
        ;;
    mouse)
        rates 40mbit 40mbit 40mbit 40mbit
        for _ in $(seq "$rounds"); do
            for mode in native strict; do
                elephants=()
                preload=()
                [ "$mode" = native ] || preload=(env "LD_PRELOAD=$library" TELEREDUCE_PATHS=4)
                # The elephant is another process on the same port; it ends with the mouse.
                "${preload[@]}" "$litmus" flood --ip 10.2.0.1 --port 18601 --size 8388608 --rounds 100000 --depth 2 --limit 2000 >/dev/null 2>&1 &
                elephants+=($!)
                "${preload[@]}" "$litmus" flood --ip 10.1.0.1 --port 18601 --peer 10.2.0.1 --size 8388608 --rounds 100000 --depth 2 --limit 2000 >/dev/null 2>&1 &
                elephants+=($!)
                sleep 3
                flood "$mode" 4 --size 262144 --rounds 10 --every 2000 | tee -a "$work/$mode.txt" | sed "s/^/# $mode mouse: /" >&2
                kill "${elephants[@]}" 2>/dev/null
                wait "${elephants[@]}" 2>/dev/null
            done
        done
        native=$(of median_ms <"$work/native.txt" | median)
        with=$(of median_ms <"$work/strict.txt" | median)
        awk -v n="$native" -v w="$with" 'BEGIN { printf "256 KiB each 2 s beside an elephant, median of the medians: native %.1f ms, with 4 paths %.1f ms, %.3f of it\n", n, w, w / n }'
        ;;
    *) echo "paths.sh: no case $1" >&2 && exit 64 ;;
esac
