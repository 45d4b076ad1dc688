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
    mv "$work/root/boot/vmlinuz-$version" "$work/vmlinuz"
    mv "$work/root/lib" "$work/lib"
    rm -rf "$work/root" "$work/lib/modules/$version/kernel/"{sound,drivers/gpu,drivers/media}
    depmod -b "$work" "$version" 2>/dev/null
    echo "$version" >"$work/version"
    rm -rf "$LAB_CACHE/kernel"
    mv "$work" "$LAB_CACHE/kernel"
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
