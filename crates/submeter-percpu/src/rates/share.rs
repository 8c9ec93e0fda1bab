//! Division of a rate by weight among the levels directly below it.
//!
//! A level with a weight **contends** for the rate above it in every period in which it takes, or
//! tries to. Its share is its weight's fraction of the weights that contend in this period, or
//! contended in the last one if that sum was higher. A level that pauses for less than a period
//! keeps its share; a level that stops lends it to the others, by their weights. So does a level
//! whose share earns less than a token in a period, unless it tries in each: it may then wait
//! longer for a token than its share would take.
//!
//! Shares matter only once half a burst is taken: the other half is theirs. Above that, every group
//! takes what others leave. Below, a take must fit its level's share, which has a due time like a
//! bucket, and as much room as its fraction of that half. So all contenders together may take at
//! most half a burst at once, and at most the rate in the long run: contenders that keep to their
//! shares are not refused because others do not.
//!
//! Shares hold on average, not exactly: concurrent takes may all find the same due time, and a take
//! that a level above refuses counts. The rate itself is exact, since it does not depend on shares.
//! A queue for each level, as in packet schedulers, was rejected: a take does not wait.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Minimum period. A period is the time that earns a burst, except for small bursts: their period
/// would end while a contender waits for a CPU.
const PERIOD_NS_MIN: u64 = 10_000_000;

/// The contenders for a bucket's rate.
#[derive(Debug)]
pub(super) struct Contenders {
    /// Bits: 0..32 the sum of weights, 32..64 the low bits of the period's number. Two periods
    /// alternate. Writers: takes of levels below, only by exchange.
    periods: [AtomicU64; 2],
}

/// A level's own part of the rate above.
#[derive(Debug)]
pub(super) struct Share {
    /// 0 for none. Writers: callers that set it.
    weight: AtomicU32,
    /// The last period in which it contended. Writers: its takes.
    joined: AtomicU32,
    /// The time at which everything it took will have been earned by its share. Writers: its takes.
    due_ns: AtomicU64,
}

/// The current cost of a take to a share.
#[derive(Clone, Copy)]
pub(super) struct SharePart<'a> {
    /// `None` for a level without a weight.
    share: Option<&'a Share>,
    cost_ns: u64,
    /// The amount for shares, as the time in which it is earned.
    half_ns: u64,
}

impl Contenders {
    pub(super) fn new() -> Contenders {
        Contenders { periods: [AtomicU64::new(0), AtomicU64::new(0)] }
    }

    /// Returns the part of a take of `cost_ns` by the level `below`; `None` where nothing contends,
    /// which costs two loads.
    #[inline]
    pub(super) fn part<'a>(
        &self,
        below: Option<&'a Share>,
        cost_ns: u64,
        refill_ns: u64,
        now_ns: u64,
    ) -> Option<SharePart<'a>> {
        let weighed = below.map_or(0, Share::weight);
        if weighed == 0 && self.load().iter().all(|&period| period == 0) {
            return None;
        }
        let period = (now_ns / refill_ns.max(PERIOD_NS_MIN)) as u32;
        let share = below.filter(|_| weighed > 0);
        if let Some(share) = share {
            share.join(self, period);
        }
        let sum = |of: u32| {
            let word = self.load()[(of & 1) as usize];
            if (word >> 32) as u32 == of { word as u32 } else { 0 }
        };
        let sum = sum(period).max(sum(period.wrapping_sub(1))).max(weighed);
        let times = u128::from(cost_ns) * u128::from(sum);
        let cost_ns = times.checked_div(u128::from(weighed)).unwrap_or(0);
        let cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
        (sum > 0).then_some(SharePart { share, cost_ns, half_ns: refill_ns / 2 })
    }

    fn load(&self) -> [u64; 2] {
        // Relaxed: sums of weights, which order nothing.
        self.periods.each_ref().map(|period| period.load(Ordering::Relaxed))
    }

    fn add(&self, period: u32, weight: u32) {
        let with = |word: u64| {
            let of_period = (word >> 32) as u32 == period;
            let sum = if of_period { word as u32 } else { 0 };
            Some(u64::from(period) << 32 | u64::from(sum.saturating_add(weight)))
        };
        let slot = &self.periods[(period & 1) as usize];
        // Relaxed, both: as in `load`.
        _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with);
    }
}

impl Share {
    pub(super) fn new() -> Share {
        let joined = AtomicU32::new(u32::MAX);
        Share { weight: AtomicU32::new(0), joined, due_ns: AtomicU64::new(0) }
    }

    pub(super) fn weight(&self) -> u32 {
        // Relaxed: it orders nothing.
        self.weight.load(Ordering::Relaxed)
    }

    /// Sets a weight, which counts from the next period on.
    pub(super) fn set_weight(&self, weight: u32) {
        // Relaxed: as above.
        self.weight.store(weight, Ordering::Relaxed);
    }

    fn join(&self, contenders: &Contenders, period: u32) {
        // Relaxed, both: the exchange decides which take counts it. Loaded first, because all takes
        // of a period but one find it counted.
        if self.joined.load(Ordering::Relaxed) != period
            && self.joined.swap(period, Ordering::Relaxed) != period
        {
            contenders.add(period, self.weight());
        }
    }
}

impl SharePart<'_> {
    /// Returns the time after which a take of `cost_ns` that makes a bucket's due time `due_ns`
    /// fits; 0 for now.
    pub(super) fn wait_ns(self, due_ns: u64, cost_ns: u64, now_ns: u64) -> u64 {
        let spare_ns = self.spare_ns(due_ns, cost_ns, now_ns);
        let Some(share) = self.share else { return spare_ns };
        // Relaxed: see the module.
        let owed_ns = share.due_ns.load(Ordering::Relaxed).saturating_sub(now_ns);
        // A share that owes nothing may take more than its part of the half.
        let own_ns = owed_ns.min(owed_ns.saturating_add(self.cost_ns).saturating_sub(self.half_ns));
        spare_ns.min(own_ns)
    }

    /// Charges the share for such a take, which was granted, unless it took what others left.
    pub(super) fn pay(self, due_ns: u64, cost_ns: u64, now_ns: u64) {
        let Some(share) = self.share else { return };
        if self.spare_ns(due_ns, cost_ns, now_ns) == 0 {
            return;
        }
        let paid = |due_ns: u64| Some(due_ns.max(now_ns).saturating_add(self.cost_ns));
        // Relaxed, both: see the module.
        _ = share.due_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid);
    }

    /// Returns the time after which there is enough for levels without a share: half a burst is
    /// left after the take, or the bucket was full.
    fn spare_ns(self, due_ns: u64, cost_ns: u64, now_ns: u64) -> u64 {
        due_ns.saturating_sub(now_ns + self.half_ns.max(cost_ns))
    }
}
