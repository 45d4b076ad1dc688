#!/usr/bin/env bash
# Inside the laboratory: aliases of a port come, are GIDs, and go with all that was changed for them.
cd "$(dirname "$0")/../.." || exit 1
. tests/lab/check.sh

vnic() { target/release/trtop vnic "$@"; }
conf=/proc/sys/net/ipv4/conf
state() {
    ip -o -4 address show dev roceA | awk '{ print $4 }'
    head "$conf"/roceA/{arp_ignore,arp_announce,rp_filter}
}
add() { vnic add "$@" >/dev/null; }
aliases() { vnic list rxeA | awk '$NF == "vnic" { print $1 }' | paste -sd' '; }

filter=$(cat $conf/roceA/rp_filter)
echo 1 >$conf/roceA/rp_filter
before=$(state)
holds "vnic: three aliases are made" add rxeA 3 --prefix 10.9.0.0/16
is "vnic: they are this host's own" "10.9.0.16/16 10.9.0.17/16 10.9.0.18/16" "$(aliases)"
is "vnic: the sysctls are set" "1 2 2" "$(cat $conf/roceA/{arp_ignore,arp_announce,rp_filter} | paste -sd' ')"
is "vnic: each is a GID" 3 "$(cat /sys/class/infiniband/rxeA/ports/1/gids/* | grep -c ':ffff:0a09:001[0-2]$')"
is "vnic: the list gives the setting" "TELEREDUCE_PATHS=10.9.0.16,10.9.0.17,10.9.0.18" "$(vnic list roceA | tail -n 1)"
holds "vnic: the same again changes nothing" add rxeA 3 --prefix 10.9.0.0/16
is "vnic: still three" 3 "$(aliases | wc -w)"
vnic del rxeA 1
is "vnic: the newest goes first" "10.9.0.16/16 10.9.0.17/16" "$(aliases)"
is "vnic: an address in use is refused, and nothing has changed" "1 10.9.0.16/16 10.9.0.17/16" \
    "$(vnic add rxeA 4 --prefix 10.2.0.1/16 >/dev/null 2>&1; echo $?) $(aliases)"
sysctl -qw net.ipv4.conf.roceA.arp_announce=1
holds "vnic: all go" vnic del rxeA
is "vnic: what somebody else has changed since stays" 1 "$(cat $conf/roceA/arp_announce)"
echo 0 >$conf/roceA/arp_announce
is "vnic: all is as before" "$before" "$(state)"
is "vnic: there is nothing to undo" 1 "$(vnic del rxeA >/dev/null 2>&1; echo $?)"
is "vnic: a device that is none" 1 "$(vnic add rxeX 1 >/dev/null 2>&1; echo $?)"
echo "$filter" >$conf/roceA/rp_filter
finish
