//! A grace period that no kernel loses: a thread of ours runs once on each CPU.
//!
//! # Why that is a grace period
//! A *sequence in progress* is one that began before the round and has not committed.
//!
//! 1. A thread that is switched out does not commit the sequence that it was in. The kernel records
//!    the restart in the switch itself, with preemption off, and checks the record on the thread's
//!    way back. A request by `membarrier`'s interrupt could be lost between reading and clearing
//!    the record (see [`crate::kernel`]); a switch cannot happen there.
//! 2. While the visitor runs on a CPU, no other thread does. The thread that ran there when the
//!    round began was therefore switched out, or its sequence has committed or started again:
//!    nothing is in progress there.
//! 3. A thread that has moved to another CPU since the round began was switched out for that.
//! 4. The visitor goes to every CPU that the kernel allows. No thread runs on an offline CPU. A CPU
//!    that is online but refused belongs to another cpuset, or is going offline: the round ends
//!    once each thread of the process was seen not to run there, by its state or its CPU. A thread
//!    that has run there since the round began stays on that CPU until it is switched out.
//!
//! The caller sees everything that committed, and what the caller wrote before is visible to
//! sequences that begin after the visit to their CPU: a context switch is a full barrier, and a
//! lock orders caller and visitor.
//!
//! # Rejected
//! - Visiting only where the threads' affinities let them run. A thread's affinity changes before
//!   the thread moves, and loses a CPU that is going offline before the threads leave it. A list of
//!   threads that is read while some end may lack live ones (1 in 400, beside 40 threads that come
//!   and go); [`Directory::numbers`] returns no such list.
//! - Letting the caller visit. Its affinity would change for a moment, and threads that it starts
//!   in a handler would inherit that.
//! - Leaving out the CPU of another program's real-time thread. Nothing guarantees that no thread
//!   of ours waits behind it. The start-up test finds such a CPU, and chooses locked adds.

use std::ffi::{CStr, c_int, c_void};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cpu::Set;
use super::thread;
use crate::cpu::CPUS_MAX;
use crate::fork;

/// How long the visitor waits for another round before it ends: kills often come in bursts.
const IDLE: Duration = Duration::from_secs(2);

/// How long to wait before an unreachable CPU is tried again: it goes offline, or the program moves
/// its threads.
const AGAIN: Duration = Duration::from_millis(1);

/// The visitor of a process, and the threads that wait for it.
struct Visitor {
    home: fork::Home,
    rounds: Mutex<Rounds>,
    /// Signalled when a round is wanted.
    wanted: Condvar,
    /// Signalled when a round has ended.
    ended: Condvar,
    /// Whether the thread stays when it is idle. Not under the lock: a handler may interrupt the
    /// thread that sets it.
    stays: AtomicBool,
    /// Room for a list of threads, used only by the visitor's thread.
    threads: Mutex<Vec<c_int>>,
}

struct Rounds {
    /// Number of rounds that have begun.
    begun: u64,
    /// Number of rounds that have ended.
    ended: u64,
    /// The last round that a thread waits for.
    wanted: u64,
    /// Whether the visitor's thread exists or is being started.
    runs: bool,
    /// Which CPU the current round is going to, and when it began.
    at: Option<(usize, Instant)>,
    /// The error number with which the last finished round was refused.
    refusal: Option<i32>,
    /// Number of waits that gave up.
    given_up: u64,
}

/// Maximum number of threads listed: a round in which a CPU is refused does not end while there are
/// more.
const THREADS_MAX: usize = 1 << 16;

