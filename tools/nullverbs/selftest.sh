#!/bin/sh
# Builds the software device and the test programs, and runs every program over the device alone. Each program checks
# itself and exits 0; here one figure of its truth is looked at as well. Run from anywhere; OUT_ROOT may name another
# place than target/.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${OUT_ROOT:-$root/target}
programs=$out/programs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

make -s -C "$here" OUT="$out/nullverbs" && make -s -C "$root/tests/programs" OUT="$out/programs" || {
	echo "not ok build"
	echo "0 passed, 1 failed"
	exit 1
}
unset NULLVERBS_MODE NULLVERBS_ABI NULLVERBS_DEVICES NULLVERBS_GIDS NULLVERBS_QPN_BASE NULLVERBS_KEEP_CQES LD_PRELOAD
libs=$out/nullverbs

verdict() { # STATUS NAME
	if [ "$1" -eq 0 ]; then
		passed=$((passed + 1))
		echo "ok $2"
	else
		failed=$((failed + 1))
		echo "not ok $2"
		[ -s "$work/err" ] && sed 's/^/# /' "$work/err"
	fi
}

# check NAME PATTERN PROGRAM [ARGS]: it exits 0, and its output has a line with PATTERN (a basic regular expression)
check() {
	name=$1 pattern=$2
	shift 2
	LD_LIBRARY_PATH=$libs timeout 60 "$programs/$@" >"$work/out" 2>"$work/err" </dev/null &&
		grep -q "$pattern" "$work/out"
	verdict $? "$name"
}

check basic '^total send_wr_posted 241 .* send_wr_completed 241 .* send_cqes 61 recv_wr_posted 90 ' basic
check basic_null '^total send_wr_posted 151 .* send_wr_outstanding 0 ' basic --null
check basic_all_signaled '^total .* send_cqes 241 ' basic --signal-every 1
check basic_large '^total .* send_wr_failed 0 ' basic --size 1048576
check partial '^total send_wr_posted 14 .* recv_wr_posted 5 ' partial
check errors '^total send_wr_posted 28 .* send_wr_failed 15 .* send_wr_discarded 7 ' errors
check reset '^total .* send_wr_completed 300 .* send_wr_discarded 900 ' reset
check reset_1000 '^total .* send_wr_discarded 9000 ' reset --rounds 1000
check qpn_reuse '^total .* send_wr_completed 80 .* send_wr_discarded 40 ' qpn_reuse
check qpn_reuse_stale '^total .* send_wr_completed 80 .* send_wr_discarded 40 ' qpn_reuse --stale
check two_devices '^device null1 port 2 send_wr_posted 6 ' two_devices
check srq '^srq 0 recv_wr_posted 43 recv_wr_completed 37 recv_wr_discarded 6' srq
check ud '^total send_wr_posted 31 .* recv_wr_completed 20 ' ud
check uc '^total send_wr_posted 20 .* send_wr_failed 0 ' uc
check shared_cq '^total send_wr_posted 930 .* send_wr_failed 30 ' shared_cq
check threads '^total send_wr_posted 24001 .* send_wr_outstanding 0 ' threads
check threads_16 '^total .* send_wr_outstanding 0 ' threads --threads 16 --count 500
check fork_noexec '^total send_wr_posted 11 ' fork_noexec
check odd_close '^total send_wr_posted 52 .* send_wr_discarded 1 ' odd_close
check no_close '^total send_wr_posted 40 ' no_close
check many_qps '^total qps 1000 send_wr_posted 1999 ' many_qps
check many_qps_100000 '^total qps 100000 send_wr_posted 199999 ' many_qps --qps 100000
check unpolled '^total .* send_wr_outstanding 11 send_bytes_outstanding 8500 ' unpolled
check unpolled_exit '^total .* send_wr_outstanding 11 ' unpolled --exit
check hold_live '^qp 0 .* send_wr_outstanding 24 send_bytes_outstanding 98304 ' hold_live
check events '^cq_events 43' events
check lane_events '^ready' lane_events
check stopped_peer '^ready' stopped_peer 10
check reconnect '^ready' reconnect --rounds 3
check rights '^ready' rights
check cq_room '^total send_wr_posted 40 ' cq_room
for abi in old short future now; do
	check abi_$abi '^total send_wr_posted 5 .* recv_wr_completed 5 ' abi $abi
done
check extended '^total send_wr_posted 210 .* send_wr_failed 3 ' extended
check extended_plain '^total send_wr_posted 210 .* send_wr_failed 3 ' extended --plain
check extended_bare '^total send_wr_posted 210 .* send_wr_failed 3 ' extended --bare
check xrc '^total send_wr_posted 17 .* recv_wr_completed 16 ' xrc
check domains '^cqe 79' domains
check elsewhere '^elsewhere 9' elsewhere
check execs '^total send_wr_posted 30 ' execs
check extended_fork '^total send_wr_posted 18 ' extended_fork
check extended_ops '^total send_wr_posted 45 .* send_wr_outstanding 0 ' extended_ops
check extended_threads '^total send_wr_posted 24000 .* send_wr_outstanding 0 ' extended_threads
check dlvsym '^total send_wr_posted 25 ' dlvsym
check dlsym '^total send_wr_posted 25 ' dlvsym --dlsym

for case in single chain robin empty; do
	check bench_$case '^ns_per_wr_min .* allocs 0$' bench_verbs --case $case --reps 5 --iters 2000 --pair
done
check bench_64k '^ns_per_wr_min .* allocs 0$' bench_verbs --bytes 65536 --reps 5 --iters 2000 --pair
check bench_100000_qps '^qps 100000$' bench_verbs --case robin --qps 100000 --reps 3 --iters 100000
check bench_two_threads '^threads 2$' bench_verbs --threads 2 --reps 5 --iters 2000

libs=$out/nullverbs/symbolic
check symbolic '^total send_wr_posted 241 ' basic
libs=$out/nullverbs

# hold_live ends on SIGTERM as well as at the end of its input
mkfifo "$work/in"
LD_LIBRARY_PATH=$libs "$programs/hold_live" --outstanding 10 <"$work/in" >"$work/out" 2>"$work/err" &
pid=$!
exec 9>"$work/in"
for i in 1 2 3 4 5 6 7 8 9 10; do
	grep -q '^ready' "$work/out" && break
	sleep 0.2
done
kill -TERM $pid
wait $pid && grep -q '^total .* send_wr_outstanding 0 ' "$work/out" && grep -q "^pid $pid$" "$work/out"
verdict $? hold_live_sigterm
exec 9>&-

# the plain build calls verbs_open_device by way of the PLT, the symbolic one does not
readelf -rW "$out/nullverbs/libibverbs.so.1" | grep -q 'JUMP_SLO.*verbs_open_device' &&
	! readelf -rW "$out/nullverbs/symbolic/libibverbs.so.1" | grep -q 'JUMP_SLO.*verbs_open_device'
verdict $? interposable

# a foreign program, where there is one
if command -v ibv_devinfo >/dev/null; then
	LD_LIBRARY_PATH=$libs ibv_devinfo -v >"$work/out" 2>"$work/err" && grep -q '::ffff:192.0.2.2, RoCE v2' "$work/out"
	verdict $? ibv_devinfo
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
