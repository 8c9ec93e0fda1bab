//! The meter of a connection. It gathers usage while a batch of requests runs and adds it to the
//! tenants' groups before the answers are sent.
//!
//! Gathering makes a pipeline of requests cost one add per tenant and metric. Adding before sending
//! makes totals exact for a client that has received its answer.
//!
//! A retrieval of several keys is metered as one request per key: each key's tenant is charged its
//! own bytes; the bytes of the command word and of the line's end go to the first key's tenant, and
//! the closing `END` to the last one's. The sum of what tenants are charged therefore equals what
//! went over the wire.
//!
//! The requests of a batch share one reading of the clock as the end of their latency: their
//! answers leave together, and a reading costs as much as a small request's lookup. They also share
//! the beginning: the time when the worker learned that they could be read
//! ([`arrival`](crate::server::arrival)). The wait from there to the beginning of their batch is a
//! separate figure.
//!
//! CPU time needs no tally: the thread is in the group of the request that it executes
//! ([`CurrentGroup`](super::current_group::CurrentGroup)).

use std::cell::Cell;

use submeter::{Count, Counter, Group};

use crate::cache::Cache;
use crate::metrics::Metrics;
use crate::tenant::{Account, Resolver};

/// The counter that a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Set,
    Delete,
    Touch,
    Arithmetic,
    Debug,
    /// A request without a key.
    Other,
}

const KINDS: usize = 7;

/// The outcome of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effect {
    pub(crate) kind: Kind,
    /// For retrievals: whether the item was found.
    pub(crate) hit: Option<bool>,
    /// Whether a store was refused for want of memory.
    pub(crate) no_memory: bool,
}

impl Effect {
    pub(crate) fn new(kind: Kind) -> Effect {
        Effect { kind, hit: None, no_memory: false }
    }

    pub(crate) fn fetch(kind: Kind, hit: bool) -> Effect {
        Effect { kind, hit: Some(hit), no_memory: false }
    }

    pub(crate) fn no_memory(kind: Kind) -> Effect {
        Effect { kind, hit: None, no_memory: true }
    }
}

/// The usage of each account in one batch.
pub(crate) struct BatchMeter {
    /// Tallies by account; shorter than the list of accounts.
    tallies: Vec<AccountTally>,
    /// When the bytes of the batch arrived, and when it began.
    arrival: u64,
    began: u64,
}

/// Duration of each request of a batch, and the part of it spent waiting for the batch to begin.
#[derive(Clone, Copy)]
struct Took {
    latency_ns: u64,
    waited_ns: u64,
}

/// The usage of one account in this batch.
#[derive(Clone, Copy, Default)]
struct AccountTally {
    kinds: [u32; KINDS],
    hits: u32,
    misses: u32,
    store_failures: u32,
    bytes_in: u64,
    bytes_out: u64,
}

thread_local! {
    /// The memory of a finished meter, kept for the next one.
    static SPARE: Cell<Vec<AccountTally>> = const { Cell::new(Vec::new()) };
}

impl BatchMeter {
    /// Makes a meter for a batch whose bytes arrived at `arrival`, and which begins at `began`.
    pub(crate) fn new(arrival: u64, began: u64) -> BatchMeter {
        BatchMeter { tallies: SPARE.take(), arrival, began }
    }

    /// Adds one request, or one key of a retrieval.
    #[inline]
    pub(crate) fn add(
        &mut self,
        account: Account,
        effect: Effect,
        bytes_in: usize,
        bytes_out: usize,
    ) {
        let tally = self.tally(account);
        tally.kinds[effect.kind as usize] += 1;
        match effect.hit {
            Some(true) => tally.hits += 1,
            Some(false) => tally.misses += 1,
            None => {}
        }
        tally.store_failures += u32::from(effect.no_memory);
        tally.bytes_in += bytes_in as u64;
        tally.bytes_out += bytes_out as u64;
    }

    /// Adds bytes that belong to a request already added.
    #[inline]
    pub(crate) fn add_bytes(&mut self, account: Account, bytes_in: usize, bytes_out: usize) {
        let tally = self.tally(account);
        tally.bytes_in += bytes_in as u64;
        tally.bytes_out += bytes_out as u64;
    }

    /// Adds what was gathered to the groups.
    pub(crate) fn settle(&mut self, resolver: &Resolver<'_>, cache: &Cache) {
        let clock = &cache.store().clock;
        let took = Took {
            latency_ns: clock.between_ns(self.arrival, clock.raw()),
            waited_ns: clock.between_ns(self.arrival, self.began),
        };
        for (index, tally) in self.tallies.drain(..).enumerate() {
            tally.hand_over(&resolver.tenant(Account::of(index)).group, took, cache.metrics());
        }
    }

    /// The tally of an account.
    #[inline]
    fn tally(&mut self, account: Account) -> &mut AccountTally {
        let index = account.index();
        if index >= self.tallies.len() {
            self.tallies.resize(index + 1, AccountTally::default());
        }
        &mut self.tallies[index]
    }
}

impl Drop for BatchMeter {
    fn drop(&mut self) {
        // A batch that panicked was not settled, and the next one's accounts differ.
        self.tallies.clear();
        SPARE.set(std::mem::take(&mut self.tallies));
    }
}

impl AccountTally {
    fn hand_over(&self, group: &Group, took: Took, metrics: &Metrics) {
        let count = |counter: Counter<Count>, n: u32| {
            if n > 0 {
                group.add(counter, u64::from(n));
            }
        };
        let [gets, sets, deletes, touches, arithmetic, debugs, _] = self.kinds;
        count(metrics.cmd_get, gets);
        count(metrics.cmd_set, sets);
        count(metrics.get_hits, self.hits);
        count(metrics.get_misses, self.misses);
        if deletes | touches | arithmetic | debugs | self.store_failures != 0 {
            count(metrics.cmd_delete, deletes);
            count(metrics.cmd_touch, touches);
            count(metrics.cmd_arithmetic, arithmetic);
            count(metrics.cmd_debug, debugs);
            count(metrics.store_failures, self.store_failures);
        }
        if self.bytes_in > 0 {
            group.add(metrics.bytes_in, self.bytes_in);
        }
        if self.bytes_out > 0 {
            group.add(metrics.bytes_out, self.bytes_out);
        }
        let requests: u32 = self.kinds.iter().sum();
        if requests > 0 {
            group.record_many(metrics.latency, took.latency_ns, u64::from(requests));
            if took.waited_ns > 0 {
                group.add(metrics.waited, took.waited_ns.saturating_mul(u64::from(requests)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsettled_batch_leaves_nothing_behind() {
        let mut meter = BatchMeter::new(0, 0);
        meter.add_bytes(Account::of(2), 7, 7);
        assert_eq!(meter.tallies.len(), 3);
        drop(meter);
        let next = BatchMeter::new(0, 0);
        assert!(next.tallies.is_empty(), "charged to accounts of another batch");
        assert!(next.tallies.capacity() >= 3, "its memory is used again");
    }
}
