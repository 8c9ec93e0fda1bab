//! Maps the keys of one batch of requests to their tenants.

use std::cell::Cell;
use std::ops::Deref;

use submeter::refs::Guard;

use super::{Arc, Lease, Tenant, Tenants};

/// The tenants that one batch of requests has found.
///
/// It keeps them by the batch's epoch guard, not by references: a tenant's count would be a line
/// that all workers write to, four times per request where neighbouring requests are of different
/// tenants. A deletion waits for the guard as it would for a reference: the tables that list the
/// tenant are freed with the epoch, and with them the tenant's handle to its group.
///
/// It returns an index, so that a batch's figures by tenant are a list.
pub(crate) struct Resolver<'g> {
    tenants: &'g Tenants,
    guard: &'g Guard,
    /// The tenants found so far, the root first.
    known: Vec<Known<'g>>,
    /// The prefixes of `known`, one after the other.
    prefixes: Vec<u8>,
    /// The index in `known` where a prefix was seen last, by the low bits of its hash; 0 for none.
    /// A new entry replaces the old one: a tenant that is known twice is charged in two parts.
    seen: [u16; SEEN],
    last: Account,
}

struct Known<'g> {
    tenant: Found<'g>,
    hash: u64,
    /// The place of its prefix in `prefixes`.
    prefix: (u32, u32),
}

/// A tenant for as long as a batch needs it.
pub(super) enum Found<'g> {
    /// The index listed it while the batch's guard existed.
    Listed(&'g Arc<Tenant>),
    /// It stands in for a tenant, and is not listed under this prefix.
    Instead(Lease),
}

impl Deref for Found<'_> {
    type Target = Arc<Tenant>;

    #[inline]
    fn deref(&self) -> &Arc<Tenant> {
        match self {
            Found::Listed(tenant) => tenant,
            Found::Instead(lease) => &lease.tenant,
        }
    }
}

/// A tenant by its index in the [`Resolver`] that returned it, valid until the resolver forgets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account(u32);

impl Account {
    pub(crate) const ROOT: Account = Account(0);

    pub(crate) fn of(index: usize) -> Account {
        Account(u32::try_from(index).unwrap_or(u32::MAX))
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Maximum number of tenants that a batch remembers. Beyond this it forgets all, which is cheaper
/// than choosing.
pub(super) const KNOWN_MAX: usize = 256;

/// Two cache lines, which are cleared for each batch. A power of two.
const SEEN: usize = 64;

/// The memory of a finished batch, kept for the next one on this thread.
#[derive(Default)]
struct Spare {
    known: Vec<Known<'static>>,
    prefixes: Vec<u8>,
}

thread_local! {
    static SPARE: Cell<Option<Spare>> = const { Cell::new(None) };
}

impl<'g> Resolver<'g> {
    pub(crate) fn new(tenants: &'g Tenants, guard: &'g Guard) -> Resolver<'g> {
        let Spare { mut known, prefixes } = SPARE.take().unwrap_or_default();
        known.push(Known::root(tenants));
        let seen = [0; SEEN];
        Resolver { tenants, guard, known, prefixes, seen, last: Account::ROOT }
    }

    /// Finds the account of the tenant of `key`.
    #[inline]
    pub(crate) fn resolve(&mut self, key: &[u8]) -> Account {
        let Some(prefix) = self.tenants.prefix(key) else { return Account::ROOT };
        // The root has no prefix, so it is never mistaken for the tenant of an empty one.
        if self.last == Account::ROOT || !self.is(self.last, prefix) {
            self.last = self.find(prefix);
        }
        self.last
    }

    fn find(&mut self, prefix: &[u8]) -> Account {
        let hash = self.tenants.index.hash(prefix);
        // The index takes its shard from the upper half.
        let seen = hash as usize % SEEN;
        let index = usize::from(self.seen[seen]);
        if index != 0 && self.known[index].hash == hash && self.is(Account::of(index), prefix) {
            return Account::of(index);
        }
        let new = self.known.len();
        let from = self.prefixes.len();
        self.prefixes.extend_from_slice(prefix);
        let prefix_at = (from as u32, self.prefixes.len() as u32);
        let tenant = self.tenants.find(hash, prefix, self.guard);
        self.known.push(Known { tenant, hash, prefix: prefix_at });
        // The account of a killed tenant stays, as something may still be charged to it.
        self.seen[seen] = u16::try_from(new).unwrap_or(0);
        Account::of(new)
    }

    /// Returns whether an account belongs to the live tenant of `prefix`.
    #[inline]
    fn is(&self, account: Account, prefix: &[u8]) -> bool {
        let known = &self.known[account.index()];
        let (from, to) = known.prefix;
        self.prefixes[from as usize..to as usize] == *prefix && !known.tenant.group.is_killed()
    }

    #[inline]
    pub(crate) fn tenant(&self, account: Account) -> &Arc<Tenant> {
        &self.known[account.index()].tenant
    }

    pub(crate) fn guard(&self) -> &'g Guard {
        self.guard
    }

    /// Returns whether it is time to [`forget`](Resolver::forget).
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.known.len() > KNOWN_MAX
    }

    /// Forgets everything except the root. Accounts are void after this.
    pub(crate) fn forget(&mut self) {
        self.known.truncate(1);
        self.prefixes.clear();
        self.seen = [0; SEEN];
        self.last = Account::ROOT;
    }
}

impl<'g> Known<'g> {
    fn root(tenants: &'g Tenants) -> Known<'g> {
        Known { tenant: Found::Listed(&tenants.root), hash: 0, prefix: (0, 0) }
    }
}

impl Drop for Resolver<'_> {
    fn drop(&mut self) {
        let mut known = std::mem::take(&mut self.known);
        known.clear();
        let mut prefixes = std::mem::take(&mut self.prefixes);
        prefixes.clear();
        // Without elements, so that only the memory is carried over to another lifetime: the
        // iterator collects in place.
        let known: Vec<Known<'static>> = known.into_iter().map_while(|_| None).collect();
        SPARE.set(Some(Spare { known, prefixes }));
    }
}