impl Visitor {
    fn new(stays: bool) -> Visitor {
        let rounds = Rounds {
            begun: 0,
            ended: 0,
            wanted: 0,
            runs: false,
            at: None,
            refusal: None,
            given_up: 0,
        };
        Visitor {
            home: fork::Home::new(),
            rounds: Mutex::new(rounds),
            wanted: Condvar::new(),
            ended: Condvar::new(),
            stays: AtomicBool::new(stays),
            threads: Mutex::new(vec![0; THREADS_MAX]),
        }
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        // Nothing under the lock panics.
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread, if there is none. Not under the lock, because libc allocates for it.
    fn start(&'static self) -> io::Result<()> {
        if std::mem::replace(&mut self.rounds().runs, true) {
            return Ok(());
        }
        let argument = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: 1. `run` may use the argument on any thread for as long as it runs: a visitor is
        // `Sync`, and is never freed. 2. It does not unwind: nothing in it panics.
        let started = unsafe { thread::detached(run, argument) };
        if started.is_err() {
            self.rounds().runs = false;
        }
        started
    }
}

impl Rounds {
    /// Requests a round that begins from now on, and returns its number. The round in progress does
    /// not count: it may already have visited the CPU of a sequence that began since.
    fn ask(&mut self) -> u64 {
        self.wanted = self.begun + 1;
        self.wanted
    }

