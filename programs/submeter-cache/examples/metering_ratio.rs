//! Measures what metering costs: `cargo run --release -p submeter-cache --example metering_ratio`,
//! with `-- ROUNDS PIPELINE CONNECTIONS REQUESTS TENANTS` for other than 21, 32, 2, 200000 (a round
//! and server) and 6.
//!
//! Two servers run in this process, one that meters and one that does not. Each round drives both
//! over loopback with the same requests, in turn and in alternating order, so that what else the
//! machine does meets both alike. Prints a JSON line a round and one with the medians. The client
//! does next to nothing, so that the share of metering is larger here than with any real client.
//!
//! Two figures: the throughput, and (on Linux) the time that the server's threads were on a CPU,
//! which other work on the machine disturbs less. Both as ratios metering on ÷ off of throughput: 1
//! is free.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use submeter_cache::{Cache, Config, Server};
use tokio::runtime::{Builder, Runtime};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Keys of all tenants: all fit, so that every retrieval hits and answers have known lengths.
const KEYS: u64 = 12_000;
const SEED: u64 = 42;
/// How long a server may take for an answer.
const QUIET: Duration = Duration::from_secs(30);

struct Plan {
    rounds: usize,
    pipeline: usize,
    connections: usize,
    requests: usize,
    tenants: usize,
}

/// One server, with the clients that stay connected to it.
struct Side {
    metering: bool,
    /// Keeps the server's threads running.
    _runtime: Runtime,
    threads: &'static str,
    clients: Vec<TcpStream>,
}

/// Requests that are sent at once, and how many bytes answer them.
struct Batch {
    request: Vec<u8>,
    answer_bytes: usize,
}

/// What one side did in one round.
struct Lap {
    per_s: f64,
    cpu_ns: f64,
}

fn main() -> Result<()> {
    let plan = plan()?;
    let batches: Vec<Arc<Vec<Batch>>> =
        (0..plan.connections).map(|c| Arc::new(batches(&plan, c as u64))).collect();
    let mut sides = [Side::new(true, &plan)?, Side::new(false, &plan)?];
    let (mut rates, mut cpus) = (Vec::new(), Vec::new());
    // The first round warms both up and is not counted.
    for round in 0..=plan.rounds {
        let first = round % 2;
        let a = sides[first].lap(&batches, &plan)?;
        let b = sides[1 - first].lap(&batches, &plan)?;
        let (on, off) = if first == 0 { (a, b) } else { (b, a) };
        if round == 0 {
            continue;
        }
        rates.push(on.per_s / off.per_s);
        cpus.push(off.cpu_ns / on.cpu_ns);
        println!(
            "{{\"round\":{round},\"on_per_s\":{:.0},\"off_per_s\":{:.0},\"on_cpu_ns\":{:.1},\
             \"off_cpu_ns\":{:.1},\"ratio\":{:.4}}}",
            on.per_s,
            off.per_s,
            on.cpu_ns,
            off.cpu_ns,
            on.per_s / off.per_s
        );
    }
    let (rate, cpu) = (Spread::of(rates), Spread::of(cpus));
    println!(
        "{{\"pipeline\":{},\"connections\":{},\"rounds\":{},\"ratio\":{rate},\"cpu_ratio\":{cpu}}}",
        plan.pipeline, plan.connections, plan.rounds
    );
    Ok(())
}

fn plan() -> Result<Plan> {
    let mut numbers = [21, 32, 2, 200_000, 6];
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.len() > numbers.len() {
        return Err(
            "usage: metering_ratio [ROUNDS [PIPELINE [CONNECTIONS [REQUESTS [TENANTS]]]]]".into()
        );
    }
    for (number, arg) in numbers.iter_mut().zip(&args) {
        *number = arg.parse().ok().filter(|&n| n > 0).ok_or_else(|| {
            format!("{arg:?} is not a number above 0: ROUNDS PIPELINE CONNECTIONS REQUESTS TENANTS")
        })?;
    }
    let [rounds, pipeline, connections, requests, tenants] = numbers;
    Ok(Plan { rounds, pipeline, connections, requests, tenants })
}

impl Plan {
    fn tenants(&self) -> u64 {
        self.tenants as u64
    }

    /// Keys of each tenant.
    fn keys(&self) -> u64 {
        (KEYS / self.tenants()).max(1)
    }
}

/// Sizes spread over two orders of magnitude, and fixed for a key.
fn value_len(tenant: u64, key: u64) -> usize {
    (16 << ((tenant + key) % 7)) as usize
}

fn key(tenant: u64, key: u64) -> String {
    format!("load:tenant{}:key-{key:08}", tenant + 1)
}

