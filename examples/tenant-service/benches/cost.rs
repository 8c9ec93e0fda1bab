//! The cost of metering: the same program with its layers and without them, in turns.
//!
//! ```text
//! cargo bench -p tenant-service --bench cost -- 20
//! ```
//! Each is a process of its own. In each round both answer the same requests, one after the other,
//! in alternating order; the ratio compares the CPU time per request. Without the layers no request
//! is in a group, so nothing is charged, limited or counted; all that remains of submeter is a look
//! at a thread-local value where a group would be inherited.

use std::alloc::System;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

#[path = "../src/api.rs"]
mod api;
#[path = "../src/store.rs"]
mod store;

use api::{Api, Keys, Tenant};
use axum::middleware::from_fn_with_state;
use axum::serve::ListenerExt;
use store::{Plan, Result, Store};
use submeter::admission::Admission;
use submeter::{Schema, Tree, switch};
use submeter_alloc::exact::{Exact, Heap};

#[global_allocator]
static HEAP: Exact<System> = Exact::new(System);

const CLIENTS: usize = 4;
const REQUESTS: usize = 1_000;
const ROUNDS: usize = 41;

/// The size of the document fetched: a small answer, for which metering is as large a part of the
/// work as it gets.
const BYTES: usize = 1_000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", how, file] => serve(how == "metered", Path::new(file)),
        [] => compare(ROUNDS),
        [rounds] => compare(rounds.parse()?),
        _ => Err("usage: cost [ROUNDS]".into()),
    }
}

/// Serves one document until the process is killed; prints where, and the key.
fn serve(metered: bool, file: &Path) -> Result<()> {
    let mut schema = Schema::builder();
    let keys: Keys = schema.declare();
    let tree = Tree::new(schema.build()?)?;
    tree.root().set_limit(keys.memory, Some(1 << 30));
    let heap = Heap::start(&tree, keys.live)?.into();
    let api = Api {
        store: Store::open(file)?,
        tree,
        keys,
        heap,
        turns: Admission::new(2),
        operating: Default::default(),
    };
    let plan = Plan {
        requests_per_s: 1_000_000_000,
        memory_bytes: 1 << 30,
        heap_bytes: 1 << 30,
        ..Plan::default()
    };
    let key = api.store.admit("acme", plan)?;
    let mut upload = api.store.upload();
    upload.write(&[b'x'; BYTES])?;
    upload.finish("acme", "page")?;

    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all();
    if metered {
        for (name, plan) in api.store.tenants()? {
            api.limit(&Tenant::new(name), plan)?;
        }
        runtime.on_thread_park(switch::park);
    }
    runtime.build()?.block_on(async {
        let at = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("{} {key}", at.local_addr()?);
        // The page takes samples whether anyone looks at it or not.
        let page = metered.then(|| api::operators_api(api.clone()));
        let app = if metered {
            api::tenants_api(api)
        } else {
            api::routes(api.clone()).layer(from_fn_with_state(api.store, api::authenticate))
        };
        let at = at.tap_io(|stream| drop(stream.set_nodelay(true)));
        axum::serve(at, app).await?;
        drop(page);
        Ok(())
    })
}

/// A server, and the connections to it.
struct Served {
    child: Child,
    file: PathBuf,
    clients: Vec<BufReader<TcpStream>>,
    request: String,
}

impl Served {
    fn start(how: &str) -> Result<Served> {
        let file = format!("tenant-service-cost-{}-{how}.redb", std::process::id());
        let file = std::env::temp_dir().join(file);
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", how]).arg(&file).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line)?;
        let (at, key) = line.trim_end().split_once(' ').ok_or("the server did not start")?;
        let at: SocketAddr = at.parse()?;
        let connect = |_| Ok(BufReader::new(TcpStream::connect(at)?));
        let clients = (0..CLIENTS).map(connect).collect::<Result<_>>()?;
        let request = format!(
            "GET /documents/page HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n"
        );
        Ok(Served { child, file, clients, request })
    }

    /// Sends requests on all connections, and returns the CPU time that each cost, in ns.
    fn round(&mut self) -> Result<f64> {
        let before = self.cpu_ns()?;
        let request = &self.request;
        std::thread::scope(|scope| {
            let clients = self.clients.iter_mut();
            let asking: Vec<_> =
                clients.map(|client| scope.spawn(move || ask(client, request))).collect();
            asking.into_iter().try_for_each(|asking| asking.join().expect("no panic"))
        })?;
        Ok((self.cpu_ns()? - before) as f64 / (CLIENTS * REQUESTS) as f64)
    }

    /// Returns what all threads used, except threads that have ended; under load none ends.
    fn cpu_ns(&self) -> Result<u64> {
        let mut sum = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let times = std::fs::read_to_string(task?.path().join("schedstat"))?;
            sum += times.split(' ').next().ok_or("no times")?.parse::<u64>()?;
        }
        Ok(sum)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Sends requests one after another, each once the previous one is answered.
fn ask(client: &mut BufReader<TcpStream>, request: &str) -> Result<()> {
    let mut line = String::new();
    let mut body = [0; BYTES];
    for _ in 0..REQUESTS {
        client.get_mut().write_all(request.as_bytes())?;
        line.clear();
        client.read_line(&mut line)?;
        if !line.starts_with("HTTP/1.1 200 ") {
            return Err(format!("the answer was {line}").into());
        }
        while line != "\r\n" {
            line.clear();
            client.read_line(&mut line)?;
        }
        client.read_exact(&mut body)?;
    }
    Ok(())
}

fn compare(rounds: usize) -> Result<()> {
    let (mut plain, mut metered) = (Served::start("plain")?, Served::start("metered")?);
    // Warm-up, not counted.
    plain.round()?;
    metered.round()?;
    let mut ratios = Vec::new();
    for round in 0..rounds.max(1) {
        // The order alternates, because other activity on the machine may follow a rhythm.
        let (without, with) = if round % 2 == 0 {
            let without = plain.round()?;
            (without, metered.round()?)
        } else {
            let with = metered.round()?;
            (plain.round()?, with)
        };
        println!("{:>9.0} ns metered {:>9.0} ns without, {:.4}", with, without, with / without);
        ratios.push(with / without);
    }
    ratios.sort_by(f64::total_cmp);
    let at = |part: f64| ratios[((ratios.len() - 1) as f64 * part).round() as usize];
    println!("ratio {:.4}, quartiles {:.4} to {:.4}", at(0.5), at(0.25), at(0.75));
    Ok(())
}
