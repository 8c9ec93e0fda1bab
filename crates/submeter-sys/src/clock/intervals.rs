//! The intervals of a thread, measured by the CPU's counter and corrected by the kernel's clock.
//!
//! The time of an interval is taken for CPU time. Where the kernel says that less was used than
//! passed, the interval that ends lacks the difference, and if that is not enough, those that
//! follow do: the sum is right at each question, and never falls.
//!
//! The time between intervals is mostly a wait, and is charged to no group. There is CPU time in it
//! that the kernel's answer does not tell apart, such as the way into a wait and back. How much
//! each such time has on average is learned where the intervals had no wait, and taken for granted
//! where one may have had: the kernel's answer hides a wait that is shorter than what was used
//! outside. The error of the average is kept and taken into account the next time, so that what
//! intervals have too much or too little does not add up.
//!
//! Rejected: a ring of the latest intervals, among which to divide what they were told too much. It
//! costs each switch some stores, and where an interval that may have had a wait ends with a
//! question, there is little left to divide. To ask when a wait outside is over: workers wait for
//! each request. To learn from the latest time alone: an interval that is cut by a preemption is
//! then told wrongly by all that this one differs from the next, and of the waits that are hidden
//! none is found.

use super::Rate;

/// How long the counter is trusted without asking: long enough that the call adds 0.05 %, short
/// enough to bound what a hypervisor that stops the machine adds, and what is used outside between
/// two questions. With 1 ms, intervals on a busy machine were told 0.5 % more in sum.
pub(super) const TRUST_NS: u64 = 500_000;

/// How many times outside weigh as much in the average as all before them: so few that one which is
/// like no other is forgotten in some milliseconds. With 16 sums on a busy machine are as right.
const LATEST: i64 = 4;

/// How much a time outside uses that is no example of others: a question comes in most of those by
/// itself.
const MUCH_NS: u64 = TRUST_NS / 4;

/// How much of what was missed is kept: what passes between two questions, so that a wrong average
/// has no effect for longer than it is wrong.
const MISSED_NS: i64 = TRUST_NS as i64;

/// From how long on an interval may hide a wait that is worth a question, where nothing else tells
/// of it: a system call is little beside it.
const LONG_NS: u64 = 20_000;

/// What the kernel's clock ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// A time outside of all intervals.
    Outside,
    /// An interval of which nothing tells that it had a wait.
    Interval,
    /// An interval that may have had a wait: a long one, or one that was seen to be interrupted.
    MayHaveWaited,
}

#[derive(Debug, Default)]
pub(super) struct Intervals {
    rate: Rate,
    /// How long the counter is trusted; 0 where there is none.
    trust_ticks: u64,
    long_ticks: u64,
    /// What the counter and the kernel said at the last question.
    asked_ticks: u64,
    asked_ns: u64,
    /// How much of the time since then was outside, and how often.
    outside_ticks: u64,
    outside: u64,
    /// How much CPU time a time outside has, on average, and of how many, up to [`LATEST`].
    outside_ns: i64,
    known: i64,
    /// What the counter said when it could last be told.
    learned_ticks: u64,
    /// Whether it has been taken for granted since.
    is_used: bool,
    /// How much more intervals should have been told to have waited, by what was taken for granted.
    missed_ns: i64,
    /// The answer is `base_ns` until the counter comes to `base_ticks`, and goes on with it.
    base_ticks: u64,
    base_ns: u64,
    /// The latest answer, and the counter when it was given.
    last_ticks: u64,
    last_ns: u64,
    /// How much of what passed in intervals was no CPU time, as far as the kernel was asked.
    waited_ns: u64,
}

impl Intervals {
    /// Starts at `ns`, which the kernel said when the counter was at `ticks`, after intervals that
    /// waited for `waited_ns`. Without a rate, each answer is to be the kernel's.
    pub(super) fn new(rate: Option<Rate>, ticks: u64, ns: u64, waited_ns: u64) -> Intervals {
        let in_ticks = |ns| rate.map_or(0, |rate| rate.ticks(ns));
        Intervals {
            rate: rate.unwrap_or_default(),
            trust_ticks: in_ticks(TRUST_NS),
            long_ticks: in_ticks(LONG_NS),
            asked_ticks: ticks,
            asked_ns: ns,
            base_ticks: ticks,
            base_ns: ns,
            last_ticks: ticks,
            last_ns: ns,
            waited_ns,
            ..Intervals::default()
        }
    }

    pub(super) fn trust_ticks(&self) -> u64 {
        self.trust_ticks
    }

    /// Returns whether the kernel is to be asked at `now`, whatever happened since.
    #[inline]
    fn is_due(&self, now: u64) -> bool {
        now.wrapping_sub(self.asked_ticks) >= self.trust_ticks
    }

    pub(super) fn last_ns(&self) -> u64 {
        self.last_ns
    }

    pub(super) fn waited_ns(&self) -> u64 {
        self.waited_ns
    }

    /// Ends an interval at `now`, or a time outside, if it was all CPU time; begins the next.
    /// `None` where [`end`](Intervals::end) is to look closer.
    #[inline(always)]
    pub(super) fn go_on(&mut self, now: u64) -> Option<u64> {
        // Very much where `base_ticks` is to come, or the counter went back, on another CPU.
        let since = now.wrapping_sub(self.base_ticks);
        (since < self.trust_ticks).then(|| self.answer(now, since))
    }

