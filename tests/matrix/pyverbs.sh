#!/usr/bin/env bash
# rdma-core's own Python tests over soft-RoCE, natively and with the library: every test must end the same way. They are
# not part of this repository: take the sources of the version that Debian's python3-pyverbs is built from (44.0).
# usage: tests/matrix/pyverbs.sh FOLDER    the folder that holds rdma-core's tests/, at a place that the laboratory sees
cd "$(dirname "$0")/../.." || exit 1
if [ "${1:-}" != inside ]; then
    [ -f "${1:-}/tests/run_tests.py" ] || {
        echo "pyverbs.sh: '${1:-}' holds no tests/run_tests.py; give the folder of rdma-core's sources" >&2
        exit 2
    }
    tools/deps matrix || exit
    mkdir -p target/matrix
    exec tools/lab/lab run --out "$PWD/target/matrix" -- tests/matrix/pyverbs.sh inside "$(realpath "$1")"
fi

# suite NAME [ENVIRONMENT...]: runs all tests; one line each, `module.class.test result`, in $LAB_OUT/pyverbs-NAME.
suite() {
    local name=$1
    shift
    (cd "$folder/tests" && env "$@" timeout 200 /usr/bin/python3 run_tests.py --dev rxeA --gid 1 -v) \
        >"$LAB_OUT/pyverbs-$name.log" 2>&1
    echo "$name: exit code $?, $(grep '^Ran ' "$LAB_OUT/pyverbs-$name.log")"
    # A test is named in parentheses on the first of its lines, its result ends the last one: "... ok".
    awk '/^test[A-Za-z0-9_]* \(/ { test = substr($2, 2, length($2) - 2) }
         test && match($0, /\.\.\. /) { print test, ($(NF) ~ /^(ok|FAIL|ERROR)$/ ? $NF : "skipped"); test = "" }' \
        "$LAB_OUT/pyverbs-$name.log" | sort >"$LAB_OUT/pyverbs-$name"
    awk -v name="$name" '{ n[$2]++ } END { for (r in n) print name ": " n[r], r }' "$LAB_OUT/pyverbs-$name"
}

folder=$2
suite native
suite preloaded "LD_PRELOAD=$PWD/target/release/libtelereduce.so" "TELEREDUCE_SNAPSHOT=$LAB_OUT/pyverbs.%p.json"
cat "$LAB_OUT"/pyverbs.*.json | jq -c '.segments[] | .missed, (.ports[] | {device, wr_posted, wr_completed, wr_failed, wr_dropped, wr_outstanding})'
rm -f "$LAB_OUT"/pyverbs.*.json
left=$(find /dev/shm -name 'telereduce.*')
different=$(diff "$LAB_OUT/pyverbs-native" "$LAB_OUT/pyverbs-preloaded")
[ -z "$left" ] || echo "left behind: $left"
[ -z "$different" ] || echo "$different"
if [ -z "$left$different" ] && [ -s "$LAB_OUT/pyverbs-native" ]; then
    echo "every test ends the same way"
else
    exit 1
fi
