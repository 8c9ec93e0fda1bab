//! One server under load: filled once, then driven one slice at a time and asked for its counts.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream as Blocking;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use submeter_sys::cpu::affinity;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::control::{Control, Counts};
use super::process::Process;
use super::workload::Workload;
use submeter_load::connection::{self, Shared};
use submeter_load::pattern::Pattern;
use submeter_load::progress::Progress;
use submeter_load::stream::Tenant;
use submeter_load::tally::Tallies;
use submeter_load::verb::{Kind, Verb};

/// Connections: the default of `submeter load`.
pub(super) const CONNECTIONS: usize = 8;
/// Stores in flight while a server is filled: their answers fit into any socket's buffer.
const FILLS: usize = 64;
/// Time limit for a server to count a request that it has answered.
const COUNTED: Duration = Duration::from_secs(5);

/// The clients' threads, and the values that all of them store.
pub(super) struct Clients {
    /// `Some` until it is dropped.
    runtime: Option<Runtime>,
    pattern: Pattern,
}

impl Clients {
    /// Starts as many threads as this process has CPUs, as `submeter load` does.
    ///
    /// # Errors
    /// When the system refuses threads.
    pub(super) fn new() -> io::Result<Clients> {
        let threads = affinity()?.len();
        let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
        Ok(Clients { runtime: Some(runtime), pattern: Pattern::default() })
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("there until it is dropped")
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_millis(100));
        }
    }
}

/// The memory of a filled server, per item.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// Growth of its resident memory.
    pub(super) bytes: f64,
    /// The same without keys and values.
    pub(super) overhead_bytes: f64,
}

/// The identity of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// The round, from which the requests are drawn.
    pub(super) round: u64,
    /// Requests in flight on each connection.
    pub(super) pipeline: usize,
}

/// The result of one slice.
#[derive(Debug)]
pub(super) struct Slice {
    pub(super) took: Duration,
    pub(super) requests: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    /// CPU time of the server.
    pub(super) cpu: Option<Duration>,
    pub(super) latency_ns: Histogram<u64>,
}

/// A server that holds all items, and the connections that drive it.
pub(super) struct Server {
    process: Process,
    control: Control,
    sockets: Vec<Arc<TcpStream>>,
    /// What it has been sent so far, by tenant.
    sent: Vec<Counts>,
}

impl Server {
    /// Stores every item once; returns the server and the memory that the items take in it.
    ///
    /// # Errors
    /// The server's refusal.
    pub(super) fn fill(
        process: Process,
        workload: &Workload,
        clients: &Clients,
    ) -> io::Result<(Server, Option<Memory>)> {
        let control = Control::connect(process.address)?;
        let connect = async {
            let mut sockets = Vec::with_capacity(CONNECTIONS);
            while sockets.len() < CONNECTIONS {
                sockets.push(Arc::new(connection::connect(process.address).await?));
            }
            Ok::<_, String>(sockets)
        };
        // Before its memory is measured, because connections take memory too.
        let sockets = clients.runtime().block_on(connect).map_err(io::Error::other)?;
        let before = process.resident_bytes();
        let mut sent = Vec::new();
        let (mut items, mut bytes) = (0, 0);
        let mut filler = Filler::connect(&process)?;
        for tenant in &workload.tenants()? {
            let keys = tenant.profile.keys();
            bytes += filler.fill(tenant, &clients.pattern)?;
            items += u64::from(keys);
            sent.push(Counts { stores: u64::from(keys), ..Counts::default() });
        }
        let after = process.resident_bytes();
        let memory = before.zip(after).map(|(before, after)| {
            let grown = after as f64 - before as f64;
            let of_each = |bytes: f64| bytes / items as f64;
            Memory { bytes: of_each(grown), overhead_bytes: of_each(grown - bytes as f64) }
        });
        let mut server = Server { process, control, sockets, sent };
        let kept = server.control.stat("curr_items")?;
        if kept != items {
            let name = server.process.variant.name();
            return Err(io::Error::other(format!("{name} holds {kept} of {items} items")));
        }
        Ok((server, memory))
    }

