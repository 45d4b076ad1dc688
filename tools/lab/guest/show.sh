# What `lab paths` and `lab counters` print: columns, one line a path or counter, for people and for awk.

show_paths() {
    local i name line values fields side
    read -r LAB_ROUTING <"$ROUTING"
    echo "# $LAB_PATHS paths, $LAB_ROUTING routing, $LAB_KERNELS kernel(s); bytes and packets that entered the core links"
    printf '%-5s %-5s %-9s %-7s %-6s %14s %14s %10s %10s %8s\n' \
        path state rate delay loss A-to-B-bytes B-to-A-bytes A-to-B-pkt B-to-A-pkt dropped
    for side in $(sides); do link_counters "$side" >"/run/lab/counters.$side.$$"; done
    for ((i = 1; i <= LAB_PATHS; i++)); do
        fields=("$i")
        for name in state rate delay loss; do
            read -r line <"$STATE/$i/$name"
            fields+=("$line")
        done
        # tx bytes, tx packets, rx bytes, rx packets, dropped
        values=($(grep -h "^core$i " /run/lab/counters.?.$$ | awk '{ b += $2; p += $3; rb = $4; rp = $5; d += $6
            if (NR == 1) { fb = $2; fp = $3; frb = $4; frp = $5 } }
            END { if (NR == 2) print fb, fp, b - fb, p - fp, d; else print fb, fp, frb, frp, d }'))
        # A guest that holds side B alone sees the same link from its other end.
        [ "$(sides)" != B ] || values=("${values[2]}" "${values[3]}" "${values[0]}" "${values[1]}" "${values[4]}")
        printf '%-5s %-5s %-9s %-7s %-6s %14s %14s %10s %10s %8s\n' "${fields[@]}" \
            "${values[0]}" "${values[2]}" "${values[1]}" "${values[3]}" "${values[4]}"
    done
    rm -f /run/lab/counters.?.$$
}

# Per core link: name, sent bytes and packets, received bytes and packets, dropped (by the link or by its shape).
link_counters() { # SIDE
    {
        ip -n "fab$1" -s link
        tc -n "fab$1" -s qdisc
    } | awk '
        /^[0-9]+: core/ { split($2, part, /[@:]/); link = part[1]; next }
        /^[0-9]+: / { link = ""; next }
        /^qdisc / { link = ""; if ($2 == "netem") link = $5; next }
        link == "" { next }
        / RX: / { rx = 1; next }
        / TX: / { tx = 1; next }
        rx { rx_bytes[link] = $1; rx_packets[link] = $2; rx = 0; next }
        tx { tx_bytes[link] = $1; tx_packets[link] = $2; dropped[link] += $4; tx = 0; next }
        / Sent .*dropped/ { sub(/,/, "", $7); dropped[link] += $7 }
        END { for (link in tx_bytes) print link, tx_bytes[link], tx_packets[link], rx_bytes[link], rx_packets[link],
              dropped[link] }'
}

show_counters() { # DEVICE
    local port=/sys/class/infiniband/$1/ports/1 file
    [ -d "$port" ] || refuse "no device '$1' here (there is: $(ls /sys/class/infiniband))"
    for file in "$port"/hw_counters/* "$port"/counters/*; do
        [ -f "$file" ] && [ "${file##*/}" != lifespan ] || continue
        printf '%-28s %s\n' "${file##*/}" "$(<"$file")"
    done
}
