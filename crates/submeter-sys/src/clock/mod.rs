//! CPU time of the calling thread, without privilege and, where possible, without a system call.
//!
//! `CLOCK_THREAD_CPUTIME_ID` is correct, but a system call. Between two context switches of a
//! thread, its CPU time is the time that passes, which one instruction reads. It is therefore
//! enough to know that no switch came between, and to ask the kernel again when one may have:
//! [`Source`] says how. The best way is tested at start-up, as restartable sequences are.
//!
//! Other systems than Linux are asked each time. Windows answers in steps of up to 15.6 ms
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
    /// The CPU's counter, while the page of a perf event says that the thread was not switched out.
    /// Costs a page for each thread, and the kernel some work at each context switch.
    PerfPage,
    /// The CPU's counter, corrected by the kernel's clock after each interval of 20 µs or more,
    /// where the next two begin, and once a millisecond, or for a while four times a millisecond
    /// after an answer that left something open. A shorter interval includes its waits.
    ///
    /// Rejected: a mark in the rseq area, which the kernel clears when it switches the thread out.
    /// Each sequence overwrites it, and an update that checked it first would still miss a switch
    /// between the check and the arming.
    Ticks,
    /// The system's own thread clock: a system call each time.
    Syscall,
}

impl Source {
    /// Returns a short name, as `submeter doctor` prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Source::PerfPage => "CPU counter, with switches shown by a perf page",
            Source::Ticks => "CPU counter, corrected by the kernel's clock",
            Source::Syscall => system::NAME,
        }
    }
}

/// The decision, and its reason.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The source in use.
    pub source: Source,
    /// Why no cheaper source is in use; for the cheapest, what confirmed it.
    pub reason: String,
    /// Whether a cheaper source could not be tested, as on a machine that is too busy.
    pub is_inconclusive: bool,
}

/// Finds out, on the first call, where CPU time comes from; later calls return the same answer.
///
/// The environment variable `SUBMETER_CLOCK`, read on that first call, selects a source other than
/// the best: `ticks` avoids perf events, `syscall` the CPU's counter as well. The first call takes
/// a few milliseconds, or up to half a second on a busy machine, because it starts threads for a
/// self-test. Call it before you install a system call filter that kills, or set the variable: each
/// thread's clock opens a perf event.
pub fn choice() -> &'static Choice {
    /// Null until there is an answer. No lock: a forked child would wait for a thread that it
    /// lacks. Threads that decide at the same time all decide correctly, and the first one's answer
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
                // SAFETY: 1. The pointer is from a box, made above. 2. No other code has it: the
                // exchange failed.
                drop(unsafe { Box::from_raw(new) });
                other
            }
        };
    }
    // SAFETY: 1. The pointer is from a box that is never freed. 2. It is never written again: this
    // static owns it.
    unsafe { &*known }
}

/// The CPU time of the thread that created it, in intervals. [`now_ns`](ThreadClock::now_ns) ends
/// an interval and begins the next; [`begin_ns`](ThreadClock::begin_ns) begins one after a time
/// outside all intervals.
///
/// Costs a read of the CPU's counter, and depending on the [`Source`] a system call once a
/// millisecond and at the end of an interval that may have had a wait. Its readings never go back.
/// Not for signal handlers.
///
/// An interval may therefore be reported too long, by waits that leave no trace: waits of less than
/// 20 µs with [`Source::Ticks`], and what a hypervisor or interrupts took within a millisecond. If
/// one interval has too much, the next ones have less, so these errors do not add up; they are 1.1
/// ms at most. An interval that may have had a wait, and that began with `begin_ns`, may also be
/// wrong by what the thread used between intervals since the last query of the kernel. That is 1 ms
/// at most and usually nothing, because the kernel is queried when the next such intervals begin.
/// [`error_ns`](ThreadClock::error_ns) adds up how much that may be, for any load.
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
/// In a forked child it continues from where it was, instead of starting at 0.
#[derive(Debug)]
pub struct ThreadClock {
    /// What `watch` returned when the interval began.
    armed: u64,
    intervals: Intervals,
    watch: Watch,
    /// The process that `watch` belongs to.
    home: fork::Home,
    /// How far the kernel's answer is below ours since a fork.
    offset_ns: u64,
    source: Source,
}

impl ThreadClock {
    /// Starts the calling thread's clock, on the source that [`choice`] chose, or on
    /// [`Source::Ticks`] if the thread cannot get a page: the memory that perf may lock is used up
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
    /// When the source is not available here.
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

    /// Continues from the kernel's answer.
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
    /// noticed at the next reading; one before the first read is noticed by the second. Only this
    /// thread sees both.
    #[inline]
    pub fn now_ns(&mut self) -> u64 {
        // First: the instruction waits for everything before it, and what follows does not wait for
        // it.
        let now = ticks::now();
        // A child has no page where its parent's was.
        if !self.home.is_here() {
            return self.forked();
        }
        let holds = self.watch.holds(self.armed);
        let told = if holds { self.intervals.go_on(now) } else { None };
        told.unwrap_or_else(|| self.end(now))
    }

