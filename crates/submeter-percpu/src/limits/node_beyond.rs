//! Charges beyond limits of [`LimitNode`]s: forced, or where a limit is soft.

use super::level::LimitMode;
use super::node::{LimitNode, LimitUsage};
use super::tree;
use crate::sync::atomic::Ordering;

impl LimitNode {
    /// Charges `n` to this group and every one above it, whatever their limits: for what has
    /// happened already. While a limit is exceeded nothing else is granted below it, unless it is
    /// soft. Costs as much as [`try_charge`](LimitNode::try_charge).
    ///
    /// Not for signal handlers: one that interrupted a move of stock by its own thread leaves the
    /// rest of that stock to charges, although the limit is exceeded.
    ///
    /// # Panics
    /// When more than `u64::MAX` would be charged.
    #[inline]
    pub fn charge_forced(&self, n: u64) {
        tree::charge_forced(self.node(), n);
    }

    /// Says what the limit does with a charge that exceeds it, and returns the usage after that.
    /// Once it is enforced, nothing is granted until it fits.
    pub fn set_mode(&self, mode: LimitMode) -> LimitUsage {
        if mode == LimitMode::Soft {
            // Relaxed: a later charge that this limit lets pass finds it, as it finds the mode.
            self.node().tree.has_soft.store(true, Ordering::Relaxed);
        }
        let node = self.node();
        tree::set_mode(node, &node.level, mode);
        self.usage()
    }

    /// Returns how many charges were granted beyond this group's limit. O(1), other than its
    /// [`usage`](LimitNode::usage).
    #[must_use]
    pub fn overdrafts(&self) -> u64 {
        self.node().level.overdrafts()
    }

    /// Returns whether a limit of this tree is, or was, soft: else no charge exceeds any but those
    /// that are forced. O(1).
    #[must_use]
    pub fn may_be_overdrawn(&self) -> bool {
        // Relaxed: see `set_mode`.
        self.node().tree.has_soft.load(Ordering::Relaxed)
    }
}
