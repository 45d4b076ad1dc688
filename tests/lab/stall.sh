#!/usr/bin/env bash
# Inside the laboratory: the peer of a running transfer is stopped. Its receives run out, so sends wait: that is a stall, an event
# and a file of the flight recorder; once the peer goes on, so does the transfer, and the stall is over.
cd "$(dirname "$0")/../.." || exit 1
. tests/lab/check.sh
. tests/lab/perftest.sh

dumps=$(mktemp -d)
ib_send_bw -d rxeB -x 1 -F -s 65536 -D 600 >"$work/server.txt" 2>&1 &
server=$!
wait_for_listener "$server"
TELEREDUCE_STALL_MS=1000 TELEREDUCE_DUMP_DIR=$dumps LD_PRELOAD=$library \
    ib_send_bw -d rxeA -x 1 -F -s 65536 -D 600 10.2.0.1 >"$work/client.txt" 2>&1 &
client=$!

# of FILTER: of the client's segment, with its events.
of() { target/release/trtop dump --events --pid "$client" 2>/dev/null | jq -c ".segments[0] | $1"; }

# until_is FILTER WANT: waits for it, up to 60 s.
until_is() {
    for _ in $(seq 120); do
        [ "$(of "$1")" = "$2" ] && return 0
        sleep 0.5
    done
    echo "# $1 is $(of "$1"), not $2"
    return 1
}

kinds='[.events[] | select(.kind != "completion") | .kind]'
holds "stall: the transfer runs" until_is '.ports[0].wr_completed > 50' true
is "stall: and does not stall" '[0,0]' "$(of '.ports[0].stall | [.stalls, .qps_stalled]')"
kill -STOP "$server"
holds "stall: one QP stalls once its peer is stopped" until_is '.ports[0].stall | [.stalls, .qps_stalled]' '[1,1]'
is "stall: towards that peer" '[["10.2.0.1",1]]' "$(of '[.peers[] | [.ip, .stall.qps_stalled]]')"
is "stall: an event" '["stall"]' "$(of "$kinds")"
sleep 1
files=("$dumps"/*-stall.json)
is "stall: a file of the flight recorder" 1 "$(find "$dumps" -name '*-stall.json' | wc -l)"
is "stall: it says why, and which QP" "[\"stall\",$(of '.qps[0].qp_num')]" "$(jq -c '.cause | [.reason, .qp_nums[]]' "${files[0]}")"
is "stall: it has the last events, and this one" '[true,["stall"]]' \
    "$(jq -c ".segments[0] | [(.events | length > 50), $kinds]" "${files[0]}")"
age=$(of '.qps[0].stall | .stalled_ns != null and .longest_ns >= 1000000000')
is "stall: it lasts longer than a second" true "$age"
kill -CONT "$server"
holds "stall: it is over when the peer goes on" until_is '.ports[0].stall.qps_stalled' 0
is "stall: its end is an event" '["stall","stall_end"]' "$(of "$kinds | .[:2]")"
before=$(of '.ports[0].wr_completed')
holds "stall: the transfer goes on" until_is ".ports[0].wr_completed > ${before:-0}" true
kill -USR2 "$client"
sleep 1
is "stall: SIGUSR2 asks for another file" 1 "$(find "$dumps" -name '*-signal.json' | wc -l)"
holds "stall: and the transfer lives" kill -0 "$client"
kill "$client" "$server" 2>/dev/null
wait_or_end "$client"
wait_or_end "$server"
rm -rf "$dumps"
target/release/trtop clean >/dev/null 2>&1
finish
