#!/usr/bin/env bash
# Inside the laboratory: a program that loads the real libibverbs itself, as NCCL does, is counted like any other.
cd "$(dirname "$0")/../.." || exit 1
. tests/lab/check.sh

work=$(mktemp -d)
library=$PWD/target/release/libtelereduce.so

# counted NAME ARG...: the program's 25 writes of 4,000 bytes, and nothing missed.
counted() {
    local name=$1
    shift
    TELEREDUCE_SNAPSHOT=$work/$name LD_PRELOAD=$library target/programs/dlvsym "$@" >"$work/said" 2>"$work/errors"
    is "$name: the program succeeds under the library" 0 $?
    is "$name: it says nothing on stderr" "" "$(cat "$work/errors")"
    is "$name: its writes are counted" '[25,25,100000,0]' \
        "$(jq -c '.segments[0].ports[0] | [.wr_posted, .wr_completed, .bytes_completed, .wr_outstanding]' "$work/$name")"
    is "$name: nothing was missed" '[0,0,0,0]' "$(jq -c '.segments[0].missed | [.objects_untracked, .wrs_unseen,
        .completions_unmatched, .panics]' "$work/$name")"
}

counted dlvsym
counted dlsym --dlsym
counted deepbind --deepbind
finish
