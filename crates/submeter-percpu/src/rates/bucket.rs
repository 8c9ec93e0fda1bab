//! The words of a bucket, and takes of several: without a clock.

use super::share::{Contenders, Share};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How many low bits of the word number the rates that were set. A take that was held up while as
/// many rates were set as that, and finds the very same due time, would mistake one for another.
const SET_BITS: u32 = 4;

/// A year, which a period, an empty bucket's refill and a debt may take at most. Due times then fit
/// for more than thirty years of a process.
pub(super) const LONGEST_NS: u64 = 366 * 24 * 3600 * 1_000_000_000;

/// How much of the time to come a refusal reports as throttled. A debt may take minutes, which in
/// one report would look as if as many had passed in a moment.
pub(super) const AHEAD_NS: u64 = 1_000_000_000;

/// A rate in the form that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) amount: u64,
    pub(super) per_ns: u64,
    /// 0 only in a rate of nothing.
    pub(super) burst: u64,
    /// The cost of a full bucket; at most a year, and never 0.
    pub(super) refill_ns: u64,
    /// The cost of each token, if that is whole nanoseconds; otherwise 0. Kept because divisions
    /// are a good part of a take.
    pub(super) token_ns: u64,
}

impl Terms {
    /// No terms are those of a bucket without a rate: here the refill is not 0.
    pub(super) const NOTHING: Terms =
        Terms { amount: 0, per_ns: 0, burst: 0, refill_ns: 1, token_ns: 0 };

    /// Returns the cost of `n` spent tokens, however many: of their whole bursts and of the rest;
    /// at most [`LONGEST_NS`]. Of a rate of nothing they cost nothing.
    fn spent_ns(&self, n: u64) -> u64 {
        let bursts = n.checked_div(self.burst).unwrap_or(0);
        let rest_ns = n.checked_rem(self.burst).map_or(0, |rest| self.cost_ns(rest));
        bursts.saturating_mul(self.refill_ns).saturating_add(rest_ns).min(LONGEST_NS)
    }