    /// Begins an interval that [`now_ns`](ThreadClock::now_ns) ends, and returns the calling
    /// thread's CPU time, as far as it is known. Never less than the last answer.
    ///
    /// Costs no system call even if the thread was just switched out, as happens to a worker that
    /// waits for each request. What it used since the last interval is added at the next query of
    /// the kernel, between two intervals.
    #[inline]
    pub fn begin_ns(&mut self) -> u64 {
        if self.home.is_here() && !self.watch.holds(self.armed) {
            return self.come_back();
        }
        self.now_ns()
    }

    /// Returns how much of its intervals the thread spent off the CPU (waiting, preempted,
    /// interrupted), as of the last query of the kernel. Always 0 with [`Source::Syscall`], which
    /// knows only CPU time. Never less than the last answer.
    #[inline]
    #[must_use]
    pub fn waited_ns(&self) -> u64 {
        self.intervals.waited_ns()
    }

    /// Returns how much the reported sum of all intervals may be wrong, up or down, as of the last
    /// query of the kernel: what the thread used outside them may hide waits. With
    /// [`Source::Ticks`], waits of less than 20 µs are not included. Always 0 with
    /// [`Source::Syscall`]. Never less than the last answer.
    #[inline]
    #[must_use]
    pub fn error_ns(&self) -> u64 {
        self.intervals.error_ns()
    }

    /// Ends an interval in which the thread may have been switched out, or after which the kernel
    /// must be queried in any case.
    #[inline(never)]
    fn end(&mut self, now: u64) -> u64 {
        let ended = self.intervals.end(now, self.watch.switched(self.armed));
        ended.unwrap_or_else(|ends| self.ask(ends))
    }

    /// Begins an interval after an outside time in which the thread may have been switched out.
    #[inline(never)]
    fn come_back(&mut self) -> u64 {
        // First: a switch between the two is noticed at the end of the interval.
        self.armed = self.watch.arm();
        let begun = self.intervals.begin(ticks::now());
        begun.unwrap_or_else(|ends| self.ask(ends))
    }

    /// Queries the kernel, and records the counter at that moment.
    #[cold]
    #[inline(never)]
    fn ask(&mut self, ends: Ends) -> u64 {
        let close_ticks = self.intervals.trust_ticks() / (TRUST_NS / CLOSE_NS);
        let asked = Asked::now(&self.watch, self.offset_ns, close_ticks);
        self.armed = asked.armed;
        self.intervals.learn(asked.ticks(), asked.ns, ends)
    }

    /// Continues in a forked child: its only thread starts at 0, without the page.
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

/// The kernel's answer, and the counter before and after it.
#[derive(Clone, Copy, Debug)]
struct Asked {
    armed: u64,
    before: u64,
    ns: u64,
    /// Duration of the call, in ticks.
    took: u64,
}

impl Asked {
    /// Queries the CPU time and adds `offset_ns`.
    fn now(watch: &Watch, offset_ns: u64, close_ticks: u64) -> Asked {
        Asked::until_close(close_ticks, || {
            // First: a switch during what follows makes the pair worthless, and is noticed at the
            // next query.
            let armed = watch.arm();
            let before = ticks::now();
            let ns = thread_cpu_ns() + offset_ns;
            Asked { armed, before, ns, took: ticks::now().wrapping_sub(before) }
        })
    }

    /// Returns the counter when the kernel read its clock: somewhere in the middle of the call.
    fn ticks(&self) -> u64 {
        self.before.wrapping_add(self.took / 2)
    }

    /// Asks again, twice at most, if the call took longer than `close`: a hypervisor or an
    /// interrupt between the kernel's reading and ours moves the two apart by half of what it took,
    /// and an interval that begins there is too short by as much. Returns the latest pair, which
    /// need not be the closest.
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
            // Not unmapped: something else may be mapped there now.
            std::mem::replace(&mut self.watch, Watch::blind()).forget();
        }
    }
}

/// How long a query of the kernel may take for its answer to count as one moment: some fifty times
/// as long as a system call.
const CLOSE_NS: u64 = 20_000;

/// Returns the time since some moment, which differs between threads: by the CPU's counter if that
/// has a constant rate, otherwise by the system's clock.
///
/// Useful for bounds: no thread uses more CPU time than passes, except for the rate's error, 0.01 %
/// at most. On machines with several sockets, a thread that moved between them may see it go back.
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

/// The same by the system's clock, since the thread's first call. Each thread has its own start,
/// because a lock around a common one could stay locked in a forked child.
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
/// such clock; there this is the time since the thread's first call.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    system::thread_cpu_ns()
}

/// Returns the CPU time of the whole process, including ended threads: a system call that visits
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
            // Not silently ignored: it was set for a reason.
            _ => {
                return syscall(format!(
                    "SUBMETER_CLOCK={value:?} is not ticks or syscall; using syscall"
                ));
            }
        }
    }
    system::decide()
}

/// Returns the choice if nothing cheaper is available, with the reason.
pub(crate) fn syscall(reason: String) -> Choice {
    Choice { source: Source::Syscall, reason, is_inconclusive: false }
}

#[cfg(test)]
mod tests;
