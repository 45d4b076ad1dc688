# A job: a folder with a script (`command`), which grows `stdout` and `stderr` and at the end gets a `status`.

# What each job finds in its environment.
export_settings() {
    export LAB=1 LAB_PATHS LAB_ROUTING LAB_KERNELS LAB_HOST
    export LAB_OUT=/run/lab/out
}

run_job() { # FOLDER
    local folder=$1 job out err status
    # Pipes, so that the command can reopen its output (/dev/stderr) as usual; the files are written through.
    exec {to_out}> >(exec cat >>"$folder/stdout")
    out=$!
    exec {to_err}> >(exec cat >>"$folder/stderr")
    err=$!
    setsid bash "$folder/command" </dev/null >&"$to_out" 2>&"$to_err" {to_out}>&- {to_err}>&- &
    job=$!
    echo "$job" >"$folder/session"
    exec {to_out}>&- {to_err}>&-
    wait "$job"
    status=$?
    # What the command left running ends with it; whoever escaped that must not hold the output open for ever.
    end_session "$job"
    drain "$out" "$err"
    echo "$status" >"$folder/status.new"
    mv "$folder/status.new" "$folder/status"
}

# Two kernels: each guest looks for jobs from the other one (`lab on`) in the control share, which both mount.
# A job is on/HOST/NAME, complete once it is named so; `cancel` in its folder ends it.
serve_jobs() {
    local box=/run/lab/control/on/$LAB_HOST folder
    mkdir -p "$box"
    touch "$box.ready"
    while :; do
        for folder in "$box"/job.*; do
            [ -d "$folder" ] || continue
            if [ ! -e "$folder/taken" ]; then
                : >"$folder/taken"
                run_job "$folder" &
            elif [ -e "$folder/cancel" ] && [ -s "$folder/session" ]; then
                rm "$folder/cancel"
                end_session "$(<"$folder/session")"
            fi
        done
        pause 0.1
    done
}

run_terminal() { # FOLDER
    local status
    {
        # The size lasts as long as somebody has the terminal open.
        [ -z "$LAB_ROWS" ] || stty rows "$LAB_ROWS" cols "$LAB_COLUMNS_"
        setsid --ctty --wait bash "$1/command"
        status=$?
    } </dev/ttyS1 >/dev/ttyS1 2>&1
    echo "$status" >"$1/status"
}

end_session() { # SESSION
    local stat line fields
    for stat in /proc/[0-9]*/stat; do
        read -r line <"$stat" || continue
        fields=(${line##*) })
        if [ "${fields[3]}" = "$1" ]; then
            line=${stat#/proc/}
            kill -KILL "${line%/stat}"
        fi
    done 2>/dev/null
}

# A sleep without a process.
pause() { # SECONDS
    [ -n "${TICK:-}" ] || exec {TICK}<> <(:)
    read -r -t "$1" -u "$TICK" || true
}

drain() { # PID...
    local turn pid
    for ((turn = 0; turn < 40; turn++)); do
        for pid; do
            if kill -0 "$pid" 2>/dev/null; then
                pause 0.05
                continue 2
            fi
        done
        return
    done
}
