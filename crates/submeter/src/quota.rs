//! One group's usage of each quota: a count and a limit, updated only by atomic operations.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::schema::Schema;

/// A group's usage of one quota, including its descendants.
///
/// # Examples
/// ```
/// use submeter::{Bytes, Schema, Tree};
///
/// let mut schema = Schema::builder();
/// let memory = schema.quota::<Bytes>("memory", "Memory held");
/// let tree = Tree::new(schema.build()?)?;
/// tree.root().set_limit(memory, Some(100));
/// let held = tree.root().try_charge(memory, 60)?;
/// let usage = tree.root().usage(memory);
/// assert_eq!((usage.current, usage.limit, usage.excess()), (60, Some(100), 0));
/// assert_eq!(usage.to_string(), "60 of 100");
/// # drop(held);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Current usage.
    pub current: u64,
    /// The highest usage so far.
    pub peak: u64,
    /// The limit, if there is one.
    pub limit: Option<u64>,
    /// Charges that this group's own limit refused.
    pub refused: u64,
}

impl Usage {
    /// Returns by how much `current` exceeds the limit: the amount that must be released before
    /// another charge is granted.
    #[must_use]
    pub fn excess(&self) -> u64 {
        self.current.saturating_sub(self.limit.unwrap_or(u64::MAX))
    }
}

/// Writes `60 of 100`, or `60` without a limit.
impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            Some(limit) => write!(f, "{} of {limit}", self.current),
            None => write!(f, "{}", self.current),
        }
    }
}

/// The quotas of one group, in slot order.
pub(crate) struct Quotas {
    levels: Box<[Level]>,
}

/// Usage of one quota by one group and its descendants.
pub(crate) struct Level {
    /// Bits: all, a sum. Writers: any thread that charges or releases, only by read-modify-write.
    current: AtomicU64,
    /// `u64::MAX` for none.
    limit: AtomicU64,
    peak: AtomicU64,
    refused: AtomicU64,
}

impl Level {
    /// Adds `n` unless that would exceed the limit, and returns the new usage.
    pub(crate) fn try_charge(&self, n: u64) -> Result<u64, Refusal> {
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
            // Not `fetch_add` with an undo: until the undo, a charge that is going to be refused
            // would make charges fail that fit. SeqCst on both: one order with `limit`, see above.
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

    pub(crate) fn raise_peak(&self, held: u64) {
        // Relaxed: a statistic. Loaded first, because unless the peak is rising this saves each
        // level the second of its two locked instructions.
        if self.peak.load(Ordering::Relaxed) < held {
            self.peak.fetch_max(held, Ordering::Relaxed);
        }
    }

    pub(crate) fn uncharge(&self, n: u64) {
        // SeqCst: see `try_charge`.
        let before = self.current.fetch_sub(n, Ordering::SeqCst);
        debug_assert!(before >= n, "uncharged {n} of {before}");
    }
}

/// A refusal of a charge by a limit.
pub(crate) struct Refusal {
    pub(crate) current: u64,
    pub(crate) limit: u64,
}

impl Quotas {
    pub(crate) fn new(schema: &Schema) -> Quotas {
        let level = || Level {
            current: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            peak: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        };
        Quotas { levels: (0..schema.quotas()).map(|_| level()).collect() }
    }

    pub(crate) fn at(&self, slot: usize) -> &Level {
        &self.levels[slot]
    }

    pub(crate) fn usage(&self, slot: usize) -> Usage {
        let level = &self.levels[slot];
        // Relaxed: four values that need not be consistent with each other.
        let limit = level.limit.load(Ordering::Relaxed);
        Usage {
            current: level.current.load(Ordering::Relaxed),
            peak: level.peak.load(Ordering::Relaxed),
            limit: (limit != u64::MAX).then_some(limit),
            refused: level.refused.load(Ordering::Relaxed),
        }
    }

    /// Returns the usage at the moment when the new limit took effect.
    pub(crate) fn set_limit(&self, slot: usize, limit: Option<u64>) -> Usage {
        let level = &self.levels[slot];
        // SeqCst: see `Level::try_charge`.
        level.limit.store(limit.unwrap_or(u64::MAX), Ordering::SeqCst);
        let current = level.current.load(Ordering::SeqCst);
        // This call's limit, not a later one: `excess` says by how much usage exceeds this one.
        Usage { current, limit: limit.filter(|&limit| limit != u64::MAX), ..self.usage(slot) }
    }
}
