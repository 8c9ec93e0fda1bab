//! The `neighbours` table: what a tenant keeps of a shared cache beside one that stores ten times
//! as much, with and without protection.
//!
//! Each sample has its own server, in this process: evictions by one variant must not become misses
//! of the next. The loud tenant sets the pace, so that it stores ten times as often as the quiet
//! one asks, however fast the machine is.

mod client;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use hdrhistogram::Histogram;
use submeter_cache::{Cache, Config, Server, TenantLimits};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::record::Reading;
use super::runner::{Cell, Plan, Sample};
use crate::row::{Param, Params};
use client::Client;

const TABLE: &str = "neighbours";

const MEMORY: u64 = 16 << 20;
/// Slightly more than the quiet tenant's items, which take less than 12 MB.
const LOW: u64 = 12 << 20;
/// The items that each tenant requests, all equally often.
const QUIET_ITEMS: u64 = 10_000;
const LOUD_ITEMS: u64 = 40_000;
/// Number of stores of the loud tenant for each request of the quiet one.
const STORES: usize = 10;
/// Requests of the quiet tenant before the measured ones: with ten stores for each, they fill the
/// memory.
const WARM_UP: u64 = 1_500;
const MEASURED: u64 = 1_500;

/// Who shares the server, and on which terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Alone,
    Unprotected,
    Protected,
}

impl Variant {
    const ALL: [Variant; 3] = [Variant::Alone, Variant::Unprotected, Variant::Protected];

    fn name(self) -> &'static str {
        match self {
            Variant::Alone => "alone",
            Variant::Unprotected => "unprotected",
            Variant::Protected => "protected",
        }
    }
}

/// Returns the table's plan.
pub(crate) fn plan() -> Plan {
    let cell = |variant: Variant| {
        let params =
            Params::from([("measure", Param::word("hit_ratio")), ("tenant", Param::word("quiet"))]);
        let mut seed = 0;
        Cell::new(params, variant.name(), move || {
            seed += 1;
            Ok(Sample::kept(readings(&measure(variant, seed, MEASURED)?)))
        })
    };
    Plan { mixed: true, ..Plan::new(TABLE, vec![Variant::ALL.into_iter().map(cell).collect()]) }
}

/// What one tenant saw.
struct Seen {
    hits: u64,
    misses: u64,
    /// Latency of a request, or of the loud tenant's batch.
    latency_ns: Histogram<u64>,
}

impl Seen {
    fn new() -> Seen {
        Seen { hits: 0, misses: 0, latency_ns: Histogram::new(3).expect("three digits are legal") }
    }

    fn look(&mut self, is_hit: bool) {
        self.hits += u64::from(is_hit);
        self.misses += u64::from(!is_hit);
    }

    fn took(&mut self, since: Instant) {
        let ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.latency_ns.record(ns).expect("it grows");
    }

    fn percent(&self) -> f64 {
        self.hits as f64 * 100.0 / (self.hits + self.misses).max(1) as f64
    }
}

/// What the quiet tenant saw, and the loud one if there is one.
struct Outcome {
    quiet: Seen,
    loud: Option<Seen>,
}

/// Returns the figures of a sample.
fn readings(outcome: &Outcome) -> Vec<Reading> {
    let of = |seen: &Seen, tenant| {
        let us = seen.latency_ns.value_at_quantile(0.99) as f64 / 1e3;
        let latency = Reading::of("us", vec![us]).with("measure", "latency");
        let ratio = Reading::of("%", vec![seen.percent()]);
        [ratio.with("tenant", tenant), latency.with("tenant", tenant).with("quantile", "p99")]
    };
    let loud = outcome.loud.iter().flat_map(|seen| of(seen, "loud"));
    of(&outcome.quiet, "quiet").into_iter().chain(loud).collect()
}

