//! Charges beyond the limits of [`LimitNode`]s: forced ones, and those beyond a soft limit.

use super::level::LimitMode;
use super::node::{LimitNode, LimitUsage};
use super::tree;
use crate::sync::atomic::Ordering;

impl LimitNode {
    /// Charges `n` to this group and every one above it, whatever their limits, for usage that has
    /// already happened. While a limit is exceeded nothing else is granted below it, unless it is
    /// soft. It costs as much as [`try_charge`](LimitNode::try_charge).
    ///
    /// Do not call it in signal handlers: one that interrupted a move of stock by its own thread
    /// leaves the rest of that stock to charges, although the limit is exceeded.
    ///
    /// # Panics
    /// When more than `u64::MAX` would be charged.
    #[inline]
    pub fn charge_forced(&self, n: u64) {
        tree::charge_forced(self.node(), n);
    }

    /// Sets how the limit treats a charge that exceeds it, and returns the usage after that. Once
    /// the limit is enforced, nothing is granted until it fits.
    pub fn set_mode(&self, mode: LimitMode) -> LimitUsage {
        if mode == LimitMode::Soft {
            // Relaxed: a later charge that this limit admits finds it, just as it finds the mode.
            self.node().tree.has_soft.store(true, Ordering::Relaxed);
        }
        let node = self.node();
        tree::set_mode(node, &node.level, mode);
        self.usage()
    }

    /// Returns how many charges were granted beyond this group's limit. O(1), unlike
    /// [`usage`](LimitNode::usage).
    #[must_use]
    pub fn overdrafts(&self) -> u64 {
        self.node().level.overdrafts()
    }

    /// Returns whether a limit of this tree is, or was, soft. If not, only forced charges exceed a
    /// limit. O(1).
    #[must_use]
    pub fn may_be_overdrawn(&self) -> bool {
        // Relaxed: see `set_mode`.
        self.node().tree.has_soft.load(Ordering::Relaxed)
    }
}
