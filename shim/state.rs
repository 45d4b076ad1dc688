//! What the process has once it opened a device: settings, identity, telemetry. Made on the first open, made anew in a
//! forked child that opens a device of its own.

use crate::{context, exit, flight, guard, log, sudden, transfers};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use telereduce::clock::{Clock, realtime_ns};
use telereduce::config::{self, Config};
use telereduce::shm::segment::Identity;
use telereduce::sync::SpinLock;
use telereduce::telemetry::registry::{Objects, Telemetry};

/// The process's clock; it survives a fork.
pub static CLOCK: Clock = Clock::new();
/// What the hot hooks look objects up in.
pub static OBJECTS: Objects = Objects::new();

/// Everything of this process.
pub struct State {
    /// Settings.
    pub config: Config,
    /// Identity, as in the segment.
    pub who: Identity,
    /// Counters.
    pub telemetry: Telemetry,
}

const UNTRIED: u8 = 0;
const READY: u8 = 1;
const OFF: u8 = 2;

static PHASE: AtomicU8 = AtomicU8::new(UNTRIED);
static STATE: AtomicPtr<State> = AtomicPtr::new(core::ptr::null_mut());
static INIT: SpinLock<()> = SpinLock::new(());

#[ctor::ctor(unsafe)]
fn loaded() {
    // Two clock reads; everything else waits for the first device.
    CLOCK.warm_up();
}

/// The state, if a device was opened and telemetry is on.
pub fn get() -> Option<&'static State> {
    // SAFETY: states are leaked.
    unsafe { STATE.load(Acquire).as_ref() }
}

/// As [`get`], making it first if it was never tried. Called when a device was opened.
pub fn get_or_init() -> Option<&'static State> {
    if PHASE.load(Acquire) == UNTRIED {
        let _one = INIT.lock();
        if PHASE.load(Relaxed) == UNTRIED {
            let made = init();
            STATE.store(made.map_or(core::ptr::null_mut(), |s| Box::into_raw(Box::new(s))), Release);
            PHASE.store(if get().is_some() { READY } else { OFF }, Release);
            get().inspect(|s| {
                transfers::start(s);
                flight::start(s);
            });
        }
    }
    get()
}

fn init() -> Option<State> {
    // A setuid program does not take files' names from whoever starts it.
    // SAFETY: no preconditions.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return None;
    }
    let env = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
    let (config, wrong) = Config::read(env);
    if !config.enabled {
        return None;
    }
    std::panic::set_hook(Box::new(guard::say_panic));
    for w in wrong {
        log::line(format_args!("{w}"));
    }
    register_fork_handler();
    sudden::register();
    CLOCK.start();
    telereduce::aside::on_panic(crate::guard::stop_counting);
    telereduce::sync::allow_owners();
    let (rank, world_size) = config::rank(env);
    let who = Identity { rank, world_size, job: config::job(env), ..identity() };
    match Telemetry::new(&config, &who, &CLOCK, &OBJECTS) {
        Ok(telemetry) => Some(State { config, who, telemetry }),
        Err(e) => {
            log::line(format_args!(
                "telemetry is off: cannot create a segment in {}: {e}; the program runs on",
                config.dir.display()
            ));
            None
        }
    }
}

fn identity() -> Identity {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command in parentheses may hold anything; field 22 is the 20th after it.
    let start = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse().ok());
    let command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let args: Vec<String> =
        command.split(|b| *b == 0).filter(|a| !a.is_empty()).map(|a| String::from_utf8_lossy(a).into_owned()).collect();
    let mut host = [0u8; 256];
    // SAFETY: a buffer of the length that is passed, its last byte kept as NUL.
    unsafe { libc::gethostname(host.as_mut_ptr().cast(), host.len() - 1) };
    let host = host.split(|b| *b == 0).next().unwrap_or_default();
    Identity {
        pid: std::process::id(),
        // SAFETY: no preconditions.
        uid: unsafe { libc::geteuid() },
        start_time_ticks: start.unwrap_or(0),
        created_ns: realtime_ns(),
        host: String::from_utf8_lossy(host).into_owned(),
        command: args.join(" "),
        rank: None,
        world_size: None,
        job: None,
    }
}

fn register_fork_handler() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Relaxed) {
        // SAFETY: the handler touches only our statics.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

/// In a forked child: the parent's segment is not ours to write. What was inherited passes through uncounted; a device
/// that the child opens itself starts a segment of the child's own.
unsafe extern "C" fn in_child() {
    // SAFETY: errno is the calling thread's own.
    let errno = unsafe { *libc::__errno_location() };
    if let Some(parents) = get() {
        parents.telemetry.segment().close_in_child();
    }
    STATE.store(core::ptr::null_mut(), Release);
    PHASE.store(UNTRIED, Release);
    exit::after_fork();
    transfers::after_fork();
    flight::after_fork();
    // SAFETY: a forked child has one thread.
    unsafe {
        INIT.force_unlock();
        context::after_fork();
        *libc::__errno_location() = errno;
    }
}
