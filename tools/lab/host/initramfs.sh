# The first file system: busybox, and the modules that every run needs. Others (siw, sch_htb, cls_flower, dummy, ...) can be
# loaded later with modprobe: the guest sees the whole tree.
# crc32_generic: rdma_rxe looks it up by name at run time; no dependency shows it.

INITRAMFS_MODULES="virtio_pci 9p 9pnet_virtio overlay virtio_net veth rdma_rxe crc32_generic ib_uverbs rdma_ucm sch_tbf sch_netem"

ensure_initramfs() {
    local version stamp work applet
    version=$(cat "$LAB_CACHE/kernel/version")
    stamp=$( (echo "$version $INITRAMFS_MODULES"; cat "$LAB_HOME/guest/init" "$(command -v busybox)") | sha256sum)
    INITRAMFS=$LAB_CACHE/initramfs-${stamp:0:16}
    [ -s "$INITRAMFS" ] && return
    work=$(mktemp -d "$LAB_CACHE/initramfs.XXXXXX")
    mkdir -p "$work"/{bin,proc,sys,dev,host,layer,root}
    cp "$(command -v busybox)" "$work/bin/busybox"
    for applet in sh mount umount mkdir ln modprobe switch_root; do ln -s busybox "$work/bin/$applet"; done
    sed "s/^MODULES=.*/MODULES='$INITRAMFS_MODULES'/" "$LAB_HOME/guest/init" >"$work/init"
    chmod +x "$work/init"
    copy_modules "$version" "$work"
    (cd "$work" && find . | cpio -o -H newc --quiet) >"$work.cpio"
    rm -rf "$work"
    find "$LAB_CACHE" -maxdepth 1 -name 'initramfs-*' -mmin +60 -delete
    mv "$work.cpio" "$INITRAMFS"
}

copy_modules() { # VERSION ROOT
    local module kind path
    for module in $INITRAMFS_MODULES; do
        modprobe -S "$1" -d "$LAB_CACHE/kernel" --show-depends "$module" || fail "the kernel has no module $module"
    done | while read -r kind path _; do
        [ "$kind" = insmod ] || continue
        install -D -m 644 "$path" "$2${path#"$LAB_CACHE/kernel"}"
    done
    cp "$LAB_CACHE/kernel/lib/modules/$1/modules."{order,builtin,builtin.modinfo} "$2/lib/modules/$1/"
    depmod -b "$2" "$1"
}
