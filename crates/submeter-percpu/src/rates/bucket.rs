//! The words of a bucket, without a clock.

use super::share::{Contenders, Share};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Number of low bits of the word that count the rates set so far. A take that is delayed while as
/// many rates are set as these bits can count, and then finds the very same due time, would mistake
/// one rate for another.
const SET_BITS: u32 = 4;

/// A year: the maximum for a period, for an empty bucket's refill and for a debt. Due times then
/// fit for more than thirty years of a process.
pub(super) const LONGEST_NS: u64 = 366 * 24 * 3600 * 1_000_000_000;

/// Maximum future time that a refusal reports as throttled. A debt may take minutes, which in one
/// report would look as if they had passed in a moment.
pub(super) const AHEAD_NS: u64 = 1_000_000_000;

/// A rate in the form used for comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) amount: u64,
    pub(super) per_ns: u64,
    /// 0 only in a rate of nothing.
    pub(super) burst: u64,
    /// The cost of a full bucket; at most a year, and never 0.
    pub(super) refill_ns: u64,
    /// The cost of each token, if that is a whole number of nanoseconds; otherwise 0. Kept because
    /// divisions are a good part of the cost of a take.
    pub(super) token_ns: u64,
}

impl Terms {
    /// The terms of a rate of nothing. They differ from those of a bucket without a rate: the
    /// refill is not 0.
    pub(super) const NOTHING: Terms =
        Terms { amount: 0, per_ns: 0, burst: 0, refill_ns: 1, token_ns: 0 };

    /// Returns the cost of any number `n` of spent tokens, computed from whole bursts and the rest;
    /// at most [`LONGEST_NS`]. With a rate of nothing they cost nothing.
    fn spent_ns(&self, n: u64) -> u64 {
        let bursts = n.checked_div(self.burst).unwrap_or(0);
        let rest_ns = n.checked_rem(self.burst).map_or(0, |rest| self.cost_ns(rest));
        bursts.saturating_mul(self.refill_ns).saturating_add(rest_ns).min(LONGEST_NS)
    }

    /// Returns the cost of `n` tokens, at most `burst`: never less than their part of a refill.
    fn cost_ns(&self, n: u64) -> u64 {
        // Nothing costs nothing, even where there is no burst to divide by.
        if self.token_ns > 0 || n == 0 {
            // At most a refill.
            return n * self.token_ns;
        }
        match n.checked_mul(self.refill_ns) {
            Some(product) => product.div_ceil(self.burst),
            // Not used for every take: divisions of 128 bits take ten times as long.
            None => {
                let product = u128::from(n) * u128::from(self.refill_ns);
                product.div_ceil(u128::from(self.burst)) as u64
            }
        }
    }

    /// Returns how much can be taken when the due time is `due_ns`.
    fn available(&self, due_ns: u64, now_ns: u64) -> u64 {
        let left = (now_ns + self.refill_ns).saturating_sub(due_ns.max(now_ns));
        let tokens = u128::from(left) * u128::from(self.burst) / u128::from(self.refill_ns);
        // At most `burst`, since at most a refill is left.
        tokens as u64
    }

    /// Returns the debt when the due time is `due_ns`: the amount spent in excess of the balance,
    /// rounded up.
    fn debt(&self, due_ns: u64, now_ns: u64) -> u64 {
        let owed_ns = due_ns.saturating_sub(now_ns + self.refill_ns);
        let tokens = u128::from(owed_ns) * u128::from(self.burst);
        u64::try_from(tokens.div_ceil(u128::from(self.refill_ns))).unwrap_or(u64::MAX)
    }

