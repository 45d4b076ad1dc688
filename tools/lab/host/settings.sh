# Settings: an environment variable each, which a flag overrides. A wrong value is named before anything boots.

COMMAND=()
EXTRA_ENV=()
OUT_DIR=""

cache_defaults() { LAB_CACHE=$(readlink -m "${LAB_CACHE:-$LAB_REPO/target/lab}"); }

parse_settings() {
    cache_defaults
    PATHS=${LAB_PATHS:-4} RATE=${LAB_RATE:-none} DELAY=${LAB_DELAY:-none} LOSS=${LAB_LOSS:-none}
    ROUTING=${LAB_ROUTING:-static} KERNELS=${LAB_KERNELS:-1} CLOCK=${LAB_CLOCK:-host} TIMEOUT=${LAB_TIMEOUT:-600}
    OUT_DIR=${LAB_OUT:-} MEMORY=${LAB_MEMORY:-3072} CPUS=${LAB_CPUS:-} SHM=${LAB_SHM:-1g}
    while [ $# -gt 0 ]; do
        case $1 in
            --)
                shift
                COMMAND=("$@")
                break
                ;;
            --*=*)
                local flag=${1%%=*} value=${1#*=}
                shift
                set -- "$flag" "$value" "$@"
                continue
                ;;
            --*) [ $# -ge 2 ] || refuse "$1 needs a value" ;;
            *) refuse "unexpected '$1' (the command comes after --)" ;;
        esac
        case $1 in
            --paths) PATHS=$2 ;;
            --rate) RATE=$2 ;;
            --delay) DELAY=$2 ;;
            --loss) LOSS=$2 ;;
            --routing) ROUTING=$2 ;;
            --kernels) KERNELS=$2 ;;
            --clock) CLOCK=$2 ;;
            --timeout) TIMEOUT=$2 ;;
            --out) OUT_DIR=$2 ;;
            --memory) MEMORY=$2 ;;
            --cpus) CPUS=$2 ;;
            --shm) SHM=$2 ;;
            --env)
                [[ $2 =~ ^[A-Za-z_][A-Za-z0-9_]*= ]] || refuse "--env wants NAME=VALUE, not '$2'"
                EXTRA_ENV+=("$2")
                ;;
            *) refuse "unknown setting '$1'" ;;
        esac
        shift 2
    done
    check_settings
}

check_settings() {
    want KERNELS '^[12]$' "1 or 2"
    local most=32
    [ "$KERNELS" = 1 ] || most=16
    want PATHS '^[0-9]{1,2}$' "a number from 1 to $most"
    PATHS=$((10#$PATHS))
    [ "$PATHS" -ge 1 ] && [ "$PATHS" -le $most ] || refuse "paths: '$PATHS' is not a number from 1 to $most"
    want ROUTING '^(static|ecmp)$' "static or ecmp"
    want CLOCK '^(host|instructions)$' "host or instructions"
    [ "$KERNELS$CLOCK" != 2instructions ] || refuse "clock: instructions is for one kernel; two guests' clocks would differ"
    want TIMEOUT '^[0-9]+$' "whole seconds"
    want MEMORY '^[0-9]+$' "MiB, a whole number"
    [ -n "$CPUS" ] || CPUS=$([ "$KERNELS$CLOCK" = 1host ] && echo 2 || echo 1)
    want CPUS '^[1-9][0-9]*$' "a whole number"
    want SHM '^[0-9]+[kmgKMG]?$' "a size such as 512m"
    check_list RATE '^(none|[1-9][0-9]*[kmg]bit)$' "none or a rate such as 40mbit"
    check_list DELAY '^(none|[0-9]+(\.[0-9]+)?(us|ms|s))$' "none or a delay such as 5ms"
    check_list LOSS '^(none|[0-9]+(\.[0-9]+)?%)$' "none or a percentage such as 0.1%"
    if [ -n "$OUT_DIR" ]; then
        mkdir -p "$OUT_DIR" 2>/dev/null || refuse "out: cannot make the folder '$OUT_DIR'"
        OUT_DIR=$(readlink -f "$OUT_DIR")
        [[ $OUT_DIR != *,* ]] || refuse "out: the folder's name must not contain a comma"
    fi
}

want() { # NAME PATTERN MEANING
    [[ ${!1} =~ $2 ]] || refuse "${1,,}: '${!1}' is not $3"
}

check_list() { # NAME PATTERN MEANING: one value for every path, or one value per path
    local items item
    IFS=, read -ra items <<<"${!1}"
    [ ${#items[@]} -eq 1 ] || [ ${#items[@]} -eq "$PATHS" ] ||
        refuse "${1,,}: ${#items[@]} values for $PATHS paths (give one, or one per path)"
    for item in "${items[@]}"; do
        [[ $item =~ $2 ]] || refuse "${1,,}: '$item' is not $3"
    done
}
