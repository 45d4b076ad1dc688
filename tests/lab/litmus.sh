# shellcheck shell=bash disable=SC2154 # work and library are perftest.sh's.
# Sourced inside the laboratory, after perftest.sh: runs a litmus program between 10.2.0.1 (target) and 10.1.0.1 (source).

# litmus NAME [OPTION...]: both sides under the library, the target under $target_library instead, if that is set; leaves
# $work/NAME.{target,source}.json, what they said, and the source's exit code in $code. Whether both say that all was kept.
# A transport that broke says nothing, and is made again.
litmus() {
    local name=$1 try target
    shift
    for try in 1 2 3; do
        rm -f "$work/$name".*.json
        TELEREDUCE_SNAPSHOT=$work/$name.target.json LD_PRELOAD=${target_library-$library} \
            target/litmus/litmus "$name" --ip 10.2.0.1 --slow 10.2.0.4 "$@" >"$work/target.txt" 2>&1 &
        target=$!
        TELEREDUCE_SNAPSHOT=$work/$name.source.json LD_PRELOAD=$library timeout 60 \
            target/litmus/litmus "$name" --ip 10.1.0.1 --slow 10.1.0.4 --peer 10.2.0.1 "$@" >"$work/source.txt" 2>&1
        code=$?
        wait_or_end "$target"
        [ "$code" = 2 ] || break
        echo "# litmus $name: try $try, $(tail -n 1 "$work/source.txt")"
    done
    [ "$code" = 0 ] && grep -q "^ok $name target" "$work/target.txt" && return
    cat "$work/source.txt" "$work/target.txt" | sed 's/^/# /'
    return 1
}
