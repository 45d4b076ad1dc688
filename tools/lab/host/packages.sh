# What the laboratory needs from this machine. Everything missing is named at once.

# program:package that brings it
LAB_NEEDS="
qemu-system-x86_64:qemu-system-x86
busybox:busybox-static
cpio:cpio
modprobe:kmod
depmod:kmod
ip:iproute2
tc:iproute2
rdma:iproute2
ibv_devices:ibverbs-utils
ibv_rc_pingpong:ibverbs-utils
ib_write_bw:perftest
rping:rdmacm-utils
tmux:tmux
xz:xz-utils
setpriv:util-linux
dpkg-deb:dpkg
"

require_packages() {
    local need program missing="" packages=""
    PATH=$PATH:/usr/sbin:/sbin
    for need in $LAB_NEEDS; do
        program=${need%%:*}
        command -v "$program" >/dev/null && continue
        missing+=" $program"
        [[ " $packages " == *" ${need#*:} "* ]] || packages+=" ${need#*:}"
    done
    # rdma-core's providers have no program of their own; soft-RoCE's is libibverbs' plugin librxe.
    if ! compgen -G "/usr/lib/*/libibverbs/librxe-rdmav*.so" >/dev/null; then
        missing+=" librxe" packages+=" ibverbs-providers"
    fi
    if [ -z "$missing" ] && ! is_static "$(command -v busybox)"; then
        missing+=" busybox(static)" packages+=" busybox-static"
    fi
    [ -z "$missing" ] && return
    say "missing on this machine:$missing"
    say "(packages:$packages)"
    say "install them with:  make deps"
    exit 125
}

is_static() { ! grep -aq -m1 '/lib64/ld-linux' "$1"; }
