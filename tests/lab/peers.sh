#!/usr/bin/env bash
# Inside the laboratory: whatever is at the other end instead of a shim, a program under the library does what it does without,
# over its one path and in its own time.
cd "$(dirname "$0")/../.." || exit 1
. tests/lab/check.sh
. tests/lab/perftest.sh

export TELEREDUCE_SPLIT_MIN=4096
elsewhere=$(mktemp -d -p /dev/shm) # the segments of a server that is to be on another host
listening=10.2.0.1
port=18516
MARGIN_MS=1000

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# Litmus's target listens on TCP port 18600.
await_target() {
    for _ in $(seq 100); do
        grep -q ':48A8 .* 0A ' /proc/net/tcp && return
        sleep 0.1
    done
}

# run [VARIABLE=VALUE...]: litmus `placed`, whose target runs in $target_env and whose source in the given environment.
# Leaves the source's exit code in $code and its time in $took_ms. A transport that broke says nothing, and is made again.
target_env=()
run() {
    local try target start
    for try in 1 2 3; do
        rm -f "$work/peers.client.json"
        env "${target_env[@]}" target/litmus/litmus placed --ip 10.2.0.1 >"$work/target.txt" 2>&1 &
        target=$!
        await_target
        start=$(now_ms)
        env TELEREDUCE_SNAPSHOT="$work/peers.client.json" "$@" timeout 60 target/litmus/litmus placed --ip 10.1.0.1 \
            --peer 10.2.0.1 >"$work/source.txt" 2>&1
        code=$?
        took_ms=$(($(now_ms) - start))
        wait_or_end "$target"
        [ "$code" = 2 ] || break
        echo "# placed: try $try, $(tail -n 1 "$work/source.txt")"
    done
    grep -q '^ok placed target' "$work/target.txt" || code=${code/#0/1}
    [ "$code" = 0 ] || sed 's/^/# /' "$work/source.txt" "$work/target.txt"
}

# reason_is NAME WANT...: why the client's QP has one path; "pending" if its program ended before the wait did.
reason_is() {
    local name=$1 got
    shift
    got=$(field peers client '.qps[0].multipath.single_path' | tr -d '"')
    holds "$name: the reason, of $*: $got" grep -qxF "$got" <(printf '%s\n' "$@")
}

# fake MODE: starts what is no shim, and waits until it is there.
fake() {
    python3 tests/lab/fake_peer.py "$@" >"$work/fake.txt" 2>&1 &
    fake=$!
    for _ in $(seq 100); do
        grep -q '^ready' "$work/fake.txt" && return
        sleep 0.1
    done
    not_ok "peers: $1: the fake peer does not start"
}

end_fake() {
    kill "$fake" 2>/dev/null
    wait "$fake" 2>/dev/null
}

# survives NAME REASONS [MODE ADDRESS...]: the client under the library, with that fake peer; each time after one without the
# library (if the server has it, with it, but over one path). That it takes too long once may be the machine's doing; each
# time, it is ours.
survives() {
    local name=$1 reasons=$2 try native_ms bad=0 server=("${target_env[@]}") plain=()
    shift 2
    [ ${#server[@]} -eq 0 ] || plain=(LD_PRELOAD="$library" TELEREDUCE_PATHS=1)
    for try in 1 2 3 4; do
        target_env=("${plain[@]}")
        run "${plain[@]}"
        native_ms=$took_ms
        target_env=("${server[@]}")
        [ $# -eq 0 ] || fake "$@"
        run LD_PRELOAD="$library" TELEREDUCE_PATHS=4
        [ $# -eq 0 ] || end_fake
        [ "$code" -eq 0 ] || bad=$code
        [ "$took_ms" -ge $((native_ms + MARGIN_MS)) ] || break
        echo "# $name: try $try took $took_ms ms, native $native_ms ms"
    done
    is "peers: $name: the right bytes" 0 "$bad"
    is "peers: $name: one path" 0 "$(field peers client '.lanes | length')"
    holds "peers: $name: within the native time and a second: $took_ms of $native_ms ms" \
        [ "$took_ms" -lt $((native_ms + MARGIN_MS)) ]
    [ $# -eq 0 ] || holds "peers: $name: the client was there" grep -q '^met' "$work/fake.txt"
    read -ra reasons <<<"$reasons"
    reason_is "peers: $name" "${reasons[@]}"
}

survives "no shim" no_shim_at_peer
survives "another version" protocol version "$listening" "$port"
# Which one it is depends on whether the program asks again before its end.
survives "a peer that dies in the handshake" "no_shim_at_peer link_lost" dies "$listening" "$port"
survives "a peer that says nothing" "silent pending" silent "$listening" "$port"
survives "an attacker" no_shim_at_peer attacks 10.1.0.1 "$port" "$listening"

# The leaf switch forwards both ways. Both ends have a shim, and no folder in common: they are on two hosts.
ip -n fabA rule add pref 1 ipproto tcp dport $port-$((port + 7)) blackhole
fake silent "$listening" "$port"
holds "peers: a firewall: the port is dropped" \
    [ "$(timeout 2 bash -c "</dev/tcp/$listening/$port" 2>/dev/null; echo $?)" = 124 ]
end_fake
target_env=(LD_PRELOAD="$library" TELEREDUCE_PATHS=4 TELEREDUCE_DIR="$elsewhere")
survives "a firewall" "no_answer pending"
ip -n fabA rule del pref 1
run LD_PRELOAD="$library" TELEREDUCE_PATHS=4
is "peers: without the firewall: the right bytes, over four" '0 4' "$code $(field peers client '.lanes | length')"
rm -rf "$elsewhere"
finish
