# shellcheck shell=bash
# Sourced: one line per check, and the counts at the end.
passed=0
failed=0

ok() { echo "ok $*"; passed=$((passed + 1)); }
not_ok() { echo "not ok $*"; failed=$((failed + 1)); }

# is NAME WANT GOT
is() {
    if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1: expected $2, got $3"; fi
}

# holds NAME COMMAND [ARG...]
holds() {
    local name=$1
    shift
    if "$@"; then ok "$name"; else not_ok "$name: false: $*"; fi
}

finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}
