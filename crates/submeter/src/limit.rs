//! Hierarchical limits: a charge is granted by every level up to the root, or by none.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::group::Group;
use crate::schema::{Key, Schema};

/// What a group holds of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Held now.
    pub current: u64,
    /// The most that was ever held.
    pub peak: u64,
    /// The limit, if there is one.
    pub limit: Option<u64>,
    /// Charges that this group's own limit refused.
    pub refused: u64,
}

/// The resources of one group, in slot order.
pub(crate) struct Limits {
    meters: Box<[Meter]>,
}

/// Usage of one resource by one group and everything below it.
struct Meter {
    /// Bits: all, a sum. Writers: anybody who charges or uncharges, by read-modify-write only.
    current: AtomicU64,
    /// `u64::MAX` for none.
    limit: AtomicU64,
    peak: AtomicU64,
    refused: AtomicU64,
}

impl Meter {
    /// Adds `n` unless that would exceed the limit, and returns what is held then.
    fn try_charge(&self, n: u64) -> Result<u64, Refusal> {
        // SeqCst on `current` and `limit`, here and in `set_limit`: the charger writes `current`,
        // then reads `limit`; the setter writes `limit`, then reads `current`. In their single
        // order either the charger sees the new limit and takes its charge back, or the setter
        // sees the charge. With anything weaker both could miss each other.
        let mut current = self.current.load(Ordering::SeqCst);
        loop {
            let limit = self.limit.load(Ordering::SeqCst);
            let Some(after) = current.checked_add(n).filter(|&after| after <= limit) else {
                return Err(self.refuse(current, limit));
            };
            // Not `fetch_add` with an undo: a charge that is going to be refused would meanwhile
            // make others fail that fit. SeqCst on both: one order with `limit`, see above.
            let order = (Ordering::SeqCst, Ordering::SeqCst);
            match self.current.compare_exchange_weak(current, after, order.0, order.1) {
                Ok(_) => {
                    // SeqCst: read after `current` was written, the charger's half of the order.
                    let limit = self.limit.load(Ordering::SeqCst);
                    if after > limit {
                        self.uncharge(n);
                        return Err(self.refuse(current, limit));
                    }
                    return Ok(after);
                }
                Err(now) => current = now,
            }
        }
    }

    fn refuse(&self, current: u64, limit: u64) -> Refusal {
        // Relaxed: a statistic.
        self.refused.fetch_add(1, Ordering::Relaxed);
        Refusal { current, limit }
    }

    fn raise_peak(&self, held: u64) {
        // Relaxed: a statistic.
        self.peak.fetch_max(held, Ordering::Relaxed);
    }

    fn uncharge(&self, n: u64) {
        // SeqCst: see `try_charge`.
        let before = self.current.fetch_sub(n, Ordering::SeqCst);
        debug_assert!(before >= n, "uncharged {n} of {before}");
    }
}

struct Refusal {
    current: u64,
    limit: u64,
}

impl Limits {
    pub(crate) fn new(schema: &Schema) -> Limits {
        let meter = || Meter {
            current: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            peak: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        };
        Limits { meters: (0..schema.resources()).map(|_| meter()).collect() }
    }

