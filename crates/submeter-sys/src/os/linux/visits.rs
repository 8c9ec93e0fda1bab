//! A grace period that no kernel loses: a thread of ours runs once on each CPU.
//!
//! # Why that is one
//! A *sequence under way* has begun before the round and not committed.
//!
//! 1. A thread that is switched out does not commit the sequence that it was in. The kernel notes
//!    the restart in the switch itself, with preemption off, and looks at the note on the thread's
//!    way back; what `membarrier` asks for by an interrupt could be lost between reading and
//!    clearing the note (see [`crate::kernel`]), a switch cannot come there.
//! 2. While the visitor runs on a CPU, no other thread does. So the thread that ran there when
//!    the round began was switched out, or its sequence has committed or started again: nothing is
//!    under way there.
//! 3. A thread that has moved to another CPU since the round began was switched out for that.
//! 4. The visitor goes to every CPU that the kernel lets it go to. No thread runs on one that is
//!    offline. One that is online and refused is of another cpuset, or goes offline: the round ends
//!    once each thread of the process was seen not to run there, by its state or its CPU. A thread
//!    that has run there since the round began is of that CPU until it is switched out.
//!
//! The caller sees whatever committed, and what the caller wrote before is visible to sequences
//! that begin after the visit of their CPU: a context switch is a full barrier, and a lock orders
//! caller and visitor.
//!
//! # Rejected
//! - To visit only where the affinities of the threads let them run. The affinity of a thread
//!   changes before the thread moves, and leaves out a CPU that goes offline before the threads
//!   there do. A list of threads that is read while some end may lack live ones (1 in 400, beside
//!   40 threads that come and go): [`Directory::numbers`] returns none that may.
//! - The caller visits. Its affinity would be another for a moment, which threads that it starts in
//!   a handler inherit.
//! - A round of which a real-time thread of another program is no part. Nothing tells that no
//!   thread of ours waits behind it. The start-up test finds such a CPU, and takes locked adds.

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

/// How long the visitor waits for another round before it ends: kills often come in crowds.
const IDLE: Duration = Duration::from_secs(2);

/// How long to wait before a CPU that could not be gone to is tried again: it goes offline, or the
/// program moves its threads.
const AGAIN: Duration = Duration::from_millis(1);

/// The visitor of a process, and the threads that wait for it.
struct Visitor {
    home: fork::Home,
    rounds: Mutex<Rounds>,
    /// A round is wanted.
    wanted: Condvar,
    /// One has ended.
    ended: Condvar,
    /// Whether the thread stays when it is idle. Not under the lock: a handler may interrupt the
    /// thread that sets it.
    stays: AtomicBool,
    /// Room for a list of threads: used by the visitor's thread alone.
    threads: Mutex<Vec<c_int>>,
}

struct Rounds {
    /// How many have begun.
    begun: u64,
    /// How many have ended.
    ended: u64,
    /// How many somebody waits for.
    wanted: u64,
    /// Whether there is a thread, or one is being started.
    runs: bool,
    /// Where a round is going, and when it began.
    at: Option<(usize, Instant)>,
    /// The error number with which the last round that ended was refused.
    refusal: Option<i32>,
    /// How many did not wait to the end.
    given_up: u64,
}

/// The most threads that are listed: a round in which a CPU is refused does not end while there are
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

    /// Starts the thread, if there is none. Not under the lock: libc allocates for it.
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
    /// Asks for a round that begins from now on, and returns its number. Not the one under way: it
    /// may have been where a sequence began since.
    fn ask(&mut self) -> u64 {
        self.wanted = self.begun + 1;
        self.wanted
    }

    /// Whether the round under way has taken so long already.
    fn is_stuck(&self, patience: Option<Duration>) -> bool {
        let is_over = |patience| self.at.is_some_and(|(_, since)| since.elapsed() >= patience);
        patience.is_some_and(is_over)
    }
}

/// That of this process, or of the one it was forked from: null before the first round.
static VISITOR: AtomicPtr<Visitor> = AtomicPtr::new(ptr::null_mut());

