//! CPU time of the calling thread, without privilege and without a system call where that can be had.
//!
//! `CLOCK_THREAD_CPUTIME_ID` is right, and a system call. Between two switches of a thread its CPU time is the time that
//! passes, which one instruction tells. So all that is needed is to know that no switch came between, and
//! to ask the kernel again when one did: once a switch, which costs many times more. Two
//! words tell it ([`Source`]); which one works here is tried at start-up, as restartable sequences are.

mod mark;
mod selftest;
mod ticks;
mod watch;

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::fork;
use ticks::Rate;
use watch::Watch;

/// Where CPU time comes from, cheapest first where all work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The CPU's counter, while the page of a perf event says that the thread was not switched. Costs a page
    /// for each thread, and the kernel some work at each switch.
    PerfPage,
    /// The CPU's counter, while a mark in the rseq area stands. Of use where updates are no sequences,
    /// each of which overwrites it.
    RseqMark,
    /// `CLOCK_THREAD_CPUTIME_ID`: a system call each time.
    Syscall,
}

impl Source {
    /// Returns a short name, as `submeter doctor` prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Source::PerfPage => "CPU counter, switches told by a perf page",
            Source::RseqMark => "CPU counter, switches told by a mark in the rseq area",
            Source::Syscall => "CLOCK_THREAD_CPUTIME_ID",
        }
    }
}

/// What was decided, and why.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The source in use.
    pub source: Source,
    /// Why not a cheaper one; for the cheapest, what confirmed it.
    pub reason: String,
}

/// Finds out, on the first call, where CPU time comes from; later calls return the same answer.
///
/// The environment variable `SUBMETER_CLOCK=syscall`, read on that first call, rules out all but the system
/// call. The first call takes a few milliseconds, on a busy machine up to half a second: it starts threads for a
/// self-test. Whoever filters system calls with a filter that kills calls it before, or sets the variable: each
/// thread's clock opens a perf event.
pub fn choice() -> &'static Choice {
    /// Null until there is an answer. No lock: a forked child would wait for a thread that it lacks. Threads
    /// that decide at the same time all decide rightly, and the first one's answer stays.
    static CHOICE: AtomicPtr<Choice> = AtomicPtr::new(ptr::null_mut());
    // Acquire: pairs with the Release below, so that the answer's contents are seen.
    let mut known = CHOICE.load(Ordering::Acquire);
    if known.is_null() {
        let new = Box::into_raw(Box::new(decide()));
        // Release: pairs with the Acquire above. Acquire on failure: another's answer is read then.
        known = match CHOICE.compare_exchange(known, new, Ordering::Release, Ordering::Acquire) {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: made above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
                other
            }
        };
    }
    // SAFETY: made from a box that is never freed and never written again.
    unsafe { &*known }
}

/// Tells the CPU time of the thread that made it.
///
/// Costs a read of the CPU's counter, where [`choice`] found a way; some 15 times that otherwise, and
/// after each switch of the thread. What it tells never goes back. Between two questions to the kernel, a
/// millisecond apart at most, it also counts what interrupts and the hypervisor took from the thread; the next
/// one puts that right. Not for signal handlers.
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
    /// What `watch` said when the pair below was read.
    armed: u64,
    /// The counter, at the moment of `base_ns`.
    base_ticks: u64,
    /// CPU time at the moment of `base_ticks`.
    base_ns: u64,
    /// The latest answer.
    last_ns: u64,
    /// How long the counter is trusted, in its own unit; 0 where there is none.
    ticks_max: u64,
    rate: Rate,
    watch: Watch,
    /// [`fork::generation`] of the process that `watch` is of.
    generation: u32,
    /// What the kernel's answer is short of ours, since a fork.
    offset_ns: u64,
    source: Source,
}

impl ThreadClock {
    /// Starts the calling thread's clock, on the source that [`choice`] chose; on a system call, if the
    /// thread cannot have that: the memory that perf may lock is spent (`kernel.perf_event_mlock_kb`, then
    /// `ulimit -l`), or no descriptor is free. [`slow_threads`] counts those.
    #[must_use]
    pub fn new() -> ThreadClock {
        ThreadClock::on(choice().source).unwrap_or_else(|_| {
            // Relaxed: a statistic.
            SLOW.fetch_add(1, Ordering::Relaxed);
            ThreadClock::start(Source::Syscall, Watch::blind())
        })
    }

