//! The usage of a quota, as it is read.

use std::fmt;

use submeter_percpu::LimitMode;

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
    /// Current usage, exact once charges in progress are over.
    pub current: u64,
    /// Upper bound on the highest usage so far: stock counts as used here, and so does a charge
    /// that is being decided. That never takes it above a limit.
    pub peak: u64,
    /// Lower bound on the highest usage so far. Equal to `peak` where limits were always near,
    /// because there is no stock then.
    pub peak_low: u64,
    /// The limit, if there is one.
    pub limit: Option<u64>,
    /// Number of charges that this group's own limit refused.
    pub refused: u64,
    /// Number of charges that were granted beyond this group's own limit, because it is soft or
    /// they were forced.
    pub overdrafts: u64,
    /// The way in which this group's own limit treats a charge that exceeds it.
    pub mode: LimitMode,
    /// The usage above which callers are asked to pause, if there is one.
    pub high: Option<u64>,
    /// The usage up to which nothing is reclaimed, if any is protected in this way.
    pub min: Option<u64>,
    /// The usage up to which reclaim takes something only when nothing is left elsewhere, if any is
    /// protected in this way.
    pub low: Option<u64>,
    /// How often callers slowed down, waited, or were asked to free something.
    pub counts: UsageCounts,
}

/// The effects of the settings of one group's quota: pauses, waits, and what was freed.
///
/// # Examples
/// ```
/// use submeter::{Bytes, Schema, Tree};
///
/// let mut schema = Schema::builder();
/// let memory = schema.quota::<Bytes>("memory", "Memory held");
/// let tree = Tree::new(schema.build()?)?;
/// tree.root().set_high(memory, Some(100));
/// let held = tree.root().try_charge(memory, 200)?;
/// assert!(tree.root().pause(memory).is_some());
/// assert_eq!(tree.root().usage(memory).counts.paused, 1);
/// # drop(held);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UsageCounts {
    /// How often a caller was asked to pause because this group's own usage was above `high`.
    pub paused: u64,
    /// Number of charges that found no room at this group's own limit, and were granted later
    /// because they waited or something was reclaimed.
    pub postponed: u64,
    /// How much less this group used, in total, after its own callbacks were asked to free
    /// something. It includes what other threads of the group charged or released meanwhile.
    pub reclaimed: u64,
    /// How often this group's own callbacks were asked to free what `low` protects.
    pub reclaimed_low: u64,
    /// How often this group's own callbacks panicked.
    pub panics: u64,
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
