# shellcheck shell=bash
# Sourced inside the laboratory: compares what was seen with what is known.

# claim QUANTITY=VALUE | QUANTITY>=VALUE: VALUE is a sum (N+N) of numbers, other quantities, and @COMMANDs that read the
# program's own report in the folder $ran. Adds to $seen_bytes, $known_bytes, $relation and $wrong.
claim() {
    local left operator right known=0 got term value
    [[ $1 =~ ^([A-Za-z_.]+)(=|>=)(.+)$ ]] || { echo "claim: '$1' is no QUANTITY=VALUE or QUANTITY>=VALUE" >&2; exit 2; }
    left=${BASH_REMATCH[1]} operator=${BASH_REMATCH[2]} right=${BASH_REMATCH[3]}
    for term in ${right//+/ }; do
        case $term in
            @*) value=$(${term#@}) ;;
            [0-9]*) value=$term ;;
            *) value=${seen[$term]:-0} ;;
        esac
        known=$((known + ${value:-0}))
    done
    got=${seen[$left]:-0}
    [[ $right =~ ^[0-9]+$ ]] || right="$known ($right)"
    case $operator in
        =) [ "$got" -eq "$known" ] || wrong+=("$left is $got, not $right") ;;
        *) [ "$got" -ge "$known" ] && [ "$known" -gt 0 ] || wrong+=("$left is $got, not at least $right") ;;
    esac
    # The table shows bytes of messages; numbers of WRs and the network's own bytes are only checked.
    [[ ! $left =~ \.(wrs|recvs|wire)$ ]] || return 0
    seen_bytes=$((seen_bytes + got))
    known_bytes=$((known_bytes + known))
    [ "$operator" = = ] || relation=">="
}
