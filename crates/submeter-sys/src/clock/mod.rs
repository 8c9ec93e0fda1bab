//! CPU time of the calling thread, without privilege and without a system call where that can be
//! had.
//!
//! `CLOCK_THREAD_CPUTIME_ID` is right, and a system call. Between two switches of a thread its CPU
//! time is the time that passes, which one instruction tells. So all that is needed is to know that
//! no switch came between, and to ask the kernel again when one may have: [`Source`] says how.
//! Whether the best way works here is tried at start-up, as restartable sequences are.
//!
//! Systems other than Linux are asked each time. Windows answers in steps of up to 15.6 ms
//! ([`thread_cpu_ns`]).

mod intervals;
mod rate;

use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Instant;

use crate::fork;
use crate::os::clock::{self as system, Watch, ticks};
use intervals::{Ends, Intervals, TRUST_NS};
pub(crate) use rate::Rate;

/// Where CPU time comes from, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The CPU's counter, while the page of a perf event says that the thread was not switched.
    /// Costs a page for each thread, and the kernel some work at each switch.
    PerfPage,
    /// The CPU's counter, set right by the kernel's clock after each interval of 20 µs or more,
    /// where the next two begin, and once a millisecond: four times, for a while, after an answer
    /// that left something open. A shorter interval includes the waits in it.
    ///
    /// Rejected: a mark in the rseq area, which the kernel clears when it switches the thread. Each
    /// sequence overwrites it, and an update that looked at it first would still miss a switch
    /// between the look and the arming.
    Ticks,
    /// The system's own clock of threads: a system call each time.
    Syscall,
}

impl Source {
    /// Returns a short name, as `submeter doctor` prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Source::PerfPage => "CPU counter, switches told by a perf page",
            Source::Ticks => "CPU counter, set right by the kernel's clock",
            Source::Syscall => system::NAME,
        }
    }
}

/// The decision, and its reason.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The source in use.
    pub source: Source,
    /// Why not a cheaper one; for the cheapest, what confirmed it.
    pub reason: String,
}

/// Finds out, on the first call, where CPU time comes from; later calls return the same answer.
///
/// The environment variable `SUBMETER_CLOCK`, read on that first call, names another source than
/// the best: `ticks` does without perf events, `syscall` without the CPU's counter as well. The
/// first call takes a few milliseconds, on a busy machine up to half a second: it starts threads
/// for a self-test. Call it before you install a system call filter that kills, or set the
/// variable: each thread's clock opens a perf event.
pub fn choice() -> &'static Choice {
    /// Null until there is an answer. No lock: a forked child would wait for a thread that it
    /// lacks. Threads that decide at the same time all decide rightly, and the first one's answer
    /// stays.
    static CHOICE: AtomicPtr<Choice> = AtomicPtr::new(ptr::null_mut());
    // Acquire: pairs with the Release below, so that the answer's contents are seen.
    let mut known = CHOICE.load(Ordering::Acquire);
    if known.is_null() {
        let new = Box::into_raw(Box::new(decide()));
        // Release: pairs with the Acquire above. Acquire on failure: this thread then reads
        // another's answer.
        known = match CHOICE.compare_exchange(known, new, Ordering::Release, Ordering::Acquire) {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: 1. The pointer is of a box, made above. 2. No other code has it: the
                // exchange failed.
                drop(unsafe { Box::from_raw(new) });
                other
            }
        };
    }
    // SAFETY: 1. The pointer is of a box that is never freed. 2. It is never written again: it was
    // given up to this static.
    unsafe { &*known }
}

/// The CPU time of the thread that made it, in intervals: each ends, and the next begins, with
/// [`now_ns`](ThreadClock::now_ns); after a time that is in none, one begins with
/// [`begin_ns`](ThreadClock::begin_ns).
///
/// Costs a read of the CPU's counter, and a system call once a millisecond, and where an interval
/// ends that may have had a wait: by [`Source`]. Its readings never go back. Not for signal
/// handlers.
///
/// So an interval may come out longer than it was by waits that leave no trace: waits of less than
/// 20 µs with [`Source::Ticks`], and what a hypervisor or interrupts took within a millisecond. If
/// one interval has too much, the next ones have less, so that these errors do not add up; that is
/// 1.1 ms at most. An interval that may have had a wait, and began by `begin_ns`, may also be wrong
/// by what the thread used between intervals since the kernel was last asked: 1 ms at most, mostly
/// nothing, as the kernel is asked when the next ones like it begin.
/// [`error_ns`](ThreadClock::error_ns) adds up how much that may be, however the load is made.
///
/// # Examples
/// ```
/// use submeter_sys::clock::ThreadClock;
///
/// let mut clock = ThreadClock::new();
/// let before = clock.now_ns();
/// let work = (0..1000u64).fold(1, |product: u64, n| product.wrapping_mul(n | 1));
/// assert!(clock.now_ns() >= before, "{work}");
/// ```
///
/// # Differences from Linux
/// In a forked child it goes on from where it was, instead of starting at 0.
#[derive(Debug)]
pub struct ThreadClock {
    /// What `watch` said when the interval began.
    armed: u64,
    intervals: Intervals,
    watch: Watch,
    /// The process that `watch` is of.
    home: fork::Home,
    /// By how much the kernel's answer is below ours, since a fork.
    offset_ns: u64,
    source: Source,
}

