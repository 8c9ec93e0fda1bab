//! CPU time of the calling thread, without privilege and without a system call where that can be
//! had.
//!
//! `CLOCK_THREAD_CPUTIME_ID` is right, and a system call. Between two switches of a thread its CPU
//! time is the time that passes, which one instruction tells. So all that is needed is to know that
//! no switch came between, and to ask the kernel again when one did: once per switch, which costs
//! many times more. Two words tell it ([`Source`]); which one works here is tried at start-up, as
//! restartable sequences are.
//!
//! Systems other than Linux have no such word and are asked each time. Windows answers in steps of
//! up to 15.6 ms ([`thread_cpu_ns`]).

mod anchor;
mod rate;

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::fork;
use crate::os::clock::{self as system, Watch, ticks};
use anchor::Anchor;
pub(crate) use rate::Rate;

/// Where CPU time comes from, cheapest first where all work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The CPU's counter, while the page of a perf event says that the thread was not switched.
    /// Costs a page for each thread, and the kernel some work at each switch.
    PerfPage,
    /// The CPU's counter, while a mark in the rseq area stands. Of use where updates are no
    /// sequences, each of which overwrites it.
    RseqMark,
    /// The system's own clock of threads: a system call each time.
    Syscall,
}

impl Source {
    /// Returns a short name, as `submeter doctor` prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Source::PerfPage => "CPU counter, switches told by a perf page",
            Source::RseqMark => "CPU counter, switches told by a mark in the rseq area",
            Source::Syscall => system::NAME,
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
/// The environment variable `SUBMETER_CLOCK=syscall`, read on that first call, rules out all but
/// the system call. The first call takes a few milliseconds, on a busy machine up to half a second:
/// it starts threads for a self-test. Call it before you install a system call filter that kills,
/// or set the variable: each thread's clock opens a perf event.
pub fn choice() -> &'static Choice {
    /// Null until there is an answer. No lock: a forked child would wait for a thread that it
    /// lacks. Threads that decide at the same time all decide rightly, and the first one's answer
    /// stays.
    static CHOICE: AtomicPtr<Choice> = AtomicPtr::new(ptr::null_mut());
    // Acquire: pairs with the Release below, so that the answer's contents are seen.
    let mut known = CHOICE.load(Ordering::Acquire);
    if known.is_null() {
        let new = Box::into_raw(Box::new(decide()));
        // Release: pairs with the Acquire above. Acquire on failure: another's answer is read then.
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

/// The CPU time of the thread that made it.
///
/// Costs a read of the CPU's counter, where [`choice`] found a way; some 15 times that otherwise,
/// and after each switch of the thread. What it tells never goes back. Between two questions to the
/// kernel, a millisecond apart at most, it also counts what interrupts and the hypervisor took from
/// the thread; the next one puts that right. Not for signal handlers.
///
/// So one interval may be told as up to 1.1 ms longer or shorter than it was: by what was taken
/// within a millisecond ([`now_ns`](ThreadClock::now_ns)), and by 0.1 ms where it began by
/// [`begin_ns`](ThreadClock::begin_ns). The errors of `now_ns` do not add up: what one interval has
/// too much, the next one lacks.
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
    /// The counter, when it was given.
    last_ticks: u64,
    /// How long the counter is trusted, in its own unit; 0 where there is none.
    ticks_max: u64,
    /// What turns the page's running time into CPU time; none before the first interval.
    anchor: Option<Anchor>,
    rate: Rate,
    watch: Watch,
    /// The process that `watch` is of.
    home: fork::Home,
    /// What the kernel's answer is short of ours, since a fork.
    offset_ns: u64,
    source: Source,
    /// How often the kernel was asked.
    #[cfg(test)]
    asked: u64,
}

impl ThreadClock {
    /// Starts the calling thread's clock, on the source that [`choice`] chose; on a system call, if
    /// the thread cannot have that: the memory that perf may lock is spent
    /// (`kernel.perf_event_mlock_kb`, then `ulimit -l`), or no descriptor is free. [`slow_threads`]
    /// counts those.
    #[must_use]
    pub fn new() -> ThreadClock {
        ThreadClock::on(choice().source).unwrap_or_else(|_| {
            // Relaxed: a statistic.
            SLOW.fetch_add(1, Ordering::Relaxed);
            ThreadClock::start(Source::Syscall, Watch::blind())
        })
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
        let rate = ticks::rate().ok().filter(|_| source != Source::Syscall);
        let mut clock = ThreadClock {
            armed: 0,
            base_ticks: 0,
            base_ns: 0,
            last_ns: 0,
            last_ticks: 0,
            ticks_max: rate.map_or(0, |rate| rate.ticks(TRUST_NS)),
            anchor: None,
            rate: rate.unwrap_or_default(),
            watch,
            // A fork from now on must be noticed.
            home: fork::Home::new(),
            offset_ns: 0,
            source,
            #[cfg(test)]
            asked: 0,
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
    /// The counter is read before the word that tells of switches: a switch between the two is
    /// noticed, and one before the first was noticed by the second. Both are seen by this thread
    /// only.
    #[inline]
    pub fn now_ns(&mut self) -> u64 {
        // First: the instruction waits for all before it, and what follows does not wait for it.
        let now = ticks::now();
        // A child has no page where its parent's was.
        if !self.home.is_here() {
            return self.forked();
        }
        let since = now.wrapping_sub(self.base_ticks);
        if since >= self.ticks_max || !self.watch.holds(self.armed) {
            return self.ask();
        }
        self.answer(self.base_ns + self.rate.ns(since), now)
    }

    /// Returns the calling thread's CPU time, to begin an interval whose end
    /// [`now_ns`](ThreadClock::now_ns) tells. Never less than the last answer.
    ///
    /// Costs no system call either where the thread was switched out a moment ago, as a worker is
    /// that waits for each request: the page says how long the thread had run when it came back.
    /// How long it has run since then is taken to be what it was the last time that the kernel was
    /// asked here, a millisecond ago at most. That does not matter to an interval without a switch.
    /// One with a switch is wrong by the difference, 0.1 ms at most.
    ///
    /// Not for the end of an interval, nor for what many intervals in a row add up to: that is
    /// `now_ns`, which asks after each switch.
    ///
    /// # Examples
    /// ```
    /// use submeter_sys::clock::ThreadClock;
    ///
    /// let mut clock = ThreadClock::new();
    /// std::thread::yield_now();
    /// let begin = clock.begin_ns();
    /// assert!(clock.now_ns() >= begin);
    /// ```
    #[inline]
    pub fn begin_ns(&mut self) -> u64 {
        if self.home.is_here() && !self.watch.holds(self.armed) {
            return self.come_back();
        }
        self.now_ns()
    }

    /// Begins an interval after a switch.
    #[inline(never)]
    fn come_back(&mut self) -> u64 {
        let Some((armed, running_ns)) = self.watch.running_ns() else {
            return self.ask();
        };
        // After the page: a switch between the two is noticed at the next question.
        let now = ticks::now();
        // Of the last look, and not of `base_ticks`, from when a busy thread may have run for long.
        let near = self.ticks_max / (TRUST_NS / NEAR_NS);
        let recent = now.wrapping_sub(self.last_ticks) < near;
        let estimate = self.anchor.as_ref().filter(|_| recent).and_then(|anchor| {
            let young = now.wrapping_sub(anchor.ticks) < self.ticks_max;
            anchor.cpu_ns(running_ns, self.last_ns).filter(|_| young)
        });
        if let Some(ns) = estimate {
            (self.armed, self.base_ticks, self.base_ns) = (armed, now, ns);
            return self.answer(ns, now);
        }
        let ns = self.ask();
        // Not after another switch: the two are not of one moment. Nor if the thread may have run
        // for long since it came back, before the question or in it: each estimate would be as far
        // in the future, and the clock would stand still until the thread gets there. Then the one
        // before stays, while it is young.
        if recent && self.armed == armed && self.base_ticks.wrapping_sub(now) < near {
            self.anchor = Some(Anchor::new(running_ns, ns, self.base_ticks));
        }
        ns
    }

    #[inline]
    fn answer(&mut self, ns: u64, ticks: u64) -> u64 {
        self.last_ticks = ticks;
        self.last_ns = self.last_ns.max(ns);
        self.last_ns
    }

    /// Asks the kernel, and notes what the counter says at that moment.
    #[cold]
    #[inline(never)]
    fn ask(&mut self) -> u64 {
        #[cfg(test)]
        (self.asked += 1);
        let once = || {
            // First: a switch during what follows makes the pair worthless, and is noticed at the
            // next question.
            let armed = self.watch.arm();
            let before = ticks::now();
            let ns = thread_cpu_ns() + self.offset_ns;
            Asked { armed, before, ns, took: ticks::now().wrapping_sub(before) }
        };
        let asked = Asked::until_close(self.ticks_max / (TRUST_NS / CLOSE_NS), once);
        self.armed = asked.armed;
        // The kernel reads its clock somewhere in the middle of the call.
        self.base_ticks = asked.before.wrapping_add(asked.took / 2);
        self.base_ns = asked.ns;
        self.answer(asked.ns, self.base_ticks)
    }

    /// Goes on in a forked child: its one thread starts at 0, without the page.
    #[cold]
    #[inline(never)]
    fn forked(&mut self) -> u64 {
        self.home = fork::Home::new();
        let watch = Watch::new(self.source).unwrap_or_else(|_| {
            // Relaxed: a statistic.
            SLOW.fetch_add(1, Ordering::Relaxed);
            self.source = Source::Syscall;
            self.ticks_max = 0;
            Watch::blind()
        });
        std::mem::replace(&mut self.watch, watch).forget();
        self.offset_ns = self.last_ns;
        // It is of the parent's page.
        self.anchor = None;
        self.ask()
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
    /// Asks again, twice at most, where the call took longer than `close`: a hypervisor, or an
    /// interrupt, that came between the kernel's reading and ours puts the pair apart by half of
    /// what it took, and an interval that begins there is short by as much. Returns the latest,
    /// which need not be the closest: to arm a mark again hides a switch from an earlier one.
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
            // Not given back: what is mapped there now belongs to others.
            std::mem::replace(&mut self.watch, Watch::blind()).forget();
        }
    }
}

/// How long the counter is trusted without asking: long enough that the call adds 0.02 %, short
/// enough to bound what a hypervisor that stops the machine adds.
const TRUST_NS: u64 = 1_000_000;

/// How long a question to the kernel may take for its answer to be of one moment: some fifty times
/// as long as a system call.
const CLOSE_NS: u64 = 20_000;

/// How long after its last look a thread that was switched out may begin an interval without
/// asking: longer than a busy worker waits, and short enough to bound what it may have run since it
/// came back, which the page does not tell.
const NEAR_NS: u64 = 100_000;

/// How many threads [`slow_threads`] tells of.
static SLOW: AtomicU64 = AtomicU64::new(0);

/// Returns how many threads pay a system call for each question because they could not have the
/// source that [`choice`] chose. What they are told is as right. Above 0: raise `ulimit -l`, or
/// `ulimit -n`.
#[must_use]
pub fn slow_threads() -> u64 {
    // Relaxed: a statistic.
    SLOW.load(Ordering::Relaxed)
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
            Some("") => {}
            // Not silently ignored: a caller that sets it wants something.
            _ => return syscall(format!("SUBMETER_CLOCK={value:?} is not syscall; took that")),
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
