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
use super::row::Param;
use super::runner::{Absent, Cell, Figures, Plan, Sample};
use process::Process;
use record::{Found, SharedRecord};
use slice::Clients;
use workload::Workload;

const TABLE: &str = "end_to_end";
/// How long one server has the client to itself.
const SLICE: Duration = Duration::from_millis(500);
/// The same where the least will do.
const SLICE_QUICK: Duration = Duration::from_millis(120);

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
    let workload = Rc::new(Workload::new(inputs.tenants.as_deref(), inputs.quick)?);
    let record = SharedRecord::default();
    let clients: Rc<RefCell<Option<Clients>>> = Rc::default();
    let slice = if inputs.quick { SLICE_QUICK } else { SLICE };
    let mut absent = Vec::new();
    let mut cells = Vec::new();
    for variant in Variant::ALL {
        if variant.is_memcached() && process::memcached().is_none() {
            let reason = "there is no memcached on the PATH; on Debian: apt install memcached";
            absent.push(Absent { variant: variant.name(), reason: reason.to_owned() });
            continue;
        }
        let (workload, record) = (Rc::clone(&workload), Rc::clone(&record));
        let clients = Rc::clone(&clients);
        let mut server: Option<slice::Server> = None;
        let mut round = 0;
        let measure = move || {
            let mut clients = clients.borrow_mut();
            if clients.is_none() {
                *clients = Some(Clients::new()?);
            }
            let clients = clients.as_mut().expect("made above");
            if server.is_none() {
                let process = Process::start(variant)?;
                let (started, memory) = slice::Server::fill(process, &workload, clients)?;
                record.borrow_mut().weigh(variant, memory);
                server = Some(started);
            }
            let server = server.as_mut().expect("started above");
            let found = server.slice(&workload, clients, round, slice)?;
            record.borrow_mut().add(variant, round, found)?;
            round += 1;
            Ok(Sample { values: Vec::new(), disturbed: false })
        };
        let params = vec![("measure", Param::Word("throughput"))];
        cells.push(Cell { params, variant: variant.name(), measure: Box::new(measure) });
    }
    Ok(Plan {
        table: TABLE,
        unit: "",
        groups: vec![cells],
        figures: Figures::Own(Rc::new(Found(record))),
        rounds_max: usize::MAX,
        notes: vec![workload.note()],
        absent,
    })
}
