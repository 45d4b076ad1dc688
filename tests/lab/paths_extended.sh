#!/usr/bin/env bash
# Inside the laboratory: as paths.sh, of QPs that are posted to by ibv_wr_* and CQs that are polled by ibv_start_poll.
cd "$(dirname "$0")/../.." || exit 1
. tests/lab/check.sh
. tests/lab/perftest.sh
. tests/lab/litmus.sh

export TELEREDUCE_PATHS=4
export TELEREDUCE_SPLIT_MIN=4096

lab path 4 delay 50ms
for name in placed flag atomic send seqlock read overlap random; do
    holds "paths, extended: litmus $name, with one slow path" litmus "$name" --extended
    is "paths, extended: $name was split, and nothing is missed" '[true,0,0,0,0]' \
        "$(field "$name" source '[([.lanes[].wr_completed] | add > 0), (.missed | .objects_opaque, .wrs_unseen, .completions_unmatched, .panics)]')"
done
# What is not split, of threads that share QPs and CQs.
holds "paths, extended: litmus threads, with one slow path" litmus threads --extended
lab path 4 delay none

# Small messages, which pass.
LD_PRELOAD=$library ibv_rc_pingpong -d rxeB -g 1 -N -c -n 50 >"$work/server.txt" 2>&1 &
server=$!
wait_for_listener "$server"
LD_PRELOAD=$library timeout 60 ibv_rc_pingpong -d rxeA -g 1 -N -c -n 50 10.2.0.1 >"$work/client.txt" 2>&1
is "paths, extended: ibv_rc_pingpong -N ends well" 0 $?
wait_or_end "$server"
finish
