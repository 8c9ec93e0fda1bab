//! What a connection meters: gathered while it works through a batch of requests, handed to the
//! tenant's group before the answers are sent.
//!
//! Gathering makes a pipeline of requests of one tenant cost one add per metric. Handing over before
//! sending makes totals exact for whoever has an answer in hand.
//!
//! A retrieval of several keys is metered as if it were one request a key: each key's tenant gets
//! its own bytes; the bytes of the command word and the line's end go to the first key's tenant and
//! the closing `END` to the last one's. Neighbouring keys of one tenant share one reading of the
//! clock. So what tenants are charged adds up to what went over the wire, for any mix.

use std::sync::Arc;

use submeter::{Count, Counter};

use crate::metrics::Metrics;
use crate::store::Clock;
use crate::tenant::Tenant;

/// Which counter a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Set,
    Delete,
    Touch,
    Arithmetic,
    Debug,
    /// Everything that has no key.
    Other,
}

const KINDS: usize = 7;

/// What became of a request.
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

/// Gathers for one tenant at a time.
#[derive(Default)]
pub(crate) struct Meter {
    tenant: Option<Arc<Tenant>>,
    kinds: [u64; KINDS],
    hits: u64,
    misses: u64,
    bytes_in: u64,
    bytes_out: u64,
    store_failures: u64,
    cpu_ns: u64,
    /// Requests since the last reading of the clock.
    running: u64,
    /// When the bytes of the batch arrived.
    arrival: u64,
    /// When the last request ended.
    boundary: u64,
}

impl Meter {
    /// Begins a batch whose bytes arrived at `raw`.
    pub(crate) fn begin(&mut self, raw: u64) {
        self.arrival = raw;
        self.boundary = raw;
    }

    /// Goes on with a batch after its first answers were sent.
    pub(crate) fn resume(&mut self, raw: u64) {
        self.boundary = raw;
    }

    /// Turns to a tenant: what follows is its.
    #[inline]
    pub(crate) fn turn(&mut self, tenant: &Arc<Tenant>, clock: &Clock, metrics: &Metrics) {
        if !self.tenant.as_ref().is_some_and(|current| Arc::ptr_eq(current, tenant)) {
            self.flush(clock, metrics);
            self.tenant = Some(Arc::clone(tenant));
        }
    }

    /// Adds one request, or one key of a retrieval.
    #[inline]
    pub(crate) fn add(&mut self, effect: Effect, bytes_in: usize, bytes_out: usize) {
        self.kinds[effect.kind as usize] += 1;
        match effect.hit {
            Some(true) => self.hits += 1,
            Some(false) => self.misses += 1,
            None => {}
        }
        self.store_failures += u64::from(effect.no_memory);
        self.bytes_in += bytes_in as u64;
        self.bytes_out += bytes_out as u64;
        self.running += 1;
    }

    /// Adds bytes that belong to the request added last.
    #[inline]
    pub(crate) fn add_bytes(&mut self, bytes_in: usize, bytes_out: usize) {
        self.bytes_in += bytes_in as u64;
        self.bytes_out += bytes_out as u64;
    }

    /// Ends a request: reads the clock once.
    #[inline]
    pub(crate) fn boundary(&mut self, clock: &Clock, metrics: &Metrics) {
        let Some(tenant) = &self.tenant else { return };
        if self.running == 0 {
            return;
        }
        let now = clock.raw();
        self.cpu_ns += clock.between_ns(self.boundary, now);
        self.boundary = now;
        let latency_ns = clock.between_ns(self.arrival, now);
        for _ in 0..std::mem::take(&mut self.running) {
            tenant.group.record(metrics.latency, latency_ns);
        }
    }

    /// Hands over what was gathered.
    pub(crate) fn flush(&mut self, clock: &Clock, metrics: &Metrics) {
        self.boundary(clock, metrics);
        let Some(tenant) = &self.tenant else { return };
        let group = &tenant.group;
        let commands: [Option<Counter<Count>>; KINDS] = [
            Some(metrics.cmd_get),
            Some(metrics.cmd_set),
            Some(metrics.cmd_delete),
            Some(metrics.cmd_touch),
            Some(metrics.cmd_arithmetic),
            Some(metrics.cmd_debug),
            None,
        ];
        for (command, n) in commands.into_iter().zip(&mut self.kinds) {
            let n = std::mem::take(n);
            if let Some(command) = command.filter(|_| n > 0) {
                group.add(command, n);
            }
        }
        let add = |counter, n: &mut u64| {
            let n = std::mem::take(n);
            if n > 0 {
                group.add(counter, n);
            }
        };
        add(metrics.get_hits, &mut self.hits);
        add(metrics.get_misses, &mut self.misses);
        add(metrics.store_failures, &mut self.store_failures);
        for (counter, n) in
            [(metrics.bytes_in, &mut self.bytes_in), (metrics.bytes_out, &mut self.bytes_out)]
        {
            let n = std::mem::take(n);
            if n > 0 {
                group.add(counter, n);
            }
        }
        let cpu_ns = std::mem::take(&mut self.cpu_ns);
        if cpu_ns > 0 {
            group.add(metrics.cpu, cpu_ns);
        }
    }
}
