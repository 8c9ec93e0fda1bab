//! A grace period that no kernel loses: a thread of ours runs once on each CPU.
//!
//! # Why that is one
//! A *sequence under way* has begun before the round and not committed.
//!
//! 1. A thread that is switched out does not commit the sequence that it was in. The kernel notes
//!    the restart in the switch itself, with preemption off, and looks at the note on the thread's
//!    way back; what `membarrier` asks for by an interrupt could be lost between reading and
//!    clearing the note (see [`crate::kernel`]), a switch cannot come there.
//! 2. While the visitor runs on a CPU, no other thread does. So whoever ran there when the round
//!    began was switched out, or has left its sequence: by 1 nothing is under way there.
//! 3. A thread that has moved to another CPU since the round began was switched out for that.
//! 4. A thread runs only where its affinity lets it. So to visit the union of the affinities of all
//!    threads visits every CPU on which one was when the round began. Threads that were born since
//!    have begun no sequence before it.
//!
//! What committed is visible to the caller, and what the caller wrote before is visible to
//! sequences that begin after the visit of their CPU: a context switch is a full barrier, and a
//! lock orders caller and visitor.
//!
//! # The list of threads
//! `/proc/self/task` may skip a live thread when one before it ends while the list is read. The one
//! that ended was read, and has no affinity any more when that is asked for, after the whole list:
//! then it is read again. A list that never holds still, and a process without `/proc`, have every
//! CPU visited that the kernel lets the visitor go to.
//!
//! Rejected: to visit every CPU always. It takes milliseconds on large machines, disturbs CPUs that
//! are isolated from this process, and never ends where another program's real-time thread keeps
//! one of those. Rejected: the caller visits. Its affinity would be another for a moment, which
//! threads that it starts in a handler inherit.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
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

/// How often a list of threads is read that does not hold still.
const READINGS: usize = 8;

/// The visitor of a process, and who waits for it.
struct Visitor {
    home: fork::Home,
    rounds: Mutex<Rounds>,
    /// A round is wanted.
    wanted: Condvar,
    /// One has ended.
    ended: Condvar,
}

struct Rounds {
    /// How many have begun.
    begun: u64,
    /// How many have ended.
    ended: u64,
    /// How many somebody waits for.
    wanted: u64,
    /// Whether there is a thread.
    runs: bool,
    /// Where a round is going, and since when.
    at: Option<(usize, Instant)>,
    /// What the last round that ended was refused: an error number.
    refusal: Option<i32>,
}

impl Visitor {
    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        // Nothing under the lock panics.
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a round, and returns its number; `None` where no thread can be had.
    fn ask(&'static self, rounds: &mut Rounds) -> Option<u64> {
        if !rounds.runs {
            let argument = ptr::from_ref(self).cast_mut().cast();
            // SAFETY: 1. `run` may have the argument on any thread, for ever: a visitor is `Sync`,
            // and is never freed. 2. It does not unwind: nothing in it panics.
            unsafe { thread::detached(run, argument) }.ok()?;
            rounds.runs = true;
        }
        // Not the one under way: it may have been where a sequence began since.
        rounds.wanted = rounds.begun + 1;
        self.wanted.notify_one();
        Some(rounds.wanted)
    }
}

/// That of this process, or of the one it was forked from: null before the first round.
static VISITOR: AtomicPtr<Visitor> = AtomicPtr::new(ptr::null_mut());