    /// Returns whether the round in progress has already taken that long.
    fn is_stuck(&self, patience: Option<Duration>) -> bool {
        let is_over = |patience| self.at.is_some_and(|(_, since)| since.elapsed() >= patience);
        patience.is_some_and(is_over)
    }
}

/// The visitor of this process, or of the one it was forked from; null before the first round.
static VISITOR: AtomicPtr<Visitor> = AtomicPtr::new(ptr::null_mut());

/// Waits for a round that begins after the call, for at most `patience`. Does not wait at all if
/// the round in progress has already taken that long, or within itself: in a handler that
/// interrupted it, or an allocator that it called.
pub(crate) fn wait(patience: Option<Duration>) -> io::Result<()> {
    if is_alone() {
        // SeqCst: the full barrier on the caller that a round would be.
        fence(Ordering::SeqCst);
        return Ok(());
    }
    wait_for_round(patience)
}

/// The same as [`wait`], but also waits in a process of one thread.
pub(super) fn wait_for_round(patience: Option<Duration>) -> io::Result<()> {
    let Some(_inside) = WaitGuard::new() else { return Err(io::ErrorKind::TimedOut.into()) };
    let start = Instant::now();
    let visitor = visitor();
    let mut rounds = visitor.rounds();
    let mine = rounds.ask();
    while rounds.ended < mine {
        let left = patience.map_or(IDLE, |patience| patience.saturating_sub(start.elapsed()));
        if left.is_zero() || rounds.is_stuck(patience) {
            rounds.given_up += 1;
            return Err(io::ErrorKind::TimedOut.into());
        }
        if !visitor.home.is_here() {
            // A handler that interrupted this has forked, and this child has one thread.
            return Ok(());
        }
        let mut pause = left;
        if !rounds.runs {
            drop(rounds);
            let started = visitor.start();
            rounds = visitor.rounds();
            if started.is_ok() {
                // It may have completed the round meanwhile.
                continue;
            }
            // There is a limit on threads, and some may end.
            pause = left.min(AGAIN);
        }
        visitor.wanted.notify_one();
        let waited = visitor.ended.wait_timeout(rounds, pause);
        rounds = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    rounds.refusal.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
}

/// Starts a thread that stays: from then on [`wait`] neither starts one nor allocates in this
/// process.
pub(crate) fn prepare() {
    let visitor = visitor();
    // Relaxed: the thread reads it under the lock, which `start` takes after this.
    if !visitor.stays.swap(true, Ordering::Relaxed)
        && let Some(_inside) = WaitGuard::new()
    {
        // If it cannot be started, waiters try again.
        let _ = visitor.start();
    }
}

/// Waits for a while until the thread, if it does not stay, has ended.
pub(super) fn end() {
    let start = Instant::now();
    let visitor = visitor();
    // If it is woken without a round to do, it ends.
    while !is_alone() && visitor.rounds().runs && start.elapsed() < AGAIN * 50 {
        visitor.wanted.notify_one();
        std::thread::sleep(AGAIN);
    }
}

pub(crate) fn waiting() -> Option<(usize, Duration)> {
    let (cpu, since) = look(|rounds| rounds.at)??;
    Some((cpu, since.elapsed()))
}

/// Returns `None` within a wait.
pub(crate) fn given_up() -> Option<u64> {
    look(|rounds| rounds.given_up)
}

/// Reads the rounds of this process, if there were any.
fn look<T>(at: impl FnOnce(&Rounds) -> T) -> Option<T> {
    // Acquire: pairs with the Release in `visitor`.
    let visitor = VISITOR.load(Ordering::Acquire);
    // SAFETY: 1. Null, or a visitor, which is never freed.
    let visitor = unsafe { visitor.as_ref() }.filter(|visitor| visitor.home.is_here())?;
    let _inside = WaitGuard::new()?;
    Some(at(&visitor.rounds()))
}

/// Keeps a thread from starting a wait within a wait.
struct WaitGuard;

thread_local!(static INSIDE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });

impl WaitGuard {
    fn new() -> Option<WaitGuard> {
        (!INSIDE.replace(true)).then_some(WaitGuard)
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// Returns whether the calling thread is the process's only one, so that no other thread is in a
/// sequence.
fn is_alone() -> bool {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: 1. The path ends with a NUL. 2. `stat` is live and writable.
    let found = unsafe { libc::stat(c"/proc/self/task".as_ptr(), stat.as_mut_ptr()) } == 0;
    // SAFETY: 1. It is initialised: the call succeeded.
    found && unsafe { stat.assume_init() }.st_nlink == LINKS + 1
}

/// The links of a directory without subdirectories.
const LINKS: libc::nlink_t = 2;

/// Returns the visitor of this process. A forked child lacks the thread, and perhaps the lock's
/// holder: it gets a new visitor, and its parent's stays in memory.
fn visitor() -> &'static Visitor {
    // Acquire: pairs with the Release below.
    let mut known = VISITOR.load(Ordering::Acquire);
    loop {
        // SAFETY: 1. Null, or a visitor, which is never freed.
        if let Some(visitor) = unsafe { known.as_ref() }.filter(|visitor| visitor.home.is_here()) {
            return visitor;
        }
        // SAFETY: 1. Null, or a visitor, which is never freed.
        let before = unsafe { known.as_ref() };
        // Relaxed: this process was forked from the one that set it.
        let stays = before.is_some_and(|before| before.stays.load(Ordering::Relaxed));
        let new = Box::into_raw(Box::new(Visitor::new(stays)));
        // Release: a thread that finds it sees its fields set. Acquire on failure: this thread then
        // reads another's.
        known = match VISITOR.compare_exchange(known, new, Ordering::Release, Ordering::Acquire) {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: 1. The pointer is from a box, made above. 2. No other code has it: the
                // exchange failed.
                drop(unsafe { Box::from_raw(new) });
                other
            }
        };
    }
}

/// The thread's function. Allocates nothing: an allocator that counts may wait for it.
extern "C" fn run(argument: *mut c_void) -> *mut c_void {
    // SAFETY: 1. The pointer is to a visitor: `start` passed it. 2. It is never freed.
    let visitor = unsafe { &*argument.cast::<Visitor>() };
    thread::share_the_cpu();
    thread::take_short_turns();
    // Leaves the CPU to which the starting thread is bound: another program's real-time thread
    // there would hold up the first round.
    let _ = Set::all().apply();
    let mut threads = visitor.threads.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rounds = visitor.rounds();
    loop {
        while rounds.wanted == rounds.begun {
            let idle = visitor.wanted.wait_timeout(rounds, IDLE);
            rounds = idle.unwrap_or_else(PoisonError::into_inner).0;
            // Woken without a round to do: it must end. Relaxed: set before `runs` was read.
            if !visitor.stays.load(Ordering::Relaxed) && rounds.wanted == rounds.begun {
                rounds.runs = false;
                return ptr::null_mut();
            }
        }
        rounds.begun += 1;
        drop(rounds);
        let began = Instant::now();
        let visited = visit_all(&mut threads, |cpu| visitor.rounds().at = Some((cpu, began)));
        // Likewise, leaves the CPU where this round ended before the next one begins.
        let _ = Set::all().apply();
        rounds = visitor.rounds();
        rounds.ended = rounds.begun;
        rounds.at = None;
        rounds.refusal = visited.err();
        visitor.ended.notify_all();
    }
}

/// Visits every CPU on which a thread of this process may have been when this began. An error
/// number says that the kernel refuses affinities.
fn visit_all(threads: &mut [c_int], going_to: impl Fn(usize)) -> Result<(), i32> {
    let possible = super::cpu::possible().unwrap_or(CPUS_MAX);
    let mut visited = Set::empty();
    loop {
        let (mut refused, mut moved) = (Set::empty(), false);
        for cpu in 0..possible {
            if visited.contains(cpu) {
                continue;
            }
            going_to(cpu);
            match Set::one(cpu).apply().map_err(|error| error.raw_os_error().unwrap_or(0)) {
                // Success is not enough: some sandboxes accept any affinity and apply none, and the
                // kernel may have moved the visitor since.
                Ok(()) if super::cpu::current() == Some(cpu) => visited.insert(cpu),
                Ok(()) | Err(libc::ENOMEM) => moved = true,
                Err(libc::EINVAL) => refused.insert(cpu),
                Err(errno) => return Err(errno),
            }
        }
        if visited.is_empty() && !moved {
            return Err(libc::EINVAL);
        }
        refused.keep(&online());
        if !moved && (refused.is_empty() || nobody_is_on(&refused, threads)) {
            return Ok(());
        }
        std::thread::sleep(AGAIN);
    }
}

/// Returns whether each thread of this process was seen not to run on these CPUs.
fn nobody_is_on(cpus: &Set, threads: &mut [c_int]) -> bool {
    match Directory::open(c"/proc/self/task") {
        Ok(directory) => directory.numbers(threads).is_some_and(|threads| {
            // A thread that has ended may have hidden another from the list.
            let is_there = |&thread: &c_int| Thread::of(thread).is_none_or(|it| it.is_on(cpus));
            !threads.iter().any(is_there)
        }),
        // The root directory has no `/proc`. A CPU that refuses the visitor is assumed to belong to
        // another cpuset, in which no thread of this process is.
        Err(libc::ENOENT | libc::ENOTDIR) => true,
        Err(_) => false,
    }
}

/// Returns the CPUs that are online, or all if the kernel does not say.
fn online() -> Set {
    let read = || {
        let file = File::open(c"/sys/devices/system/cpu/online", 0).ok()?;
        let mut buffer = [0; 4096];
        let text = file.is_of(libc::SYSFS_MAGIC).then(|| file.read(&mut buffer))?;
        super::cpu::parse_list(std::str::from_utf8(text?).ok()?)
    };
    read().unwrap_or_else(Set::all)
}

/// The kernel's description of a thread (proc_pid_stat(5)).
struct Thread {
    is_running: bool,
    flags: u64,
    cpu: usize,
}

impl Thread {
    /// Returns `None` if it has ended, or cannot be queried.
    fn of(thread: c_int) -> Option<Thread> {
        // "/proc/self/task/", a number, "/stat".
        let (mut path, mut buffer) = ([0; 40], [0; 1024]);
        write!(&mut path[..39], "/proc/self/task/{thread}/stat").ok()?;
        let file = File::open(CStr::from_bytes_until_nul(&path).ok()?, 0).ok()?;
        // After the name, which may contain anything.
        let text = file.read(&mut buffer)?.rsplit(|&byte| byte == b')').next()?;
        let mut words = std::str::from_utf8(text).ok()?.split_whitespace();
        Some(Thread {
            is_running: words.next()? == "R",
            // The ninth and the thirty-ninth field of the line.
            flags: words.nth(5)?.parse().ok()?,
            cpu: words.nth(29)?.parse().ok()?,
        })
    }