    #[inline(always)]
    fn answer(&mut self, now: u64, since: u64) -> u64 {
        self.last_ticks = now;
        self.last_ns = self.last_ns.max(self.base_ns + self.rate.ns(since));
        self.last_ns
    }

    /// Ends an interval at `now`, in which the thread was `switched` out, if anything tells. Says
    /// what to [`learn`](Intervals::learn) where the kernel is to be asked.
    #[inline]
    pub(super) fn end(&mut self, now: u64, switched: Option<bool>) -> Result<u64, Ends> {
        let is_short = now.wrapping_sub(self.last_ticks) < self.long_ticks;
        match switched {
            Some(true) => Err(Ends::MayHaveWaited),
            None if !is_short => Err(Ends::MayHaveWaited),
            _ if self.is_due(now) => Err(Ends::Interval),
            _ => Ok(self.answer(now, elapsed(self.base_ticks, now))),
        }
    }

    /// Begins an interval at `now`. What passed since the last answer was outside. Fails as
    /// [`end`](Intervals::end).
    #[inline]
    pub(super) fn begin(&mut self, now: u64) -> Result<u64, Ends> {
        let is_old = now.wrapping_sub(self.learned_ticks) >= self.trust_ticks;
        if self.is_due(now) || (self.is_used && is_old) {
            return Err(Ends::Outside);
        }
        self.leave_out(now);
        // What the kernel counted beyond the intervals.
        self.base_ns = self.base_ns.max(self.asked_ns);
        Ok(self.answer(now, elapsed(self.base_ticks, now)))
    }

    #[inline]
    fn leave_out(&mut self, now: u64) {
        let ticks = elapsed(self.last_ticks, now);
        self.outside_ticks += ticks;
        self.outside += 1;
        self.base_ticks = self.base_ticks.wrapping_add(ticks);
    }

    /// Ends what `ends` says, where the kernel says `ns` at `now`.
    pub(super) fn learn(&mut self, now: u64, ns: u64, ends: Ends) -> u64 {
        if ends == Ends::Outside {
            self.leave_out(now);
        }
        let wide_ns = |from, to| self.rate.wide_ns(elapsed(from, to));
        let passed_ns = wide_ns(self.asked_ticks, now);
        let inside_ns = passed_ns.saturating_sub(self.rate.wide_ns(self.outside_ticks));
        let used_ns = ns.saturating_sub(self.asked_ns);
        let mut told_ns = self.last_ns.max(self.base_ns + wide_ns(self.base_ticks, now));
        // What the intervals waited is at least what passed in them and was not used.
        let mut excess_ns = inside_ns.saturating_sub(used_ns);
        let more_ns = used_ns.saturating_sub(inside_ns);
        match more_ns.checked_div(self.outside) {
            // The counter and the kernel's clock run apart a little.
            None => told_ns += more_ns,
            Some(each_ns) if excess_ns == 0 && ends != Ends::MayHaveWaited => {
                if each_ns < MUCH_NS {
                    let (outside, known) = (self.outside as i64, self.known);
                    self.known = (known + outside).min(LATEST);
                    let more_each_ns = each_ns as i64 - self.outside_ns;
                    self.outside_ns += more_each_ns * outside / (known + outside);
                }
                (self.learned_ticks, self.is_used) = (now, false);
            }
            Some(_) => {
                let outside_ns = self.outside_ns.saturating_mul(self.outside as i64);
                let expected_ns = (inside_ns as i64).saturating_add(outside_ns) - used_ns as i64;
                let expected_ns = expected_ns.saturating_add(self.missed_ns);
                // And at most what passed in all and was not used.
                let most_ns = passed_ns.saturating_sub(used_ns).min(inside_ns).max(excess_ns);
                excess_ns = (expected_ns.max(0) as u64).clamp(excess_ns, most_ns);
                let missed_ns = expected_ns.saturating_sub(excess_ns as i64);
                self.missed_ns = missed_ns.clamp(-MISSED_NS, MISSED_NS);
                self.is_used = true;
            }
        }
        self.waited_ns += excess_ns;
        let taken_ns = excess_ns.min(told_ns - self.last_ns);
        // The next ones lack the rest, behind what they lack already. That is not told by `now`,
        // which is far from `base_ticks` where the counter went back.
        let lack = elapsed(self.last_ticks, self.base_ticks);
        let lack = lack.saturating_sub(elapsed(self.last_ticks, now));
        let lack = lack + self.rate.ticks(excess_ns - taken_ns);
        self.base_ticks = now.wrapping_add(lack);
        self.base_ns = told_ns - taken_ns;
        if ends == Ends::Outside {
            self.base_ns = self.base_ns.max(ns);
        }
        (self.asked_ticks, self.asked_ns) = (now, ns);
        (self.outside_ticks, self.outside) = (0, 0);
        self.answer(now, elapsed(self.base_ticks, now))
    }
}

/// How far the counter went from `from` to `to`: 0 if `to` is before it.
#[inline(always)]
fn elapsed(from: u64, to: u64) -> u64 {
    (to.wrapping_sub(from) as i64).max(0) as u64
}

#[cfg(test)]
#[path = "intervals_tests.rs"]
mod tests;
