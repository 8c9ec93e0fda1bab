//! One group's usage of each quota.

use std::fmt;

use submeter_percpu::{Area, LimitMode, LimitNode, LimitUsage};

use crate::error::Error;
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
    /// Current usage: exact once charges are over.
    pub current: u64,
    /// The highest usage so far, or more: what lay in stock counts as used here, and so does a
    /// charge that is being decided. No limit is ever below it because of that.
    pub peak: u64,
    /// What the highest usage was at least. Equal to `peak` where limits were always near, as there
    /// is no stock then.
    pub peak_low: u64,
    /// The limit, if there is one.
    pub limit: Option<u64>,
    /// Charges that this group's own limit refused.
    pub refused: u64,
    /// Charges that were granted beyond this group's own limit, because it is soft or they were
    /// forced.
    pub overdrafts: u64,
    /// What this group's own limit does with a charge that exceeds it.
    pub mode: LimitMode,
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
    nodes: Box<[LimitNode]>,
}

impl Quotas {
    /// Below those of the parent.
    pub(crate) fn new(schema: &Schema, parent: Option<&Quotas>) -> Result<Quotas, Error> {
        let node = |slot| match parent {
            Some(parent) => parent.at(slot).child(),
            None => Area::common().and_then(LimitNode::root),
        };
        let nodes = (0..schema.quotas()).map(node).collect::<Result<_, _>>();
        Ok(Quotas { nodes: nodes.map_err(Error::storage)? })
    }

    #[inline]
    pub(crate) fn at(&self, slot: usize) -> &LimitNode {
        &self.nodes[slot]
    }

    pub(crate) fn usage(&self, slot: usize) -> Usage {
        self.nodes[slot].usage().into()
    }

    /// The usage of several groups of one tree, at one moment: stock is visited once for all.
    pub(crate) fn usages<'a>(
        slot: usize,
        groups: impl Iterator<Item = &'a Quotas> + Clone,
    ) -> impl Iterator<Item = Usage> {
        let nodes = groups.map(move |quotas| quotas.at(slot));
        LimitNode::usages(nodes).into_iter().map(Usage::from)
    }

    pub(crate) fn set_limit(&self, slot: usize, limit: Option<u64>) -> Usage {
        self.nodes[slot].set_limit(limit.unwrap_or(u64::MAX)).into()
    }
}

impl From<LimitUsage> for Usage {
    fn from(usage: LimitUsage) -> Usage {
        let LimitUsage { current, peak, peak_low, limit, refused, overdrafts, mode, .. } = usage;
        let limit = (limit != u64::MAX).then_some(limit);
        Usage { current, peak, peak_low, limit, refused, overdrafts, mode }
    }
}
