#!/usr/bin/env bash
# Inside the laboratory: large WRITE_WITH_IMMs travel over four paths, and the receiver's completions say how long they were.
cd "$(dirname "$0")/../.." || exit 1
. tests/lab/check.sh
. tests/lab/perftest.sh

export TELEREDUCE_PATHS=4 TELEREDUCE_SPLIT_MIN=4096

# litmus NAME TARGET-LIBRARY ROUNDS: the source under the library, the target under the one named, or under none. A transport
# that broke says nothing, and is made again.
litmus() {
    local try target
    for try in 1 2 3; do
        rm -f "$work"/imm.*.json
        LD_PRELOAD=$2 TELEREDUCE_SNAPSHOT=$work/imm.server.json \
            target/litmus/litmus "$1" --ip 10.2.0.1 --rounds "$3" >"$work/target.txt" 2>&1 &
        target=$!
        LD_PRELOAD=$library TELEREDUCE_SNAPSHOT=$work/imm.client.json \
            timeout 60 target/litmus/litmus "$1" --ip 10.1.0.1 --peer 10.2.0.1 --rounds "$3" >"$work/source.txt" 2>&1
        code=$?
        wait_or_end "$target"
        [ "$code" = 2 ] || break
        echo "# litmus $1: try $try, $(tail -n 1 "$work/source.txt")"
    done
    [ "$code" = 0 ] && grep -q "^ok $1 target" "$work/target.txt" && return
    cat "$work/source.txt" "$work/target.txt" | sed 's/^/# /'
    return 1
}

lanes() { field imm client '[.lanes // [] | .[] | .bytes_completed] | add // 0'; }

# Each round sends four messages of nearly 1 MiB.
holds "lengths: litmus imm" litmus imm "$library" 10
bytes=$(lanes)
holds "lengths: more than half of 40 messages went over lanes: $bytes bytes" [ "${bytes:-0}" -gt 20971520 ]
is "lengths: the receiver's own count has the whole lengths" "$(field imm client '.ports[0] | [40, .bytes_completed]')" \
    "$(field imm server '[.ports[].recv] | [map(.wr_completed), map(.bytes_completed)] | map(add)')"
holds "lengths: litmus srq" litmus srq "$library" 6
bytes=$(lanes)
holds "lengths: with an SRQ, too: $bytes bytes" [ "${bytes:-0}" -gt 4194304 ]
export TELEREDUCE_ORDER=notify
holds "lengths: litmus imm, notify" litmus imm "$library" 10
bytes=$(lanes)
holds "lengths: more than half of it over lanes: $bytes bytes" [ "${bytes:-0}" -gt 20971520 ]
holds "lengths: litmus imm, a target without the library" litmus imm "" 3
is "lengths: there are no lanes" 0 "$(lanes)"
finish
