//! `part=response`: the document's table, on the cache.
//!
//! Six tenants are siblings below one parent. Each of them, the parent and the whole process has
//! two events, as in the document. One server serves all slices, and one load all slices of a
//! round; what follows the groups is put in and taken out, a slice of some milliseconds each, in
//! turns: so that what else the machine does, and what the cache does as it ages, hits all variants
//! alike. Between rounds the clients send nothing, so that other parts are not disturbed.
//!
//! The same slices give `part=response_cpu`, the CPU time of a request, its client's included:
//! while all CPUs are busy the response time is that and the waiting for it, and other programs
//! disturb it less.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use submeter::Group;
use submeter::switch::clock;
use submeter_cache::{Cache, Config, Server};
use submeter_sys::cpu::affinity;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::follow::{self, Variant, Wanted};
use crate::bench::record::Reading;
use crate::bench::runner::{Cell, Sample};
use crate::row::{Param, Params};
use submeter_load::connection::{self, Shared};
use submeter_load::pattern::Pattern;
use submeter_load::profile::Profile;
use submeter_load::progress::Progress;
use submeter_load::stream::Tenant;
use submeter_load::tally::Tallies;

/// The document's.
const TENANTS: usize = 6;
const DELIMITER: u8 = b':';
/// Connections for each CPU, one request under way on each: enough that no CPU is ever idle.
const CONNECTIONS: usize = 8;
/// Until all threads have noticed what follows the groups, and the caches hold it.
const SETTLE: Duration = Duration::from_millis(3);
/// How long a sample is.
const SLICE: Duration = Duration::from_millis(40);
/// How long an answer is waited for before it is an error that there is none.
const ANSWER: Duration = Duration::from_secs(20);
/// Until most keys are stored.
const WARM: Duration = Duration::from_millis(500);

/// Makes the cells, all variants of one comparison, so many times: the effect is small, and takes
/// many slices to be seen.
pub(super) fn cells(notes: &mut Vec<String>, times: usize) -> Vec<Vec<Cell>> {
    let events = follow::document_events(notes);
    let bench: Rc<RefCell<Option<Bench>>> = Rc::default();
    let cell = |&variant: &Variant| {
        let bench = Rc::clone(&bench);
        let measure = move || {
            let mut bench = bench.borrow_mut();
            if bench.is_none() {
                *bench = Some(Bench::start()?);
            }
            let bench = bench.as_mut().expect("started above");
            let Slice { response_us, cpu_us } = bench.slice(variant, events)?;
            let cpu = Reading::of("us", vec![cpu_us]).with("part", "response_cpu");
            // They are compared in pairs, by their order: none is left out.
            Ok(Sample::kept(vec![Reading::of("us", vec![response_us]), cpu]))
        };
        Cell::new(Params::from([("part", Param::word("response"))]), variant.name(), measure)
    };
    (0..times).map(|_| Variant::ALL.iter().map(cell).collect()).collect()
}

/// What a slice found, of a request.
struct Slice {
    response_us: f64,
    cpu_us: f64,
}

/// A server, and its load while there is one; both end when it is dropped.
struct Bench {
    cache: Cache,
    address: SocketAddr,
    /// Slices of the round that are left.
    left: usize,
    load: Option<Load>,
    /// The server's.
    stop: watch::Sender<bool>,
    serving: Option<Runtime>,
    driving: Option<Runtime>,
}

/// The clients of one round.
struct Load {
    shared: Arc<Shared>,
    clients: JoinSet<Result<Tallies, String>>,
    stop: watch::Sender<bool>,
}

impl Bench {
    /// Starts the server.
    fn start() -> io::Result<Bench> {
        let cpus = affinity()?.len();
        let runtime = || Builder::new_multi_thread().worker_threads(cpus).enable_all().build();
        // The clients' threads are their own, as in `submeter serve --load`.
        let (serving, driving) = (runtime()?, runtime()?);
        let cache = Cache::new(Config { delimiter: DELIMITER, ..Config::default() });
        let cache = cache.map_err(io::Error::other)?;
        let (stop, mut stopped) = watch::channel(false);
        let server = Server::bind(([127, 0, 0, 1], 0).into(), cache.clone());
        let server = serving.block_on(server)?;
        let address = server.local_addr();
        serving.spawn(server.run(async move {
            // An error means that nobody wants it any more.
            let _ = stopped.wait_for(|&stop| stop).await;
        }));
        let (serving, driving) = (Some(serving), Some(driving));
        let mut bench = Bench { cache, address, left: 0, load: None, stop, serving, driving };
        bench.drive()?;
        thread::sleep(WARM);
        Ok(bench)
    }