/// Fills a server with the quiet tenant's items, and then runs both tenants.
fn measure(variant: Variant, seed: u64, measured: u64) -> io::Result<Outcome> {
    let low = (variant == Variant::Protected).then_some(LOW);
    let limits = TenantLimits { low, ..TenantLimits::default() };
    let tenant_limits = vec![("/quiet".to_owned(), limits)];
    let config = Config { memory_max: MEMORY, tenant_limits, ..Config::default() };
    let cache = Cache::new(config).map_err(io::Error::other)?;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let server = runtime.block_on(Server::bind((Ipv4Addr::LOCALHOST, 0).into(), cache))?;
    let address = server.address().tcp().expect("it was bound to one");
    let (end, ended) = oneshot::channel::<()>();
    let serving = runtime.spawn(server.run(async move { drop(ended.await) }));
    let outcome = drive(variant, address, seed, measured);
    drop(end);
    runtime.block_on(serving).map_err(io::Error::other)??;
    outcome
}

fn drive(variant: Variant, address: SocketAddr, seed: u64, measured: u64) -> io::Result<Outcome> {
    let mut client = Client::connect(address, "quiet", seed)?;
    for item in 0..QUIET_ITEMS {
        client.store([item])?;
    }
    if variant == Variant::Alone {
        let quiet = quiet(&mut client, None, measured)?;
        return Ok(Outcome { quiet, loud: None });
    }
    let (pace, paced) = sync_channel(1);
    let neighbour = Client::connect(address, "loud", seed)?;
    thread::scope(|scope| {
        let loud = scope.spawn(move || loud(neighbour, &pace));
        let quiet = quiet(&mut client, Some(paced), measured);
        let loud = loud.join().expect("no panic")?;
        Ok(Outcome { quiet: quiet?, loud: Some(loud) })
    })
}

/// Requests items, and stores those that are missing, as a caching client does. If there is a pace,
/// each request waits for its turn, and the loop ends with the pace.
fn quiet(client: &mut Client, paced: Option<Receiver<()>>, measured: u64) -> io::Result<Seen> {
    let mut seen = Seen::new();
    for n in 0..WARM_UP + measured {
        if let Some(paced) = &paced {
            paced.recv().map_err(|_| io::Error::other("the loud tenant has failed"))?;
        }
        let item = client.draw(QUIET_ITEMS);
        let asked = Instant::now();
        let is_hit = client.is_there(item)?;
        if n >= WARM_UP {
            seen.took(asked);
            seen.look(is_hit);
        }
        if !is_hit {
            client.store([item])?;
        }
    }
    Ok(seen)
}

/// Stores ten items at once, requests one, and lets the quiet tenant make a request, until that one
/// has ended.
fn loud(mut client: Client, pace: &SyncSender<()>) -> io::Result<Seen> {
    let mut seen = Seen::new();
    let mut batches = 0;
    loop {
        let items: [u64; STORES] = std::array::from_fn(|_| client.draw(LOUD_ITEMS));
        let asked = Instant::now();
        client.store(items)?;
        let item = client.draw(LOUD_ITEMS);
        let is_hit = client.is_there(item)?;
        batches += 1;
        if batches > WARM_UP {
            seen.took(asked);
            seen.look(is_hit);
        }
        if pace.send(()).is_err() {
            return Ok(seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An aggressor costs a protected neighbour no hit and an unprotected one many.
    #[test]
    fn protection_saves_a_neighbours_hits() {
        let outcome = |variant| measure(variant, 1, 300).expect("a server");
        let [alone, unprotected, protected] = Variant::ALL.map(outcome);
        assert_eq!((alone.quiet.misses, protected.quiet.misses), (0, 0));
        let percent = unprotected.quiet.percent();
        assert!((50.0..90.0).contains(&percent), "its fair share is 8 of 11.2 MiB: {percent} %");
        let [before, after] = [unprotected, protected].map(|outcome| outcome.loud.expect("both"));
        assert!(after.percent() < before.percent(), "what one keeps the other has not");
        assert!(alone.loud.is_none());
        assert!(alone.quiet.latency_ns.max() > 1_000, "no answer takes less than a microsecond");
    }
}
