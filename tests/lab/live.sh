#!/usr/bin/env bash
# Inside the laboratory: trtop in a terminal of 80x24 watches a running program.
cd "$(dirname "$0")/../.." || exit 1
. tests/lab/check.sh
. tests/lab/perftest.sh
. tests/lab/screen.sh

start_transfer() {
    ib_write_bw -d rxeB -x 1 -F -s 65536 -D 600 >"$work/server.txt" 2>&1 &
    server=$!
    wait_for_listener "$server"
    LD_PRELOAD=$library ib_write_bw -d rxeA -x 1 -F -s 65536 -D 600 10.2.0.1 >"$work/client.txt" 2>&1 &
    client=$!
}

start_transfer
tmux new-session -d -s view -x 80 -y 24 "target/release/trtop"
session=view screen_tries=120
holds "the port is listed with its device and a bandwidth" until_screen 'rxeA.*[1-9][0-9.]* ?[kMG]b/s'
echo "# the screen of ports:"
screen | sed 's/^/# /'
outstanding=$(target/release/trtop dump --format json | jq '[.segments[] | select(.command | contains("10.2.0.1")) | .ports[0].wr_outstanding] | max')
holds "the send queue of 128 is nearly full: $outstanding outstanding" [ "${outstanding:-0}" -gt 0 ]
number=$(target/release/trtop dump --format json | jq '[.segments[] | select(.command | contains("10.2.0.1")) | .qps[0].qp_num] | max')
tmux send-keys -t view Tab
holds "Tab shows QP $number" until_screen "\\b$number\\b.*(RC|RTS|10\\.2\\.0\\.1)|(RC|RTS).*\\b$number\\b"
tmux send-keys -t view Tab
holds "Tab again shows the peer 10.2.0.1" until_screen '10\.2\.0\.1'
is "no line is wider than the terminal" 0 "$(screen | awk 'length($0) > 80' | wc -l)"

# The application dies while trtop watches: trtop says so and lives on. Soft-RoCE may have ended it before.
tmux send-keys -t view 1
for _ in 1 2 3; do
    kill -KILL "$client" 2>/dev/null && break
    echo "# the transfer ended by itself: $(tail -n 1 "$work/client.txt")"
    wait_or_end "$server"
    start_transfer
    until_screen 'rxeA.*[1-9][0-9.]* ?[kMG]b/s'
done
wait "$client" 2>/dev/null
holds "a killed program is shown as dead" until_screen 'dead'
holds "trtop ls calls it dead" sh -c 'target/release/trtop ls | grep -q dead'
target/release/trtop clean >"$work/clean.txt"
is "trtop clean removes what it left" '' "$(find /dev/shm -name "telereduce.*")"
tmux send-keys -t view q
for _ in $(seq 20); do tmux has-session -t view 2>/dev/null || break; sleep 0.2; done
holds "q ends trtop" sh -c '! tmux has-session -t view 2>/dev/null'
wait_or_end "$server"
finish
