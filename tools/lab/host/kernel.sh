# The guest's kernel: Debian's own, downloaded and unpacked into the cache, never installed.

ensure_kernel() {
    [ -s "$LAB_CACHE/kernel/version" ] && return
    mkdir -p "$LAB_CACHE"
    exec {kernel_lock}>"$LAB_CACHE/kernel.lock"
    flock "$kernel_lock"
    [ -s "$LAB_CACHE/kernel/version" ] || fetch_kernel
    exec {kernel_lock}>&-
}

fetch_kernel() {
    local work=$LAB_CACHE/kernel.new package version
    [ "$(dpkg --print-architecture)" = amd64 ] || fail "the laboratory's kernel is packaged for amd64 only"
    rm -rf "$work"
    mkdir -p "$work"
    package=$(kernel_package)
    [ -n "$package" ] && download "$package" "$work" || {
        # The package lists may be absent or older than the archive.
        update_lists || fail "cannot refresh the package lists; run once:  make deps"
        package=$(kernel_package)
        [ -n "$package" ] || fail "no linux-image-*-amd64 package is known to apt"
        download "$package" "$work" || fail "cannot download $package"
    }
    version=${package#linux-image-}
    dpkg-deb -x "$work"/*.deb "$work/root"
    rm "$work"/*.deb
    unpack_image "$work/root/boot/vmlinuz-$version" >"$work/image"
    mv "$work/root/lib" "$work/lib"
    rm -rf "$work/root" "$work/lib/modules/$version/kernel/"{sound,drivers/gpu,drivers/media}
    depmod -b "$work" "$version" 2>/dev/null
    echo "$version" >"$work/version"
    rm -rf "$LAB_CACHE/kernel"
    mv "$work" "$LAB_CACHE/kernel"
}

# The kernel unpacks itself at boot, which takes an emulated processor seven seconds: unpack it here instead. The place
# of the compressed part is in the image's header (Documentation/arch/x86/boot.rst: setup_sects, payload_offset/_length);
# its last four bytes are the unpacked size.
unpack_image() { # IMAGE
    local sectors offset length
    sectors=$(od -An -tu1 -j $((0x1f1)) -N1 "$1")
    offset=$(od -An -tu4 -j $((0x248)) -N4 "$1")
    length=$(od -An -tu4 -j $((0x24c)) -N4 "$1")
    length=$((length - 4))
    if ! head -c $(((sectors + 1) * 512 + offset + length)) "$1" | tail -c $length | xz -dc 2>/dev/null; then
        fail "the kernel's image is not compressed with xz, as Debian 12's is"
    fi
}

# What the meta package stands for today.
kernel_package() {
    apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -1
}

download() { # PACKAGE FOLDER
    say "fetching $1 (about 70 MB, once)"
    (cd "$2" && apt-get -qq download "$1" >/dev/null 2>&1)
}

update_lists() {
    if [ "$(id -u)" = 0 ]; then apt-get -qq update >/dev/null; else sudo -n apt-get -qq update >/dev/null; fi
}
