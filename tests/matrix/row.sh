# shellcheck shell=bash
# Sourced inside the laboratory: one row of the table.

work=/run/matrix
ran=$work/with # the folder that rows read a program's own report in
tries=3
green=0
red=0
relation="" wrong=()

cat <<'TABLE'
| program | reaches verbs by | native | with the library | bytes seen / known | completions / native | known from |
|---|---|---|---|---|---|---|
TABLE

# row PROGRAM WAY KNOWN SERVER CLIENT CLAIM...
# WAY: how the program reaches verbs. KNOWN: where the numbers in the claims come from, in words.
row() {
    local program=$1 way=$2 known=$3 server=$4 client=$5
    shift 5
    [[ $program =~ $pattern ]] || return 0
    local native with crashed c polled polled_natively
    seen_bytes=0 known_bytes=0 relation="" wrong=()
    preload_nothing_into "$work/native"
    attempt "$work/native" "$server" "$client"
    native=$(codes)
    crashed=$(cat "$work/native/crashes")
    preload_into "$ran"
    attempt "$ran" "$server" "$client"
    with=$(codes)
    look "$ran"
    [ "$native" = "$with" ] || wrong+=("exit codes differ")
    [ "$crashed" = "$(cat "$work/with/crashes")" ] || wrong+=("$(cat "$work/with/crashes") processes crash, natively $crashed")
    [[ $with = ok* ]] || wrong+=("the program fails")
    for c in "$@"; do claim "$c"; done
    polled_natively=$(completions "$work/native")
    polled=$(completions "$ran")
    # Where the numbers are not known, nor is that of completions.
    [ "$relation" ] || [ "$polled" = "$polled_natively" ] || wrong+=("$polled completions, natively $polled_natively")
    while read -r c; do wrong+=("$c"); done < <(unwell "$ran")
    print_row
}

# Soft-RoCE itself breaks a connection now and then on a busy machine: a run that the program itself calls failed is
# made again, a run with wrong numbers is not.
attempt() {
    local try
    for ((try = 1; try <= tries; try++)); do
        pair "$@"
        [[ $(codes) = ok* ]] && return
    done
}

codes() {
    case $client_code,$server_code in
        0,0) echo ok ;;
        0,ended) echo "ok, server ended" ;;
        *) echo "exit $client_code, server $server_code" ;;
    esac
}

print_row() {
    local cell="$seen_bytes / $known_bytes"
    [ "$relation" != ">=" ] || cell="$seen_bytes ≥ $known_bytes"
    if [ ${#wrong[@]} -eq 0 ]; then
        green=$((green + 1))
    else
        red=$((red + 1))
        with="**red**: $(printf '%s; ' "${wrong[@]}")"
        with=${with%; }
        cp -r "$ran" "$LAB_OUT/failed-$red"
    fi
    echo "| \`$program\` | $way | $native | $with | $cell | $polled / $polled_natively | $known |"
}

finish() {
    echo
    echo "$green passed, $red failed"
    exit $((red > 0))
}