/// Waits for a round that begins after the call, for as long as `patience` lasts; not at all, where
/// the round under way has taken as long, and not inside of itself: in a handler that interrupted
/// it, or an allocator that it called.
pub(crate) fn wait(patience: Option<Duration>) -> io::Result<()> {
    if is_alone() {
        // SeqCst: the full barrier on the caller that a round would be.
        fence(Ordering::SeqCst);
        return Ok(());
    }
    wait_for_round(patience)
}

/// As [`wait`], also in a process of one thread.
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
            // Forked by a handler that interrupted this, and alone.
            return Ok(());
        }
        let mut pause = left;
        if !rounds.runs {
            drop(rounds);
            let started = visitor.start();
            rounds = visitor.rounds();
            if started.is_ok() {
                // It may have done the round meanwhile.
                continue;
            }
            // A limit on threads, which others may come below.
            pause = left.min(AGAIN);
        }
        visitor.wanted.notify_one();
        let waited = visitor.ended.wait_timeout(rounds, pause);
        rounds = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    rounds.refusal.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
}

/// Starts a thread that stays: from then on [`wait`] neither starts one nor allocates, in this
/// process.
pub(crate) fn prepare() {
    let visitor = visitor();
    // Relaxed: the thread looks under the lock, which `start` takes after this.
    if !visitor.stays.swap(true, Ordering::Relaxed)
        && let Some(_inside) = WaitGuard::new()
    {
        // Where it cannot be had, those who wait try again.
        let _ = visitor.start();
    }
}

/// Waits until the thread, if it does not stay, has ended; for a while.
pub(super) fn end() {
    let start = Instant::now();
    let visitor = visitor();
    // Woken without a round to do, it ends.
    while !is_alone() && visitor.rounds().runs && start.elapsed() < AGAIN * 50 {
        visitor.wanted.notify_one();
        std::thread::sleep(AGAIN);
    }
}

pub(crate) fn waiting() -> Option<(usize, Duration)> {
    let (cpu, since) = look(|rounds| rounds.at)??;
    Some((cpu, since.elapsed()))
}

/// `None` inside of a wait.
pub(crate) fn given_up() -> Option<u64> {
    look(|rounds| rounds.given_up)
}

/// Looks at the rounds of this process, if there were any.
fn look<T>(at: impl FnOnce(&Rounds) -> T) -> Option<T> {
    // Acquire: pairs with the Release in `visitor`.
    let visitor = VISITOR.load(Ordering::Acquire);
    // SAFETY: 1. Null, or a visitor, which is never freed.
    let visitor = unsafe { visitor.as_ref() }.filter(|visitor| visitor.home.is_here())?;
    let _inside = WaitGuard::new()?;
    Some(at(&visitor.rounds()))
}

/// Keeps a thread from waiting twice at once.
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

/// Returns whether the calling thread is the process's only one: no other thread is in a sequence.
fn is_alone() -> bool {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: 1. The path ends with a NUL. 2. `stat` is live and writable.
    let found = unsafe { libc::stat(c"/proc/self/task".as_ptr(), stat.as_mut_ptr()) } == 0;
    // SAFETY: 1. It is initialised: the call succeeded.
    found && unsafe { stat.assume_init() }.st_nlink == LINKS + 1
}

/// The links to a directory that has none in it.
const LINKS: libc::nlink_t = 2;

/// Returns the visitor of this process. A forked child lacks the thread, and perhaps the holder of
/// the lock: it gets a new one, beside its parent's, which stays in memory.
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
        // Release: a thread that finds it finds its fields set. Acquire on failure: this thread
        // then reads another's.
        known = match VISITOR.compare_exchange(known, new, Ordering::Release, Ordering::Acquire) {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: 1. The pointer is of a box, made above. 2. No other code has it: the
                // exchange failed.
                drop(unsafe { Box::from_raw(new) });
                other
            }
        };
    }
}

