//! Drops a deleted tenant's items.

use super::{Leave, Store, garbage};
use crate::tenant::Tenant;

/// Maximum number of items dropped in one go: some tens of microseconds.
const PURGE_MAX: usize = 128;

/// The result of a purge.
pub(crate) struct Purged {
    pub(crate) items: u64,
    pub(crate) bytes: u64,
}

impl Store {
    /// Drops some of a tenant's items. Drops none only if there are none, or if other threads are
    /// about to drop the existing ones.
    pub(crate) fn purge(&self, tenant: &Tenant) -> Purged {
        let items = tenant.ring.lock().some(PURGE_MAX);
        let mut purged = Purged { items: 0, bytes: 0 };
        for item in items {
            if self.unlink(&item, Leave::Replaced) {
                purged.items += 1;
                purged.bytes += item.cost();
            }
        }
        garbage::collect_if_due();
        purged
    }
}
