//! `part=response`: the document's table, on the cache.
//!
//! Six tenants are siblings below one parent. Each of them, the parent and the whole process has
//! two events, as in the document. One server serves all slices, and one load generator runs
//! through all slices of a round; the variants that follow the groups take turns, in slices of some
//! milliseconds each, so that other work on the machine, and the ageing of the cache, affect all
//! variants alike. Between rounds the clients send nothing, so that they do not disturb other
//! parts.
//!
//! The same slices yield `part=response_cpu`, the CPU time of a request, including its client's:
//! while all CPUs are busy, the response time is this time plus waiting, and other programs disturb
//! the CPU time less.
//!
//! `part=response_priced` and `part=response_priced_cpu` are the same on a [model](super::priced)
//! of the CPU's counters, with the document's own events.

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

use super::follow::{self, Counters, Variant, Wanted};
use crate::bench::record::Reading;
use crate::bench::runner::{Cell, Sample};
use crate::row::{Param, Params};
use submeter_load::connection::{self, Shared};
use submeter_load::pattern::Pattern;
use submeter_load::profile::Profile;
use submeter_load::progress::Progress;
use submeter_load::stream::Tenant;
use submeter_load::tally::Tallies;

/// The document's number of tenants.
const TENANTS: usize = 6;
const DELIMITER: u8 = b':';
/// Connections per CPU, with one request in flight on each: enough that no CPU is ever idle.
const CONNECTIONS: usize = 8;
/// The time until all threads have noticed the new variant and the caches hold it.
const SETTLE: Duration = Duration::from_millis(3);
/// The length of a sample.
const SLICE: Duration = Duration::from_millis(40);
/// Time limit for an answer; after it, it is an error.
const ANSWER: Duration = Duration::from_secs(20);
/// The time until most keys are stored.
const WARM: Duration = Duration::from_millis(500);

/// The variants of a round.
const SLICES: usize = Variant::LIVE.len();

/// Makes the cells of all variants, `times` times over: the effect is small, and it takes many
/// slices to show.
pub(super) fn cells(notes: &mut Vec<String>, times: usize) -> Vec<Vec<Cell>> {
    let live = Kind {
        counters: Counters::Live,
        events: follow::document_events(notes),
        part: "response",
        cpu: "response_cpu",
    };
    let priced = Kind {
        counters: Counters::Priced,
        events: follow::DOCUMENT,
        part: "response_priced",
        cpu: "response_priced_cpu",
    };
    let bench: Rc<RefCell<Option<Bench>>> = Rc::default();
    let cell = |kind: Kind, variant: Variant| {
        let bench = Rc::clone(&bench);
        let measure = move || {
            let mut bench = bench.borrow_mut();
            if bench.is_none() {
                *bench = Some(Bench::start()?);
            }
            let bench = bench.as_mut().expect("started above");
            let Slice { response_us, cpu_us } = bench.slice(variant, kind)?;
            let cpu = Reading::of("us", vec![cpu_us]).with("part", kind.cpu);
            // Samples are compared in pairs, by their order, so none may be left out.
            Ok(Sample::kept(vec![Reading::of("us", vec![response_us]), cpu]))
        };
        Cell::new(Params::from([("part", Param::word(kind.part))]), variant.name(), measure)
    };
    let round = |kind: Kind, variants: [Variant; SLICES]| {
        variants.into_iter().map(|variant| cell(kind, variant)).collect()
    };
    (0..times).flat_map(|_| [round(live, Variant::LIVE), round(priced, Variant::PRICED)]).collect()
}

/// What is counted, and the parts of the table that it yields.
#[derive(Clone, Copy, Debug)]
struct Kind {
    counters: Counters,
    events: &'static str,
    part: &'static str,
    cpu: &'static str,
}

/// The result of a slice, per request.
struct Slice {
    response_us: f64,
    cpu_us: f64,
}

/// A server, and its load while there is one. Dropping it stops both.
struct Bench {
    cache: Cache,
    address: SocketAddr,
    /// The number of slices left in the round.
    left: usize,
    load: Option<Load>,
    /// Stops the server.
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
        // The clients have threads of their own, as in `submeter serve --load`.
        let (serving, driving) = (runtime()?, runtime()?);
        let cache = Cache::new(Config { delimiter: DELIMITER, ..Config::default() });
        let cache = cache.map_err(io::Error::other)?;
        let (stop, mut stopped) = watch::channel(false);
        let server = Server::bind(([127, 0, 0, 1], 0).into(), cache.clone());
        let server = serving.block_on(server)?;
        let address = server.address().tcp().ok_or(io::ErrorKind::AddrNotAvailable)?;
        serving.spawn(server.run(async move {
            // An error means that the bench was dropped.
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
        self.left = SLICES;
        thread::sleep(SETTLE);
        Ok(())
    }

    /// Stops the clients of a round; returns the first failure among them.
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

    /// Returns the events that the document's command line attaches.
    fn wanted(&self, events: &str) -> io::Result<Vec<Wanted>> {
        let since = Instant::now();
        let group = |path: String| -> io::Result<Group> {
            loop {
                match self.cache.tree().get(&path) {
                    Some(group) => return Ok(group),
                    None if since.elapsed() < ANSWER => thread::sleep(SETTLE),
                    None => {
                        return Err(io::Error::other(format!(
                            "the load has created no tenant {path} within {} s: stop other programs",
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

    /// Runs the load for one slice.
    fn slice(&mut self, variant: Variant, kind: Kind) -> io::Result<Slice> {
        if self.load.is_none() {
            self.drive()?;
        }
        let Some(load) = &self.load else { return Err(io::ErrorKind::NotConnected.into()) };
        let wanted = self.wanted(kind.events)?;
        let following = follow::install(variant, kind.counters, self.cache.tree(), &wanted);
        thread::sleep(SETTLE);
        let (before, cpu) = (load.shared.progress.times(), clock::process_cpu_ns());
        let since = Instant::now();
        // On a busy machine there may be no answer yet: then the slice is extended.
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
                "the cache under load gave no answer for {} s, in which this process had {used} ms of CPU \
                 time: stop other programs, or give it more CPUs",
                since.elapsed().as_secs()
            )));
        }
        let response_us = (after.1 - before.1).as_nanos() as f64 / answered / 1e3;
        Ok(Slice { response_us, cpu_us: cpu as f64 / answered / 1e3 })
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // A failure was reported when it occurred.
        let _ = self.rest();
        self.stop.send_replace(true);
        for runtime in [self.driving.take(), self.serving.take()].into_iter().flatten() {
            runtime.shutdown_timeout(Duration::from_millis(100));
        }
    }
}

/// Returns the clients' workload: identical tenants, typical of those in the study.
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
        clients.spawn(async move {
            connection::drive(
                &load,
                &socket,
                index,
                connection::Role::Mix { requests: u64::MAX },
                stopped,
            )
            .await
        });
    }
    Ok(clients)
}