impl ThreadClock {
    /// Starts the calling thread's clock, on the source that [`choice`] chose; on
    /// [`Source::Ticks`], if the thread cannot have a page: the memory that perf may lock is spent
    /// (`kernel.perf_event_mlock_kb`, then `ulimit -l`), or no descriptor is free.
    #[must_use]
    pub fn new() -> ThreadClock {
        let chosen = ThreadClock::on(choice().source).or_else(|_| ThreadClock::on(Source::Ticks));
        chosen.unwrap_or_else(|_| ThreadClock::start(Source::Syscall, Watch::blind()))
    }

    /// Starts the calling thread's clock on `source`, whether or not it is the chosen one: for
    /// comparisons.
    ///
    /// # Errors
    /// When the source cannot be had here.
    pub fn on(source: Source) -> io::Result<ThreadClock> {
        if source != Source::Syscall {
            ticks::rate().map_err(|why| io::Error::new(io::ErrorKind::Unsupported, why))?;
        }
        Ok(ThreadClock::start(source, Watch::new(source)?))
    }

    fn start(source: Source, watch: Watch) -> ThreadClock {
        // First: a fork from now on must be noticed.
        let home = fork::Home::new();
        let intervals = Intervals::default();
        let mut clock = ThreadClock { armed: 0, intervals, watch, home, offset_ns: 0, source };
        clock.restart();
        clock
    }

    /// Goes on from the kernel's answer.
    fn restart(&mut self) {
        let rate = ticks::rate().ok().filter(|_| self.source != Source::Syscall);
        let asked = Asked::now(&self.watch, self.offset_ns, rate.map_or(0, |r| r.ticks(CLOSE_NS)));
        self.armed = asked.armed;
        self.intervals.restart(rate, asked.ticks(), asked.ns);
    }

    /// Returns the source in use on this thread.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// Ends an interval, and begins the next: returns the calling thread's CPU time. Never less
    /// than the last answer.
    ///
    /// # Ordering
    /// The counter is read before the word that shows switches. A switch between the two reads is
    /// noticed at the next reading; one before the first read is noticed by the second. Both are
    /// seen by this thread only.
    #[inline]
    pub fn now_ns(&mut self) -> u64 {
        // First: the instruction waits for all before it, and what follows does not wait for it.
        let now = ticks::now();
        // A child has no page where its parent's was.
        if !self.home.is_here() {
            return self.forked();
        }
        let holds = self.watch.holds(self.armed);
        let told = if holds { self.intervals.go_on(now) } else { None };
        told.unwrap_or_else(|| self.end(now))
    }

    /// Begins an interval whose end [`now_ns`](ThreadClock::now_ns) tells: returns the calling
    /// thread's CPU time, as far as it is known. Never less than the last answer.
    ///
    /// Costs no system call either where the thread was switched out a moment ago, as a worker is
    /// that waits for each request. Its use since the last interval is added when the kernel is
    /// asked next, between two intervals.
    #[inline]
    pub fn begin_ns(&mut self) -> u64 {
        if self.home.is_here() && !self.watch.holds(self.armed) {
            return self.come_back();
        }
        self.now_ns()
    }

    /// Returns how much of its intervals the thread was off the CPU, as far as the kernel was
    /// asked: waiting, preempted, interrupted. Always 0 with [`Source::Syscall`], which has CPU
    /// time alone. Never less than the last answer.
    #[inline]
    #[must_use]
    pub fn waited_ns(&self) -> u64 {
        self.intervals.waited_ns()
    }

    /// Returns by how much what all intervals were told to have used may be wrong together, up or
    /// down, as far as the kernel was asked: what the thread used outside of them may hide waits.
    /// Waits of less than 20 µs are not in it with [`Source::Ticks`]. Always 0 with
    /// [`Source::Syscall`]. Never less than the last answer.
    #[inline]
    #[must_use]
    pub fn error_ns(&self) -> u64 {
        self.intervals.error_ns()
    }

    /// Ends an interval in which the thread may have been switched out, or after which the kernel
    /// is to be asked in any case.
    #[inline(never)]
    fn end(&mut self, now: u64) -> u64 {
        let ended = self.intervals.end(now, self.watch.switched(self.armed));
        ended.unwrap_or_else(|ends| self.ask(ends))
    }

    /// Begins an interval after a time outside in which the thread may have been switched out.
    #[inline(never)]
    fn come_back(&mut self) -> u64 {
        // First: a switch between the two is noticed at the end of the interval.
        self.armed = self.watch.arm();
        let begun = self.intervals.begin(ticks::now());
        begun.unwrap_or_else(|ends| self.ask(ends))
    }

    /// Asks the kernel, and notes what the counter says at that moment.
    #[cold]
    #[inline(never)]
    fn ask(&mut self, ends: Ends) -> u64 {
        let close_ticks = self.intervals.trust_ticks() / (TRUST_NS / CLOSE_NS);
        let asked = Asked::now(&self.watch, self.offset_ns, close_ticks);
        self.armed = asked.armed;
        self.intervals.learn(asked.ticks(), asked.ns, ends)
    }