    /// Returns the cost of `n` tokens, at most `burst` of them: never less than their part of a
    /// refill.
    fn cost_ns(&self, n: u64) -> u64 {
        // Nothing costs nothing, also where there is no burst to divide by.
        if self.token_ns > 0 || n == 0 {
            // At most a refill.
            return n * self.token_ns;
        }
        match n.checked_mul(self.refill_ns) {
            Some(product) => product.div_ceil(self.burst),
            // Not always so: divisions of 128 bits take ten times as long.
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
        // At most `burst`: what is left is at most a refill.
        tokens as u64
    }

    /// How much was spent beyond what there was, when the due time is `due_ns`: rounded up.
    fn debt(&self, due_ns: u64, now_ns: u64) -> u64 {
        let owed_ns = due_ns.saturating_sub(now_ns + self.refill_ns);
        let tokens = u128::from(owed_ns) * u128::from(self.burst);
        u64::try_from(tokens.div_ceil(u128::from(self.refill_ns))).unwrap_or(u64::MAX)
    }

    /// How long this rate earns what another does in `ns`, rounded down or up to a nanosecond. Not
    /// of tokens: a rate that is set more often than it earns one would lose them all. `None` where
    /// one of them earns nothing.
    fn as_long_as(&self, other: Terms, ns: u64, divide: fn(u128, u128) -> u128) -> Option<u64> {
        let [ns, refill_ns, burst] = [ns, other.refill_ns, other.burst].map(u128::from);
        let own_refill_ns = u128::from(self.refill_ns);
        // Whole tokens and the rest apart: a product of all three would not fit.
        let (whole, rest) = (ns * burst / refill_ns, ns * burst % refill_ns);
        let bursts_ns = whole.saturating_mul(own_refill_ns);
        let all_ns = bursts_ns.saturating_add(divide(rest * own_refill_ns, refill_ns));
        let is_earned = burst > 0 && self.burst > 0;
        is_earned.then(|| u64::try_from(divide(all_ns, u128::from(self.burst))).unwrap_or(u64::MAX))
    }
}

/// The due time by other terms, of which nothing that is owed is lost, and no part of a token that
/// was earned.
fn due_by(terms: Option<Terms>, before: Option<Terms>, due_ns: u64, now_ns: u64) -> u64 {
    let refill_ns = |terms: Option<Terms>| terms.map_or(0, |terms| terms.refill_ns);
    let (after_ns, before_ns) = (refill_ns(terms), refill_ns(before));
    let both = terms.zip(before);
    let owed_ns = due_ns.saturating_sub(now_ns + before_ns);
    if owed_ns > 0 {
        // An amount is owed only where a rate earns it.
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

/// Where terms are kept; a refill of 0 is none.
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

    /// Torn if they are being written; a user of them finds another word then.
    fn load(&self) -> Option<Terms> {
        // Acquire, all: pairs with the Release in `store`. A thread that finds the terms of a later
        // rate also finds in the word that this rate, or the one before it, was set.
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

/// The due time, and which rate it is of.
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

    /// Of the next rate.
    fn next(self, due_ns: u64) -> Word {
        let sets = (self.sets() + 1) & ((1 << SET_BITS) - 1);
        Word((due_ns << SET_BITS) | sets)
    }
}

/// A refusal of a take of several buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// How many levels above the first the limiting bucket is: the one that takes longest.
    pub(super) levels: usize,
    pub(super) wait_ns: Option<u64>,
    /// How much of the time in which this bucket refuses no refusal has reported before: up to a
    /// second from now.
    pub(super) throttled_ns: u64,
    pub(super) terms: Terms,
    /// Whether the rate had enough, and the share of the level below did not.
    pub(super) by_share: bool,
}

/// Refuses what exceeds it.
const ENFORCED: u32 = 0;
/// Is soft: grants what it would refuse.
const SOFT: u32 = 1;
/// Is soft, and the last that asked was granted something that it would refuse.
const BEYOND: u32 = 2;

/// A limit of how much per time.
#[derive(Debug)]
pub(super) struct Bucket {
    /// A [`Word`]. Writers: takes, give-backs and setters of a rate, only by exchange.
    word: AtomicU64,
    /// Writers: setters of a rate, one at a time, and only the one that the word does not name.
    slots: [Slot; 2],
    /// Until when takes are refused, by what refusals have said. Writers: refusals upwards, and
    /// setters of a rate.
    throttled_until_ns: AtomicU64,
    /// Up to when that was reported; takes are refused all the time from then on until the other.
    /// Writers: refusals, only upwards.
    reported_until_ns: AtomicU64,
    /// [`ENFORCED`], [`SOFT`] or [`BEYOND`]. Writers: `set_soft`, and looks at one that is soft.
    mode: AtomicU32,
    /// The contenders of the levels below for a share of the rate.
    contenders: Contenders,
    /// Of the rate above.
    pub(super) share: Share,
}

/// The answer of a bucket to a take.
enum Answer {
    /// There is no rate.
    Free,
    Granted(Taken),
    Refused(Refusal),
}

#[derive(Clone, Copy)]
struct Refusal {
    /// After which time it would be granted; `None` for never, as far as the rate knows.
    wait_ns: Option<u64>,
    terms: Terms,
    by_share: bool,
}

/// A take of a bucket, as its give-back needs it.
struct Taken {
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

    /// Notes, if it is soft, whether an enforced one would refuse what is asked for.
    #[inline]
    fn note(&self, refuses: bool) {
        let [from, to] = if refuses { [SOFT, BEYOND] } else { [BEYOND, SOFT] };
        // Relaxed, all: see `set_soft`. By exchange, as it may be enforced meanwhile.
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
        // after the one before; takes pass on what `set` published. Relaxed on failure: the loop
        // looks again.
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

    /// What can be taken; `None` without a rate.
    pub(super) fn available(&self, now_ns: u64) -> Option<u64> {
        let (word, terms) = self.look();
        Some(terms?.available(word.due_ns(), now_ns))
    }

    /// The amount that can be taken, or below 0 the amount owed; `None` without a rate.
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
    /// does a debt; with the first rate a bucket is full. Without a rate, and by one of nothing, a
    /// debt takes as long as it would have: otherwise to remove a rate for a moment would forgive
    /// what is owed. Not by two at once.
    pub(super) fn set(&self, terms: Option<Terms>, now_ns: u64) {
        let before = self.terms();
        if before == terms {
            // What it would refuse stays known, too.
            return;
        }
        self.slot(self.word().next(0)).store(terms);
        loop {
            let word = self.word();
            let due_ns = due_by(terms, before, word.due_ns(), now_ns);
            if self.exchange(word, word.next(due_ns)) {
                // Relaxed: a statistic. What the rate before would have refused is not known to be.
                self.throttled_until_ns.fetch_min(now_ns, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Takes `n`, or only looks whether it could, for the level below if it comes through one.
    fn take(
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
            // First: a refused take contends as well.
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

    /// Takes `n` whether there is as much or not, for the level below if it comes through one. Of
    /// one that is soft it takes nothing after a look that an enforced one would have refused, as
    /// that would not have admitted the work. That a soft one owes nothing was rejected: it would
    /// have earned something by the next look, however little, and would count nothing. So was a
    /// mark that work hands from its look to what it spends: CPU time is spent for a group and not
    /// for a piece of it. So of pieces at the same time one is taken for another.
    fn spend(&self, n: u64, below: Option<&Bucket>, now: impl FnOnce() -> u64) {
        let (mut word, mut terms) = self.look();
        // Relaxed: see `set_soft`.
        if terms.is_none() || self.mode.load(Ordering::Relaxed) == BEYOND {
            return;
        }
        let now_ns = now();
        while let Some(known) = terms {
            let cost_ns = known.spent_ns(n);
            let latest_ns = word.due_ns().max(now_ns + known.refill_ns + LONGEST_NS);
            let due_ns = (word.due_ns().max(now_ns) + cost_ns).min(latest_ns);
            if self.exchange(word, word.with_due(due_ns)) {
                // At most what the bucket took: a debt that it does not keep is no share's either.
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

    /// Gives back only what it must: see the module.
    fn give_back(&self, taken: &Taken, clock: &impl Fn() -> u64) {
        loop {
            let word = self.word();
            // Another rate: it has counted the taken amount as used.
            if word.sets() != taken.sets {
                return;
            }
            // After the word: takes that the word has seen read the clock before.
            let elapsed_ns = clock().saturating_sub(taken.now_ns);
            let back_ns = taken.cost_ns.saturating_sub(elapsed_ns);
            if self.exchange(word, word.with_due(word.due_ns().saturating_sub(back_ns))) {
                return;
            }
        }
    }

    /// Notes that takes are refused until `until_ns`. Returns how much time up to a second from now
    /// refusals have said that, and not reported. What lies beyond is left to the next refusal.
    ///
    /// Nothing is reported twice, as each report begins where the one before it ended; refusals at
    /// the same time may miss a part.
    fn throttle(&self, now_ns: u64, until_ns: u64) -> u64 {
        // Relaxed, all: a statistic.
        let known_ns = self.throttled_until_ns.load(Ordering::Relaxed);
        let end_ns = known_ns.max(until_ns).min(now_ns + AHEAD_NS);
        let reported_ns = self.reported_until_ns.fetch_max(end_ns, Ordering::Relaxed);
        // Last: time from before this refusal would otherwise be taken for refused by another.
        self.throttled_until_ns.fetch_max(until_ns, Ordering::Relaxed);
        let of_before_ns = known_ns.min(end_ns).saturating_sub(reported_ns);
        of_before_ns + end_ns.saturating_sub(reported_ns.max(known_ns).max(now_ns))
    }
}

/// Takes `n` of every bucket, or of none. Calls the clock only if one of them has a rate. A grant
/// beyond soft rates calls `over` with their levels, and takes nothing from these.
pub(super) fn take_all<'a>(
    levels: impl Iterator<Item = Option<&'a Bucket>> + Clone,
    n: u64,
    clock: impl Fn() -> u64,
    mut over: impl FnMut(usize),
) -> Result<(), Refused> {
    let Some(now_ns) = look_at_all(levels.clone(), n, &clock, |_| ())? else { return Ok(()) };
    let taken = take_upwards(levels.clone().enumerate(), None, n, now_ns, &clock, &mut over);
    taken.or_else(|refusal| {
        // Those above were not asked, and may take longer.
        look_at_all(levels, n, &|| now_ns, |_| ())?;
        Err(refusal.reported(now_ns))
    })
}

/// Takes `n` of every bucket, also where there is less. Calls the clock only if one has a rate.
pub(super) fn spend_all<'a>(
    levels: impl Iterator<Item = Option<&'a Bucket>>,
    n: u64,
    clock: impl Fn() -> u64,
) {
    let mut time = None;
    let mut below = None;
    for bucket in levels {
        let below = std::mem::replace(&mut below, bucket);
        let Some(bucket) = bucket else { continue };
        bucket.spend(n, below, || *time.get_or_insert_with(&clock));
    }
}

/// Looks whether every bucket would grant 1, and takes nothing: none is empty or owes. Calls `over`
/// as [`take_all`] does.
pub(super) fn admit_all<'a>(
    levels: impl Iterator<Item = Option<&'a Bucket>> + Clone,
    clock: impl Fn() -> u64,
    mut over: impl FnMut(usize),
) -> Result<(), Refused> {
    // A bit for each level, of which a tree has 65 at most.
    let bit = |level: usize| 1_u128 << level.min(127);
    let mut beyond = 0;
    if look_at_all(levels.clone(), 1, &clock, |level| beyond |= bit(level))?.is_none() {
        return Ok(());
    }
    // Only now is it known that no bucket refuses it: work that is not admitted is no one's.
    for (level, bucket) in levels.enumerate() {
        let is_beyond = beyond & bit(level) != 0;
        if let Some(bucket) = bucket {
            bucket.note(is_beyond);
        }
        if is_beyond {
            over(level);
        }
    }
    Ok(())
}

/// A refusal, and whose.
struct At<'a> {
    level: usize,
    bucket: &'a Bucket,
    refusal: Refusal,
}

impl At<'_> {
    fn reported(&self, now_ns: u64) -> Refused {
        let Refusal { wait_ns, terms, by_share } = self.refusal;
        let throttled_ns = self.bucket.throttle(now_ns, now_ns + wait_ns.unwrap_or(0));
        Refused { levels: self.level, wait_ns, throttled_ns, terms, by_share }
    }

    fn wait_ns(&self) -> u64 {
        // Never is longest.
        self.refusal.wait_ns.unwrap_or(u64::MAX)
    }
}

/// Returns the time if all would grant it, and any has a rate. Calls `over` with the levels that
/// would not, and are soft.
fn look_at_all<'a>(
    levels: impl Iterator<Item = Option<&'a Bucket>>,
    n: u64,
    clock: &impl Fn() -> u64,
    mut over: impl FnMut(usize),
) -> Result<Option<u64>, Refused> {
    let mut time = None;
    let mut now = || *time.get_or_insert_with(clock);
    let mut worst: Option<At<'_>> = None;
    let mut below = None;
    for (level, bucket) in levels.enumerate() {
        let below = std::mem::replace(&mut below, bucket);
        let Some(bucket) = bucket else { continue };
        if let Answer::Refused(refusal) = bucket.take(n, below, &mut now, false) {
            if bucket.is_soft() {
                over(level);
                continue;
            }
            let at = At { level, bucket, refusal };
            if worst.as_ref().is_none_or(|worst| worst.wait_ns() < at.wait_ns()) {
                worst = Some(at);
            }
        }
    }
    match worst {
        Some(at) => Err(at.reported(now())),
        None => Ok(time),
    }
}

/// Takes of the first and of those above, or says which refused. Recursive: amounts taken below are
/// kept for the give-back, and a signal handler must not allocate.
fn take_upwards<'a>(
    mut levels: impl Iterator<Item = (usize, Option<&'a Bucket>)>,
    below: Option<&'a Bucket>,
    n: u64,
    now_ns: u64,
    clock: &impl Fn() -> u64,
    over: &mut impl FnMut(usize),
) -> Result<(), At<'a>> {
    let Some((level, bucket)) = levels.next() else { return Ok(()) };
    let Some(bucket) = bucket else { return take_upwards(levels, None, n, now_ns, clock, over) };
    match bucket.take(n, below, || now_ns, true) {
        Answer::Refused(_) if bucket.is_soft() => {
            take_upwards(levels, Some(bucket), n, now_ns, clock, over)?;
            over(level);
            Ok(())
        }
        Answer::Refused(refusal) => Err(At { level, bucket, refusal }),
        Answer::Free => take_upwards(levels, Some(bucket), n, now_ns, clock, over),
        Answer::Granted(taken) => take_upwards(levels, Some(bucket), n, now_ns, clock, over)
            .inspect_err(|_| bucket.give_back(&taken, clock)),
    }
}
