//! What goes in and out of the line, and the averages that it keeps.

use std::task::Waker;
use std::time::{Duration, Instant};

use super::error::Why;
use crate::tree::group::Group;

/// How many may wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) all: usize,
    pub(super) by_group: usize,
}

/// What is to be done once the lock is given up: all of it runs code of others.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) woken: Vec<Waker>,
    pub(super) dropped: Vec<Waker>,
    pub(super) let_go: Vec<Kept>,
}

/// What a node keeps of its group: a handle, and the ticket by which its kill is told.
pub(super) struct Kept {
    pub(super) group: Group,
    pub(super) ticket: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It counts for this cost until its end.
    Granted(u64),
    Failed(Why),
}

/// What one that waits is told.
pub(super) enum Asked {
    Waits,
    Done(Outcome),
    /// It waited in the parent of a fork.
    Unknown,
}

/// What work used.
#[derive(Clone, Copy, Debug)]
pub(super) enum Used {
    /// All that its group has used by now.
    CpuTime(u64),
    Cost(u64),
}

/// What may be set for a group.
#[derive(Clone, Copy, Debug)]
pub(super) enum Setting {
    Weight(Option<u32>),
    Limit(Option<u32>),
}

/// What is known of a group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    pub(super) weight: Option<u32>,
    pub(super) limit: Option<u32>,
    pub(super) waiting: usize,
}

/// The time between two ends may always grow to twice this.
const INTERVAL_LEAST: Duration = Duration::from_millis(1);

/// How fast places come free.
#[derive(Default)]
pub(super) struct Pace {
    /// The last end, if somebody waited then.
    last: Option<Instant>,
    pub(super) interval: Option<Duration>,
}

impl Pace {
    pub(super) fn ended(&mut self, now: Instant, is_waited_for: bool) {
        if let Some(last) = self.last {
            let gap = now.saturating_duration_since(last);
            // At most twice as long: the process may have been stopped for an hour meanwhile.
            let average = |interval: Duration| {
                ((interval * 7 + gap) / 8).min(interval.max(INTERVAL_LEAST) * 2)
            };
            self.interval = Some(self.interval.map_or(gap, average));
        }
        self.last = is_waited_for.then_some(now);
    }
}

/// An average of costs, or of how far turns get, in parts.
#[derive(Clone, Copy)]
pub(super) struct Average(pub(super) i128);

impl Average {
    /// That of the first, and never of nothing, of which twice as much would be nothing for ever.
    pub(super) fn of(first: i128) -> Average {
        Average(first.max(1))
    }

    /// Moves on by an eighth of what the next one differs.
    pub(super) fn with(self, next: i128) -> Average {
        Average(self.0 + (next - self.0) / 8)
    }

    /// As [`with`](Self::with), but at most doubles the average, which is how far newcomers begin
    /// behind. Otherwise a newcomer would wait for hundreds of turns after each end that costs as
    /// much as millions of others.
    ///
    /// If the *first* end costs a billion and all others 1, newcomers wait for some hundred turns,
    /// until an eighth less with each end has made the average small. If the first costs 1 and all
    /// others a billion, the average follows within 30 ends. The price: where each request has a
    /// group of its own and a few cost the most, such groups together get more than their part.
    /// They belong below a group that lasts.
    pub(super) fn with_at_most_twice(self, next: i128) -> Average {
        Average(self.with(next).0.min(self.0 * 2))
    }
}

/// What a group's own work was moved on by and none of its ends has taken yet, in parts. All ends
/// together take all of it, but for the places of cancelled work: an average is of nothing else.
#[derive(Default)]
pub(super) struct Untaken {
    /// By its places: each piece in flight has as much of that.
    pub(super) held: i128,
    /// By what it used, which may be of the one that ends, or of others.
    pub(super) used: i128,
}

impl Untaken {
    /// Takes what counts as the cost of one that ends of `among` in flight: its part of what places
    /// cost, and of what was used as much as makes that `usual`, or its part if that is more. The
    /// last takes the rest.
    ///
    /// If it took all, 64 pieces that overlap and end at once would be one of 64 times the cost and
    /// 63 that cost nothing, of which an average soon forgets the one. If it took its part in any
    /// case, the first of 64 that work one after the other would have cost a 64th.
    pub(super) fn take(&mut self, among: u32, usual: i128) -> i128 {
        let held = self.take_held(among);
        let used = (usual - held).max(self.used / i128::from(among.max(1))).min(self.used);
        self.used -= used;
        held + used
    }

    /// Takes what the place of one of `among` in flight cost.
    pub(super) fn take_held(&mut self, among: u32) -> i128 {
        let held = self.held / i128::from(among.max(1));
        self.held -= held;
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An average of ends that cost nothing is no end of its growth.
    ///
    /// As of a line at which no time goes by.
    #[test]
    fn an_average_of_nothing_can_grow_again() {
        let mut average = Average::of(0);
        (0..100).for_each(|_| average = average.with(0));
        (0..80).for_each(|_| average = average.with_at_most_twice(1_000_000_000));
        assert!(average.0 > 900_000_000, "{}", average.0);
    }
}
