//! The `end_to_end` table: the reference cache against memcached, both counting by tenant.
//!
//! The servers are separate processes that hold the same items and stay up for several rounds. One
//! client, that of `submeter load`, drives them one at a time, in slices whose order rotates with
//! each round, so that other work on the machine affects all of them alike; between its slices a
//! server receives no requests and sleeps. The requests of a round are drawn from the same seed for
//! every server. After each slice the servers that count by tenant are asked for their counts: a
//! figure of a server that counts nothing, or counts wrong, becomes an error.

mod child;
mod control;
mod hits;
mod process;
mod slice;
mod workload;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use super::Inputs;
use super::record::Reading;
use super::runner::{Absent, Cell, Plan, Sample};
use crate::row::{Param, Params};
pub(crate) use child::serve;
use hits::Hits;
use process::Process;
use slice::{Clients, Memory, Server, Slice, Turn};
use workload::Workload;

const TABLE: &str = "end_to_end";
/// How long one server has the client to itself.
const SLICE: Duration = Duration::from_millis(500);
/// The same in a quick run.
const SLICE_QUICK: Duration = Duration::from_millis(120);

/// After how many rounds each server is started anew. Of the same servers, those that were started
/// earlier are slower for as long as they live, by 2 to 11 %: more rounds do not average that out.
/// It has no common divisor with the number of servers, four or six, so that each is the first of a
/// start as often as the others.
const ROUNDS_OF_A_START: u64 = 7;

/// Requests in flight on each connection: the default of `submeter load`, and that of a client that
/// waits for each answer. With the first, each read fetches a batch; with the second, each request
/// needs its own system calls.
const PIPELINES: [usize; 2] = [8, 1];

/// A server and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    MemcachedStats,
    Memcached,
    Submeter,
    SubmeterNoPerfEvents,
    SubmeterLimited,
    SubmeterPlain,
}

impl Variant {
    const ALL: [Variant; 6] = [
        Variant::MemcachedStats,
        Variant::Memcached,
        Variant::Submeter,
        Variant::SubmeterNoPerfEvents,
        Variant::SubmeterLimited,
        Variant::SubmeterPlain,
    ];

    fn name(self) -> &'static str {
        match self {
            Variant::MemcachedStats => "memcached_stats",
            Variant::Memcached => "memcached",
            Variant::Submeter => "submeter",
            Variant::SubmeterNoPerfEvents => "submeter_no_perf_events",
            Variant::SubmeterLimited => "submeter_limited",
            Variant::SubmeterPlain => "submeter_plain",
        }
    }

    fn is_memcached(self) -> bool {
        matches!(self, Variant::Memcached | Variant::MemcachedStats)
    }

    /// Returns whether it counts by tenant.
    fn counts_tenants(self) -> bool {
        !matches!(self, Variant::Memcached | Variant::SubmeterPlain)
    }
}

/// Returns the table's plan. Servers start with the first sample.
///
/// # Errors
/// When the tenants cannot be made.
pub(crate) fn plan(inputs: &Inputs) -> io::Result<Plan> {
    let workload = Workload::new(inputs.tenants.as_deref(), inputs.quick)?;
    let notes = vec![workload.note()];
    let bench = Rc::new(Bench {
        workload,
        clients: RefCell::default(),
        servers: RefCell::default(),
        hits: RefCell::default(),
        length: if inputs.quick { SLICE_QUICK } else { SLICE },
    });
    let has_memcached = process::memcached().is_some();
    let (there, absent): (Vec<Variant>, Vec<Variant>) =
        Variant::ALL.into_iter().partition(|variant| has_memcached || !variant.is_memcached());
    let reason = "there is no memcached on the PATH; on Debian: apt install memcached";
    let absent = absent.iter().map(|one| Absent { variant: one.name(), reason: reason.to_owned() });
    let of_slices = |pipeline| there.iter().map(|&variant| bench.cell(variant, pipeline)).collect();
    let mut groups: Vec<Vec<Cell>> = PIPELINES.into_iter().map(of_slices).collect();
    // Last, because all servers are filled by then.
    groups.push(there.iter().map(|&variant| bench.memory_cell(variant)).collect());
    Ok(Plan { mixed: true, notes, absent: absent.collect(), ..Plan::new(TABLE, groups) })
}

/// A running server.
struct RunningServer {
    variant: Variant,
    server: Server,
    memory: Option<Memory>,
}

/// The state that all cells share. Dropping it stops the servers.
struct Bench {
    workload: Workload,
    clients: RefCell<Option<Clients>>,
    /// The running servers.
    servers: RefCell<Vec<RunningServer>>,
    hits: RefCell<Hits>,
    length: Duration,
}

