//! A thread's intervals, measured by the CPU's counter and corrected by the kernel's clock.
//!
//! The length of an interval is taken for CPU time. If the kernel says that less was used than
//! passed, the difference is taken off the interval that ends, and if that is not enough, off those
//! that follow. The sum is right at each query of the kernel, and never falls.
//!
//! The time between intervals (*outside*) is mostly waiting, and is charged to no group. It
//! contains CPU time that the kernel's answer does not separate, such as the way into a wait and
//! back. How much each outside time uses is learned where the intervals had no wait, and assumed
//! where one had: as much as those used on average, or, if they used all of their time, all of it,
//! however long it was. The kernel's answer still bounds the intervals from both sides. The
//! distance from the reported value to the further bound is added to the bound of all errors. The
//! kernel is then queried more often, so that the next interval of this kind begins with an answer
//! and has no such error.
//!
//! # Rejected
//! - A ring of the latest intervals, among which an excess is divided. It costs each switch some
//!   stores, and since an interval that may have had a wait ends with a query, little is left to
//!   divide.
//! - Querying at the end of each wait outside: workers wait for each request.
//! - An average of what was used outside, instead of the latest value: queries in step with the
//!   load see outside times of one kind, and the average is applied to another.
//! - Querying at random, or where the latest intervals suggest that a long one follows: a load in
//!   step is always queried where it does not help.
//! - Querying at each begin after an answer that left something open, until a long interval has
//!   begun with an answer: if short intervals come between, that is a query for every second
//!   interval, and on a saturated machine the answers are no better.

use super::Rate;

/// How long the counter is trusted without a query: long enough that the call adds only 0.02 %,
/// short enough to bound what a hypervisor that stops the machine adds.
pub(super) const TRUST_NS: u64 = 1_000_000;

/// The length from which an interval may hide a wait that is worth a query, if nothing else shows
/// waits: a system call is cheap compared with it.
const LONG_NS: u64 = 20_000;

/// Number of outside times that end with a query for each interval that may have had a wait: enough
/// if at least every second interval is one, and cheap compared with what they take.
const ASKS: u32 = 2;

/// Maximum number of such queries kept for later, if all intervals may have had waits.
const MOST_ASKS: u32 = 8;

/// Number of queries that come sooner after an answer that left something open: those of the next
/// 64 milliseconds, within which a busy machine preempts the thread again. If many threads wait for
/// a CPU, a shorter time would be over before that.
const WARY: u32 = 256;

/// How much sooner: the less is used outside between two queries, the less an answer leaves open.
const SOONER: u64 = 4;

/// CPU time from which an outside time is not representative of others: most of those contain a
/// query.
const MUCH_NS: u64 = TRUST_NS / 8;

/// CPU time from which an outside time counts as work that takes differently long each time. The
/// way into a wait and back takes less, and about as long each time, so that an average says more
/// than the time that passed, which may contain a wait.
const WORK_NS: u64 = LONG_NS / 4;

/// More than any outside time uses: all of the time that passes there.
const ALL_NS: u64 = u64::MAX;

/// The kind of time that a query of the kernel's clock ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// A time outside of all intervals.
    Outside,
    /// An interval without any sign of a wait.
    Interval,
    /// An interval long enough to have had a wait.
    Long,
    /// An interval in which the thread was switched out.
    Switched,
}

#[derive(Debug, Default)]
pub(super) struct Intervals {
    rate: Rate,
    /// How long the counter is trusted; 0 if there is none.
    trust_ticks: u64,
    long_ticks: u64,
    /// The readings of the counter and of the kernel at the last query.
    asked_ticks: u64,
    asked_ns: u64,
    /// How much of the time since then was outside, and in how many parts.
    outside_ticks: u64,
    outside: u64,
    /// CPU time of each outside time, when last known; [`ALL_NS`] if none of them waited.
    outside_ns: u64,
    /// Number of coming outside times that end with a query.
    asks: u32,
    /// Number of queries that are to come sooner.
    wary: u32,
    /// The answer is `base_ns` until the counter reaches `base_ticks`, and advances with it from
    /// there.
    base_ticks: u64,
    base_ns: u64,
    /// The latest answer, and the counter at that moment.
    last_ticks: u64,
    last_ns: u64,
    /// How much of the time in intervals was not CPU time, as of the last query.
    waited_ns: u64,
    /// How much all intervals together may be wrong, as of the last query.
    error_ns: u64,
}

