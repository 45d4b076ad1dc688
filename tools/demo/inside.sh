#!/usr/bin/env bash
# Inside the laboratory: a server without the library, a client under it, trtop beside them.
set -uo pipefail
seconds=12
trtop=target/release/trtop

ib_write_bw -d rxeB -x 1 -F -s 65536 -D "$seconds" >/tmp/server.txt 2>&1 &
sleep 1
echo "\$ LD_PRELOAD=libtelereduce.so TELEREDUCE_SNAPSHOT=ib_write_bw.json ib_write_bw -d rxeA -s 65536 -D $seconds 10.2.0.1 &"
TELEREDUCE_SNAPSHOT=$LAB_OUT/ib_write_bw.json LD_PRELOAD=$PWD/target/release/libtelereduce.so \
    ib_write_bw -d rxeA -x 1 -F -s 65536 -D "$seconds" 10.2.0.1 >/tmp/client.txt 2>&1 &
client=$!
echo "\$ trtop"
tmux new-session -d -s demo -x 100 -y 24 "$trtop"
sleep 2
frame=0
while kill -0 "$client" 2>/dev/null; do
    frame=$((frame + 1))
    # Ports, then QPs, then peers.
    case $frame in 4) tmux send-keys -t demo Tab ;; 7) tmux send-keys -t demo Tab ;; esac
    if [ "$DEMO_LIVE" = 1 ]; then
        printf '\033[H\033[2J'
        tmux capture-pane -p -e -t demo
    elif [ "$frame" = 3 ] || [ "$frame" = 6 ] || [ "$frame" = 9 ]; then
        tmux capture-pane -p -t demo
    fi
    sleep 1
done
wait "$client"
code=$?
tmux kill-server
[ "$DEMO_LIVE" = 1 ] && printf '\033[H\033[2J'
grep -A 1 '#bytes' /tmp/client.txt
[ "$code" -eq 0 ] || tail -n 3 /tmp/client.txt
echo
echo "\$ jq ... ib_write_bw.json"
jq -c '.segments[0] | {command, host, pid}, (.ports[0] | {device, port, wr_posted, wr_completed, wr_dropped, wr_outstanding,
    bytes_posted, bytes_completed, wr_high_water, opcodes, p99_ns: .latency_post_to_poll.p99_ns}),
    (.peers[0] | {ip, bytes_completed})' "$LAB_OUT/ib_write_bw.json"
exit "$code"
