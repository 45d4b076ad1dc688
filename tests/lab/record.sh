#!/usr/bin/env bash
# Inside the laboratory: a recording of a flow over four paths, one of which is throttled to a tenth meanwhile, shows when.
cd "$(dirname "$0")/../.." || exit 1
. tests/lab/check.sh
. tests/lab/perftest.sh
. tests/lab/screen.sh

paths() { for path in 1 2 3 4; do lab path $path rate "$1"; done; }

export TELEREDUCE_PATHS=4
# Messages that take a small part of a frame on each path, so that a frame's bytes say its bandwidth.
export TELEREDUCE_SPLIT_MIN=16384
paths 40mbit
LD_PRELOAD=$library ib_write_bw -d rxeB -x 1 -F -s 262144 -D 40 >"$work/server.txt" 2>&1 &
server=$!
wait_for_listener "$server"
LD_PRELOAD=$library ib_write_bw -d rxeA -x 1 -F -s 262144 -D 40 10.2.0.1 >"$work/client.txt" 2>&1 &
client=$!
sleep 8
target/release/trtop record -o "$work/run.trrec" --every 0.1 --for 16 --pid "$client" 2>"$work/record.txt" &
recorder=$!
sleep 8
before=$(date +%s%N)
lab path 4 rate 4mbit
changed=$(date +%s%N)
wait "$recorder"
is "record: it ends well" 0 $?
kill "$client" "$server" 2>/dev/null
wait "$client" "$server" 2>/dev/null
paths none
echo "# $(tail -n 1 "$work/record.txt")"

target/release/trtop export --from "$work/run.trrec" --to json -o "$work/run.jsonl"
frames=$(wc -l <"$work/run.jsonl")
holds "record: ten frames a second for 16 s: $frames" [ "$frames" -ge 150 ]

# The bytes of path 4 by frame: at which frame does its bandwidth, from there on, stay below half of what it was? The change lies
# between the frame before it and it. Of the pieces that were queued at the path when it was throttled, none is done sooner.
moment=$(jq -s '
    [.[] | {t: .time_ns, b: ([.segments[0].lanes[] | select(.local == "10.1.0.4") | .bytes_completed] | add // 0)}] as $f |
    [range(1; $f | length) | {t: $f[.].t, from: $f[. - 1].t,
        rate: (($f[.].b - $f[. - 1].b) * 8e9 / ($f[.].t - $f[. - 1].t))}] as $r |
    ([$r[] | select(.t < '"$before"') | .rate] | sort | .[length / 2 | floor]) as $was |
    [range(0; $r | length) | . as $i | select(($r[$i:$i + 5] | map(.rate) | max) < $was / 2)] | first as $i |
    "\($r[$i].from) \($r[$i].t) \($was | floor)"' -r "$work/run.jsonl")
read -r from to was <<<"$moment"
echo "# path 4 carried $was bit/s; throttled between $before and $changed ns; the recording: between $from and $to ns"
holds "record: path 4 carried about 40 Mb/s before" [ "${was:-0}" -gt 25000000 ]
holds "record: the change is not before it was made" [ "${to:-0}" -ge "$before" ]
holds "record: the change is shown within 100 ms" [ $((${from:-0} - changed)) -le 100000000 ]

# The page and the trace of it.
target/release/trtop report "$work/run.trrec" -o "$work/run.html"
holds "record: the report names the path that changed" grep -q 'path [0-9]* 10.1.0.4 -&gt; 10.2.0.4 send' "$work/run.html"
target/release/trtop export --from "$work/run.trrec" --to perfetto -o "$work/run.json"
holds "record: the trace has the path's counters" \
    sh -c "jq -e '[.traceEvents[] | select(.ph == \"C\" and (.name | contains(\"10.1.0.4\")))] | length > 50' '$work/run.json' >/dev/null"

# The same screens, from the recording: the share of path 4 falls.
tmux new-session -d -s replay -x 80 -y 24 "target/release/trtop replay '$work/run.trrec' --pause --at 4"
session=replay screen_tries=40
holds "replay: its header says what it is" until_screen 'REPLAY 0:04\.0 of 0:1[0-9]\.[0-9].*PAUSED'
tmux send-keys -t replay 4
holds "replay: path 4 has a quarter" until_screen '10\.1\.0\.4 .* 2[0-9] %'
tmux send-keys -t replay End
holds "replay: at the end it has less" until_screen '10\.1\.0\.4 .* [0-9] %'
tmux send-keys -t replay q
for _ in $(seq 20); do tmux has-session -t replay 2>/dev/null || break; sleep 0.2; done
holds "q ends the replay" sh -c '! tmux has-session -t replay 2>/dev/null'
finish
