# shellcheck shell=bash
# Sourced inside the laboratory: what the library saw in a row, as quantities by name.
#
# A is everything on rxeA, whichever process it was, B is rxeB and AB is both:
#   A.sent  A.wrs    bytes and WRs of completed sends, WRITEs, READs and atomics
#   A.posted         bytes of those posted
#   A.got   A.recvs  bytes that arrived in receives, and their number
#   A.SEND, ...      bytes posted, by opcode;  A.SEND.wrs, ... their number
#   A.wire           bytes that left the host's network port, headers too, as the kernel counts them

declare -A seen

# look FOLDER: fills `seen` from the snapshots in FOLDER.
look() {
    local name value
    seen=()
    while read -r name value; do seen[$name]=$value; done < <(
        cat "$1"/*.json 2>/dev/null | jq -rs '
            [.[].segments[].ports[]] as $ports
            | {A: ["rxeA"], B: ["rxeB"], AB: ["rxeA", "rxeB"]} | to_entries[]
            | .key as $side | [.value[] as $d | $ports[] | select(.device == $d)] as $p
            | def sum(f): [$p[] | f] | add // 0;
              "\($side).sent \(sum(.bytes_completed))", "\($side).wrs \(sum(.wr_completed))",
              "\($side).posted \(sum(.bytes_posted))",
              "\($side).got \(sum(.recv.bytes_completed))", "\($side).recvs \(sum(.recv.wr_completed))",
              ([$p[].opcodes | keys[]] | unique[] as $o
                  | "\($side).\($o) \(sum(.opcodes[$o].bytes // 0))", "\($side).\($o).wrs \(sum(.opcodes[$o].wr // 0))")'
        awk '{ print "A.wire", $1; print "B.wire", $2; print "AB.wire", $1 + $2 }' "$1/wire"
    )
}

# What speaks against a run whatever its program does; one line each.
unwell() {
    cat "$1"/*.json 2>/dev/null | jq -rs '
        .[].segments[]
        | (.missed | to_entries[] | select(.key != "events_overwritten" and .value > 0) | "missed.\(.key) is \(.value)"),
          (.ports[] | .device as $d | (., .recv)
              | select(.wr_posted != .wr_completed + .wr_failed + .wr_dropped + .wr_outstanding)
              | "the WRs of \($d) do not balance"),
          (.ports[] | select(.bytes_posted != .bytes_completed + .bytes_failed + .bytes_dropped + .bytes_outstanding)
              | "the bytes sent by \(.device) do not balance")' | sort -u
    compgen -G "$1/*.json" >/dev/null || echo "no snapshot: the library saw no verbs device"
    grep -h '^telereduce' "$1"/*.txt | head -n 1
    # A process that crashes leaves its segment behind, to be looked at.
    [ "$(wc -l <"$1/left")" -le "$(cat "$1/crashes")" ] || echo "left behind in /dev/shm: $(paste -sd' ' "$1/left")"
}
