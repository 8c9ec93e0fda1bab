//! The `end_to_end` table: the reference cache against memcached, both of them counting what each tenant does.
//!
//! All servers are processes of their own that stay up and hold the same items. One client, that of
//! `submeter load`, turns to them in slices, in an order that rotates with each round, so that what else the
//! machine does hits all of them alike; who has no slice has no request and sleeps. The requests of a round are
//! drawn from the same seed for every server. After each slice both servers that count by tenant are asked what
//! they counted: a figure of a server that counts nothing, or something else, is an error and not a figure.

mod control;
mod human;
mod process;
mod record;
mod slice;
mod workload;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use super::Inputs;
use super::row::{Param, Params};
use super::runner::{Absent, Cell, Figures, Plan, Sample};
use process::Process;
use record::{Found, SharedRecord};
use slice::{Clients, Server, Turn};
use workload::Workload;

const TABLE: &str = "end_to_end";
/// How long one server has the client to itself.
const SLICE: Duration = Duration::from_millis(500);
/// The same where the least will do.
const SLICE_QUICK: Duration = Duration::from_millis(120);

/// Requests under way on each connection: what `submeter load` has unless told otherwise, and what a client has
/// that waits for each answer. The first makes a batch of each read, the second asks for a system call each.
const PIPELINES: [usize; 2] = [8, 1];

/// A server, and how it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    MemcachedStats,
    Memcached,
    Submeter,
    SubmeterPlain,
}

impl Variant {
    const ALL: [Variant; 4] =
        [Variant::MemcachedStats, Variant::Memcached, Variant::Submeter, Variant::SubmeterPlain];

    fn name(self) -> &'static str {
        match self {
            Variant::MemcachedStats => "memcached_stats",
            Variant::Memcached => "memcached",
            Variant::Submeter => "submeter",
            Variant::SubmeterPlain => "submeter_plain",
        }
    }

    fn is_memcached(self) -> bool {
        matches!(self, Variant::Memcached | Variant::MemcachedStats)
    }

    /// Returns whether it counts what each tenant does.
    fn counts_tenants(self) -> bool {
        matches!(self, Variant::MemcachedStats | Variant::Submeter)
    }
}

/// Says what to measure. Servers start with the first sample.
///
/// # Errors
/// When the tenants cannot be made.
pub(crate) fn plan(inputs: &Inputs) -> io::Result<Plan> {
    let workload = Workload::new(inputs.tenants.as_deref(), inputs.quick)?;
    let notes = vec![workload.note()];
    let bench = Rc::new(Bench {
        workload,
        record: SharedRecord::default(),
        clients: RefCell::default(),
        servers: RefCell::default(),
        length: if inputs.quick { SLICE_QUICK } else { SLICE },
    });
    let has_memcached = process::memcached().is_some();
    let (there, absent): (Vec<Variant>, Vec<Variant>) =
        Variant::ALL.into_iter().partition(|variant| has_memcached || !variant.is_memcached());
    let reason = "there is no memcached on the PATH; on Debian: apt install memcached";
    let absent = absent.iter().map(|one| Absent { variant: one.name(), reason: reason.to_owned() });
    let group = |pipeline| there.iter().map(|&variant| bench.cell(variant, pipeline)).collect();
    Ok(Plan {
        table: TABLE,
        unit: "",
        groups: PIPELINES.into_iter().map(group).collect(),
        figures: Figures::Own(Rc::new(Found(Rc::clone(&bench.record)))),
        rounds_max: usize::MAX,
        notes,
        absent: absent.collect(),
    })
}

/// What all cells share. Its servers end when it is dropped.
struct Bench {
    workload: Workload,
    record: SharedRecord,
    clients: RefCell<Option<Clients>>,
    /// Those that are up.
    servers: RefCell<Vec<(Variant, Server)>>,
    length: Duration,
}

impl Bench {
    /// Makes the cell of one server with so many requests under way on each connection.
    fn cell(self: &Rc<Bench>, variant: Variant, pipeline: usize) -> Cell {
        let bench = Rc::clone(self);
        let mut round = 0;
        let measure = move || {
            bench.slice(variant, Turn { round, pipeline })?;
            round += 1;
            Ok(Sample { values: Vec::new(), disturbed: false })
        };
        Cell { params: params(pipeline), variant: variant.name(), measure: Box::new(measure) }
    }

    /// Drives a server for a slice, and takes down what was found.
    fn slice(&self, variant: Variant, turn: Turn) -> io::Result<()> {
        let mut clients = self.clients.borrow_mut();
        if clients.is_none() {
            *clients = Some(Clients::new()?);
        }
        let clients = clients.as_ref().expect("made above");
        let mut servers = self.servers.borrow_mut();
        if !servers.iter().any(|(other, _)| *other == variant) {
            let process = Process::start(variant)?;
            let (server, memory) = Server::fill(process, &self.workload, clients)?;
            self.record.borrow_mut().weigh(variant, memory);
            servers.push((variant, server));
        }
        let server = servers.iter_mut().find(|(other, _)| *other == variant);
        let (_, server) = server.expect("started above");
        let found = server.slice(&self.workload, clients, turn, self.length)?;
        self.record.borrow_mut().add(variant, turn, &found)
    }
}

/// Returns what distinguishes throughput with so many requests under way.
fn params(pipeline: usize) -> Params {
    vec![("measure", Param::Word("throughput")), ("pipeline", Param::Number(pipeline as u64))]
}
