//! The state that the requests of one batch share.

use std::time::Duration;

use submeter::refs::Guard;
use submeter::{Group, RateError};

use super::current_group::CurrentGroup;
use super::meter::BatchMeter;
use crate::cache::Cache;
use crate::tenant::{Account, Resolver};

/// Why a request does not begin.
#[derive(Clone, Copy)]
pub(super) struct HeldBack {
    pub(super) when: When,
    /// The cause, in the words of the answer.
    pub(super) of: &'static str,
}

/// When a request can begin that is held back.
#[derive(Clone, Copy)]
pub(super) enum When {
    After(Duration),
    Unknown,
    /// Its tenant was deleted while it waited.
    Never,
}

impl HeldBack {
    fn new(error: &RateError, of: &'static str) -> HeldBack {
        HeldBack { when: error.retry_after().map_or(When::Unknown, When::After), of }
    }

    /// Returns the same for a request that waited in a group, if it did, and is held back in `now`.
    /// If the first was killed and the second is the next of that name, the request ends: what it
    /// would wait for now is what the deleted tenant owes. Other tenants of a retrieval owe nothing
    /// of that.
    pub(super) fn after(self, waited: Option<&Group>, now: &Group) -> HeldBack {
        let is_gone = waited.is_some_and(|it| it.is_killed() && it.path() == now.path());
        if is_gone { HeldBack { when: When::Never, ..self } } else { self }
    }
}

/// The tenants that a batch of requests has found, what they have consumed, and the group that the
/// thread is in. It lives within one epoch guard, inside which the guard of each request costs next
/// to nothing.
pub(crate) struct Batch<'g> {
    cache: &'g Cache,
    pub(super) resolver: Resolver<'g>,
    pub(super) meter: BatchMeter,
    current: CurrentGroup,
}

impl<'g> Batch<'g> {
    /// Makes a batch whose bytes arrived at `arrival`, and which begins at `began`.
    pub(super) fn new(cache: &'g Cache, guard: &'g Guard, arrival: u64, began: u64) -> Batch<'g> {
        Batch {
            cache,
            resolver: Resolver::new(cache.tenants(), guard),
            meter: BatchMeter::new(arrival, began),
            current: CurrentGroup::default(),
        }
    }

    /// Finds the account of a key and enters its group.
    #[inline]
    pub(super) fn enter(&mut self, key: &[u8]) -> Account {
        let account = self.resolve(key);
        self.work_for(account);
        account
    }

    /// Enters an account's group.
    #[inline]
    pub(super) fn work_for(&mut self, account: Account) {
        if self.cache.config().metering {
            self.current.move_to(&self.resolver.tenant(account).group);
        }
    }

    /// Takes a request from its tenants' rates.
    #[inline]
    pub(super) fn take(&self, account: Account) -> Result<(), HeldBack> {
        if !self.cache.tenants().has_rates() {
            return Ok(());
        }
        let taken = self.resolver.tenant(account).group.try_take(self.cache.metrics().requests, 1);
        taken.map_err(|error| HeldBack::new(&error, "too many requests"))
    }

    /// Checks whether its tenants owe CPU time.
    #[inline]
    pub(super) fn admit(&self, account: Account) -> Result<(), HeldBack> {
        let admitted =
            self.resolver.tenant(account).group.try_admit(self.cache.metrics().cpu_budget);
        admitted.map_err(|error| HeldBack::new(&error, "too much CPU time"))
    }

    /// Finds the account of a key.
    #[inline]
    pub(super) fn resolve(&mut self, key: &[u8]) -> Account {
        if self.resolver.is_full() {
            self.settle();
            self.resolver.forget();
        }
        self.resolver.resolve(key)
    }

    /// Adds everything that the requests have consumed to the totals. Returns the group that the
    /// thread is in: sending the answers is part of the batch's work, but not under its guard.
    pub(crate) fn end(mut self) -> CurrentGroup {
        self.settle();
        self.current
    }

    fn settle(&mut self) {
        if self.cache.config().metering {
            self.meter.settle(&self.resolver, self.cache);
        }
    }
}