    /// Drives it for `length`, with the requests of its round.
    ///
    /// # Errors
    /// A failed connection, a corrupt value, or counts that are not what was sent.
    pub(super) fn slice(
        &mut self,
        workload: &Workload,
        clients: &Clients,
        turn: Turn,
        length: Duration,
    ) -> io::Result<Slice> {
        let shared = Arc::new(Shared {
            server: self.process.address,
            tenants: workload.tenants()?,
            pattern: Pattern::default(),
            seed: turn.round,
            pipeline: turn.pipeline,
            interval: None,
            progress: Progress::default(),
        });
        let cpu = self.process.cpu();
        let driven = clients.runtime().block_on(drive(&shared, &self.sockets, length));
        let (took, tallies) = driven.map_err(io::Error::other)?;
        let cpu = self.process.cpu().zip(cpu).map(|(after, before)| after.saturating_sub(before));
        let total = tallies.total().map_err(io::Error::other)?;
        if let Some(corruption) = tallies.corruptions.first() {
            let (name, key, what) =
                (self.process.variant.name(), &corruption.key, &corruption.what);
            return Err(io::Error::other(format!("{name} corrupted the value of {key}: {what}")));
        }
        for (sent, tally) in self.sent.iter_mut().zip(&tallies.tenants) {
            let reads: u64 =
                [Verb::Gat, Verb::Gats].map(|verb| tally.by_verb[verb as usize]).iter().sum();
            sent.gets += tally.of_kind(Kind::Get) + reads;
            sent.hits += tally.hits;
            sent.stores += tally.of_kind(Kind::Set);
        }
        self.check_counts(workload)?;
        Ok(Slice {
            took,
            requests: total.requests(),
            hits: total.hits,
            misses: total.misses,
            cpu,
            latency_ns: total.latency_ns,
        })
    }

    /// Checks that the server counted for each tenant what was sent.
    fn check_counts(&mut self, workload: &Workload) -> io::Result<()> {
        let variant = self.process.variant;
        if !variant.counts_tenants() {
            return Ok(());
        }
        let since = Instant::now();
        loop {
            let counted = self.control.counts(variant)?;
            let of = |name: &str| counted.get(name).copied().unwrap_or_default();
            let wrong = workload.names().zip(&self.sent).find(|(name, sent)| of(name) != **sent);
            let Some((name, sent)) = wrong else { return Ok(()) };
            // An answer may arrive before it is counted.
            if since.elapsed() > COUNTED {
                let (server, counted) = (variant.name(), of(name));
                let text = format!("{server} counted {counted:?} for {name}, which sent {sent:?}");
                return Err(io::Error::other(text));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Drives the connections of one server, and waits for all answers.
async fn drive(
    shared: &Arc<Shared>,
    sockets: &[Arc<TcpStream>],
    length: Duration,
) -> Result<(Duration, Tallies), String> {
    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let started = Instant::now();
    for (index, socket) in sockets.iter().enumerate() {
        let (shared, socket, stopped) = (Arc::clone(shared), Arc::clone(socket), stopped.clone());
        tasks.spawn(async move {
            connection::drive(
                &shared,
                &socket,
                index,
                connection::Role::Mix { requests: u64::MAX },
                stopped,
            )
            .await
        });
    }
    tokio::time::sleep(length).await;
    stop.send_replace(true);
    let mut all = Tallies::new(shared.tenants.len()).map_err(|error| error.to_string())?;
    while let Some(ended) = tasks.join_next().await {
        let tallies = ended.map_err(|error| format!("a connection's task ended: {error}"))??;
        all.merge(tallies).map_err(|error| error.to_string())?;
    }
    Ok((started.elapsed(), all))
}

/// Stores every item of a tenant, in the order of the keys.
struct Filler(BufReader<Blocking>);

impl Filler {
    fn connect(process: &Process) -> io::Result<Filler> {
        let socket = Blocking::connect(process.address)?;
        socket.set_nodelay(true)?;
        Ok(Filler(BufReader::new(socket)))
    }

    /// Returns the bytes of all keys and values.
    fn fill(&mut self, tenant: &Tenant, pattern: &Pattern) -> io::Result<u64> {
        let keys: Vec<u32> = (0..tenant.profile.keys()).collect();
        let (mut out, mut bytes) = (Vec::new(), 0);
        for batch in keys.chunks(FILLS) {
            out.clear();
            for &key in batch {
                let shape = tenant.shape(key);
                out.extend_from_slice(b"set ");
                tenant.write_key(key, &mut out);
                let len = Pattern::len(shape);
                out.extend_from_slice(format!(" {} 0 {len}\r\n", shape.flags()).as_bytes());
                pattern.write(shape, &mut out);
                out.extend_from_slice(b"\r\n");
                bytes += (tenant.key_len() + len) as u64;
            }
            self.0.get_mut().write_all(&out)?;
            for _ in batch {
                let mut line = String::new();
                self.0.read_line(&mut line)?;
                if line != "STORED\r\n" {
                    let line = line.trim_end();
                    let text = format!("a server answered {line:?} while it was being filled");
                    return Err(io::Error::other(text));
                }
            }
        }
        Ok(bytes)
    }
}