    /// Goes on in a forked child: its one thread starts at 0, without the page.
    #[cold]
    #[inline(never)]
    fn forked(&mut self) -> u64 {
        self.home = fork::Home::new();
        let watch = Watch::new(self.source).unwrap_or_else(|_| {
            self.source = Source::Ticks;
            Watch::blind()
        });
        std::mem::replace(&mut self.watch, watch).forget();
        self.offset_ns = self.intervals.last_ns();
        self.restart();
        self.intervals.last_ns()
    }
}

/// The kernel's answer, and what the counter said before and after it.
#[derive(Clone, Copy, Debug)]
struct Asked {
    armed: u64,
    before: u64,
    ns: u64,
    /// How long the call took, in ticks.
    took: u64,
}

impl Asked {
    /// Asks for the CPU time, to which `offset_ns` is added.
    fn now(watch: &Watch, offset_ns: u64, close_ticks: u64) -> Asked {
        Asked::until_close(close_ticks, || {
            // First: a switch during what follows makes the pair worthless, and is noticed at the
            // next question.
            let armed = watch.arm();
            let before = ticks::now();
            let ns = thread_cpu_ns() + offset_ns;
            Asked { armed, before, ns, took: ticks::now().wrapping_sub(before) }
        })
    }

    /// The counter when the kernel read its clock: somewhere in the middle of the call.
    fn ticks(&self) -> u64 {
        self.before.wrapping_add(self.took / 2)
    }

    /// Asks again, twice at most, where the call took longer than `close`: a hypervisor, or an
    /// interrupt, that came between the kernel's reading and ours puts the pair apart by half of
    /// what it took, and an interval that begins there is short by as much. Returns the latest,
    /// which need not be the closest.
    fn until_close(close: u64, mut once: impl FnMut() -> Asked) -> Asked {
        let mut asked = once();
        for _ in 0..2 {
            // Without a counter there is nothing to be close to.
            if close == 0 || asked.took <= close {
                break;
            }
            asked = once();
        }
        asked
    }
}

impl Default for ThreadClock {
    fn default() -> ThreadClock {
        ThreadClock::new()
    }
}

impl Drop for ThreadClock {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // Not given back: the mapping there now belongs to others.
            std::mem::replace(&mut self.watch, Watch::blind()).forget();
        }
    }
}

/// How long a question to the kernel may take for its answer to be of one moment: some fifty times
/// as long as a system call.
const CLOSE_NS: u64 = 20_000;

/// Returns the time that has passed since some moment, for each thread its own: by the CPU's
/// counter, if that has a constant rate, and otherwise by the system's clock.
///
/// For bounds: no thread uses more CPU time than passes, but for what the rate is off by, 0.01 % at
/// most. On machines with several sockets a thread that moved between them may see it go back.
///
/// # Examples
/// ```
/// use submeter_sys::clock::wall_ns;
///
/// let begin = wall_ns();
/// std::thread::sleep(std::time::Duration::from_millis(2));
/// assert!(wall_ns().wrapping_sub(begin) > 1_900_000);
/// ```
#[inline]
#[must_use]
pub fn wall_ns() -> u64 {
    match ticks::rate() {
        Ok(rate) => rate.wide_ns(ticks::now()),
        Err(_) => system_ns(),
    }
}

/// The same by the system's clock, since the thread's first call. For each thread, as a lock around
/// one start for all would stay behind at a fork.
#[cold]
fn system_ns() -> u64 {
    thread_local! {
        static START: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    let now = Instant::now();
    let start = START.with(|start| {
        start.get().unwrap_or_else(|| {
            start.set(Some(now));
            now
        })
    });
    u64::try_from(now.duration_since(start).as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the calling thread's CPU time: a system call.
///
/// # Differences from Linux
/// Windows adds a whole tick (up to 15.6 ms) to the thread that runs when the tick ends: sums are
/// right on average, short intervals are not. Systems that are neither Unix nor Windows have no
/// such clock: this is the time since the thread first asked.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    system::thread_cpu_ns()
}

/// Returns the CPU time of the whole process, its ended threads included: a system call that visits
/// each thread.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    system::process_cpu_ns()
}

fn decide() -> Choice {
    if let Some(value) = std::env::var_os("SUBMETER_CLOCK") {
        match value.to_str() {
            Some("syscall") => return syscall("SUBMETER_CLOCK=syscall".to_owned()),
            Some("ticks") => return system::ticks_or_syscall("SUBMETER_CLOCK=ticks".to_owned()),
            Some("") => {}
            // Not silently ignored: a caller that sets it wants something.
            _ => {
                return syscall(format!(
                    "SUBMETER_CLOCK={value:?} is not ticks or syscall; took syscall"
                ));
            }
        }
    }
    system::decide()
}

/// The choice where nothing is cheaper, and why.
pub(crate) fn syscall(reason: String) -> Choice {
    Choice { source: Source::Syscall, reason }
}

#[cfg(test)]
mod tests;
