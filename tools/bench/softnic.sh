#!/usr/bin/env bash
# Over softnic, at native speed: perftest's own figures without and with the library, client and server alike and each pinned to a core
# of its own, in turn; the median of the ratios. Then a flow over four paths of 5 Gb/s.
cd "$(dirname "$0")/../.." || exit 1
library=$PWD/target/release/libtelereduce.so
export LD_LIBRARY_PATH=$PWD/target/release/softnic
rounds=${BENCH_ROUNDS:-5}
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cores=$(nproc)

# figure COLUMN ENV... -- PROGRAM OPTION...: the last line's column.
figure() {
    local column=$1 environment=() server
    shift
    while [ "$1" != -- ]; do environment+=("$1") && shift; done
    shift
    env "${environment[@]}" taskset -c 0 "$@" >/dev/null 2>"$work/server.txt" &
    server=$!
    for _ in $(seq 50); do
        grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 2>/dev/null && break
        sleep 0.1
    done
    env "${environment[@]}" taskset -c $((cores > 1)) timeout 60 "$@" 127.0.0.1 2>"$work/client.txt" |
        awk -v c="$column" '/^ *[0-9]/ && NF >= 4 { v = $c } END { print v }'
    wait "$server"
}

# compare NAME COLUMN SETTINGS PROGRAM OPTION...
compare() {
    local name=$1 column=$2 settings=$3 native with
    shift 3
    for _ in $(seq "$rounds"); do
        native=$(figure "$column" TELEREDUCE=off -- "$@")
        # shellcheck disable=SC2086
        with=$(figure "$column" "LD_PRELOAD=$library" $settings -- "$@")
        echo "$native $with"
    done | awk -v name="$name" '
        { n[NR] = $1; w[NR] = $2; r[NR] = $2 / $1 }
        function median(a, c,  i, j, t) {
            for (i = 2; i <= c; i++) for (j = i; j > 1 && a[j] < a[j-1]; j--) { t = a[j]; a[j] = a[j-1]; a[j-1] = t }
            return a[int((c + 1) / 2)]
        }
        END { printf "%-52s native %10.2f with %10.2f ratio %.3f\n", name, median(n, NR), median(w, NR), median(r, NR) }'
}

echo "softnic, medians of $rounds"
lat=(ib_write_lat -d soft0 -x 1 -F -s 8 -n 200000)
compare "ib_write_lat, 8 bytes, average us" 6 TELEREDUCE=on "${lat[@]}"
compare "the same, every WR timed" 6 TELEREDUCE_LATENCY=1 "${lat[@]}"
compare "ib_write_bw, 64 KiB, MiB/s" 4 TELEREDUCE=on ib_write_bw -d soft0 -x 1 -F -s 65536 -n 100000
compare "ib_write_bw, 1 MiB, MiB/s" 4 TELEREDUCE=on ib_write_bw -d soft0 -x 1 -F -s 1048576 -n 10000
compare "ib_write_bw, 8 bytes, millions of messages a second" 5 TELEREDUCE=on ib_write_bw -d soft0 -x 1 -F -s 8 -n 2000000

cat >"$work/paths.toml" <<'T'
network = "bench"
[[device]]
name = "soft0"
[[device.port]]
gids = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"]
[[path]]
rate_gbps = 5.0
delay_us = 5.0
T
echo "Four paths of 5 Gb/s, 8 MiB messages, MiB/s; the sum of the paths is $((4 * 5000000000 / 8 / 1048576))"
export SOFTNIC_CONFIG=$work/paths.toml
bw=(ib_write_bw -d soft0 -x 0 -F -s 8388608 -t 16 -D 8)
compare "strict" 4 TELEREDUCE_PATHS=4 "${bw[@]}"
compare "notify" 4 "TELEREDUCE_PATHS=4 TELEREDUCE_ORDER=notify" "${bw[@]}"
