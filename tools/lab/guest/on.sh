# `lab on HOST COMMAND`: with two kernels, a job for the other guest, handed over in the control share.

on_host() { # HOST COMMAND [ARG...]
    local host=$1
    shift
    [[ $host =~ ^[ab]$ ]] || refuse "host '$host' is not a or b"
    [ "${1:-}" != -- ] || shift
    [ $# -gt 0 ] || refuse "on $host: no command"
    if [ "$LAB_KERNELS" = 1 ] || [ "$host" = "$LAB_HOST" ]; then
        LAB_HOST=$host "$@"
        return
    fi
    hand_over "$host" "$@"
}

hand_over() { # HOST COMMAND [ARG...]
    local host=$1 box folder name turn watcher out err status
    shift
    box=/run/lab/control/on/$host
    for ((turn = 0; turn < 600; turn++)); do
        [ -e "$box.ready" ] && break
        pause 0.1
    done
    [ -e "$box.ready" ] || { echo "lab: host $host did not come up" >&2; return 125; }
    name=job.$LAB_HOST.$$.$RANDOM
    folder=$box/.$name
    mkdir "$folder"
    : >"$folder/stdout"
    : >"$folder/stderr"
    {
        for name in "${!TELEREDUCE_@}" PATH TERM LAB_ONE_END; do
            [ -z "${!name+set}" ] || printf 'export %s=%q\n' "$name" "${!name}"
        done
        printf 'cd %q 2>/dev/null || cd %q\nexec' "$PWD" "$LAB_REPO"
        printf ' %q' "$@"
        echo
    } >"$folder/command"
    name=job.${folder##*/.job.}
    mv "$folder" "$box/$name"
    folder=$box/$name
    trap ': >"$folder/cancel"; exit 130' INT
    trap ': >"$folder/cancel"; exit 143' TERM
    # The followers stop, once they have passed everything on, when the watcher does. What the other guest writes makes
    # no notification here, so they must look again and again.
    until_there "$folder/status" &
    watcher=$!
    tail ---disable-inotify -c +1 -s 0.2 --pid="$watcher" -f "$folder/stdout" &
    out=$!
    tail ---disable-inotify -c +1 -s 0.2 --pid="$watcher" -f "$folder/stderr" >&2 &
    err=$!
    wait "$watcher" "$out" "$err" || true
    status=$(<"$folder/status")
    mv "$folder" "$box/.$name" # out of the other guest's sight first, or it would take a half-removed job for a new one
    rm -rf "$box/.$name"
    return "$status"
}

until_there() { # FILE
    while [ ! -e "$1" ]; do pause 0.1; done
}