    /// Starts the calling thread's clock on `source`, whether or not it is the chosen one: for comparisons.
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
        // A fork must be noticed before the page is looked at.
        fork::watch();
        let rate = ticks::rate().ok().filter(|_| source != Source::Syscall);
        let mut clock = ThreadClock {
            armed: 0,
            base_ticks: 0,
            base_ns: 0,
            last_ns: 0,
            ticks_max: rate.map_or(0, |rate| rate.ticks(TRUST_NS)),
            rate: rate.unwrap_or_default(),
            watch,
            generation: fork::generation(),
            offset_ns: 0,
            source,
        };
        clock.ask();
        clock
    }

    /// Returns the source in use on this thread.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// Returns the calling thread's CPU time. Never less than the last answer.
    ///
    /// # Ordering
    /// The counter is read before the word that tells of switches: a switch between the two is noticed, and one before
    /// the first was noticed by the second. Both are seen by this thread only.
    #[inline]
    pub fn now_ns(&mut self) -> u64 {
        // A child has no page where its parent's was.
        if !fork::is(self.generation) {
            return self.forked();
        }
        let since = ticks::now().wrapping_sub(self.base_ticks);
        if since >= self.ticks_max || !self.watch.holds(self.armed) {
            return self.ask();
        }
        self.answer(self.base_ns + self.rate.ns(since))
    }

    #[inline]
    fn answer(&mut self, ns: u64) -> u64 {
        self.last_ns = self.last_ns.max(ns);
        self.last_ns
    }

    /// Asks the kernel, and notes what the counter says at that moment.
    #[cold]
    #[inline(never)]
    fn ask(&mut self) -> u64 {
        // First: a switch during what follows makes the pair worthless, and is noticed at the next question.
        self.armed = self.watch.arm();
        let before = ticks::now();
        let ns = thread_cpu_ns() + self.offset_ns;
        // The kernel reads its clock somewhere in the middle of the call.
        self.base_ticks = before.wrapping_add(ticks::now().wrapping_sub(before) / 2);
        self.base_ns = ns;
        self.answer(ns)
    }

    /// Goes on in a forked child: its one thread starts at 0, without the page.
    #[cold]
    #[inline(never)]
    fn forked(&mut self) -> u64 {
        self.generation = fork::generation();
        let watch = Watch::new(self.source).unwrap_or_else(|_| {
            // Relaxed: a statistic.
            SLOW.fetch_add(1, Ordering::Relaxed);
            self.source = Source::Syscall;
            self.ticks_max = 0;
            Watch::blind()
        });
        std::mem::replace(&mut self.watch, watch).forget();
        self.offset_ns = self.last_ns;
        self.ask()
    }
}

impl Default for ThreadClock {
    fn default() -> ThreadClock {
        ThreadClock::new()
    }
}

impl Drop for ThreadClock {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // Not given back: what is mapped there now is somebody else's.
            std::mem::replace(&mut self.watch, Watch::blind()).forget();
        }
    }
}

/// How long the counter is trusted without asking: long enough that the call adds 0.02 %, short enough to
/// bound what a hypervisor that stops the machine adds.
const TRUST_NS: u64 = 1_000_000;

/// How many threads [`slow_threads`] tells of.
static SLOW: AtomicU64 = AtomicU64::new(0);

/// Returns how many threads pay a system call for each question because they could not have the source that
/// [`choice`] chose. What they are told is as right. Above 0: raise `ulimit -l`, or `ulimit -n`.
#[must_use]
pub fn slow_threads() -> u64 {
    // Relaxed: a statistic.
    SLOW.load(Ordering::Relaxed)
}

/// Returns the calling thread's CPU time: a system call.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    cpu_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the CPU time of the whole process, its ended threads included: a system call that visits each
/// thread.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    cpu_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

#[cfg(not(miri))]
fn cpu_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is live and writable. Both clocks exist since Linux 2.6.12, so that the call cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Miri has no such clocks; its virtual one never stops.
#[cfg(miri)]
fn cpu_ns(_: libc::clockid_t) -> u64 {
    thread_local!(static START: std::time::Instant = std::time::Instant::now());
    START.with(|start| start.elapsed().as_nanos() as u64)
}

fn decide() -> Choice {
    if cfg!(miri) {
        return syscall("Miri has no counter".to_owned());
    }
    if let Some(value) = std::env::var_os("SUBMETER_CLOCK") {
        match value.to_str() {
            Some("syscall") => return syscall("SUBMETER_CLOCK=syscall".to_owned()),
            Some("") => {}
            // Not silently ignored: whoever sets it wants something.
            _ => return syscall(format!("SUBMETER_CLOCK={value:?} is not syscall; took that")),
        }
    }
    if let Err(why) = ticks::rate() {
        return syscall(why.to_owned());
    }
    let page = selftest::run(Source::PerfPage);
    if page == selftest::Verdict::Passed {
        return Choice { source: Source::PerfPage, reason: format!("it {page}") };
    }
    if crate::probe().rseq().is_some() {
        return syscall(format!("perf page: {page}; rseq mark: each update would overwrite it"));
    }
    let mark = selftest::run(Source::RseqMark);
    if mark == selftest::Verdict::Passed {
        return Choice {
            source: Source::RseqMark,
            reason: format!("it {mark}; perf page: {page}"),
        };
    }
    syscall(format!("perf page: {page}; rseq mark: {mark}"))
}

fn syscall(reason: String) -> Choice {
    Choice { source: Source::Syscall, reason }
}

/// Says why `source` cannot be had, and what would help.
fn refusal(source: Source, error: &io::Error) -> String {
    match (source, error.raw_os_error()) {
        (Source::PerfPage, Some(libc::EACCES)) => match crate::perf_event::paranoid() {
            Some(level) if level > 2 => format!(
                "refused, as kernel.perf_event_paranoid is {level}: set it to 2, or grant CAP_PERFMON"
            ),
            _ => "refused (EACCES): grant CAP_PERFMON".to_owned(),
        },
        (Source::PerfPage, Some(libc::EPERM | libc::ENOSYS)) => {
            "refused: allow perf_event_open in the container's seccomp profile".to_owned()
        }
        (Source::RseqMark, None) => "libc registers no thread for rseq".to_owned(),
        _ => format!("refused: {error}"),
    }
}

#[cfg(test)]
mod tests;