    /// Returns whether it may be in a sequence on one of these CPUs. Workers of io_uring run no
    /// sequences, and run on CPUs where no cpuset allows the process's own threads.
    fn is_on(&self, cpus: &Set) -> bool {
        /// `PF_IO_WORKER` (linux/sched.h), since 5.12; before that `PF_VCPU`, for a thread that
        /// runs a guest.
        const WORKER: u64 = 0x10;
        self.is_running && self.flags & WORKER == 0 && cpus.contains(self.cpu)
    }
}

/// A file that is read without allocating.
struct File(c_int);

impl File {
    fn open(path: &CStr, flags: c_int) -> Result<File, i32> {
        // SAFETY: 1. The path ends with a NUL: it is a `CStr`.
        let file = unsafe { libc::open(path.as_ptr(), flags | libc::O_RDONLY | libc::O_CLOEXEC) };
        if file >= 0 { Ok(File(file)) } else { Err(errno()) }
    }

    /// Returns whether it is in a file system of this kind, and not in one that imitates it
    /// (lxcfs).
    fn is_of(&self, magic: libc::c_long) -> bool {
        let mut stat = MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: 1. `stat` is live and writable. 2. The descriptor is open.
        let found = unsafe { libc::fstatfs(self.0, stat.as_mut_ptr()) } == 0;
        // SAFETY: 1. It is initialised: the call succeeded.
        found && unsafe { stat.assume_init() }.f_type as libc::c_long == magic
    }

