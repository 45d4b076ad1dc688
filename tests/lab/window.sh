#!/usr/bin/env bash
# Inside the laboratory: the window of a flow, in the log, shows when its path is throttled to a tenth.
cd "$(dirname "$0")/../.." || exit 1
. tests/lab/check.sh
. tests/lab/perftest.sh

# A message takes 8 ms at 4 Mb/s: of a window of eight, one such is enough.
export TELEREDUCE_WINDOW=8 TELEREDUCE_LOG_FORMAT=json
mkdir "$work/log"
lab path 1 rate 40mbit
LD_PRELOAD=$library ib_write_bw -d rxeB -x 1 -F -s 4096 -t 2 -Q 1 -D 20 >"$work/server.txt" 2>&1 &
server=$!
wait_for_listener "$server"
TELEREDUCE_LOG=$work/log LD_PRELOAD=$library \
    ib_write_bw -d rxeA -x 1 -F -s 4096 -t 2 -Q 1 -D 20 10.2.0.1 >"$work/client.txt" 2>&1 &
client=$!
sleep 8
before=$(date +%s%N)
lab path 1 rate 4mbit
changed=$(date +%s%N)
sleep 3
kill "$client" "$server" 2>/dev/null
wait "$client" "$server" 2>/dev/null
lab path 1 rate none

# From which line on does the window stay below half of what it was?
moment=$(jq -s '
    map({t: .end_ns, b: .peer_bits_per_s}) as $l |
    ([$l[] | select(.t > '"$before"' - 2000000000 and .t < '"$before"') | .b] | sort | .[length / 2 | floor]) as $was |
    ([range(0; $l | length) | select($l[.].b >= $was / 2)] | last) as $i |
    "\($l[$i + 1].t) \($was) \([$l[$i + 1:][] | .b] | sort | .[length / 2 | floor])"' -r "$work"/log/*.jsonl)
read -r at was is <<<"$moment"
echo "# the window: $was bit/s, then $is; throttled between $before and $changed ns; the first line that shows it: $at ns"
holds "window: about 40 Mb/s before" [ "${was:-0}" -gt 20000000 ]
holds "window: about a tenth after" [ "${is:-99999999}" -lt 6000000 ]
holds "window: the change is not before it was made" [ "${at:-0}" -ge "$before" ]
holds "window: the change is shown within 100 ms" [ $((${at:-0} - changed)) -le 100000000 ]
finish
