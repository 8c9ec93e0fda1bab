//! From the keys of one connection to their tenants.

use hashbrown::HashTable;

use super::{Arc, Lease, Tenant, Tenants};

/// The tenants that one batch of requests has found.
///
/// A batch holds what it found, and a deletion waits for that. Between batches only the root is
/// held, so that an idle connection delays no release. Looking tenants up again costs a batch less
/// than it would cost a deletion to reach every connection.
///
/// It returns an index, so that moving from one tenant to another and back touches no count.
pub(crate) struct Resolver {
    /// The root first.
    known: Vec<Known>,
    /// The prefixes of `known`, one after the other.
    prefixes: Vec<u8>,
    /// Indices into `known` by prefix.
    table: HashTable<u32>,
    last: Account,
}

struct Known {
    /// Where in `prefixes` its own is.
    prefix: (usize, usize),
    hash: u64,
    lease: Lease,
}

/// A tenant by its index in the [`Resolver`] that returned it, valid until that forgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account(u32);

impl Account {
    pub(crate) const ROOT: Account = Account(0);

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The most tenants that a batch remembers. Beyond this it forgets all, which is cheaper than
/// choosing.
pub(super) const KNOWN_MAX: usize = 256;

/// The tenants that an idle connection keeps space for: most clients have fewer, and thousands of
/// connections should not each keep what one large batch took.
pub(crate) const KNOWN_KEPT: usize = 32;

impl Resolver {
    pub(crate) fn new(tenants: &Tenants) -> Resolver {
        let root = Known { prefix: (0, 0), hash: 0, lease: tenants.lease_root() };
        Resolver {
            known: vec![root],
            prefixes: Vec::new(),
            table: HashTable::new(),
            last: Account::ROOT,
        }
    }

    /// Finds the account of the tenant of `key`.
    #[inline]
    pub(crate) fn resolve(&mut self, tenants: &Tenants, key: &[u8]) -> Account {
        let Some(prefix) = tenants.prefix(key) else { return Account::ROOT };
        let last = &self.known[self.last.index()];
        // The root has no prefix, so it is never mistaken for the tenant of an empty one.
        let same = self.last != Account::ROOT && self.prefix(last) == prefix;
        if !same || last.lease.tenant.group.is_killed() {
            self.last = self.find(tenants, prefix);
        }
        self.last
    }

    fn find(&mut self, tenants: &Tenants, prefix: &[u8]) -> Account {
        let hash = tenants.index.hash(prefix);
        let Resolver { known, prefixes, table, .. } = self;
        let new = Account(u32::try_from(known.len()).unwrap_or(u32::MAX));
        let found = table.find_mut(hash, |&index| {
            let (from, to) = known[index as usize].prefix;
            index != 0 && prefixes[from..to] == *prefix
        });
        match found {
            Some(&mut index) if !known[index as usize].lease.tenant.group.is_killed() => {
                return Account(index);
            }
            // The account of a killed tenant stays, as something may still be charged to it.
            Some(index) => *index = new.0,
            None => {
                // The newest is not in `known` yet, but it is not what is being moved.
                table.insert_unique(hash, new.0, |&index| known[index as usize].hash);
            }
        }
        let from = prefixes.len();
        prefixes.extend_from_slice(prefix);
        let lease = tenants.lease(hash, prefix);
        known.push(Known { prefix: (from, prefixes.len()), hash, lease });
        new
    }

    #[inline]
    pub(crate) fn tenant(&self, account: Account) -> &Arc<Tenant> {
        &self.known[account.index()].lease.tenant
    }

    fn prefix(&self, known: &Known) -> &[u8] {
        &self.prefixes[known.prefix.0..known.prefix.1]
    }

    /// Returns whether it is time to [`forget`](Resolver::forget).
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.known.len() > KNOWN_MAX
    }

    /// Forgets all but the root. Accounts are void after this.
    pub(crate) fn forget(&mut self) {
        if self.known.len() > 1 {
            let were_many = self.known.len() > KNOWN_KEPT;
            self.known.truncate(1);
            self.prefixes.clear();
            self.table.clear();
            self.last = Account::ROOT;
            if were_many {
                self.known.shrink_to(KNOWN_KEPT);
                self.prefixes = Vec::new();
                self.table = HashTable::new();
            }
        }
    }
}
