#!/usr/bin/env bash
# Inside the laboratory: large messages of one QP travel over four paths, and what the application sees is what it was.
# tests/litmus/run has the whole order contract; here are a few of its programs, and the counts.
cd "$(dirname "$0")/../.." || exit 1
. tests/lab/check.sh
. tests/lab/perftest.sh
. tests/lab/litmus.sh

paths() { for path in 1 2 3 4; do lab path $path rate "$1"; done; }

export TELEREDUCE_PATHS=4
paths 40mbit
pair split ib_write_bw -s 1048576 -n 40 -t 4
paths none
is "paths: perftest ends well" 0 "$code"
is "paths: the port's WRs and bytes are those posted" '[40,41943040,0]' \
    "$(field split client '[.ports[0] | .wr_completed, .bytes_completed, .wr_outstanding]')"
is "paths: there are four lanes, one per alias" '["10.1.0.1","10.1.0.2","10.1.0.3","10.1.0.4"]' \
    "$(field split client '[.lanes[] | .local] | sort')"
is "paths: each carried chunks, and none is left out" '[true,0]' \
    "$(field split client '[([.lanes[] | .wr_completed > 0] | all), ([.lanes[] | .wr_outstanding] | add)]')"
bytes=$(field split client '[.lanes[] | .bytes_completed] | add')
holds "paths: together more than half of the bytes: $bytes" [ "${bytes:-0}" -gt 20971520 ]
is "paths: nothing is missed" '[]' "$(field split client '[.missed | del(.events_overwritten)[] | select(. > 0)]')"

# Of the 40 WRs, each was split, or counted with why not (before the lanes were there, say).
work_of='.qps[0].multipath'
is "paths: each large WR was split or is counted as whole" 40 \
    "$(field split client "$work_of | .wr_split + ([.large_passed[]] | add // 0)")"
is "paths: the bytes split are those of the WRs split" true \
    "$(field split client "$work_of | .bytes_split == .wr_split * 1048576 and .wr_split > 20")"
is "paths: the QP's chunks are the lanes' chunks" true \
    "$(field split client "([.lanes[] | .wr_posted, .bytes_posted]) as \$l | $work_of |
        .chunks == ([\$l[range(0; \$l | length; 2)]] | add) and .bytes_on_lanes == ([\$l[range(1; \$l | length; 2)]] | add)")"
is "paths: the port carried what was posted, and again what was sent anew" true \
    "$(field split client '.ports[0] | .multipath.bytes_carried >= .bytes_posted and
        (.multipath.chunks_replayed > 0 or .multipath.wr_whole > 0 or .multipath.bytes_carried == .bytes_posted)')"
# Whoever ends first leaves the other with one path, which says so.
is "paths: no reason for one path while there were lanes" true \
    "$(field split client "$work_of | .single_path == null or .single_path == \"peer_left\"")"

server_library='' pair alone ib_write_bw -s 1048576 -n 10
is "paths: without the library at the peer perftest ends well" 0 "$code"
is "paths: and the QP says why it has one path" '["no_shim_at_peer",0,0,10,10485760]' \
    "$(field alone client "$work_of | [.single_path, .lanes, .wr_split, .large_passed.no_lane, .bytes_carried]")"

export TELEREDUCE_SPLIT_MIN=4096
lab path 4 delay 50ms
for name in placed flag atomic send seqlock read overlap; do
    holds "paths: litmus $name, with one slow path" litmus "$name"
done
lab path 4 delay none
finish
