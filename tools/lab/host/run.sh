# A run: boot, stream the command's output, return its exit code, leave nothing behind.
#
# The control share ($RUN_DIR) is all that outside and inside say to each other:
#   settings  job/command          written here, read inside
#   job/stdout  job/stderr         appended inside, followed here
#   job/status                     the exit code, written last
#   console-a  console-b           the guests' kernel messages: shown only when a guest dies

CHILDREN=()

run_lab() { # command | shell
    local kind=$1
    ensure_kernel
    ensure_initramfs
    sweep_stale_runs
    RUN_DIR=$(mktemp -d "${TMPDIR:-/tmp}/telereduce-lab.$$.XXXXXX")
    trap 'clean_up' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
    OUT_SHARE=${OUT_DIR:-$RUN_DIR/out}
    mkdir -p "$OUT_SHARE" "$RUN_DIR/job" "$RUN_DIR/on"
    : >"$RUN_DIR/job/stdout"
    : >"$RUN_DIR/job/stderr"
    write_settings "$kind"
    write_command >"$RUN_DIR/job/command"
    if [ "$kind" = shell ]; then run_shell; else run_command; fi
}

run_command() {
    local first second="" ended clock="" out err
    start_machine a file
    first=$!
    if [ "$KERNELS" = 2 ]; then
        start_machine b file
        second=$!
    fi
    follow stdout "$first"
    out=$!
    follow stderr "$first" >&2
    err=$!
    if [ "$TIMEOUT" -gt 0 ]; then
        child sleep "$TIMEOUT"
        clock=$!
    fi
    while :; do
        ended=""
        wait -n -p ended "$first" "$out" ${clock:+"$clock"} ${second:+"$second"} || true
        case $ended in
            "$first") break ;;
            "$clock")
                say "time limit of $TIMEOUT s reached: the command was ended"
                show_consoles
                exit 124
                ;;
            "$second")
                say "guest b ended before the command did"
                show_consoles
                exit 125
                ;;
            "$out") exit 141 ;; # nobody reads the output any more
            *) break ;;
        esac
    done
    # The guest is gone: its output is complete, and the followers stop by themselves once they have passed it on.
    wait "$out" "$err" || true
    report_status
}

run_shell() {
    local status=0 keyboard
    TERMINAL=$(stty -g)
    exec {keyboard}<&0
    if [ "$KERNELS" = 2 ]; then start_machine b file; fi
    machine_arguments a tty
    stty raw -echo
    child "${MACHINE[@]}" <&"$keyboard" 2>"$RUN_DIR/emulator-a"
    wait $! || status=$?
    restore_terminal
    [ -s "$RUN_DIR/job/status" ] || show_consoles
    [ ! -s "$RUN_DIR/job/status" ] || status=$(cat "$RUN_DIR/job/status")
    exit "$status"
}

restore_terminal() {
    [ -z "${TERMINAL:-}" ] || stty "$TERMINAL" || true
    TERMINAL=""
}

report_status() {
    local status
    status=$(cat "$RUN_DIR/job/status" 2>/dev/null) || true
    if [[ $status =~ ^[0-9]+$ ]]; then exit "$status"; fi
    say "the guest ended before the command did"
    show_consoles
    exit 125
}

show_consoles() {
    local console
    for console in "$RUN_DIR"/console-* "$RUN_DIR"/emulator-*; do
        [ -s "$console" ] || continue
        say "end of $(basename "$console"):"
        tail -n 60 "$console" | tr -d '\r' | sed 's/^/lab|   /' >&2
    done
}

# Every child dies with this shell, even when the shell itself is killed outright.
child() {
    setpriv --pdeathsig KILL "$@" <&0 & # without the <, a background job reads from /dev/null
    CHILDREN+=($!)
}

start_machine() { # HOST CONSOLE
    machine_arguments "$1" "$2"
    child "${MACHINE[@]}" </dev/null >/dev/null 2>"$RUN_DIR/emulator-$1"
}

follow() { # STREAM PID: pass a stream on as it grows, until the guest has ended
    child tail -c +1 -s 0.1 --pid="$2" -f "$RUN_DIR/job/$1" 2>/dev/null
}

clean_up() {
    local pid
    trap '' INT TERM HUP
    restore_terminal
    exec 2>/dev/null # bash would name each child that it killed
    for pid in "${CHILDREN[@]}"; do kill -KILL "$pid" || true; done
    wait || true
    rm -rf "$RUN_DIR"
}

# A run that was killed outright could not remove its folder; the folder's name holds the run's process id.
sweep_stale_runs() {
    local folder pid
    for folder in "${TMPDIR:-/tmp}"/telereduce-lab.*; do
        pid=${folder##*telereduce-lab.}
        pid=${pid%%.*}
        if [ -O "$folder" ] && [[ $pid =~ ^[0-9]+$ ]] && ! kill -0 "$pid" 2>/dev/null; then rm -rf "$folder"; fi
    done
}

write_settings() { # KIND
    local size
    {
        setting KIND "$1"
        setting REPO "$LAB_REPO"
        setting CACHE "$LAB_CACHE"
        setting KERNEL "$(cat "$LAB_CACHE/kernel/version")"
        setting PATHS "$PATHS"
        setting RATE "$RATE"
        setting DELAY "$DELAY"
        setting LOSS "$LOSS"
        setting ROUTING "$ROUTING"
        setting KERNELS "$KERNELS"
        setting SHM "$SHM"
        if [ "$1" = shell ] && size=$(stty size 2>/dev/null); then
            setting ROWS "${size% *}"
            setting COLUMNS_ "${size#* }"
        fi
    } >"$RUN_DIR/settings"
}

# In single quotes, so that the guest's first, small shell can read it too.
setting() { printf "LAB_%s='%s'\n" "$1" "${2//\'/\'\\\'\'}"; }

# The command as a script: its environment, its folder, itself. Nothing else of this machine's environment goes in.
write_command() {
    local name pair
    printf 'export PATH=/run/lab/bin:%q\n' "$PATH"
    printf 'export TERM=%q\n' "${TERM:-linux}"
    for name in "${!TELEREDUCE_@}"; do
        if [[ ${!name@a} == *x* ]]; then printf 'export %s=%q\n' "$name" "${!name}"; fi
    done
    printf 'cd %q\n' "$LAB_REPO"
    for pair in ${EXTRA_ENV[@]+"${EXTRA_ENV[@]}"}; do printf 'export %s=%q\n' "${pair%%=*}" "${pair#*=}"; done
    if [ ${#COMMAND[@]} -gt 0 ]; then
        printf 'exec'
        printf ' %q' "${COMMAND[@]}"
        printf '\n'
    else
        printf 'exec bash -i\n'
    fi
}