/// The thread. Allocates nothing: an allocator that counts may wait for it.
extern "C" fn run(argument: *mut c_void) -> *mut c_void {
    // SAFETY: 1. The pointer is to a visitor: `start` passed it. 2. It is never freed.
    let visitor = unsafe { &*argument.cast::<Visitor>() };
    thread::share_the_cpu();
    thread::take_short_turns();
    // Away from the CPU to which the thread that started this one is bound: another program's
    // real-time thread there would hold up the first round.
    let _ = Set::all().apply();
    let mut threads = visitor.threads.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rounds = visitor.rounds();
    loop {
        while rounds.wanted == rounds.begun {
            let idle = visitor.wanted.wait_timeout(rounds, IDLE);
            rounds = idle.unwrap_or_else(PoisonError::into_inner).0;
            // Woken without a round to do: it is to end. Relaxed: set before `runs` was looked at.
            if !visitor.stays.load(Ordering::Relaxed) && rounds.wanted == rounds.begun {
                rounds.runs = false;
                return ptr::null_mut();
            }
        }
        rounds.begun += 1;
        drop(rounds);
        let began = Instant::now();
        let visited = visit_all(&mut threads, |cpu| visitor.rounds().at = Some((cpu, began)));
        // Likewise from the CPU where this round ended, before the next.
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
                // Its success is not enough: some sandboxes take any affinity, and apply none, and
                // the kernel may have moved the visitor since.
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

/// Whether each thread of this process was seen not to run on these CPUs.
fn nobody_is_on(cpus: &Set, threads: &mut [c_int]) -> bool {
    match Directory::open(c"/proc/self/task") {
        Ok(directory) => directory.numbers(threads).is_some_and(|threads| {
            // One that has ended may have hidden another from the list.
            let is_there = |&thread: &c_int| Thread::of(thread).is_none_or(|it| it.is_on(cpus));
            !threads.iter().any(is_there)
        }),
        // A root directory without `/proc`: what refuses the visitor is taken to be of another
        // cpuset, in which no thread of this process is.
        Err(libc::ENOENT | libc::ENOTDIR) => true,
        Err(_) => false,
    }
}

/// Returns the CPUs that are online; all, where the kernel does not say.
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
    /// `None` if it has ended, or cannot be asked.
    fn of(thread: c_int) -> Option<Thread> {
        // "/proc/self/task/", a number, "/stat".
        let (mut path, mut buffer) = ([0; 40], [0; 1024]);
        write!(&mut path[..39], "/proc/self/task/{thread}/stat").ok()?;
        let file = File::open(CStr::from_bytes_until_nul(&path).ok()?, 0).ok()?;
        // After the name, which may have anything in it.
        let text = file.read(&mut buffer)?.rsplit(|&byte| byte == b')').next()?;
        let mut words = std::str::from_utf8(text).ok()?.split_whitespace();
        Some(Thread {
            is_running: words.next()? == "R",
            // The ninth and the thirty-ninth of the whole.
            flags: words.nth(5)?.parse().ok()?,
            cpu: words.nth(29)?.parse().ok()?,
        })
    }

    /// Whether it may be in a sequence on one of these CPUs. Workers of io_uring run none, and go
    /// where no cpuset lets the process's own go.
    fn is_on(&self, cpus: &Set) -> bool {
        /// `PF_IO_WORKER` (linux/sched.h), since 5.12; before that `PF_VCPU`, of one that runs a
        /// guest.
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

    /// Returns whether it is in a file system of this kind: not in one that imitates it (lxcfs).
    fn is_of(&self, magic: libc::c_long) -> bool {
        let mut stat = MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: 1. `stat` is live and writable. 2. The descriptor is open.
        let found = unsafe { libc::fstatfs(self.0, stat.as_mut_ptr()) } == 0;
        // SAFETY: 1. It is initialised: the call succeeded.
        found && unsafe { stat.assume_init() }.f_type as libc::c_long == magic
    }

    /// Returns what one call reads; `None` for an error, or if there may be more.
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

    /// Returns all numbers; `None` if some may be missing. The caller asks each thread for
    /// something afterwards: one that has ended by then may have hidden another.
    fn numbers<'a>(&self, room: &'a mut [c_int]) -> Option<&'a [c_int]> {
        #[repr(C, align(8))]
        struct Buffer([u8; 4096]);
        /// Where an entry has its length and its name (`struct linux_dirent64`).
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
                // `.` and `..` are none.
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
        // A thread that ends while it is read ends the reading early, or has the next one left out.
        // Without the caller it is the list of another process, of another namespace.
        let whole = links == LINKS + len as libc::nlink_t;
        let own = numbers.contains(&(thread::number() as c_int));
        (whole && own && !numbers.contains(&0)).then_some(numbers)
    }
}

#[cfg(test)]
#[path = "visits_tests.rs"]
mod tests;
