//! `part=response`: the document's table, on the cache.
//!
//! Six tenants are siblings below one parent. Each of them, the parent and the whole process has two events, as in the
//! document. One server and the connections of one load run all the time; what follows the groups is put in
//! and taken out, a slice of some milliseconds each, in turns: so that what else the machine does, and what the
//! cache does as it ages, hits all variants alike.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use submeter::{Group, Tree};
use submeter_cache::{Cache, Config, Server};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::follow::{self, Request, Variant};
use super::record::{Combine, Figure, SharedRecord, cell};
use crate::bench::row::Param;
use crate::bench::runner::Cell;
use crate::load::connection::{self, Shared};
use crate::load::pattern::Pattern;
use crate::load::profile::Profile;
use crate::load::progress::Progress;
use crate::load::stream::Tenant;
use crate::load::tally::Tallies;

/// The document's.
const TENANTS: usize = 6;
const DELIMITER: u8 = b':';
/// Connections for each CPU, one request under way on each: enough that no CPU is ever idle.
const CONNECTIONS: usize = 8;
/// Until all threads have noticed what follows the groups, and the caches hold it.
const SETTLE: Duration = Duration::from_millis(4);
/// How long a sample is.
const SLICE: Duration = Duration::from_millis(60);
/// Until most keys are stored.
const WARM: Duration = Duration::from_millis(500);

/// Makes the cells, all variants of one comparison.
pub(super) fn cells(record: &SharedRecord, notes: &mut Vec<String>) -> Vec<Cell> {
    let events = follow::document_events(notes);
    let bench: Rc<std::cell::RefCell<Option<Bench>>> = Rc::default();
    let one = |variant: Variant| {
        let (bench, events) = (Rc::clone(&bench), events);
        let measure = move || {
            let mut bench = bench.borrow_mut();
            if bench.is_none() {
                *bench = Some(Bench::start()?);
            }
            let bench = bench.as_ref().expect("started above");
            let requests = bench.requests(events)?;
            // Slices are compared in pairs: none is left out.
            bench.slice(variant, &requests).map(|us| (us, false))
        };
        let (variant, unit) = (variant.name(), "us");
        let params = vec![("part", Param::Word("response"))];
        let figure = Figure { params, variant, unit, combine: Combine::Median };
        cell(record, figure, Box::new(measure))
    };
    Variant::ALL.map(one).into()
}

/// A server and its load; both end when it is dropped.
struct Bench {
    cache: Cache,
    load: Arc<Shared>,
    clients: JoinSet<Result<Tallies, String>>,
    stop: watch::Sender<bool>,
    runtimes: Vec<Runtime>,
}

impl Bench {
    /// Starts the server and the load, and waits until it is warm.
    fn start() -> io::Result<Bench> {
        let cpus = submeter_sys::cpu::affinity()?.len();
        let runtime = || Builder::new_multi_thread().worker_threads(cpus).enable_all().build();
        // The clients' threads are their own, as in `submeter serve --load`.
        let (serving, driving) = (runtime()?, runtime()?);
        let cache = Cache::new(Config { delimiter: DELIMITER, ..Config::default() });
        let cache = cache.map_err(io::Error::other)?;
        let (stop, stopped) = watch::channel(false);
        let address = ([127, 0, 0, 1], 0).into();
        let server = serving.block_on(Server::bind(address, cache.clone()))?;
        let load = Arc::new(load(server.local_addr())?);
        let mut until = stopped.clone();
        serving.spawn(server.run(async move {
            // An error means that nobody wants it any more.
            let _ = until.wait_for(|&stop| stop).await;
        }));
        let clients = driving.block_on(connect(&load, cpus * CONNECTIONS, &stopped));
        let clients = clients.map_err(io::Error::other)?;
        let bench = Bench { cache, load, clients, stop, runtimes: vec![driving, serving] };
        thread::sleep(WARM);
        Ok(bench)
    }

    fn tree(&self) -> &Tree {
        self.cache.tree()
    }

    /// Returns what the document's command line attaches.
    fn requests(&self, events: &str) -> io::Result<Vec<Request>> {
        let group = |path: String| -> io::Result<Group> {
            self.tree().get(&path).ok_or_else(|| {
                io::Error::other(format!("the load has made no tenant {path}: is it blocked?"))
            })
        };
        let tenants = (1..=TENANTS).map(|tenant| group(format!("/load/tenant{tenant}")));
        let groups: io::Result<Vec<Group>> = tenants.chain([group("/load".to_owned())]).collect();
        let scopes = groups?.into_iter().map(Some).chain([None]);
        Ok(follow::requests(scopes, events))
    }

    /// Returns the mean response time of a slice, in microseconds.
    fn slice(&self, variant: Variant, requests: &[Request]) -> io::Result<f64> {
        let following = follow::install(variant, self.tree(), requests)?;
        thread::sleep(SETTLE);
        let before = self.load.progress.times();
        thread::sleep(SLICE);
        let after = self.load.progress.times();
        drop(following);
        let answered = after.0 - before.0;
        if answered == 0 {
            return Err(io::Error::other("the cache under load answers nothing"));
        }
        Ok((after.1 - before.1).as_nanos() as f64 / answered as f64 / 1e3)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        let (clients, mut runtimes) = (&mut self.clients, self.runtimes.drain(..));
        if let Some(driving) = runtimes.next() {
            driving.block_on(async { while clients.join_next().await.is_some() {} });
            driving.shutdown_background();
        }
        for serving in runtimes {
            serving.shutdown_timeout(Duration::from_millis(100));
        }
    }
}

/// Says what the clients do: tenants as most of the study's are, all alike.
fn load(server: std::net::SocketAddr) -> io::Result<Shared> {
    let tenant =
        |number| Tenant::new(&format!("tenant{number}"), Profile::typical("typical"), DELIMITER);
    let tenants = (1..=TENANTS).map(tenant).collect::<Result<_, _>>();
    Ok(Shared {
        server,
        tenants: tenants.map_err(io::Error::other)?,
        pattern: Pattern::new(),
        seed: 1,
        pipeline: 1,
        interval: None,
        progress: Progress::default(),
    })
}

async fn connect(
    load: &Arc<Shared>,
    connections: usize,
    stopped: &watch::Receiver<bool>,
) -> Result<JoinSet<Result<Tallies, String>>, String> {
    let mut clients = JoinSet::new();
    for index in 0..connections {
        let socket = connection::connect(load.server).await?;
        let (load, stopped) = (Arc::clone(load), stopped.clone());
        clients.spawn(
            async move { connection::drive(&load, &socket, index, u64::MAX, stopped).await },
        );
    }
    Ok(clients)
}
