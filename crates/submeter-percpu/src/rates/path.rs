//! Takes from the buckets of a path, from the lowest level to the highest.

use super::bucket::{Answer, Bucket, Refusal, Refused};

/// Takes `n` from every bucket, or from none. Reads the clock only if one of them has a rate. A
/// grant beyond soft rates takes nothing from any soft bucket, as if they were enforced, and calls
/// `over` with the level that would then have refused it.
pub(super) fn take_all<'a>(
    levels: impl Iterator<Item = Option<&'a Bucket>> + Clone,
    n: u64,
    clock: impl Fn() -> u64,
    mut over: impl FnMut(usize),
) -> Result<(), Refused> {
    let Some(seen) = look_at_all(levels.clone(), n, &clock)? else { return Ok(()) };
    let Seen { now_ns, mut beyond, .. } = seen;
    loop {
        // What enforced rates would refuse is taken from none of them; from those that are enforced
        // it is taken, as it is granted.
        let takes = |bucket: &Bucket| beyond.is_none() || !bucket.is_soft();
        let at = levels.clone().enumerate();
        match take_upwards(at, None, n, now_ns, &clock, &takes) {
            Ok(()) => break,
            // Another take was faster. Once more, since it has given back what it took.
            Err(at) if at.bucket.is_soft() => beyond = Some(at.level),
            Err(at) => {
                // The buckets above were not checked, and may take longer.
                look_at_all(levels, n, &|| now_ns)?;
                return Err(at.reported(now_ns));
            }
        }
    }
    beyond.into_iter().for_each(&mut over);
    Ok(())
}

/// Takes `n` from every bucket, even where there is less, but nothing from soft buckets after a
/// check that one of them would have refused if it were enforced. Reads the clock only if one has a
/// rate.
///
/// Rejected: a soft bucket that owes nothing, since it would have earned something by the next
/// check, however little, and would count nothing. Also rejected: a mark that work carries from its
/// check to its spending, since CPU time is spent for a group and not for a piece of work.
/// Concurrent pieces of work of a group may therefore be taken for one another.
pub(super) fn spend_all<'a>(
    levels: impl Iterator<Item = Option<&'a Bucket>> + Clone,
    n: u64,
    clock: impl Fn() -> u64,
) {
    let is_beyond = levels.clone().flatten().any(Bucket::is_beyond);
    let mut time = None;
    let mut below = None;
    for bucket in levels {
        let below = std::mem::replace(&mut below, bucket);
        if let Some(bucket) = bucket.filter(|bucket| !is_beyond || !bucket.is_soft()) {
            bucket.spend(n, below, || *time.get_or_insert_with(&clock));
        }
    }
}

/// Checks that every bucket would grant 1, so none is empty or in debt, and takes nothing. Calls
/// `over` as [`take_all`] does.
pub(super) fn admit_all<'a>(
    levels: impl Iterator<Item = Option<&'a Bucket>> + Clone,
    clock: impl Fn() -> u64,
    mut over: impl FnMut(usize),
) -> Result<(), Refused> {
    let Some(seen) = look_at_all(levels.clone(), 1, &clock)? else { return Ok(()) };
    // Only now is it known that no bucket refuses: work that is not admitted counts nowhere.
    for (level, bucket) in levels.enumerate() {
        if let Some(bucket) = bucket {
            bucket.note(seen.refusing & bit(level) != 0);
        }
    }
    seen.beyond.into_iter().for_each(&mut over);
    Ok(())
}

/// A refusal, and the bucket that refused.
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
        // Never is the longest.
        self.refusal.wait_ns.unwrap_or(u64::MAX)
    }
}

/// What is known of a take that all enforced buckets would grant.
struct Seen {
    now_ns: u64,
    /// The level of the soft bucket that would refuse it for longest if it were enforced.
    beyond: Option<usize>,
    /// The levels of all soft buckets that would refuse it, each a [`bit`].
    refusing: u128,
}

/// A tree has at most 65 levels.
fn bit(level: usize) -> u128 {
    1 << level.min(127)
}

/// Looks whether all would grant the take; `None` if none has a rate.
fn look_at_all<'a>(
    levels: impl Iterator<Item = Option<&'a Bucket>>,
    n: u64,
    clock: &impl Fn() -> u64,
) -> Result<Option<Seen>, Refused> {
    let mut time = None;
    let mut now = || *time.get_or_insert_with(clock);
    let [mut worst, mut beyond]: [Option<At<'_>>; 2] = [None, None];
    let (mut below, mut refusing) = (None, 0);
    for (level, bucket) in levels.enumerate() {
        let below = std::mem::replace(&mut below, bucket);
        let Some(bucket) = bucket else { continue };
        if let Answer::Refused(refusal) = bucket.take(n, below, &mut now, false) {
            let among = if bucket.is_soft() {
                refusing |= bit(level);
                &mut beyond
            } else {
                &mut worst
            };
            let at = At { level, bucket, refusal };
            if among.as_ref().is_none_or(|worst| worst.wait_ns() < at.wait_ns()) {
                *among = Some(at);
            }
        }
    }
    match worst {
        Some(at) => Err(at.reported(now())),
        None => {
            let beyond = beyond.map(|at| at.level);
            Ok(time.map(|now_ns| Seen { now_ns, beyond, refusing }))
        }
    }
}

/// Takes from the first bucket and those above where `takes` says so, or returns the one that
/// refused. Recursive: amounts taken below are kept for the give-back, and a signal handler must
/// not allocate.
fn take_upwards<'a>(
    mut levels: impl Iterator<Item = (usize, Option<&'a Bucket>)>,
    below: Option<&'a Bucket>,
    n: u64,
    now_ns: u64,
    clock: &impl Fn() -> u64,
    takes: &impl Fn(&Bucket) -> bool,
) -> Result<(), At<'a>> {
    let Some((level, bucket)) = levels.next() else { return Ok(()) };
    let go_on = || take_upwards(levels, bucket, n, now_ns, clock, takes);
    let Some(bucket) = bucket.filter(|bucket| takes(bucket)) else { return go_on() };
    match bucket.take(n, below, || now_ns, true) {
        Answer::Refused(refusal) => Err(At { level, bucket, refusal }),
        Answer::Free => go_on(),
        Answer::Granted(taken) => go_on().inspect_err(|_| bucket.give_back(&taken, clock)),
    }
}