impl Bench {
    /// Makes the cell of one server with `pipeline` requests in flight on each connection.
    fn cell(self: &Rc<Bench>, variant: Variant, pipeline: usize) -> Cell {
        let bench = Rc::clone(self);
        let params = Params::from([
            ("measure", Param::word("throughput")),
            ("pipeline", Param::number(pipeline as u64)),
        ]);
        let mut round = 0;
        Cell::new(params, variant.name(), move || {
            let slice = bench.slice(variant, Turn { round, pipeline })?;
            round += 1;
            Ok(Sample::kept(readings(&slice)))
        })
    }

    /// Makes the cell of a filled server's memory.
    fn memory_cell(self: &Rc<Bench>, variant: Variant) -> Cell {
        let bench = Rc::clone(self);
        let params = Params::from([("measure", Param::word("memory"))]);
        Cell::once(params, variant.name(), move || {
            let servers = bench.servers.borrow();
            let up = servers.iter().find(|up| up.variant == variant);
            Ok(Sample::kept(up.and_then(|up| up.memory).map_or_else(Vec::new, memory_readings)))
        })
    }

    /// Drives a server for one slice.
    fn slice(&self, variant: Variant, turn: Turn) -> io::Result<Slice> {
        let mut clients = self.clients.borrow_mut();
        if clients.is_none() {
            *clients = Some(Clients::new()?);
        }
        let clients = clients.as_ref().expect("made above");
        let mut servers = self.servers.borrow_mut();
        if is_anew(turn) {
            servers.retain(|up| up.variant != variant);
        }
        if !servers.iter().any(|up| up.variant == variant) {
            let process = Process::start(variant, &self.workload)?;
            let (server, memory) = Server::fill(process, &self.workload, clients)?;
            servers.push(RunningServer { variant, server, memory });
        }
        let up = servers.iter_mut().find(|up| up.variant == variant);
        let server = &mut up.expect("started above").server;
        let slice = server.slice(&self.workload, clients, turn, self.length)?;
        self.hits.borrow_mut().check(variant, turn, &slice)?;
        Ok(slice)
    }
}

/// Returns whether a server is started anew for this slice.
fn is_anew(turn: Turn) -> bool {
    turn.pipeline == PIPELINES[0] && turn.round.is_multiple_of(ROUNDS_OF_A_START)
}

/// The quantiles of the response time that have a row.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// Returns the figures of a slice.
fn readings(slice: &Slice) -> Vec<Reading> {
    let requests = slice.requests as f64;
    let of = |unit, value| Reading::of(unit, vec![value]);
    let mut readings = vec![of("requests/s", requests / slice.took.as_secs_f64())];
    let cpu_us = slice.cpu.map(|cpu| cpu.as_nanos() as f64 / 1e3 / requests);
    readings.extend(cpu_us.map(|us| of("us", us).with("measure", "cpu")));
    readings.extend(QUANTILES.map(|(name, part)| {
        let us = slice.latency_ns.value_at_quantile(part) as f64 / 1e3;
        of("us", us).with("measure", "latency").with("quantile", name)
    }));
    readings
}

/// Returns the readings of a server's memory per item.
fn memory_readings(Memory { bytes, overhead_bytes }: Memory) -> Vec<Reading> {
    let of = |value| Reading::of("bytes", vec![value]);
    vec![of(bytes), of(overhead_bytes).with("measure", "memory_overhead")]
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::*;

    /// A slice of two seconds with the given requests and hits.
    pub(super) fn slice(requests: u64, hits: u64) -> Slice {
        let mut latency_ns = Histogram::new(3).expect("a histogram");
        latency_ns.record(1_000_000).expect("it grows");
        let (took, cpu) = (Duration::from_secs(2), Some(Duration::from_micros(requests * 3)));
        Slice { took, requests, hits, misses: requests - hits, cpu, latency_ns }
    }

    #[test]
    fn a_slice_yields_its_rate_and_a_requests_time() {
        let readings = readings(&slice(10_000, 10_000));
        let values: Vec<(f64, &str)> =
            readings.iter().map(|reading| (reading.values[0], reading.unit)).collect();
        assert_eq!(values[..2], [(5_000.0, "requests/s"), (3.0, "us")]);
        // Within the histogram's precision.
        let is_a_millisecond =
            |(us, unit): &(f64, &str)| (us / 1e3 - 1.0).abs() < 0.01 && *unit == "us";
        assert!(values[2..].iter().all(is_a_millisecond) && values.len() == 5, "{values:?}");
        let readings = memory_readings(Memory { bytes: 300.0, overhead_bytes: 50.0 });
        let bytes: Vec<f64> = readings.iter().map(|reading| reading.values[0]).collect();
        assert_eq!(bytes, [300.0, 50.0]);
    }
}