fn push_set(request: &mut Vec<u8>, tenant: u64, index: u64) {
    let len = value_len(tenant, index);
    request.extend_from_slice(format!("set {} 0 0 {len}\r\n", key(tenant, index)).as_bytes());
    request.resize(request.len() + len, b'v');
    request.extend_from_slice(b"\r\n");
}

/// Draws what one connection sends: nine retrievals to a store.
fn batches(plan: &Plan, connection: u64) -> Vec<Batch> {
    let mut random = fastrand::Rng::with_seed(SEED + connection);
    let count = (plan.requests / plan.connections / plan.pipeline).max(1);
    let batch = |_| {
        let mut batch = Batch { request: Vec::new(), answer_bytes: 0 };
        for _ in 0..plan.pipeline {
            let (tenant, index) = (random.u64(..plan.tenants()), random.u64(..plan.keys()));
            if random.u8(..10) == 0 {
                push_set(&mut batch.request, tenant, index);
                batch.answer_bytes += "STORED\r\n".len();
            } else {
                let (key, len) = (key(tenant, index), value_len(tenant, index));
                batch.request.extend_from_slice(format!("get {key}\r\n").as_bytes());
                batch.answer_bytes += format!("VALUE {key} 0 {len}\r\n\r\nEND\r\n").len() + len;
            }
        }
        batch
    };
    (0..count).map(batch).collect()
}

impl Side {
    fn new(metering: bool, plan: &Plan) -> Result<Side> {
        let threads = if metering { "meter-on" } else { "meter-off" };
        let runtime = Builder::new_multi_thread().thread_name(threads).enable_all().build()?;
        let cache = Cache::new(Config { metering, ..Config::default() })?;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = runtime.block_on(Server::bind(any, cache))?;
        let addr = server.address().tcp().ok_or("a port was asked for")?;
        runtime.spawn(server.run(std::future::pending()));
        let mut clients = Vec::new();
        for _ in 0..plan.connections {
            let client = TcpStream::connect(addr)?;
            client.set_nodelay(true)?;
            client.set_read_timeout(Some(QUIET))?;
            clients.push(client);
        }
        for tenant in 0..plan.tenants() {
            for index in 0..plan.keys() {
                let mut batch = Batch { request: Vec::new(), answer_bytes: "STORED\r\n".len() };
                push_set(&mut batch.request, tenant, index);
                exchange(&mut clients[0], &batch, &mut Vec::new())?;
            }
        }
        Ok(Side { metering, _runtime: runtime, threads, clients })
    }

    /// Sends everything once, each connection from a thread of its own.
    fn lap(&mut self, batches: &[Arc<Vec<Batch>>], plan: &Plan) -> Result<Lap> {
        let cpu = self.cpu_ns();
        let start = Instant::now();
        std::thread::scope(|scope| {
            let drivers: Vec<_> = self
                .clients
                .iter_mut()
                .zip(batches)
                .map(|(client, batches)| {
                    scope.spawn(move || {
                        let mut answer = Vec::new();
                        batches.iter().try_for_each(|b| exchange(client, b, &mut answer))
                    })
                })
                .collect();
            let ends = drivers.into_iter().map(|driver| driver.join());
            ends.map(|end| end.unwrap_or_else(|_| Err("a client panicked".into())))
                .collect::<Result<Vec<()>>>()
        })
        .map_err(|e| format!("server with metering {}: {e}", self.metering))?;
        let took = start.elapsed();
        let requests = (batches.iter().map(|b| b.len()).sum::<usize>() * plan.pipeline) as f64;
        let cpu_ns = self.cpu_ns() - cpu;
        Ok(Lap { per_s: requests / took.as_secs_f64(), cpu_ns: cpu_ns as f64 / requests })
    }

    /// How long the server's threads have been on a CPU; 0 where the system does not say.
    fn cpu_ns(&self) -> u64 {
        let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
        let of = |task: std::fs::DirEntry| {
            let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
            let times = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            (name.trim_end() == self.threads).then_some(())?;
            times.split(' ').next()?.parse::<u64>().ok()
        };
        tasks.flatten().filter_map(of).sum()
    }
}

/// Sends a batch and reads its answers.
fn exchange(client: &mut TcpStream, batch: &Batch, answer: &mut Vec<u8>) -> Result<()> {
    client.write_all(&batch.request)?;
    answer.resize(batch.answer_bytes, 0);
    client.read_exact(answer)?;
    if !answer.ends_with(b"\r\n") {
        return Err("answers of another length than expected".into());
    }
    Ok(())
}

/// A median, and between what the middle half lies.
struct Spread([f64; 3]);

impl Spread {
    fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let at = |quarter: usize| values[(values.len() - 1) * quarter / 4];
        Spread([at(2), at(1), at(3)])
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [median, low, high] = self.0;
        write!(f, "{{\"median\":{median:.4},\"quartiles\":[{low:.4},{high:.4}]}}")
    }
}
