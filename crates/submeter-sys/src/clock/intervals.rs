//! The intervals of a thread, measured by the CPU's counter and corrected by the kernel's clock.
//!
//! The time of an interval is taken for CPU time. Where the kernel says that less was used than
//! passed, the interval that ends lacks the difference, and if that is not enough, those that
//! follow do: the sum is right at each question, and never falls.
//!
//! The time between intervals is mostly a wait, and is charged to no group. There is CPU time in it
//! that the kernel's answer does not tell apart, such as the way into a wait and back. How much,
//! for each such time, is learned where the intervals had no wait, and taken for granted where one
//! had.
//!
//! Rejected: a ring of the latest intervals, among which to divide what they were told too much. It
//! costs each switch some stores, and where an interval that may have had a wait ends with a
//! question, there is little left to divide. To ask when a wait outside is over: workers wait for
//! each request.

use super::Rate;

/// How long the counter is trusted without asking: long enough that the call adds 0.02 %, short
/// enough to bound what a hypervisor that stops the machine adds.
pub(super) const TRUST_NS: u64 = 1_000_000;

/// From how long on an interval may hide a wait that is worth a question, where nothing else tells
/// of it: a system call is little beside it.
const LONG_NS: u64 = 20_000;

/// What the kernel's clock ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// A time outside of all intervals.
    Outside,
    /// An interval, which may have had a wait.
    Interval,
    /// An interval in which the thread was switched out.
    Switched,
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
    /// How much CPU time each interval outside of groups had, when that was last known.
    outside_ns: u64,
    /// What the counter said then.
    learned_ticks: u64,
    /// Whether it has been taken for granted since.
    is_used: bool,
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
            Some(true) => Err(Ends::Switched),
            _ if self.is_due(now) || !(switched.is_some() || is_short) => Err(Ends::Interval),
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
        let outside_ns = self.rate.wide_ns(self.outside_ticks);
        let inside_ns = wide_ns(self.asked_ticks, now).saturating_sub(outside_ns);
        let used_ns = ns.saturating_sub(self.asked_ns);
        let mut told_ns = self.last_ns.max(self.base_ns + wide_ns(self.base_ticks, now));
        let has_waited = used_ns < inside_ns || ends == Ends::Switched;
        let more_ns = used_ns.saturating_sub(inside_ns);
        match more_ns.checked_div(self.outside) {
            // The counter and the kernel's clock run apart a little.
            None => told_ns += more_ns,
            Some(each_ns) if !has_waited => {
                (self.outside_ns, self.learned_ticks, self.is_used) = (each_ns, now, false);
            }
            Some(_) => self.is_used = true,
        }
        let mut excess_ns = 0;
        if has_waited {
            let outside_ns = outside_ns.min(self.outside.saturating_mul(self.outside_ns));
            excess_ns = (inside_ns + outside_ns).saturating_sub(used_ns).min(inside_ns);
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