    pub(crate) fn usage(&self, slot: usize) -> Usage {
        let meter = &self.meters[slot];
        // Relaxed: four facts that need not agree with each other.
        let limit = meter.limit.load(Ordering::Relaxed);
        Usage {
            current: meter.current.load(Ordering::Relaxed),
            peak: meter.peak.load(Ordering::Relaxed),
            limit: (limit != u64::MAX).then_some(limit),
            refused: meter.refused.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set_limit(&self, slot: usize, limit: Option<u64>) -> u64 {
        let meter = &self.meters[slot];
        let limit = limit.unwrap_or(u64::MAX);
        // SeqCst: see `Meter::try_charge`.
        meter.limit.store(limit, Ordering::SeqCst);
        meter.current.load(Ordering::SeqCst).saturating_sub(limit)
    }
}

/// Charges the group and its ancestors, or none of them. Recurses at most `DEPTH_MAX` times.
fn charge(group: &Group, slot: usize, n: u64) -> Result<(), (Group, Refusal)> {
    let meter = &group.inner.limits.meters[slot];
    let held = meter.try_charge(n).map_err(|refusal| (group.clone(), refusal))?;
    if let Some(parent) = group.parent() {
        charge(parent, slot, n).inspect_err(|_| meter.uncharge(n))?;
    }
    // Only now that every level has granted it: what an ancestor refuses was never held here.
    meter.raise_peak(held);
    Ok(())
}

fn uncharge(group: &Group, slot: usize, n: u64) {
    let mut level = Some(group);
    while let Some(at) = level {
        at.inner.limits.meters[slot].uncharge(n);
        level = at.parent();
    }
}

/// Holds an amount of a resource, charged to a group and its ancestors; dropping it gives it back.
///
/// It keeps the group's storage: a group that was killed is released only after its charges.
#[must_use = "dropping a charge gives it back at once"]
pub struct Charge {
    group: Group,
    key: Key,
    amount: u64,
}

impl Charge {
    pub(crate) fn new(
        group: Group,
        key: Key,
        slot: usize,
        amount: u64,
    ) -> Result<Charge, LimitError> {
        match charge(&group, slot, amount) {
            Ok(()) => Ok(Charge { group, key, amount }),
            Err((at, refusal)) => Err(LimitError::new(group, at, key, amount, refusal)),
        }
    }

    fn slot(&self) -> usize {
        usize::from(self.key.slot)
    }

    /// Returns what is held.
    #[must_use]
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Returns the group that is charged.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Changes what is held to `amount`.
    ///
    /// # Errors
    /// When it would grow beyond a limit; what was held before stays held.
    pub fn resize(&mut self, amount: u64) -> Result<(), LimitError> {
        if amount > self.amount {
            let more = amount - self.amount;
            if let Err((at, refusal)) = charge(&self.group, self.slot(), more) {
                return Err(LimitError::new(self.group.clone(), at, self.key, more, refusal));
            }
        } else {
            uncharge(&self.group, self.slot(), self.amount - amount);
        }
        self.amount = amount;
        Ok(())
    }

    /// Takes over what another charge holds, so that one handle stands for both. Free: nothing is
    /// given back or charged anew.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let memory = schema.resource::<Bytes>("memory", "Held by items");
    /// let tree = Tree::new(schema.build()?)?;
    /// let mut held = tree.root().try_charge(memory, 70)?;
    /// held.merge(tree.root().try_charge(memory, 30)?);
    /// assert_eq!((held.amount(), tree.root().usage(memory).current), (100, 100));
    ///
    /// drop(held.split(60));
    /// assert_eq!((held.amount(), tree.root().usage(memory).current), (40, 40));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the other is of another group or resource.
    pub fn merge(&mut self, mut other: Charge) {
        let alike = self.group == other.group && self.key == other.key;
        assert!(alike, "charges of different groups or resources cannot be one");
        self.amount += std::mem::take(&mut other.amount);
    }

    /// Splits `amount` off into a charge of its own. Costs a handle to the group.
    ///
    /// # Panics
    /// When less than that is held.
    pub fn split(&mut self, amount: u64) -> Charge {
        assert!(amount <= self.amount, "{amount} of the {} held", self.amount);
        self.amount -= amount;
        Charge { group: self.group.clone(), key: self.key, amount }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.amount > 0 {
            uncharge(&self.group, self.slot(), self.amount);
        }
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Charge({} on {})", self.amount, self.group.path())
    }
}

/// Says which limit refused a charge, and who holds what it limits.
#[derive(Debug)]
pub struct LimitError(Box<Refused>);

#[derive(Debug)]
struct Refused {
    group: Group,
    limiting: Group,
    key: Key,
    requested: u64,
    current: u64,
    limit: u64,
}

/// How many holders an error names.
const HOLDERS_MAX: usize = 3;

impl LimitError {
    fn new(group: Group, limiting: Group, key: Key, requested: u64, refusal: Refusal) -> Self {
        let Refusal { current, limit } = refusal;
        LimitError(Box::new(Refused { group, limiting, key, requested, current, limit }))
    }

    /// Returns the group that was to be charged.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.0.group
    }

    /// Returns the group whose limit refused: the one charged, or an ancestor of it.
    #[must_use]
    pub fn limiting(&self) -> &Group {
        &self.0.limiting
    }

    /// Returns what was asked for.
    #[must_use]
    pub fn requested(&self) -> u64 {
        self.0.requested
    }

    /// Returns the limit that refused.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Returns what was held under that limit when it refused.
    #[must_use]
    pub fn current(&self) -> u64 {
        self.0.current
    }

    /// Returns the limiting group's children that hold most, at most three, largest first, with
    /// what they hold now. Visits every child: for messages, not for hot paths.
    #[must_use]
    pub fn holders(&self) -> Vec<(Group, u64)> {
        let slot = usize::from(self.0.key.slot);
        let mut holders: Vec<(Group, u64)> = self
            .0
            .limiting
            .children()
            .into_iter()
            .map(|child| {
                let current = child.inner.limits.usage(slot).current;
                (child, current)
            })
            .filter(|(_, current)| *current > 0)
            .collect();
        holders.sort_by_key(|(_, current)| std::cmp::Reverse(*current));
        holders.truncate(HOLDERS_MAX);
        holders
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refused = &*self.0;
        let metrics = refused.group.schema().metrics();
        let name = metrics.get(usize::from(refused.key.metric)).map_or("resource", |m| m.name());
        write!(
            f,
            "{}: {} more of {name} would exceed the limit of {}: {} of {} held",
            refused.group.path(),
            refused.requested,
            refused.limiting.path(),
            refused.current,
            refused.limit,
        )?;
        let holders = self.holders();
        for (index, (group, current)) in holders.iter().enumerate() {
            let lead = if index == 0 { "; most by" } else { "," };
            write!(f, "{lead} {} ({current})", group.path())?;
        }
        Ok(())
    }
}

impl std::error::Error for LimitError {}
