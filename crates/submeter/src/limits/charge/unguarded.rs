//! Charges without a guard, for an allocator: its blocks know themselves how much they hold.

use super::{LimitError, charge};
use crate::metric::schema::Quota;
use crate::metric::unit::Unit;
use crate::tree::group::Group;

/// For libraries, such as `submeter-alloc`. Hidden, because an amount released twice or never is
/// wrong for as long as the tree lives: a program has guards.
#[doc(hidden)]
impl Group {
    /// Charges as [`try_charge`](Group::try_charge) does, without a handle to the group for each
    /// charge. The caller must keep one until it has released the amount.
    ///
    /// # Errors
    /// The same as for `try_charge`.
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_charge_unguarded<U: Unit>(&self, quota: Quota<U>, n: u64) -> Result<(), LimitError> {
        let slot = self.quota_slot(quota.key);
        match self.inner.quotas.get(slot) {
            Some(limits) if limits.node.charge_stock(n) => Ok(()),
            _ => charge(self, quota.key, n),
        }
    }

    /// Releases a part of what [`try_charge_unguarded`](Group::try_charge_unguarded) charged to
    /// this quota of this group.
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn release_unguarded<U: Unit>(&self, quota: Quota<U>, n: u64) {
        self.quota(self.quota_slot(quota.key)).release(n);
    }
}
