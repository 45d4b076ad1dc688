# One guest machine: the emulator's command line. Software emulation always, so that every machine sees the same.

# norandmaps and nokaslr: the emulator translates code per virtual address, so a program that always lies at the same
# one starts three times as fast. The rest leaves out what a guest of a few seconds has no use for.
KERNEL_LINE="console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off nokaslr norandmaps tsc=reliable no_timer_check"
KERNEL_LINE+=" lsm= audit=0 cryptomgr.notests init_on_alloc=0 rcupdate.rcu_expedited=1"

# The environment must name MEMORY, CPUS, PATHS, KERNELS, RUN_DIR (control share) and OUT_SHARE (result share).
machine_arguments() { # HOST(a|b) CONSOLE(file or tty); fills MACHINE
    local accelerator=(-accel "tcg,thread=multi")
    # Time is the number of instructions that the guest has run: what else this machine does does not show.
    [ "$CLOCK" = host ] || accelerator=(-accel "tcg,thread=single" -icount "shift=1,sleep=off")
    MACHINE=(
        qemu-system-x86_64 "${accelerator[@]}" -cpu max,-la57 -smp "$CPUS" -m "$MEMORY"
        -nodefaults -no-user-config -display none -no-reboot
        -kernel "$LAB_CACHE/kernel/image" -initrd "$INITRAMFS"
        -append "$KERNEL_LINE lab_host=$1"
        -serial "file:$RUN_DIR/console-$1"
        -virtfs "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap"
        -virtfs "local,path=$RUN_DIR,mount_tag=control,security_model=none"
        -virtfs "local,path=$OUT_SHARE,mount_tag=out,security_model=none"
        -device virtio-rng-pci
    )
    [ "$2" = file ] || MACHINE+=(-chardev "stdio,id=tty,signal=off,mux=on" -serial chardev:tty -echr 0x1d)
    [ "$KERNELS" = 1 ] || core_links "$1"
}

# With two kernels each core link is a pair of datagram sockets in the run's own folder: no port, no listener.
core_links() { # HOST(a|b)
    local i peer=b number=01
    [ "$1" = a ] || peer=a number=02
    for ((i = 1; i <= PATHS; i++)); do
        MACHINE+=(
            -netdev "dgram,id=core$i,local.type=unix,local.path=$RUN_DIR/core$i-$1,remote.type=unix,remote.path=$RUN_DIR/core$i-$peer"
            -device "virtio-net-pci,netdev=core$i,mac=$(printf '52:54:00:1a:%s:%02x' $number "$i"),romfile="
        )
    done
}
