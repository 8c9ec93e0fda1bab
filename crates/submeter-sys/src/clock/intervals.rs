//! The intervals of a thread, measured by the CPU's counter and corrected by the kernel's clock.
//!
//! The time of an interval is taken for CPU time. Where the kernel says that less was used than
//! passed, the interval that ends lacks the difference, and if that is not enough, those that
//! follow do: the sum is right at each question, and never falls.
//!
//! The time between intervals is mostly a wait, and is charged to no group. There is CPU time in it
//! that the kernel's answer does not tell apart, such as the way into a wait and back. How much,
//! for each such time, is learned where the intervals had no wait, and taken for granted where one
//! had. Then the kernel's answer still says between what two values the intervals are: how far the
//! further one is from what is told is added up, as the bound of all errors, and more is asked, so
//! that the next interval like that begins with an answer and has no such error.
//!
//! Rejected: a ring of the latest intervals, among which an excess is divided. It costs each switch
//! some stores, and where an interval that may have had a wait ends with a question, there is
//! little left to divide. To ask when each wait outside is over: workers wait for each request. An
//! average of what was used outside, instead of the latest: questions in step with the load meet
//! times of one kind, and it is applied to another. To ask at random, or where the latest intervals
//! say that a long one follows: a load in step is met where it does not help, all the time. To ask
//! at each begin after an answer that left something open, until a long interval has begun with an
//! answer: where short ones lie between, that is a question for every second interval, and on a
//! saturated machine the answers are no better.

use super::Rate;

/// How long the counter is trusted without asking: long enough that the call adds 0.02 %, short
/// enough to bound what a hypervisor that stops the machine adds.
pub(super) const TRUST_NS: u64 = 1_000_000;

/// From how long on an interval may hide a wait that is worth a question, where nothing else tells
/// of it: a system call is little beside it.
const LONG_NS: u64 = 20_000;

/// How many times outside end with a question for each interval that may have had a wait: enough
/// where at least every second interval is such a one, and little beside what they take.
const ASKS: u32 = 2;

/// How many of these are kept for later, where all intervals may have had waits.
const MOST_ASKS: u32 = 8;

/// How many questions come sooner after an answer that left something open: those of the next 64
/// milliseconds, in which a busy machine preempts the thread again. Where many threads wait for a
/// CPU, less would be over before it does.
const WARY: u32 = 256;

/// How much sooner: the less is used outside between two questions, the less an answer leaves open.
const SOONER: u64 = 4;

/// How much a time outside uses that is no example of others: a question comes in most of those.
const MUCH_NS: u64 = TRUST_NS / 8;

/// The time that a question to the kernel's clock ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// A time outside of all intervals.
    Outside,
    /// An interval without a sign that it had a wait.
    Interval,
    /// An interval that is so long that it may have had a wait.
    Long,
    /// An interval in which the thread was switched out.
    Switched,
}

#[derive(Debug, Default)]
pub(super) struct Intervals {
    rate: Rate,
    /// How long the counter is trusted; 0 where there is none.
    trust_ticks: u64,
    long_ticks: u64,
    /// The readings of the counter and of the kernel at the last question.
    asked_ticks: u64,
    asked_ns: u64,
    /// How much of the time since then was outside, and how often.
    outside_ticks: u64,
    outside: u64,
    /// How much CPU time each interval outside of groups had, when that was last known.
    outside_ns: u64,
    /// How many times outside are to end with a question.
    asks: u32,
    /// How many questions are to come sooner.
    wary: u32,
    /// The answer is `base_ns` until the counter comes to `base_ticks`, and goes on with it.
    base_ticks: u64,
    base_ns: u64,
    /// The latest answer, and the counter when it was given.
    last_ticks: u64,
    last_ns: u64,
    /// How much of what passed in intervals was no CPU time, as far as the kernel was asked.
    waited_ns: u64,
    /// By how much all intervals may be wrong together, as far as the kernel was asked.
    error_ns: u64,
}

impl Intervals {
    /// Starts at `ns`, which the kernel said when the counter was at `ticks`. Without a rate, each
    /// answer is to be the kernel's.
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

    /// Starts anew, and keeps the sums.
    pub(super) fn restart(&mut self, rate: Option<Rate>, ticks: u64, ns: u64) {
        let Intervals { waited_ns, error_ns, .. } = *self;
        *self = Intervals { waited_ns, error_ns, ..Intervals::new(rate, ticks, ns) };
    }

    pub(super) fn trust_ticks(&self) -> u64 {
        self.trust_ticks
    }

    /// Returns whether the kernel is to be asked at `now`, whatever happened since.
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
            None if !is_short => Err(Ends::Long),
            _ if self.is_due(now, self.trust_ticks) => Err(Ends::Interval),
            _ => Ok(self.answer(now, elapsed(self.base_ticks, now))),
        }
    }

    /// Begins an interval at `now`. The time since the last answer was outside. Fails as
    /// [`end`](Intervals::end).
    #[inline]
    pub(super) fn begin(&mut self, now: u64) -> Result<u64, Ends> {
        let trust_ticks = self.trust_ticks / if self.wary > 0 { SOONER } else { 1 };
        if self.asks > 0 || self.is_due(now, trust_ticks) {
            self.asks = self.asks.saturating_sub(1);
            return Err(Ends::Outside);
        }
        self.leave_out(now);
        // The time that the kernel counted beyond the intervals.
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
            // The counter and the kernel's clock run apart a little.
            None => told_ns += more_ns,
            Some(_) if has_waited || may_have_waited => {
                // What the intervals used, at least and at most. Short ones are taken for CPU time.
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
            Some(each_ns) if each_ns < MUCH_NS => self.outside_ns = each_ns,
            Some(_) => {}
        }
        if may_have_waited {
            self.asks = (self.asks + ASKS).min(MOST_ASKS);
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
