//! What enters and leaves the line, and the averages that it keeps.

use std::collections::HashMap;
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

/// The most groups that are remembered as having had a turn.
pub(super) const RECENT_MAX: usize = 1 << 14;

/// The groups that had a turn and then wanted nothing, as a tree like theirs. Ids alone: it keeps
/// no group.
///
/// If there are more than [`RECENT_MAX`], the branch with the most of them forgets the older half
/// of its groups. So a tenant with a group for each request makes its own groups newcomers again,
/// and nobody else's, on whichever level it has them. A bound for each parent was rejected: it is
/// none for all together.
#[derive(Default)]
pub(super) struct Recent {
    ids: HashMap<u64, Past, RandomState>,
    /// How many there are here and below.
    all: usize,
    /// How often one was added here.
    added: u64,
}

#[derive(Default)]
struct Past {
    /// `added` when the group, or one below it, was added last.
    added: u64,
    below: Option<Box<Recent>>,
}

impl Past {
    fn all(&self) -> usize {
        1 + self.below.as_ref().map_or(0, |below| below.all)
    }
}

impl Recent {
    /// Adds a group and those above it: `path` has their ids, from the top.
    pub(super) fn add(&mut self, path: &[u64]) {
        self.insert(path);
        while self.all > RECENT_MAX {
            self.forget();
        }
    }

    fn insert(&mut self, path: &[u64]) {
        let Some((&id, path)) = path.split_first() else { return };
        self.added += 1;
        let before = self.ids.get(&id).map_or(0, Past::all);
        let past = self.ids.entry(id).or_default();
        past.added = self.added;
        if !path.is_empty() {
            past.below.get_or_insert_default().insert(path);
        }
        self.all += past.all() - before;
    }

    /// Forgets half of the groups in the largest branch. As it is the largest, to find it takes few
    /// looks for each one that is forgotten.
    fn forget(&mut self) {
        let own = self.ids.len();
        let branches = self.ids.values_mut().filter_map(|past| past.below.as_deref_mut());
        if let Some(most) = branches.max_by_key(|below| below.all)
            && most.all > own
        {
            let before = most.all;
            most.forget();
            self.all -= before - most.all;
            return;
        }
        let mut added: Vec<_> = self.ids.values().map(|past| past.added).collect();
        let middle = *added.select_nth_unstable((own - 1) / 2).1;
        self.ids.retain(|_, past| past.added > middle);
        // Otherwise one branch after another could keep room for all.
        self.ids.shrink_to_fit();
        self.all = self.ids.values().map(Past::all).sum();
    }

    pub(super) fn has(&self, id: u64) -> bool {
        self.ids.contains_key(&id)
    }

    /// Returns what is known of the groups below one.
    pub(super) fn below(&self, id: u64) -> Option<&Recent> {
        self.ids.get(&id)?.below.as_deref()
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

    /// Counts what it has, and checks that it knows how much that is.
    fn count(recent: &Recent) -> usize {
        let below = recent.ids.values().filter_map(|past| past.below.as_deref()).map(count);
        let all = recent.ids.len() + below.sum::<usize>();
        assert_eq!(recent.all, all);
        all
    }

    /// Of more groups than it has room for, it remembers the latest and those that come again, and
    /// never more than its bound.
    #[test]
    fn the_latest_turns_are_remembered() {
        const COMES_AGAIN: u64 = u64::MAX;
        let mut recent = Recent::default();
        recent.add(&[COMES_AGAIN]);
        for id in 0..4 * RECENT_MAX as u64 {
            recent.add(&[id]);
            let latest = id.saturating_sub(RECENT_MAX as u64 / 2 - 2)..=id;
            assert!(recent.has(id) && recent.has(*latest.start()), "{latest:?}");
            assert!(recent.all <= RECENT_MAX && recent.ids.capacity() <= 2 * RECENT_MAX);
            if id % 1000 == 0 {
                assert!(recent.has(COMES_AGAIN), "{id}");
                recent.add(&[COMES_AGAIN]);
            }
        }
        assert!(!recent.has(0) && !recent.has(2 * RECENT_MAX as u64));
        assert_eq!(count(&recent), recent.ids.len());
    }

    /// A branch with more groups than there is room for forgets its own, and keeps no room for them
    /// once others have more.
    #[test]
    fn each_branch_forgets_its_own() {
        let few = 64;
        let mut recent = Recent::default();
        (0..few).for_each(|id| recent.add(&[0, 1, id]));
        // Side by side, and with one below each.
        let path = |branch, id| [vec![0, branch, id], vec![0, branch, id, id]];
        for (branch, levels) in [(2, 0), (3, 0), (4, 1), (5, 1), (2, 0)] {
            for id in 0..2 * RECENT_MAX as u64 {
                recent.add(&path(branch, id)[levels]);
            }
            assert!(count(&recent) <= RECENT_MAX && recent.all > RECENT_MAX / 4);
            let below = |id| recent.below(0).and_then(|tenants| tenants.below(id));
            let small = below(1).expect("it is small");
            assert!((0..few).all(|id| small.has(id)), "beside {branch}");
            let large = below(branch).expect("the last");
            assert!(large.has(2 * RECENT_MAX as u64 - 1) && !large.has(0));
            let room = (2..6).filter_map(below).map(|below| below.ids.capacity()).sum::<usize>();
            assert!(room <= 2 * RECENT_MAX + 16, "{room}");
        }
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