impl Intervals {
    /// Starts at `ns`, which the kernel answered when the counter was at `ticks`. Without a rate,
    /// each answer comes from the kernel.
    pub(super) fn new(rate: Option<Rate>, ticks: u64, ns: u64) -> Intervals {
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
            ..Intervals::default()
        }
    }

    /// Starts again, and keeps the sums.
    pub(super) fn restart(&mut self, rate: Option<Rate>, ticks: u64, ns: u64) {
        let Intervals { waited_ns, error_ns, .. } = *self;
        *self = Intervals { waited_ns, error_ns, ..Intervals::new(rate, ticks, ns) };
    }

    pub(super) fn trust_ticks(&self) -> u64 {
        self.trust_ticks
    }

    /// Returns whether the kernel must be queried at `now`, whatever happened since.
    #[inline]
    fn is_due(&self, now: u64, trust_ticks: u64) -> bool {
        now.wrapping_sub(self.asked_ticks) >= trust_ticks
    }

    pub(super) fn last_ns(&self) -> u64 {
        self.last_ns
    }

    pub(super) fn waited_ns(&self) -> u64 {
        self.waited_ns
    }

    pub(super) fn error_ns(&self) -> u64 {
        self.error_ns
    }

    /// Ends an interval or an outside time at `now`, if it was all CPU time, and begins the next.
    /// Returns `None` if [`end`](Intervals::end) must look closer.
    #[inline(always)]
    pub(super) fn go_on(&mut self, now: u64) -> Option<u64> {
        // Very large if `base_ticks` is still ahead, or if the counter went back, on another CPU.
        let since = now.wrapping_sub(self.base_ticks);
        (since < self.trust_ticks).then(|| self.answer(now, since))
    }

    #[inline(always)]
    fn answer(&mut self, now: u64, since: u64) -> u64 {
        self.last_ticks = now;
        self.last_ns = self.last_ns.max(self.base_ns + self.rate.ns(since));
        self.last_ns
    }

    /// Ends an interval at `now`. `switched` says whether the thread was switched out in it, if
    /// that is known. An error means that the kernel must be queried, and says what to
    /// [`learn`](Intervals::learn).
    #[inline]
    pub(super) fn end(&mut self, now: u64, switched: Option<bool>) -> Result<u64, Ends> {
        let is_short = now.wrapping_sub(self.last_ticks) < self.long_ticks;
        match switched {
            Some(true) => Err(Ends::Switched),
            None if !is_short => Err(Ends::Long),
            _ if self.is_due(now, self.trust_ticks) => Err(Ends::Interval),
            _ => Ok(self.answer(now, elapsed(self.base_ticks, now))),
        }
    }

    /// Begins an interval at `now`. The time since the last answer was outside. Fails like
    /// [`end`](Intervals::end).
    #[inline]
    pub(super) fn begin(&mut self, now: u64) -> Result<u64, Ends> {
        let trust_ticks = self.trust_ticks / if self.wary > 0 { SOONER } else { 1 };
        if self.asks > 0 || self.is_due(now, trust_ticks) {
            self.asks = self.asks.saturating_sub(1);
            return Err(Ends::Outside);
        }
        self.leave_out(now);
        // Includes time that the kernel counted beyond the intervals.
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

    /// Ends the kind of time in `ends`, with the kernel's answer `ns` at `now`.
    pub(super) fn learn(&mut self, now: u64, ns: u64, ends: Ends) -> u64 {
        let wide_ns = |from, to| self.rate.wide_ns(elapsed(from, to));
        let latest_ns = wide_ns(self.last_ticks, now);
        if ends == Ends::Outside {
            self.leave_out(now);
        }
        let wide_ns = |from, to| self.rate.wide_ns(elapsed(from, to));
        let outside_ns = self.rate.wide_ns(self.outside_ticks);
        let inside_ns = wide_ns(self.asked_ticks, now).saturating_sub(outside_ns);
        let used_ns = ns.saturating_sub(self.asked_ns);
        let mut told_ns = self.last_ns.max(self.base_ns + wide_ns(self.base_ticks, now));
        let may_have_waited = matches!(ends, Ends::Long | Ends::Switched);
        let has_waited = used_ns < inside_ns || ends == Ends::Switched;
        let more_ns = used_ns.saturating_sub(inside_ns);
        let mut excess_ns = inside_ns.saturating_sub(used_ns);
        self.wary = self.wary.saturating_sub(1);
        match more_ns.checked_div(self.outside) {
            // The counter and the kernel's clock drift apart a little.
            None => told_ns += more_ns,
            Some(_) if has_waited || may_have_waited => {
                // Lower and upper bound of what the intervals used. Short ones count as CPU time.
                let most_ns = used_ns.min(inside_ns);
                let sure_ns = if may_have_waited { inside_ns.saturating_sub(latest_ns) } else { 0 };
                let least_ns = used_ns.saturating_sub(outside_ns).max(sure_ns).min(most_ns);
                let expected_ns = self.outside.saturating_mul(self.outside_ns).min(outside_ns);
                let expected_ns =
                    if has_waited { used_ns.saturating_sub(expected_ns) } else { most_ns };
                let taken_for_ns = expected_ns.clamp(least_ns, most_ns);
                excess_ns = inside_ns - taken_for_ns;
                self.error_ns += (most_ns - taken_for_ns).max(taken_for_ns - least_ns);
                self.wary = WARY;
            }
            Some(each_ns) if each_ns < MUCH_NS => {
                let is_all = each_ns >= WORK_NS && more_ns + more_ns / 16 >= outside_ns;
                self.outside_ns = if is_all { ALL_NS } else { each_ns };
            }
            Some(_) => {}
        }
        if may_have_waited {
            self.asks = (self.asks + ASKS).min(MOST_ASKS);
        }
        self.waited_ns += excess_ns;
        let taken_ns = excess_ns.min(told_ns - self.last_ns);
        // The rest is taken off the next intervals, after what is still to be taken off them. `now`
        // cannot tell how much that is: it is far from `base_ticks` if the counter went back.
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

/// Returns how far the counter went from `from` to `to`: 0 if `to` is before `from`.
#[inline(always)]
fn elapsed(from: u64, to: u64) -> u64 {
    (to.wrapping_sub(from) as i64).max(0) as u64
}

#[cfg(test)]
#[path = "intervals_tests.rs"]
mod tests;