    /// Returns the time in which this rate earns what `other` earns in `ns`, rounded down or up to
    /// a nanosecond. Not in tokens: a rate that is set more often than it earns one would lose them
    /// all. `None` where one of the rates earns nothing.
    fn as_long_as(&self, other: Terms, ns: u64, divide: fn(u128, u128) -> u128) -> Option<u64> {
        let [ns, refill_ns, burst] = [ns, other.refill_ns, other.burst].map(u128::from);
        let own_refill_ns = u128::from(self.refill_ns);
        // Whole tokens and the rest separately: a product of all three would not fit.
        let (whole, rest) = (ns * burst / refill_ns, ns * burst % refill_ns);
        let bursts_ns = whole.saturating_mul(own_refill_ns);
        let all_ns = bursts_ns.saturating_add(divide(rest * own_refill_ns, refill_ns));
        let is_earned = burst > 0 && self.burst > 0;
        is_earned.then(|| u64::try_from(divide(all_ns, u128::from(self.burst))).unwrap_or(u64::MAX))
    }
}

/// Converts a due time to other terms. No debt is lost, and no part of a token that was earned.
fn due_by(terms: Option<Terms>, before: Option<Terms>, due_ns: u64, now_ns: u64) -> u64 {
    let refill_ns = |terms: Option<Terms>| terms.map_or(0, |terms| terms.refill_ns);
    let (after_ns, before_ns) = (refill_ns(terms), refill_ns(before));
    let both = terms.zip(before);
    let owed_ns = due_ns.saturating_sub(now_ns + before_ns);
    if owed_ns > 0 {
        // A debt is an amount only where a rate earns it; otherwise it is a time.
        let as_long = both.and_then(|(now, old)| now.as_long_as(old, owed_ns, u128::div_ceil));
        return now_ns + after_ns + as_long.map_or(owed_ns, |ns| ns.min(LONGEST_NS));
    }
    let left_ns = match (terms, before) {
        (None, _) => return 0,
        (Some(now), None) if now.burst > 0 => after_ns,
        (Some(_), None) => 0,
        (Some(now), Some(old)) => {
            let left_ns = now_ns + before_ns - due_ns.max(now_ns);
            now.as_long_as(old, left_ns, |a, b| a / b).map_or(0, |ns| ns.min(after_ns))
        }
    };
    now_ns + after_ns - left_ns
}

/// The storage of terms; a refill of 0 means no rate.
#[derive(Debug)]
struct Slot {
    amount: AtomicU64,
    per_ns: AtomicU64,
    burst: AtomicU64,
    refill_ns: AtomicU64,
    token_ns: AtomicU64,
}

impl Slot {
    fn new() -> Slot {
        let zero = || AtomicU64::new(0);
        Slot { amount: zero(), per_ns: zero(), burst: zero(), refill_ns: zero(), token_ns: zero() }
    }

    /// Loads the terms. They are torn if they are being written, but then their user finds a
    /// changed word.
    fn load(&self) -> Option<Terms> {
        // Acquire, all: pairs with the Release in `store`. A thread that finds the terms of a later
        // rate also finds in the word that this rate, or the one before it, has been set.
        let burst = self.burst.load(Ordering::Acquire);
        let refill_ns = self.refill_ns.load(Ordering::Acquire);
        let token_ns = self.token_ns.load(Ordering::Acquire);
        let amount = self.amount.load(Ordering::Acquire);
        let per_ns = self.per_ns.load(Ordering::Acquire);
        (refill_ns > 0).then_some(Terms { amount, per_ns, burst, refill_ns, token_ns })
    }

    fn store(&self, terms: Option<Terms>) {
        let none = Terms { amount: 0, per_ns: 0, burst: 0, refill_ns: 0, token_ns: 0 };
        let terms = terms.unwrap_or(none);
        // Release, all: see `load`.
        self.burst.store(terms.burst, Ordering::Release);
        self.refill_ns.store(terms.refill_ns, Ordering::Release);
        self.token_ns.store(terms.token_ns, Ordering::Release);
        self.amount.store(terms.amount, Ordering::Release);
        self.per_ns.store(terms.per_ns, Ordering::Release);
    }
}

/// The due time, and the number of the rate to which it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u64);

impl Word {
    fn due_ns(self) -> u64 {
        self.0 >> SET_BITS
    }

