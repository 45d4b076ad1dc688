#!/usr/bin/env bash
# Inside the laboratory: large WRITE_WITH_IMMs travel over four paths, and the receiver's completions say how long they were.
cd "$(dirname "$0")/../.." || exit 1
. tests/lab/check.sh
. tests/lab/perftest.sh
. tests/lab/litmus.sh

export TELEREDUCE_PATHS=4 TELEREDUCE_SPLIT_MIN=4096

# lanes NAME: bytes that the source sent over lanes.
lanes() { field "$1" source '[.lanes // [] | .[] | .bytes_completed] | add // 0'; }

# Each round sends four messages of nearly 1 MiB.
holds "lengths: litmus imm" litmus imm --rounds 10
bytes=$(lanes imm)
holds "lengths: more than half of 40 messages went over lanes: $bytes bytes" [ "${bytes:-0}" -gt 20971520 ]
is "lengths: the receiver's own count has the whole lengths" "$(field imm source '.ports[0] | [40, .bytes_completed]')" \
    "$(field imm target '[.ports[].recv] | [map(.wr_completed), map(.bytes_completed)] | map(add)')"
holds "lengths: litmus srq" litmus srq --rounds 6
bytes=$(lanes srq)
holds "lengths: with an SRQ, too: $bytes bytes" [ "${bytes:-0}" -gt 4194304 ]
export TELEREDUCE_ORDER=notify
holds "lengths: litmus imm, notify" litmus imm --rounds 10
bytes=$(lanes imm)
holds "lengths: more than half of it over lanes: $bytes bytes" [ "${bytes:-0}" -gt 20971520 ]
target_library=
holds "lengths: litmus imm, a target without the library" litmus imm --rounds 3
is "lengths: there are no lanes" 0 "$(lanes imm)"
finish
