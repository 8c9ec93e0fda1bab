//! What a connection meters: gathered while it executes a batch of requests, added to the tenants'
//! groups before the answers are sent.
//!
//! Gathering makes a pipeline of requests cost one add per tenant and metric. Adding before sending
//! makes totals exact for a client that has its answer.
//!
//! A retrieval of several keys is metered as one request per key: each key's tenant is charged its
//! own bytes; the bytes of the command word and of the line's end go to the first key's tenant, the
//! closing `END` to the last one's. What the tenants are charged therefore adds up to what went
//! over the wire.
//!
//! Up to [`SHARE_MAX`] small neighbours in a batch share one reading of the clock as the end of
//! their latency. Their answers leave together, and a reading costs as much as a small request's
//! lookup.
//!
//! CPU time needs no tally: the thread is in the group of the request that it executes
//! ([`CurrentGroup`](super::current_group::CurrentGroup)).

use submeter::{Count, Counter};

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::tenant::{Account, KNOWN_KEPT, Resolver};

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
    /// For retrievals: whether there was an item.
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

/// What the accounts of one connection have consumed in this batch.
#[derive(Default)]
pub(crate) struct BatchMeter {
    /// By account; shorter than the list of accounts.
    tallies: Vec<AccountTally>,
    /// The accounts that have something in their tally.
    touched: Vec<Account>,
    /// The account of the request that was added last.
    current: Account,
    /// The accounts of the requests since the last reading of the clock.
    run: Vec<Account>,
    /// How many requests those are.
    running: u32,
    /// When the bytes of the batch arrived.
    arrival: u64,
}

/// What one account has consumed in this batch.
#[derive(Clone, Default)]
struct AccountTally {
    touched: bool,
    /// Requests since the last reading of the clock.
    running: u32,
    kinds: [u32; KINDS],
    hits: u32,
    misses: u32,
    store_failures: u32,
    bytes_in: u64,
    bytes_out: u64,
}

/// The most requests that share one reading of the clock.
const SHARE_MAX: u32 = 32;

/// A request of this many bytes has a reading of its own, as copying its value takes time.
const LARGE_BYTES: usize = 4096;

/// What turns accounts and readings of the clock into groups and times.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) resolver: &'a Resolver,
    pub(crate) clock: &'a Clock,
    pub(crate) metrics: &'a Metrics,
}

impl BatchMeter {
    /// Begins a batch whose bytes arrived at `raw`.
    pub(crate) fn begin(&mut self, raw: u64) {
        self.arrival = raw;
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
        self.current = account;
        self.running += 1;
        let tally = self.tally();
        tally.running += 1;
        tally.kinds[effect.kind as usize] += 1;
        match effect.hit {
            Some(true) => tally.hits += 1,
            Some(false) => tally.misses += 1,
            None => {}
        }
        tally.store_failures += u32::from(effect.no_memory);
        tally.bytes_in += bytes_in as u64;
        tally.bytes_out += bytes_out as u64;
        if tally.running == 1 {
            self.run.push(account);
        }
    }

    /// Adds bytes that belong to the request added last.
    #[inline]
    pub(crate) fn add_bytes(&mut self, bytes_in: usize, bytes_out: usize) {
        let tally = self.tally();
        tally.bytes_in += bytes_in as u64;
        tally.bytes_out += bytes_out as u64;
    }

    /// Returns whether the next request may share a reading of the clock with those before it.
    #[inline]
    pub(crate) fn may_share(&self, bytes_in: usize) -> bool {
        self.running < SHARE_MAX && bytes_in < LARGE_BYTES
    }

    /// Reads the clock and records the latency of the requests since the last reading.
    pub(crate) fn boundary(&mut self, context: Context<'_>) {
        if self.running == 0 {
            return;
        }
        let now = context.clock.raw();
        let latency_ns = context.clock.between_ns(self.arrival, now);
        self.running = 0;
        for account in self.run.drain(..) {
            let tally = &mut self.tallies[account.index()];
            let requests = std::mem::take(&mut tally.running);
            let group = &context.resolver.tenant(account).group;
            group.record_many(context.metrics.latency, latency_ns, u64::from(requests));
        }
    }

    /// Adds what was gathered to the groups.
    pub(crate) fn flush(&mut self, context: Context<'_>) {
        self.boundary(context);
        for account in self.touched.drain(..) {
            let tally = std::mem::take(&mut self.tallies[account.index()]);
            tally.hand_over(account, context);
        }
        if self.tallies.len() > KNOWN_KEPT {
            for list in [&mut self.touched, &mut self.run] {
                list.shrink_to(KNOWN_KEPT);
            }
            self.tallies.truncate(KNOWN_KEPT);
            self.tallies.shrink_to_fit();
        }
    }

    /// The tally of the current account.
    #[inline]
    fn tally(&mut self) -> &mut AccountTally {
        let index = self.current.index();
        if index >= self.tallies.len() {
            self.tallies.resize(index + 1, AccountTally::default());
        }
        let tally = &mut self.tallies[index];
        if !tally.touched {
            tally.touched = true;
            self.touched.push(self.current);
        }
        tally
    }
}

impl AccountTally {
    fn hand_over(self, account: Account, context: Context<'_>) {
        let group = &context.resolver.tenant(account).group;
        let metrics = context.metrics;
        let count = |counter: Counter<Count>, n: u32| {
            if n > 0 {
                group.add(counter, u64::from(n));
            }
        };
        let [gets, sets, deletes, touches, arithmetic, debugs, _] = self.kinds;
        count(metrics.cmd_get, gets);
        count(metrics.cmd_set, sets);
        count(metrics.cmd_delete, deletes);
        count(metrics.cmd_touch, touches);
        count(metrics.cmd_arithmetic, arithmetic);
        count(metrics.cmd_debug, debugs);
        count(metrics.get_hits, self.hits);
        count(metrics.get_misses, self.misses);
        count(metrics.store_failures, self.store_failures);
        group.add(metrics.bytes_in, self.bytes_in);
        if self.bytes_out > 0 {
            group.add(metrics.bytes_out, self.bytes_out);
        }
    }
}