/// Waits for a round that begins after the call, for as long as `patience` lasts.
pub(crate) fn wait(patience: Option<Duration>) -> io::Result<()> {
    let start = Instant::now();
    let visitor = visitor();
    let mut rounds = visitor.rounds();
    let Some(mine) = visitor.ask(&mut rounds) else {
        drop(rounds);
        return visit_from_here();
    };
    while rounds.ended < mine {
        let left = patience.map(|patience| patience.saturating_sub(start.elapsed()));
        rounds = match left {
            None => visitor.ended.wait(rounds).unwrap_or_else(PoisonError::into_inner),
            Some(Duration::ZERO) => return Err(too_long(rounds.at)),
            Some(left) => {
                let waited = visitor.ended.wait_timeout(rounds, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
    }
    rounds.refusal.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
}

fn too_long(at: Option<(usize, Instant)>) -> io::Error {
    let text = match at {
        Some((cpu, since)) => format!(
            "CPU {cpu} could not be visited for {:.1?}: a real-time thread keeps it, or it is in \
             another cpuset than some thread of this process; SUBMETER_RSEQ=off does without",
            since.elapsed()
        ),
        None => "no CPU was visited in time".to_owned(),
    };
    io::Error::new(io::ErrorKind::TimedOut, text)
}

pub(crate) fn waiting() -> Option<(usize, Duration)> {
    // Acquire: pairs with the Release in `visitor`.
    let visitor = VISITOR.load(Ordering::Acquire);
    // SAFETY: 1. Null, or a visitor, which is never freed.
    let visitor = unsafe { visitor.as_ref() }.filter(|visitor| visitor.home.is_here())?;
    visitor.rounds().at.map(|(cpu, since)| (cpu, since.elapsed()))
}

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
        let rounds = Rounds { begun: 0, ended: 0, wanted: 0, runs: false, at: None, refusal: None };
        let new = Box::into_raw(Box::new(Visitor {
            home: fork::Home::new(),
            rounds: Mutex::new(rounds),
            wanted: Condvar::new(),
            ended: Condvar::new(),
        }));
        // Release: whoever finds it finds it whole. Acquire on failure: another's is read then.
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

/// The thread. Allocates nothing: whoever waits for it may be an allocator that counts.
extern "C" fn run(argument: *mut c_void) -> *mut c_void {
    // SAFETY: 1. The pointer is to a visitor: `wait` passed it. 2. It is never freed.
    let visitor = unsafe { &*argument.cast::<Visitor>() };
    thread::share_the_cpu();
    let mut rounds = visitor.rounds();
    loop {
        while rounds.wanted == rounds.begun {
            let idle = visitor.wanted.wait_timeout(rounds, IDLE);
            let (guard, waited) = idle.unwrap_or_else(PoisonError::into_inner);
            rounds = guard;
            if waited.timed_out() && rounds.wanted == rounds.begun {
                rounds.runs = false;
                return ptr::null_mut();
            }
        }
        rounds.begun += 1;
        drop(rounds);
        let visited = visit_all(|cpu| visitor.rounds().at = Some((cpu, Instant::now())));
        rounds = visitor.rounds();
        rounds.ended = rounds.begun;
        rounds.at = None;
        rounds.refusal = visited.err();
        visitor.ended.notify_all();
    }
}

/// A round without a thread of its own, where none can be had.
#[cold]
fn visit_from_here() -> io::Result<()> {
    let before = Set::of(0)?;
    let visited = visit_all(|_| ());
    // An error means that none of these CPUs is left: then the kernel has chosen others.
    let _ = before.apply();
    visited.map_err(io::Error::from_raw_os_error)
}

/// Visits every CPU on which another thread of this process may have been when this began. An error
/// number says that the kernel refuses affinities.
fn visit_all(going_to: impl Fn(usize)) -> Result<(), i32> {
    let mut visited = Set::empty();
    loop {
        let wanted = affinities();
        let mut missed = false;
        for cpu in 0..super::cpu::possible().unwrap_or(CPUS_MAX) {
            if visited.contains(cpu) || wanted.as_ref().is_some_and(|all| !all.contains(cpu)) {
                continue;
            }
            going_to(cpu);
            match Set::one(cpu).apply().map_err(|error| error.raw_os_error().unwrap_or(0)) {
                // What it says is not enough: some sandboxes take any affinity, and apply none.
                Ok(()) if super::cpu::current() == Some(cpu) => visited.insert(cpu),
                // Offline, or in another cpuset: of no matter if no thread may run there.
                Ok(()) | Err(libc::EINVAL) => missed |= wanted.is_some(),
                Err(errno) => return Err(errno),
            }
        }
        if !missed {
            return Ok(());
        }
        std::thread::sleep(AGAIN);
    }
}

/// Returns the CPUs on which the other threads of this process may run; `None` where no list of
/// them is complete for certain.
fn affinities() -> Option<Set> {
    let mut directory = Directory::open(c"/proc/self/task")?;
    for _ in 0..READINGS {
        let (mut all, mut room, mut complete) = (Set::empty(), [0; THREADS_MAX], true);
        let threads = directory.read(&mut room)?;
        let own = thread::number() as i32;
        for &thread in threads.iter().filter(|&&thread| thread != own) {
            match Set::of(thread) {
                Ok(set) => all.add(&set),
                Err(_) => complete = false,
            }
        }
        if complete {
            return Some(all);
        }
    }
    None
}

/// The most threads that are listed. More have every CPU visited: so many may run anywhere.
const THREADS_MAX: usize = 16_384;

/// A directory whose entries are numbers, read without allocating.
struct Directory(c_int);

impl Directory {
    fn open(path: &std::ffi::CStr) -> Option<Directory> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: 1. The path ends with a NUL: it is a `CStr`.
        let file = unsafe { libc::open(path.as_ptr(), flags) };
        (file >= 0).then_some(Directory(file))
    }

    /// Reads all numbers. `None` if there are more than `numbers` has room for, or the kernel
    /// refuses.
    fn read<'a>(&mut self, numbers: &'a mut [i32]) -> Option<&'a [i32]> {
        #[repr(C, align(8))]
        struct Buffer([u8; 8192]);
        /// Where an entry has its length and its name (`struct linux_dirent64`).
        const LENGTH: usize = 16;
        const NAME: usize = 19;
        let mut buffer = Buffer([0; 8192]);
        let mut len = 0;
        // SAFETY: 1. The descriptor is open: this owns it.
        if unsafe { libc::lseek(self.0, 0, libc::SEEK_SET) } != 0 {
            return None;
        }
        loop {
            let (to, room) = (buffer.0.as_mut_ptr(), size_of::<Buffer>());
            // SAFETY: 1. The buffer is live and writable for the size given. 2. The descriptor is
            // open: this owns it.
            let read = unsafe { libc::syscall(libc::SYS_getdents64, self.0, to, room) };
            let mut entries = match usize::try_from(read) {
                Ok(0) => return Some(&numbers[..len]),
                Ok(bytes) => &buffer.0[..bytes],
                Err(_) => return None,
            };
            while let Some(length) = entries.get(LENGTH..NAME) {
                let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
                let (entry, rest) = entries.split_at_checked(length.max(NAME))?;
                entries = rest;
                let name = entry[NAME..].split(|&byte| byte == 0).next()?;
                let Some(number) =
                    std::str::from_utf8(name).ok().and_then(|name| name.parse().ok())
                else {
                    continue; // `.` and `..`
                };
                *numbers.get_mut(len)? = number;
                len += 1;
            }
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: 1. The descriptor is open, and closed once: this owns it.
        unsafe { libc::close(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// One test at a time: all share the visitor of this process.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `act` with the number of a CPU that a real-time thread of this process keeps until
    /// `act` stops it. Not where that is not allowed, or there is no other CPU to be on.
    fn beside_a_thread_that_keeps_a_cpu(act: impl FnOnce(usize, &AtomicBool)) {
        let _alone = alone();
        let allowed = crate::cpu::affinity().expect("readable");
        let &[here, .., kept] = &allowed[..] else {
            eprintln!("skipped: one CPU is allowed here");
            return;
        };
        let (state, stop) = (Mutex::new(None), AtomicBool::new(false));
        let keep = || {
            crate::cpu::set_affinity(&[kept]).expect("allowed");
            // SAFETY: 1. Zeroes are a valid parameter: plain data.
            let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
            parameter.sched_priority = 1;
            // SAFETY: 1. The parameter is live. 2. It concerns this thread alone.
            let set = unsafe {
                libc::syscall(
                    libc::SYS_sched_setscheduler,
                    0,
                    libc::SCHED_FIFO,
                    &raw const parameter,
                )
            };
            *state.lock().expect("no panic") = Some(set == 0);
            // Relaxed: a plain signal. Below what a kernel lets such a thread have in a second.
            let start = Instant::now();
            while set == 0 && !stop.load(Ordering::Relaxed) && start.elapsed().as_millis() < 800 {
                std::hint::spin_loop();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(keep);
            crate::cpu::set_affinity(&[here]).expect("allowed");
            loop {
                match *state.lock().expect("no panic") {
                    None => {}
                    Some(true) => break act(kept, &stop),
                    Some(false) => {
                        break eprintln!("skipped: no real-time threads here (root may)");
                    }
                }
                std::thread::yield_now();
            }
            // Relaxed: a plain signal.
            stop.store(true, Ordering::Relaxed);
            crate::cpu::set_affinity(&allowed).expect("allowed before");
        });
    }

    /// Has a round begin that comes to the CPU which is kept, and returns what those are told who
    /// do not wait for it. `None` if the kernel let the visitor have its part of that CPU.
    fn told_of(kept: usize) -> Option<io::Error> {
        loop {
            match wait(Some(Duration::from_millis(1))) {
                Ok(()) => {
                    eprintln!("too noisy: the CPU was visited beside a real-time thread");
                    return None;
                }
                Err(error) if error.to_string().contains(&format!("CPU {kept} ")) => {
                    return Some(error);
                }
                // The visitor is on its way there.
                Err(_) => {}
            }
        }
    }

    #[test]
    fn a_round_that_cannot_end_is_told_of_and_serves_who_waits_later() {
        beside_a_thread_that_keeps_a_cpu(|kept, stop| {
            if let Some(error) = told_of(kept) {
                assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            }
            // Relaxed: a plain signal.
            stop.store(true, Ordering::Relaxed);
            wait(None).expect("allowed");
            assert_eq!(waiting(), None);
        });
    }

    #[test]
    fn those_who_wait_during_a_round_share_the_next() {
        beside_a_thread_that_keeps_a_cpu(|kept, stop| {
            if told_of(kept).is_some() {
                let mut rounds = visitor().rounds();
                let under_way = rounds.begun;
                for _ in 0..5 {
                    assert_eq!(visitor().ask(&mut rounds), Some(under_way + 1));
                }
            }
            // Relaxed: a plain signal.
            stop.store(true, Ordering::Relaxed);
            wait(None).expect("allowed");
        });
    }

    #[test]
    fn a_forked_child_has_a_visitor_of_its_own() {
        let _alone = alone();
        wait(None).expect("allowed");
        let held = visitor().rounds();
        // SAFETY: 1. The child makes system calls, allocates a little, which libc allows after a
        // fork, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let waited = wait(Some(Duration::from_secs(20)));
            // SAFETY: 1. The call takes a number and does not return.
            unsafe { libc::_exit(i32::from(waited.is_err())) };
        }
        drop(held);
        let mut status = -1;
        // SAFETY: 1. `status` is live and writable. 2. The child is ours to wait for: made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child waited for its parent's");
        wait(None).expect("allowed");
    }

    #[test]
    fn the_list_has_every_thread_that_lives_throughout() {
        let stop = AtomicBool::new(false);
        let (mine, room) = (thread::number() as i32, &mut [0; THREADS_MAX]);
        std::thread::scope(|scope| {
            // Threads that come and go between those that stay.
            let lived = [(); 4].map(|()| {
                let (say, hear) = std::sync::mpsc::channel();
                let stop = &stop;
                scope.spawn(move || {
                    say.send(thread::number() as i32).expect("somebody hears");
                    // Relaxed: a plain signal.
                    while !stop.load(Ordering::Relaxed) {
                        std::thread::spawn(|| ()).join().expect("no panic");
                    }
                });
                hear.recv().expect("said")
            });
            let mut directory = Directory::open(c"/proc/self/task").expect("mounted");
            let mut complete = 0;
            for _ in 0..200 {
                let listed = directory.read(room).expect("room");
                if listed.iter().all(|&thread| Set::of(thread).is_ok()) {
                    complete += 1;
                    assert!(lived.iter().chain([&mine]).all(|thread| listed.contains(thread)));
                }
            }
            // Relaxed: a plain signal.
            stop.store(true, Ordering::Relaxed);
            eprintln!("{complete} of 200 lists were complete");
        });
        assert!(affinities().is_some_and(|all| all.iter().next().is_some()));
        assert!(Directory::open(c"/proc/self/task").expect("mounted").read(&mut []).is_none());
    }
}
