#!/usr/bin/env bash
# Inside the laboratory: the QPs between two processes share lanes, however many they are.
cd "$(dirname "$0")/../.." || exit 1
. tests/lab/check.sh
. tests/lab/perftest.sh

export TELEREDUCE_PATHS=4 TELEREDUCE_SPLIT_MIN=4096
qps=${MANY_QPS:-200} # 1000 take minutes here
pair many ib_write_bw -q "$qps" -s 8192 -n 5 -t 1
is "many: perftest ends well" 0 "$code"
is "many: each WR of $qps QPs is counted" "[$qps,$((qps * 5)),$((qps * 5 * 8192)),0]" \
    "$(field many client '[(.qps | length), (.ports[0] | .wr_completed, .bytes_completed, .wr_outstanding)]')"
is "many: four lanes serve all of them" 4 "$(field many client '.lanes | length')"
split=$(field many client '[.qps[] | select(.multipath.wr_split > 0)] | length')
holds "many: most QPs were split ($split)" [ "${split:-0}" -gt $((qps / 2)) ]
finish