    fn sets(self) -> u64 {
        self.0 & ((1 << SET_BITS) - 1)
    }

    fn with_due(self, due_ns: u64) -> Word {
        Word((due_ns << SET_BITS) | self.sets())
    }

    /// Returns the word for the next rate.
    fn next(self, due_ns: u64) -> Word {
        let sets = (self.sets() + 1) & ((1 << SET_BITS) - 1);
        Word((due_ns << SET_BITS) | sets)
    }
}

/// A refusal of a take from several buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// Number of levels from the first to the limiting bucket, which is the one that takes longest.
    pub(super) levels: usize,
    pub(super) wait_ns: Option<u64>,
    /// The time in which this bucket refuses that no earlier refusal has reported, up to a second
    /// from now.
    pub(super) throttled_ns: u64,
    pub(super) terms: Terms,
    /// Whether the rate had enough, but the share of the level below did not.
    pub(super) by_share: bool,
}

/// The bucket refuses takes that exceed it.
const ENFORCED: u32 = 0;
/// The bucket is soft: it grants takes that an enforced one would refuse.
const SOFT: u32 = 1;
/// The bucket is soft, and granted the last request although an enforced one would have refused it.
const BEYOND: u32 = 2;

/// A limit on an amount per time.
#[derive(Debug)]
pub(super) struct Bucket {
    /// A [`Word`]. Writers: takes, give-backs and setters of a rate, only by exchange.
    word: AtomicU64,
    /// Writers: setters of a rate, one at a time, and only to the slot that the word does not name.
    slots: [Slot; 2],
    /// The time until which takes are refused, according to past refusals. Writers: refusals, which
    /// only raise it, and setters of a rate.
    throttled_until_ns: AtomicU64,
    /// The time up to which that was reported; takes are refused throughout from then until
    /// `throttled_until_ns`. Writers: refusals, which only raise it.
    reported_until_ns: AtomicU64,
    /// [`ENFORCED`], [`SOFT`] or [`BEYOND`]. Writers: `set_soft`, and checks of a soft bucket.
    mode: AtomicU32,
    /// The levels below that contend for a share of the rate.
    contenders: Contenders,
    /// This level's share of the rate above.
    pub(super) share: Share,
}

/// The answer of a bucket to a take.
pub(super) enum Answer {
    /// There is no rate.
    Free,
    Granted(Taken),
    Refused(Refusal),
}

#[derive(Clone, Copy)]
pub(super) struct Refusal {
    /// The time after which the take would be granted; `None` if never, as far as the rate knows.
    pub(super) wait_ns: Option<u64>,
    pub(super) terms: Terms,
    pub(super) by_share: bool,
}

/// A take from a bucket, with everything that its give-back needs.
pub(super) struct Taken {
    sets: u64,
    cost_ns: u64,
    now_ns: u64,
}

impl Bucket {
    pub(super) fn new() -> Bucket {
        Bucket {
            word: AtomicU64::new(0),
            slots: [Slot::new(), Slot::new()],
            throttled_until_ns: AtomicU64::new(0),
            reported_until_ns: AtomicU64::new(0),
            mode: AtomicU32::new(ENFORCED),
            contenders: Contenders::new(),
            share: Share::new(),
        }
    }

    pub(super) fn set_soft(&self, soft: bool) {
        // Relaxed, here and below: it orders nothing.
        self.mode.store(if soft { SOFT } else { ENFORCED }, Ordering::Relaxed);
    }

    pub(super) fn is_soft(&self) -> bool {
        self.mode.load(Ordering::Relaxed) != ENFORCED
    }

    /// Whether it is soft, and would have refused the latest request that was checked.
    #[inline]
    pub(super) fn is_beyond(&self) -> bool {
        // Relaxed: see `set_soft`.
        self.mode.load(Ordering::Relaxed) == BEYOND
    }

