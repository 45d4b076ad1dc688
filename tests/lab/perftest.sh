# shellcheck shell=bash
# Sourced inside the laboratory: runs one perftest pair between rxeB (server) and rxeA (client).

library=$PWD/target/release/libtelereduce.so
work=$(mktemp -d)

# pair NAME PROGRAM [OPTION...]: leaves $work/NAME.{server,client}.json and the client's exit code in $code.
# The server runs under $server_library instead of the library, if that is set.
# Soft-RoCE itself breaks a connection now and then when the machine is busy, with and without the library; a run that
# perftest calls failed says nothing about counting and is made again.
pair() {
    local name=$1 program=$2
    shift 2
    local try server
    for try in 1 2 3; do
        rm -f "$work/$name".*.json
        TELEREDUCE_SNAPSHOT=$work/$name.server.json LD_PRELOAD=${server_library-$library} \
            "$program" -d rxeB -x 1 -F "$@" >"$work/$name.server.txt" 2>&1 &
        server=$!
        wait_for_listener "$server"
        TELEREDUCE_SNAPSHOT=$work/$name.client.json LD_PRELOAD=$library \
            timeout 90 "$program" -d rxeA -x 1 -F "$@" 10.2.0.1 >"$work/$name.client.txt" 2>&1
        code=$?
        wait_or_end "$server"
        [ "$code" -eq 0 ] && return 0
        echo "# $name: try $try ended with $code: $(tail -n 1 "$work/$name.client.txt")"
    done
}

# perftest's server listens on TCP port 18515.
wait_for_listener() {
    for _ in $(seq 100); do
        grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 2>/dev/null && return 0
        kill -0 "$1" 2>/dev/null || return 0
        sleep 0.1
    done
}

wait_or_end() {
    for _ in $(seq 50); do
        kill -0 "$1" 2>/dev/null || break
        sleep 0.1
    done
    kill "$1" 2>/dev/null
    wait "$1" 2>/dev/null
}

# field NAME SIDE FILTER: a jq filter over the side's only segment.
field() { jq -c ".segments[0] | $3" "$work/$1.$2.json" 2>/dev/null || echo "no snapshot"; }
