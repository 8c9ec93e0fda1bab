//! What enters and leaves the line, and the averages that it keeps.

use std::collections::HashSet;
use std::task::Waker;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use submeter_percpu::LimitMode;

use super::error::Why;
use crate::tree::group::Group;

/// How many may wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) all: usize,
    pub(super) by_group: usize,
}

/// What remains to be done after the lock is released: all of it runs code of others.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) woken: Vec<Waker>,
    pub(super) dropped: Vec<Waker>,
    pub(super) let_go: Vec<Kept>,
}

/// What a node keeps of its group: a handle, and the ticket of its kill notification.
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

/// The answer to a waiter that asks.
pub(super) enum Asked {
    Waits,
    Done(Outcome),
    /// It waited in the parent of a fork.
    Unknown,
}

/// What work used.
#[derive(Clone, Copy, Debug)]
pub(super) enum Used {
    /// Everything that its group has used so far.
    CpuTime(u64),
    Cost(u64),
}

/// What may be set for a group.
#[derive(Clone, Copy, Debug)]
pub(super) enum Setting {
    Weight(Option<u32>),
    Limit(Option<u32>),
    Mode(LimitMode),
}

/// What is known of a group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    pub(super) weight: Option<u32>,
    pub(super) limit: Option<u32>,
    pub(super) mode: LimitMode,
    pub(super) overdrafts: u64,
    pub(super) waiting: usize,
}

/// The most groups that are remembered as having had a turn: some hundred kilobytes.
pub(super) const RECENT_MAX: usize = 1 << 14;

/// The groups that had a turn and then wanted nothing: the latest [`RECENT_MAX`], or at least half
/// of them. Ids alone: it keeps no group.
#[derive(Default)]
pub(super) struct Recent {
    /// The newer ones, which replace the older ones once there are enough of them.
    halves: [HashSet<u64, RandomState>; 2],
}

impl Recent {
    pub(super) fn add(&mut self, id: u64) {
        self.halves[0].insert(id);
        if self.halves[0].len() == RECENT_MAX / 2 {
            self.halves.swap(0, 1);
            self.halves[0].clear();
        }
    }

    pub(super) fn has(&self, id: u64) -> bool {
        self.halves.iter().any(|half| half.contains(&id))
    }
}

/// The average interval between two ends may always grow to twice this.
const INTERVAL_LEAST: Duration = Duration::from_millis(1);

/// How fast places become free.
#[derive(Default)]
pub(super) struct Pace {
    /// The last end, if anything waited then.
    last: Option<Instant>,
    pub(super) interval: Option<Duration>,
}

impl Pace {
    pub(super) fn ended(&mut self, now: Instant, is_waited_for: bool) {
        if let Some(last) = self.last {
            let gap = now.saturating_duration_since(last);
            // At most twice as long: the process may have been stopped for an hour in between.
            let average = |interval: Duration| {
                ((interval * 7 + gap) / 8).min(interval.max(INTERVAL_LEAST) * 2)
            };
            self.interval = Some(self.interval.map_or(gap, average));
        }
        self.last = is_waited_for.then_some(now);
    }
}

/// An average of costs, or of the distance per turn, in parts.
#[derive(Clone, Copy)]
pub(super) struct Average(pub(super) i128);

impl Average {
    /// Starts with the first value, but never with 0: twice 0 would be 0 forever.
    pub(super) fn of(first: i128) -> Average {
        Average(first.max(1))
    }

    /// Moves by an eighth of the difference to the next value.
    pub(super) fn with(self, next: i128) -> Average {
        Average(self.0 + (next - self.0) / 8)
    }

    /// The same as [`with`](Self::with), but at most doubles the average, which is how far
    /// newcomers start behind. Otherwise a newcomer would wait for hundreds of turns after each end
    /// that costs as much as millions of others.
    ///
    /// If the *first* end costs a billion and all others 1, newcomers wait for some hundred turns,
    /// until the average, which loses an eighth with each end, has become small. If the first costs
    /// 1 and all others a billion, the average follows within 30 ends. The price: where each
    /// request has a group of its own and a few cost the most, those groups together get more than
    /// their share. They belong below a group that lasts.
    pub(super) fn with_at_most_twice(self, next: i128) -> Average {
        Average(self.with(next).0.min(self.0 * 2))
    }
}

/// Costs that a group's own work was charged and that none of its ends has taken yet, in parts. All
/// ends together take all of it, so the average is made of nothing else. What the place of a
/// cancelled grant cost is left to the next end: without it, a group that gives up many grants
/// would seem to do cheap work.
#[derive(Default)]
pub(super) struct Untaken {
    /// For its places: each piece in flight has an equal share of it.
    pub(super) held: i128,
    /// For CPU time used, by the piece that ends or by others.
    pub(super) used: i128,
}

impl Untaken {
    /// Takes the cost that counts for one end among `among` pieces in flight: its share of the
    /// places' cost, and enough of the usage to make the sum `usual`, or its share of the usage if
    /// that is more. The last piece takes the rest.
    ///
    /// If it took everything, 64 pieces that overlap and end at once would be one end of 64 times
    /// the cost and 63 that cost nothing, and an average soon forgets the one. If it always took
    /// its share, the first of 64 that work one after the other would have cost a 64th.
    pub(super) fn take(&mut self, among: u32, usual: i128) -> i128 {
        let among = i128::from(among.max(1));
        let held = self.held / among;
        let used = (usual - held).max(self.used / among).min(self.used);
        self.held -= held;
        self.used -= used;
        held + used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of more groups than it has room for, it remembers the latest, and never more than its bound.
    #[test]
    fn the_latest_turns_are_remembered() {
        let mut recent = Recent::default();
        for id in 0..4 * RECENT_MAX as u64 {
            recent.add(id);
            let latest = id.saturating_sub(RECENT_MAX as u64 / 2 - 1)..=id;
            assert!(recent.has(id) && recent.has(*latest.start()), "{latest:?}");
            assert!(recent.halves.iter().map(HashSet::len).sum::<usize>() <= RECENT_MAX);
        }
        assert!(!recent.has(0) && !recent.has(2 * RECENT_MAX as u64));
    }

    /// An average of ends that cost nothing can still grow.
    ///
    /// Such ends occur in a line where no time passes.
    #[test]
    fn an_average_of_nothing_can_grow_again() {
        let mut average = Average::of(0);
        (0..100).for_each(|_| average = average.with(0));
        (0..80).for_each(|_| average = average.with_at_most_twice(1_000_000_000));
        assert!(average.0 > 900_000_000, "{}", average.0);
    }
}