    /// Returns what one call reads; `None` on an error, or if there may be more.
    fn read<'a>(&self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        // SAFETY: 1. The buffer is live and writable for the size given. 2. The file is open.
        let read = unsafe { libc::read(self.0, buffer.as_mut_ptr().cast(), buffer.len()) };
        let read = usize::try_from(read).ok().filter(|&read| read < buffer.len())?;
        Some(&buffer[..read])
    }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: 1. The descriptor is open, and closed once: this owns it.
        unsafe { libc::close(self.0) };
    }
}

/// A directory whose entries are the numbers of this process's threads.
struct Directory(File);

impl Directory {
    fn open(path: &CStr) -> Result<Directory, i32> {
        File::open(path, libc::O_DIRECTORY).map(Directory)
    }

    /// Returns all numbers; `None` if some may be missing. The caller queries each thread
    /// afterwards: one that has ended by then may have hidden another.
    fn numbers<'a>(&self, room: &'a mut [c_int]) -> Option<&'a [c_int]> {
        #[repr(C, align(8))]
        struct Buffer([u8; 4096]);
        /// Offsets of an entry's length and name (`struct linux_dirent64`).
        const LENGTH: usize = 16;
        const NAME: usize = 19;
        let mut buffer = Buffer([0; 4096]);
        let mut len = 0;
        loop {
            let (to, most) = (buffer.0.as_mut_ptr(), size_of::<Buffer>());
            // SAFETY: 1. The buffer is live and writable for the size given. 2. The descriptor is
            // open.
            let read = unsafe { libc::syscall(libc::SYS_getdents64, self.0.0, to, most) };
            let mut entries = match usize::try_from(read).ok()? {
                0 => break,
                bytes => &buffer.0[..bytes],
            };
            while let Some(length) = entries.get(LENGTH..NAME) {
                let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
                let (entry, rest) = entries.split_at_checked(length.max(NAME))?;
                entries = rest;
                let name = entry[NAME..].split(|&byte| byte == 0).next()?;
                let name = std::str::from_utf8(name).ok()?;
                // `.` and `..` are not numbers.
                if let Ok(number) = name.parse() {
                    *room.get_mut(len)? = number;
                    len += 1;
                }
            }
        }
        let numbers = &room[..len];
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: 1. `stat` is live and writable. 2. The descriptor is open.
        if unsafe { libc::fstat(self.0.0, stat.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: 1. It is initialised: the call succeeded.
        let links = unsafe { stat.assume_init() }.st_nlink;
        // A thread that ends while the directory is read ends the reading early, or makes it skip
        // the next one. A list without the caller belongs to another process, of another namespace.
        let whole = links == LINKS + len as libc::nlink_t;
        let own = numbers.contains(&(thread::number() as c_int));
        (whole && own && !numbers.contains(&0)).then_some(numbers)
    }
}

#[cfg(test)]
#[path = "visits_tests.rs"]
mod tests;
