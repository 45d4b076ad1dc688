#!/usr/bin/env bash
# Inside the laboratory: first a server without the library, a client under it, trtop beside them; then large messages over
# four slow paths, without and with multi-path.
set -uo pipefail
seconds=12
trtop=target/release/trtop
library=$PWD/target/release/libtelereduce.so

# watch PID KEY...: trtop in a terminal of its own until the process ends; every third frame a key, and a frame shown.
watch() {
    local pid=$1 frame=0
    shift
    tmux new-session -d -s demo -x 100 -y 24 "$trtop"
    sleep 2
    while kill -0 "$pid" 2>/dev/null; do
        frame=$((frame + 1))
        if [ $((frame % 3)) -eq 1 ] && [ $# -gt 0 ]; then
            [ -z "$1" ] || tmux send-keys -t demo "$1"
            shift
        fi
        if [ "$DEMO_LIVE" = 1 ]; then
            printf '\033[H\033[2J'
            tmux capture-pane -p -e -t demo
        elif [ $((frame % 3)) -eq 0 ] && [ "$frame" -le 9 ]; then
            tmux capture-pane -p -t demo
        fi
        sleep 1
    done
    tmux kill-server
    [ "$DEMO_LIVE" = 1 ] && printf '\033[H\033[2J'
}

ib_write_bw -d rxeB -x 1 -F -s 65536 -D "$seconds" >/tmp/server.txt 2>&1 &
sleep 1
echo "\$ LD_PRELOAD=libtelereduce.so TELEREDUCE_SNAPSHOT=ib_write_bw.json ib_write_bw -d rxeA -s 65536 -D $seconds 10.2.0.1 &"
TELEREDUCE_SNAPSHOT=$LAB_OUT/ib_write_bw.json LD_PRELOAD=$library \
    ib_write_bw -d rxeA -x 1 -F -s 65536 -D "$seconds" 10.2.0.1 >/tmp/client.txt 2>&1 &
client=$!
echo "\$ trtop"
# Ports, then QPs, then peers.
watch "$client" '' Tab Tab
wait "$client"
code=$?
grep -A 1 '#bytes' /tmp/client.txt
[ "$code" -eq 0 ] || tail -n 3 /tmp/client.txt
echo
echo "\$ jq ... ib_write_bw.json"
jq -c '.segments[0] | {command, host, pid}, (.ports[0] | {device, port, wr_posted, wr_completed, wr_dropped, wr_outstanding,
    bytes_posted, bytes_completed, wr_high_water, opcodes, p99_ns: .latency_post_to_poll.p99_ns}),
    (.peers[0] | {ip, bytes_completed})' "$LAB_OUT/ib_write_bw.json"
[ "$code" -eq 0 ] || exit "$code"

# large SETTING...: ib_write_bw of 8 MiB messages with these variables on both sides.
large() {
    env "$@" ib_write_bw -d rxeB -x 1 -F -s 8388608 -t 2 -D "$seconds" -f 4 >/tmp/server.txt 2>&1 &
    sleep 1
    env "$@" ib_write_bw -d rxeA -x 1 -F -s 8388608 -t 2 -D "$seconds" -f 4 --report_gbits 10.2.0.1 >/tmp/client.txt 2>&1 &
    client=$!
}

echo
echo "Four paths of 40 Mb/s each, and messages of 8 MiB: one QP, one path."
for path in 1 2 3 4; do lab path $path rate 40mbit; done
echo "\$ ib_write_bw -s 8388608"
large DEMO=native
wait "$client"
grep -A 1 '#bytes' /tmp/client.txt
native=$(awk '$1 == 8388608 { print $4 }' /tmp/client.txt)
echo
echo "\$ LD_PRELOAD=libtelereduce.so TELEREDUCE_PATHS=4 ib_write_bw -s 8388608"
large "LD_PRELOAD=$library" TELEREDUCE_PATHS=4 "TELEREDUCE_SNAPSHOT=$LAB_OUT/paths.%p.json"
# Paths.
watch "$client" 4
wait "$client"
code=$?
grep -A 1 '#bytes' /tmp/client.txt
[ "$code" -eq 0 ] || tail -n 3 /tmp/client.txt
awk -v n="$native" '$1 == 8388608 { printf "\n%.3f Gb/s of one path natively, %.3f of four paths with the library: %.2f times as much\n", n, $4, $4 / n }' /tmp/client.txt
jq -c -s '.[] | .segments[0].lanes[]? | select(.bytes_completed > 0) | {path, local, peer, wr_completed, bytes_completed}' "$LAB_OUT"/paths.*.json
exit "$code"