    /// Starts the clients of a round.
    fn drive(&mut self) -> io::Result<()> {
        let Some(driving) = &self.driving else { return Ok(()) };
        let shared = Arc::new(load(self.address)?);
        let (stop, stopped) = watch::channel(false);
        let connections = affinity()?.len() * CONNECTIONS;
        let clients = driving.block_on(connect(&shared, connections, &stopped));
        let clients = clients.map_err(io::Error::other)?;
        self.load = Some(Load { shared, clients, stop });
        self.left = Variant::ALL.len();
        thread::sleep(SETTLE);
        Ok(())
    }

    /// Ends the clients of a round, the first failure of which is this one's.
    fn rest(&mut self) -> io::Result<()> {
        let (Some(mut load), Some(driving)) = (self.load.take(), &self.driving) else {
            return Ok(());
        };
        load.stop.send_replace(true);
        driving.block_on(async {
            while let Some(ended) = load.clients.join_next().await {
                ended.map_err(io::Error::other)?.map_err(io::Error::other)?;
            }
            Ok(())
        })
    }

    /// Returns what the document's command line attaches.
    fn wanted(&self, events: &str) -> io::Result<Vec<Wanted>> {
        let since = Instant::now();
        let group = |path: String| -> io::Result<Group> {
            loop {
                match self.cache.tree().get(&path) {
                    Some(group) => return Ok(group),
                    None if since.elapsed() < ANSWER => thread::sleep(SETTLE),
                    None => {
                        return Err(io::Error::other(format!(
                            "the load has made no tenant {path} in {} s: stop what else runs",
                            ANSWER.as_secs()
                        )));
                    }
                }
            }
        };
        let tenants = (1..=TENANTS).map(|tenant| group(format!("/load/tenant{tenant}")));
        let groups: io::Result<Vec<Group>> = tenants.chain([group("/load".to_owned())]).collect();
        let scopes = groups?.into_iter().map(Some).chain([None]);
        Ok(follow::wanted(scopes, events))
    }

    /// Lets the load run for a slice.
    fn slice(&mut self, variant: Variant, events: &str) -> io::Result<Slice> {
        if self.load.is_none() {
            self.drive()?;
        }
        let Some(load) = &self.load else { return Err(io::ErrorKind::NotConnected.into()) };
        let following = follow::install(variant, self.cache.tree(), &self.wanted(events)?);
        thread::sleep(SETTLE);
        let (before, cpu) = (load.shared.progress.times(), clock::process_cpu_ns());
        let since = Instant::now();
        // On a busy machine nobody may have come round to an answer: a longer slice says as much.
        let after = loop {
            thread::sleep(SLICE);
            let after = load.shared.progress.times();
            if after.0 > before.0 || since.elapsed() > ANSWER {
                break after;
            }
        };
        let cpu = clock::process_cpu_ns() - cpu;
        drop(following);
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.rest()?;
        }
        let answered = (after.0 - before.0) as f64;
        if answered < 1.0 {
            let used = Duration::from_nanos(cpu).as_millis();
            return Err(io::Error::other(format!(
                "the cache under load answered nothing for {} s, in which this process had {used} ms of CPU \
                 time: stop what else runs, or give it CPUs",
                since.elapsed().as_secs()
            )));
        }
        let response_us = (after.1 - before.1).as_nanos() as f64 / answered / 1e3;
        Ok(Slice { response_us, cpu_us: cpu as f64 / answered / 1e3 })
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // Whatever failed was said when it did.
        let _ = self.rest();
        self.stop.send_replace(true);
        for runtime in [self.driving.take(), self.serving.take()].into_iter().flatten() {
            runtime.shutdown_timeout(Duration::from_millis(100));
        }
    }
}

/// Says what the clients do: tenants as most of the study's are, all alike.
fn load(server: SocketAddr) -> io::Result<Shared> {
    let tenant =
        |number| Tenant::new(&format!("tenant{number}"), Profile::typical("typical"), DELIMITER);
    let tenants = (1..=TENANTS).map(tenant).collect::<Result<_, _>>();
    Ok(Shared {
        server,
        tenants: tenants.map_err(io::Error::other)?,
        pattern: Pattern::default(),
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
