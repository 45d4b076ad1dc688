# shellcheck shell=bash
# Sourced inside the laboratory: runs the two sides of a row once, a server and then its client.

library=$PWD/target/release/libtelereduce.so

# pair FOLDER SERVER CLIENT: runs both with the variables of `preload`, if set; leaves their output and snapshots in
# FOLDER and their exit codes in $server_code and $client_code. Without a SERVER the client is the whole program.
pair() {
    local folder=$1 server=$2 client=$3 wire_a wire_b crashed
    rm -rf "$folder"
    mkdir -p "$folder/completions"
    wire_a=$(wire A)
    wire_b=$(wire B)
    crashed=$(crashes)
    server_code=0
    if [ -n "$server" ]; then start_server "$folder" "$server"; fi
    (cd "$folder" && exec "${preload[@]}" timeout 60 bash -c "$client") >"$folder/client.txt" 2>&1
    client_code=$?
    if [ -n "$server" ]; then end_server "$folder"; fi
    left_behind "$folder"
    crashed=$(($(crashes) - crashed))
    echo "$crashed" >"$folder/crashes"
    echo "$(($(wire A) - wire_a)) $(($(wire B) - wire_b))" >"$folder/wire"
}

# What has left a host's port since boot, headers and retransmissions too.
wire() { cat "/sys/class/net/roce$1/statistics/tx_bytes"; }

# Processes that the kernel ended since boot.
crashes() { dmesg | grep -cE ' segfault at | general protection | trap [a-z]+ ip:'; }

start_server() {
    local before
    before=$(listeners)
    (cd "$1" && exec "${preload[@]}" timeout 90 bash -c "$2") >"$1/server.txt" 2>&1 &
    server_pid=$!
    for _ in $(seq 100); do
        [ "$(listeners)" != "$before" ] && return
        kill -0 "$server_pid" 2>/dev/null || return
        sleep 0.1
    done
}

# Everybody that waits for a connection, by TCP or by rdma_cm.
listeners() {
    cat /proc/net/tcp /proc/net/tcp6 | awk '$4 == "0A" { print $2 }' | sort
    rdma resource show cm_id | grep LISTEN | sort
}

# A server that does not end by itself is asked to; what it counted so far is kept, since no one else will write it.
end_server() {
    for _ in $(seq 30); do
        kill -0 "$server_pid" 2>/dev/null || break
        sleep 0.1
    done
    if kill -0 "$server_pid" 2>/dev/null; then
        target/release/trtop dump -o "$1/ended.json" 2>/dev/null
        kill "$server_pid"
        wait "$server_pid" 2>/dev/null
        server_code=ended
        target/release/trtop clean >/dev/null 2>&1
    else
        wait "$server_pid"
        server_code=$?
    fi
}

# Segments whose process is gone: what they hold counts, that they are there is noted.
left_behind() {
    find /dev/shm -name 'telereduce.*' -printf '%f\n' >"$1/left"
    [ -s "$1/left" ] || return 0
    target/release/trtop dump -o "$1/left.json" 2>/dev/null
    rm -f /dev/shm/telereduce.*
}

# Completions are counted by a small library of the matrix's own, which the native run has, too.
counter=$PWD/target/matrix/programs/completions.so

preload_nothing_into() {
    preload=(env "LD_PRELOAD=$counter" "COMPLETIONS=$1/completions")
}

preload_into() {
    preload=(env "LD_PRELOAD=$counter $library" "COMPLETIONS=$1/completions" "TELEREDUCE_SNAPSHOT=$1/%p.json")
}

# completions FOLDER: how many all processes of the row polled.
completions() { cat "$1"/completions/* 2>/dev/null | od -An -v -t u8 -w8 | awk '{ n += $1 } END { print n + 0 }'; }
