#!/usr/bin/env bash
# Inside the laboratory: ib_write_bw's own bandwidth without and with the library, in turn; the median of the ratios.
# With the clock that counts instructions a bandwidth is what the processor computes per transfer; on the host's clock the
# other work on the machine moves it by a fifth.
cd "$(dirname "$0")/../.." || exit 1
. tests/lab/perftest.sh

# bandwidth SIDE: MB/s as the client's perftest says it; SIDE is native or preloaded (client and server alike).
bandwidth() {
    local preload='' server try
    [ "$1" = native ] || preload=$library
    for try in 1 2 3; do
        LD_PRELOAD=$preload ib_write_bw -d rxeB -x 1 -F -n 2000 -s 65536 >/dev/null 2>&1 &
        server=$!
        wait_for_listener "$server"
        LD_PRELOAD=$preload timeout 120 ib_write_bw -d rxeA -x 1 -F -n 2000 -s 65536 10.2.0.1 >"$work/bw.txt" 2>&1
        code=$?
        wait_or_end "$server"
        if [ "$code" -eq 0 ]; then
            awk '$1 == 65536 { print $4 }' "$work/bw.txt"
            return
        fi
        echo "# $1: try $try failed: $(tail -n 1 "$work/bw.txt")" >&2
    done
}

bandwidth native >/dev/null
for pair in 1 2 3 4 5; do
    # The order alternates, so that drift favours neither side.
    if [ $((pair % 2)) -eq 1 ]; then
        native=$(bandwidth native) with=$(bandwidth preloaded)
    else
        with=$(bandwidth preloaded) native=$(bandwidth native)
    fi
    awk -v p="$pair" -v n="$native" -v w="$with" 'BEGIN { printf "pair %d: native %s MB/s, with %s MB/s, ratio %.3f\n", p, n, w, w / n }'
done | tee "$work/pairs.txt"
awk '{ print $NF }' "$work/pairs.txt" | sort -n | awk '{ r[NR] = $1 } END { printf "median ratio %.3f\n", r[int((NR + 1) / 2)] }'
