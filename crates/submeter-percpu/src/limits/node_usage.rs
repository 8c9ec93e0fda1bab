//! The amounts that the groups of a [`LimitNode`] tree hold.

use std::sync::atomic::Ordering;

use super::level::{Level, Record, after_openings};
use super::node::{LimitNode, LimitUsage, NodeInner};

impl LimitNode {
    /// Returns the amount held. O(1) where no group below has stock; otherwise it stops moves of
    /// stock in the groups that have some, and visits their words. A signal handler on top of a
    /// move gets the amount held including stock, which is more.
    #[must_use]
    pub fn usage(&self) -> LimitUsage {
        let level = &self.node().level;
        let current = level.exactly().or_else(|| {
            let below = |node: &NodeInner| node.is_below(level);
            self.node().tree.while_still(below, |nodes| {
                let stocked = nodes.iter().filter(|node| below(node)).map(|n| n.leaf.stocked());
                level.held().saturating_sub(stocked.sum())
            })
        });
        usage(level, current.unwrap_or_else(|| level.held()))
    }

    /// Returns the amount held including stock: no less than the amount charged. O(1).
    #[must_use]
    pub fn usage_at_most(&self) -> u64 {
        after_openings();
        self.node().level.held()
    }

    /// Returns the [`usage`](LimitNode::usage) with the [upper bound](LimitNode::usage_at_most) of
    /// the amount held. O(1).
    #[must_use]
    pub fn usage_and_stock(&self) -> LimitUsage {
        usage(&self.node().level, self.usage_at_most())
    }

    /// Returns the [`usage`](LimitNode::usage) of several groups of one tree: where a group below
    /// any of them has stock, it visits all stock of the tree once, not once for each group. Each
    /// is exact at its own moment, in the order of `nodes`: concurrent charges and releases may be
    /// in only some of them.
    #[must_use]
    pub fn usages<'a>(nodes: impl Iterator<Item = &'a LimitNode> + Clone) -> Vec<LimitUsage> {
        let levels = nodes.clone().map(|node| &node.node().level);
        // Near limits there is no stock to visit.
        let exactly = |level: &Level| level.exactly().map(|held| usage(level, held));
        if let Some(usages) = levels.clone().map(exactly).collect() {
            return usages;
        }
        let held = |level: &Level| usage(level, level.held());
        let first = nodes.clone().next().expect("none at all are exact");
        let current = |level: &Level| {
            // Relaxed: the list is locked, as below.
            let stocked = level.stocked.load(Ordering::Relaxed);
            usage(level, level.held().saturating_sub(stocked))
        };
        let still = first.node().tree.while_still(
            |_| true,
            |open| {
                for node in open {
                    let stocked = node.leaf.stocked();
                    for level in node.levels() {
                        // Relaxed: the list is locked, as for every access to this word.
                        level.stocked.fetch_add(stocked, Ordering::Relaxed);
                    }
                }
                let usages = levels.clone().map(current).collect();
                for level in open.iter().flat_map(|node| node.levels()) {
                    // Relaxed: as above.
                    level.stocked.store(0, Ordering::Relaxed);
                }
                usages
            },
        );
        still.unwrap_or_else(|| levels.map(held).collect())
    }
}

/// Reads the rest of a level after the amount held, so that its peak is not below that amount.
fn usage(level: &Level, current: u64) -> LimitUsage {
    let Record { limit, peak, peak_low, refused, overdrafts, mode } = level.record();
    LimitUsage { current, peak, peak_low, limit, refused, overdrafts, mode }
}