    /// Records, if it is soft, whether an enforced one would refuse the request.
    #[inline]
    pub(super) fn note(&self, refuses: bool) {
        let [from, to] = if refuses { [SOFT, BEYOND] } else { [BEYOND, SOFT] };
        // Relaxed, all: see `set_soft`. By exchange, since it may be enforced in the meantime.
        let (relaxed, now) = (Ordering::Relaxed, self.mode.load(Ordering::Relaxed));
        if now == from {
            _ = self.mode.compare_exchange(from, to, relaxed, relaxed);
        }
    }

    fn word(&self) -> Word {
        // Acquire: pairs with the Release of `set`, so that its terms are found.
        Word(self.word.load(Ordering::Acquire))
    }

    /// Exchanges the word if it is still the same.
    fn exchange(&self, from: Word, to: Word) -> bool {
        // AcqRel: Release publishes the terms of a new rate for `word`; Acquire orders a new rate
        // after the previous one; takes pass on what `set` published. Relaxed on failure: the loop
        // retries.
        let (done, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        self.word.compare_exchange(from.0, to.0, done, failed).is_ok()
    }

    fn slot(&self, word: Word) -> &Slot {
        &self.slots[(word.sets() & 1) as usize]
    }

    fn look(&self) -> (Word, Option<Terms>) {
        loop {
            let word = self.word();
            let terms = self.slot(word).load();
            if self.word().sets() == word.sets() {
                return (word, terms);
            }
        }
    }

    pub(super) fn terms(&self) -> Option<Terms> {
        self.look().1
    }

    /// Returns the amount that can be taken or, if negative, the amount owed; `None` without a
    /// rate.
    pub(super) fn balance(&self, now_ns: u64) -> Option<i64> {
        let (word, terms) = self.look();
        let terms = terms?;
        let narrow = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
        Some(match terms.debt(word.due_ns(), now_ns) {
            0 => narrow(terms.available(word.due_ns(), now_ns)),
            debt => -narrow(debt),
        })
    }

    /// Sets another rate. The amount that can be taken stays as it is, up to the new burst, and so
    /// does a debt; with its first rate a bucket is full. Without a rate, and with a rate of
    /// nothing, a debt takes as long as before: otherwise removing a rate for a moment would
    /// forgive the debt. Two threads must not call it at once.
    pub(super) fn set(&self, terms: Option<Terms>, now_ns: u64) {
        let before = self.terms();
        if before == terms {
            // The time until which it would refuse stays known, too.
            return;
        }
        self.slot(self.word().next(0)).store(terms);
        loop {
            let word = self.word();
            let due_ns = due_by(terms, before, word.due_ns(), now_ns);
            if self.exchange(word, word.next(due_ns)) {
                // Relaxed: a statistic. It is not known that the new rate refuses takes that the
                // previous one would have refused.
                self.throttled_until_ns.fetch_min(now_ns, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Takes `n`, or only checks whether it could, on behalf of the level below if the take comes
    /// through one.
    pub(super) fn take(
        &self,
        n: u64,
        below: Option<&Bucket>,
        now: impl FnOnce() -> u64,
        commit: bool,
    ) -> Answer {
        let (mut word, mut terms) = self.look();
        if terms.is_none() {
            return Answer::Free;
        }
        let now_ns = now();
        loop {
            let Some(known) = terms else { return Answer::Free };
            if n > known.burst {
                return Answer::Refused(Refusal { wait_ns: None, terms: known, by_share: false });
            }
            let cost_ns = known.cost_ns(n);
            // This comes first: a refused take contends as well.
            let share = below.map(|below| &below.share);
            let part = self.contenders.part(share, cost_ns, known.refill_ns, now_ns);
            let due_ns = word.due_ns().max(now_ns) + cost_ns;
            let latest_ns = now_ns + known.refill_ns;
            if due_ns > latest_ns {
                let wait_ns = Some(due_ns - latest_ns);
                return Answer::Refused(Refusal { wait_ns, terms: known, by_share: false });
            }
            let wait_ns = part.map_or(0, |part| part.wait_ns(due_ns, cost_ns, now_ns));
            if wait_ns > 0 {
                let wait_ns = Some(wait_ns);
                return Answer::Refused(Refusal { wait_ns, terms: known, by_share: true });
            }
            if !commit || self.exchange(word, word.with_due(due_ns)) {
                if let Some(part) = part.filter(|_| commit) {
                    part.pay(due_ns, cost_ns, now_ns);
                }
                return Answer::Granted(Taken { sets: word.sets(), cost_ns, now_ns });
            }
            (word, terms) = self.look();
        }
    }

    /// Takes `n` whether there is that much or not, on behalf of the level below if the take comes
    /// through one.
    pub(super) fn spend(&self, n: u64, below: Option<&Bucket>, now: impl FnOnce() -> u64) {
        let (mut word, mut terms) = self.look();
        if terms.is_none() {
            return;
        }
        let now_ns = now();
        while let Some(known) = terms {
            let cost_ns = known.spent_ns(n);
            let latest_ns = word.due_ns().max(now_ns + known.refill_ns + LONGEST_NS);
            let due_ns = (word.due_ns().max(now_ns) + cost_ns).min(latest_ns);
            if self.exchange(word, word.with_due(due_ns)) {
                // At most the amount that the bucket took: a debt that it does not keep is not
                // charged to a share either.
                let cost_ns = due_ns.saturating_sub(word.due_ns().max(now_ns));
                let share = below.map(|below| &below.share);
                let part = self.contenders.part(share, cost_ns, known.refill_ns, now_ns);
                if let Some(part) = part {
                    part.pay(due_ns, cost_ns, now_ns);
                }
                return;
            }
            (word, terms) = self.look();
        }
    }

    /// Gives back only as much as it must: see the module.
    pub(super) fn give_back(&self, taken: &Taken, clock: &impl Fn() -> u64) {
        loop {
            let word = self.word();
            // Another rate was set, which has counted the taken amount as used.
            if word.sets() != taken.sets {
                return;
            }
            // Read after the word: the takes contained in the word have read the clock before.
            let elapsed_ns = clock().saturating_sub(taken.now_ns);
            let back_ns = taken.cost_ns.saturating_sub(elapsed_ns);
            if self.exchange(word, word.with_due(word.due_ns().saturating_sub(back_ns))) {
                return;
            }
        }
    }

    /// Records that takes are refused until `until_ns`. Returns the time, up to a second from now,
    /// in which takes are refused according to past refusals and which was not reported. Time
    /// beyond that is left to the next refusal.
    ///
    /// Nothing is reported twice, since each report begins where the previous one ended; concurrent
    /// refusals may miss a part.
    pub(super) fn throttle(&self, now_ns: u64, until_ns: u64) -> u64 {
        // Relaxed, all: a statistic.
        let known_ns = self.throttled_until_ns.load(Ordering::Relaxed);
        let end_ns = known_ns.max(until_ns).min(now_ns + AHEAD_NS);
        let reported_ns = self.reported_until_ns.fetch_max(end_ns, Ordering::Relaxed);
        // This comes last: otherwise another refusal would count time before this one as refused.
        self.throttled_until_ns.fetch_max(until_ns, Ordering::Relaxed);
        let of_before_ns = known_ns.min(end_ns).saturating_sub(reported_ns);
        of_before_ns + end_ns.saturating_sub(reported_ns.max(known_ns).max(now_ns))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A take that was preempted while the rate was set again and again goes by none of them.
    #[test]
    fn rates_in_a_row_have_numbers_of_their_own() {
        let mut word = Word(5 << SET_BITS);
        for set in 1..1 << SET_BITS {
            word = word.next(7);
            assert_eq!((word.due_ns(), word.sets()), (7, set));
        }
        assert_eq!(word.next(9), Word(9 << SET_BITS), "and begin anew");
    }
}
