//! Multi-path: processes find their peers' processes, however many there are at one address, and only in their own network.
//! Each test has networks of its own, with the software device's addresses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use telereduce::shm::reader::Reader;
use telereduce::shm::snapshot::{self, SegmentJson};
use telereduce_tests::{Dir, Live, Run};

/// Longest time until all are paired. The last of the library's own retries is over by then.
const LONG: Duration = Duration::from_secs(50);

/// As in `tests/programs/peers.c`.
const NUMBERS: u32 = 4096;
const LANES: usize = 4;

/// Two hosts with a cable between them, one address and one segment folder each. `$PIPE` is for the scripts' own use.
const TWO_HOSTS: &str = r#"
    exec 3<&0
    mkfifo "$PIPE"
    ip link add cable type veth peer name elbac
    unshare -n sh -ec '
        echo apart >"$PIPE"
        read -r connected <"$PIPE"
        ip link set lo up; ip link set elbac up; ip address add 192.0.2.5/24 dev elbac
        export TELEREDUCE_DIR="$OTHER_DIR"
        exec "$@" --of 1' sh "$@" <&3 &
    read -r apart <"$PIPE"
    ip link set elbac netns $!
    ip link set lo up; ip link set cable up; ip address add 192.0.2.1/24 dev cable
    echo connected >"$PIPE"
    exec "$@" --of 0
"#;

fn program(line: &str, dir: &Dir) -> Run {
    Run::program(line).counted(dir).env("TELEREDUCE_PATHS", &LANES.to_string()).env("NULLVERBS_GIDS", "5")
}

fn start(line: &str, dir: &Dir) -> Live {
    let mut live = program(line, dir).in_private_network().live();
    live.may_take(2 * LONG);
    live.wait_for("ready");
    live
}

/// A process of the test, and whom it found.
struct Member {
    number: u32,
    /// QP numbers of its peer's that were left out before the peer's lanes.
    skip: u32,
    paired: bool,
}

/// Reads a member's segment. `None`: it is not there yet.
fn read(path: &Path) -> Option<Member> {
    let s = snapshot::segment(&mut Reader::open(path).ok()?, false).ok()?;
    let number = s.qps.iter().map(|q| q.qp_num).min()? / NUMBERS - 1;
    let lanes = lanes(&s);
    for (_, peer) in &lanes {
        assert_eq!(peer / NUMBERS - 1, number ^ 1, "member {number} has a lane to another than its peer");
    }
    let skip = lanes.iter().map(|(_, peer)| peer % NUMBERS).min().unwrap_or(1) - 1;
    Some(Member { number, skip, paired: lanes.len() == LANES && lanes.iter().all(|(qps, _)| *qps == 1) })
}

/// Of each lane that lives: how many QPs it serves, and the peer's number.
fn lanes(s: &SegmentJson) -> Vec<(u32, u32)> {
    s.lanes.iter().filter(|l| l.live).map(|l| (l.qps, l.dest_qp_num)).collect()
}

/// Waits until `count` members are paired; all that have a segment, by file.
fn until_paired(dirs: &[&Dir], count: usize) -> BTreeMap<PathBuf, Member> {
    let (start, mut all) = (Instant::now(), BTreeMap::<PathBuf, Member>::new());
    loop {
        for f in dirs.iter().flat_map(|dir| dir.segments()) {
            if !all.get(&f.path).is_some_and(|m| m.paired)
                && let Some(member) = read(&f.path)
            {
                all.insert(f.path, member);
            }
        }
        let paired = all.values().filter(|m| m.paired).count();
        if paired >= count {
            return all;
        }
        assert!(start.elapsed() < LONG, "{paired} of {count} have found their peers");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn two_hundred_processes_at_two_addresses_find_each_other() {
    let dir = Dir::new();
    let live = start("peers 200", &dir);
    let all = until_paired(&[&dir], 200);
    let numbers: std::collections::BTreeSet<u32> = all.values().map(|m| m.number).collect();
    assert_eq!(numbers, (0..200).collect());
    live.finish().silent();
}

#[test]
fn twenty_processes_at_one_address_find_each_other() {
    let dir = Dir::new();
    let live = start("peers 20 --same", &dir);
    until_paired(&[&dir], 20);
    live.finish().silent();
}

/// Nobody knows the segments of the other host: whoever answers at the port that all share sends on to the owner.
#[test]
fn a_hundred_processes_of_two_hosts_find_each_other() {
    let (dir, other) = (Dir::new(), Dir::new());
    let run = program("peers 100", &dir)
        .env("PIPE", dir.path().join("pipe").to_str().expect("a path in UTF-8"))
        .env("OTHER_DIR", other.segment_dir().to_str().expect("a path in UTF-8"));
    let mut live = run.in_private_networks(TWO_HOSTS).live();
    live.may_take(2 * LONG);
    live.wait_for("ready");
    live.wait_for("ready");
    let all = until_paired(&[&dir, &other], 100);
    assert_eq!(all.keys().filter(|path| path.starts_with(dir.segment_dir())).count(), 50, "half of them on each");
    live.finish().silent();
}

/// Both have the same addresses and the same QP numbers, and see each other's segments.
#[test]
fn two_networks_with_the_same_addresses_do_not_mix_up() {
    const SKIP: u32 = 64;
    let dir = Dir::new();
    let a = start("peers 20 --one 20", &dir);
    let b = start(&format!("peers 20 --one 21 --skip {SKIP}"), &dir);
    let all = until_paired(&[&dir], 40);
    for skip in [0, SKIP] {
        assert_eq!(all.values().filter(|m| m.paired && m.skip == skip).count(), 20, "each within its own");
    }
    // 20 and 21 are each other's peers, in two networks. They have had time to ask again and again.
    std::thread::sleep(Duration::from_secs(2));
    let alone: Vec<Member> = dir.segments().iter().filter_map(|f| read(&f.path)).filter(|m| m.number >= 20).collect();
    assert_eq!(alone.len(), 2);
    assert!(alone.iter().all(|m| !m.paired && m.skip == 0), "nobody is paired across networks");
    a.finish().silent();
    b.finish().silent();
}
