//! `submeter fleet demo`: a bank, three servers in processes of their own, and load that moves
//! between them. At the end it reports whether the fleet kept its one limit.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use submeter_bank::{Budget, Ledger, Limit, MemoryBank, Operate, Past, SocketServer};
use submeter_http::wire::{GroupDoc, TreeDoc, ValueDoc};
use submeter_terminal::{self as show, BOLD, DIM, Failure, signals};
use tokio::time::{MissedTickBehavior, interval};

use super::log::Logged;
use super::status::amount;
use crate::cli::{FleetDemoArgs, FleetLimit};

/// The tenant and its limits, which the servers share.
const TENANT: &str = "/load/acme";
const LIMITS: &str = "memory=4m,rate=3k/s";
const SERVERS: usize = 3;

/// The name of the bank's socket in the directory.
const BANK: &str = "bank";

/// Short, so that a few seconds of watching show leases move.
const TTL: Duration = Duration::from_secs(3);

/// How long most of the load goes to one server, before it moves to the next.
const PHASE: Duration = Duration::from_secs(5);

/// Requests per second that clients send to the busy server and to each of the others: together
/// more than the limit.
const BUSY: u32 = 3_200;
const OTHERS: u32 = 400;

/// What is read within this time was true at one moment: a member asks the bank no sooner again.
const ONE_MOMENT: Duration = Duration::from_millis(50);

/// With fewer looks than this, the machine was too busy for a verdict on what was held.
const LOOKS_MIN: u64 = 4;

/// Values of a kibibyte that expire, so that memory follows the load.
const CLIENTS: &str = "tenant,key_bytes,value_bytes,request_rate_kqps,zipf_alpha,wss_mb_no_ttl,\
                       operations,ttls\nacme,24,1024,1,0.6,16,get=0.5;set=0.5,3s:1\n";

/// Runs the command. An exceeded limit sets the exit code to 1.
pub(super) fn run(args: &FleetDemoArgs) -> Result<ExitCode, Failure> {
    let early = signals::Early::new().map_err(|e| failed("cannot install signal handlers", &e))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| failed("cannot start threads", &e))?;
    runtime.block_on(async {
        let signals = early.listen().map_err(|e| failed("cannot install signal handlers", &e))?;
        let mut demo = Demo::start()?;
        show::print(&demo.greeting(args.seconds)).map_err(Failure::new)?;
        let mut ticks = interval(Duration::from_millis(250));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let started = Instant::now();
        let ends = |at: Duration| args.seconds.is_some_and(|seconds| at >= seconds);
        for tick in 0_u64.. {
            tokio::select! {
                () = signals::arrived(signals.clone()) => break,
                _ = ticks.tick() => {}
            }
            if ends(started.elapsed()) {
                break;
            }
            demo.drive(started.elapsed())?;
            demo.look()?;
            if tick % 8 == 7 {
                show::print(&demo.lines()).map_err(Failure::new)?;
            }
        }
        let verdict = demo.verdict(started.elapsed());
        show::print(&verdict.text).map_err(Failure::new)?;
        Ok(if verdict.is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format_args!("{what}: {error}"))
}

/// A directory that is removed with its contents.
struct Directory(PathBuf);

/// The prefix of each directory's name.
const DIRECTORY: &str = "submeter-fleet-";

impl Directory {
    fn new() -> Result<Directory, Failure> {
        Directory::remove_left();
        let path = std::env::temp_dir().join(format!("{DIRECTORY}{}", std::process::id()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|e| failed(&format!("cannot create {}", path.display()), &e))?;
        Ok(Directory(path))
    }

    /// Removes the directories of demos that were killed: their bank's socket exists, but nothing
    /// listens on it. A process id would not decide it: another container with the same directory
    /// does not see the process.
    fn remove_left() {
        let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
        for entry in entries {
            let is_one = entry.file_name().to_string_lossy().starts_with(DIRECTORY);
            if is_one
                && UnixStream::connect(entry.path().join(BANK))
                    .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
            {
                // A directory of another user stays.
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What remains is removed by the next demo.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server; it ends when its standard input does, so that it does not outlive this process.
struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    name: String,
    cache: String,
    page: String,
    agent: ureq::Agent,
    load: Option<Child>,
    seen: Seen,
}

/// A server's figures of the tenant.
#[derive(Clone, Copy, Default)]
struct Seen {
    memory: u64,
    granted: u64,
}

struct Verdict {
    text: String,
    is_kept: bool,
}

struct Demo {
    // In the order in which they are ended.
    servers: Vec<Server>,
    server: Option<SocketServer>,
    bank: Arc<Logged>,
    limits: Vec<(Budget, u64)>,
    phase: Option<usize>,
    looks: u64,
    most_memory: u64,
    excess: Vec<String>,
    directory: Directory,
}

impl Demo {
    fn start() -> Result<Demo, Failure> {
        let directory = Directory::new()?;
        let limits = FleetLimit::new(TENANT, LIMITS).map_err(Failure::new)?.budgets;
        let bank = Logged::new(MemoryBank::from(Ledger::new(TTL, Past::None)));
        for (budget, most) in &limits {
            let (budget, most) = (budget.clone(), *most);
            let limit = Limit { budget, most, floors: 0, per_member: None };
            bank.set(&limit).map_err(Failure::new)?;
        }
        let bank = Arc::new(bank);
        let path = directory.0.join(BANK);
        let server = SocketServer::start(&path, 0o600, Arc::clone(&bank)).map_err(Failure::new)?;
        let clients = directory.0.join("clients.csv");
        std::fs::write(&clients, CLIENTS).map_err(|e| failed("cannot write clients.csv", &e))?;
        let servers = (1..=SERVERS).map(|n| Server::start(&format!("server-{n}"), &path));
        let servers = servers.collect::<Result<_, Failure>>()?;
        Ok(Demo {
            servers,
            server: Some(server),
            bank,
            limits,
            phase: None,
            looks: 0,
            most_memory: 0,
            excess: Vec::new(),
            directory,
        })
    }

    fn greeting(&self, seconds: Option<Duration>) -> String {
        let bank = format!("unix:{}", self.directory.0.join(BANK).display());
        let mut text = format!("{BOLD}submeter fleet{BOLD:#}\n  {DIM}bank{DIM:#}   {bank}\n");
        for server in &self.servers {
            text.push_str(&format!("  {DIM}page{DIM:#}   {} of {}\n", server.page, server.name));
        }
        text.push_str(&format!(
            "  {DIM}limit{DIM:#}  {LIMITS} of {TENANT}, for all servers together\n  \
             {DIM}load{DIM:#}   moves to the next server every {} s\n  {DIM}ends{DIM:#}   {}\n\n",
            PHASE.as_secs(),
            show::end(seconds)
        ));
        text
    }

    /// Makes most clients use one server, and the next one after a while.
    fn drive(&mut self, at: Duration) -> Result<(), Failure> {
        let phase = (at.as_millis() / PHASE.as_millis()) as usize;
        if self.phase.replace(phase) == Some(phase) {
            return Ok(());
        }
        let clients = self.directory.0.join("clients.csv");
        for (at, server) in self.servers.iter_mut().enumerate() {
            let rate = if at == phase % SERVERS { BUSY } else { OTHERS };
            server.drive(rate, phase, &clients)?;
        }
        Ok(())
    }

    /// Reads what all servers use, twice. The lesser values were all true at one moment, if no
    /// member can have asked the bank twice in between.
    fn look(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        let first = self.servers.iter().map(Server::look).collect::<Result<Vec<_>, _>>()?;
        let again = self.servers.iter().map(Server::look).collect::<Result<Vec<_>, _>>()?;
        let took = began.elapsed();
        for (server, seen) in self.servers.iter_mut().zip(&again) {
            server.seen = *seen;
        }
        let [(_, memory_max), (_, rate)] = &self.limits[..] else { return Ok(()) };
        let least = first.iter().zip(&again).map(|(a, b)| a.memory.min(b.memory));
        let memory: u64 = least.sum();
        if took < ONE_MOMENT {
            self.looks += 1;
            self.most_memory = self.most_memory.max(memory);
            if memory > *memory_max {
                self.excess.push(format!("{memory} bytes held of {memory_max}"));
            }
        }
        // The sum ever granted is at most what was earned since the first lease, plus a unit per
        // server.
        let granted: u64 = first.iter().map(|seen| seen.granted).sum();
        let earned = u128::from(*rate) * self.bank.lends_for().as_millis() / 1000;
        if u128::from(granted) > earned + SERVERS as u128 {
            self.excess.push(format!("{granted} requests granted of {earned}"));
        }
        Ok(())
    }

    /// Each server's leases and use.
    fn lines(&self) -> String {
        let mut rows = Vec::new();
        let leases: Vec<_> = self
            .limits
            .iter()
            .map(|(budget, _)| self.bank.holders(budget).unwrap_or_default())
            .collect();
        let of = |at: usize, name: &str| {
            let mine = leases[at].iter().filter(|lent| lent.member == name);
            mine.map(|lent| lent.amount).sum::<u64>()
        };
        let written = |at: usize, n: u64| amount(&self.limits[at].0, n);
        let mut sums = [0; 3];
        for (at, server) in self.servers.iter().enumerate() {
            let now = [of(0, &server.name), server.seen.memory, of(1, &server.name)];
            for (sum, n) in sums.iter_mut().zip(now) {
                *sum += n;
            }
            let busy =
                if self.phase.is_some_and(|phase| phase % SERVERS == at) { " *" } else { "" };
            let [lease, used, rate] = now;
            rows.push(vec![
                format!("{}{busy}", server.name),
                written(0, lease),
                written(0, used),
                written(1, rate),
            ]);
        }
        let [lease, used, rate] = sums;
        rows.push(vec!["all".to_owned(), written(0, lease), written(0, used), written(1, rate)]);
        show::table(&["", "memory lease", "held", "rate lease"], &rows, true) + "\n"
    }

    /// Ends everything, and says whether the limit was kept.
    fn verdict(&mut self, took: Duration) -> Verdict {
        let granted: u64 = self.servers.iter().map(|server| server.seen.granted).sum();
        for server in &mut self.servers {
            server.end();
        }
        drop(self.server.take());
        let mut text = String::new();
        let mut is_kept = self.excess.is_empty();
        for (budget, most) in &self.limits {
            let (sum, exchanges) = self.bank.most(budget);
            is_kept &= sum <= *most;
            let (sum, most) = (amount(budget, sum), amount(budget, *most));
            text.push_str(&format!(
                "leases  at most {sum} of {most}, {budget}, in {exchanges} exchanges\n"
            ));
        }
        text.push_str(&format!(
            "use     at most {} held in {} looks, {} requests granted in {:.0} s\n",
            show::bytes(self.most_memory),
            self.looks,
            show::count(granted),
            took.as_secs_f64()
        ));
        for excess in self.excess.iter().take(3) {
            text.push_str(&format!("excess  {excess}\n"));
        }
        let kept = match (is_kept, self.looks >= LOOKS_MIN) {
            (false, _) => "EXCEEDED",
            (true, true) => "kept: no sum was above it",
            // Not a failure: the bank's log, which covers every moment, has shown none.
            (true, false) => "kept by the leases; the machine was too busy to check what was held",
        };
        text.push_str(&format!("limit   {kept}\n"));
        Verdict { text, is_kept }
    }
}

impl Server {
    fn start(name: &str, bank: &Path) -> Result<Server, Failure> {
        let program =
            std::env::current_exe().map_err(|e| failed("cannot find this program", &e))?;
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
        command.args(["--end-with-stdin", "--member", name, "--bank"]);
        command.arg(format!("unix:{}", bank.display()));
        command.arg("--limit-fleet").arg(format!("{TENANT}={LIMITS}"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C is for this process, which ends the others after a last look at them.
        let child = command.process_group(0).spawn();
        let mut child = child.map_err(|e| failed("cannot start a server", &e))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let mut lines = BufReader::new(stdout.expect("it is piped"));
        let mut server = Server {
            child,
            stdin,
            name: name.to_owned(),
            cache: String::new(),
            page: String::new(),
            agent: ureq::Agent::new_with_defaults(),
            load: None,
            seen: Seen::default(),
        };
        while server.cache.is_empty() {
            let mut line = String::new();
            if lines.read_line(&mut line).map_or(0, |n| n) == 0 {
                return Err(Failure::new(format_args!("{name} failed to start: see above")));
            }
            if let Some((_, page)) = line.split_once("http://") {
                server.page = format!("http://{}", page.trim_end());
            } else if let Some((_, cache)) = line.split_once("cache  ") {
                server.cache = cache.split(',').next().unwrap_or_default().to_owned();
            }
        }
        // Its summary must not wait for a reader.
        std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
        Ok(server)
    }

    fn drive(&mut self, rate: u32, phase: usize, clients: &Path) -> Result<(), Failure> {
        self.end_load();
        let program =
            std::env::current_exe().map_err(|e| failed("cannot find this program", &e))?;
        let mut load = Command::new(program);
        load.args(["load", "--connect", &self.cache, "--tenants", "1", "--tenants-file"]);
        load.arg(clients).args(["--connections", "2", "--rate", &rate.to_string()]);
        load.args(["--seconds", "3600", "--seed", &(phase + 1).to_string()]);
        load.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // It ends by itself when its server does.
        let load = load.process_group(0).spawn();
        self.load = Some(load.map_err(|e| failed("cannot start the load", &e))?);
        Ok(())
    }

    fn look(&self) -> Result<Seen, Failure> {
        let url = format!("{}api/tree", self.page);
        let lost = |e: ureq::Error| failed(&format!("{} does not answer", self.name), &e);
        let mut answer = self.agent.get(&url).call().map_err(lost)?;
        let text = answer.body_mut().read_to_string().map_err(lost)?;
        let tree: TreeDoc =
            serde_json::from_str(&text).map_err(|e| failed(&format!("{url} is not a tree"), &e))?;
        let group = tree.groups.iter().find(|group| group.path == TENANT);
        Ok(group.map_or_else(Seen::default, seen))
    }

    fn end_load(&mut self) {
        if let Some(mut load) = self.load.take() {
            let _ = load.kill();
            let _ = load.wait();
        }
    }

    fn end(&mut self) {
        self.end_load();
        self.stdin = None;
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if began.elapsed() > Duration::from_secs(5) {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn seen(group: &GroupDoc) -> Seen {
    let counter = |name: &str| match group.values.get(name) {
        Some(ValueDoc::Unsigned(n)) => *n,
        _ => 0,
    };
    let memory = match group.values.get("memory") {
        Some(ValueDoc::Quota { current, .. }) => *current,
        _ => 0,
    };
    let asked: u64 = ["cmd_get", "cmd_set", "cmd_delete", "cmd_touch", "cmd_arithmetic"]
        .map(counter)
        .iter()
        .sum();
    Seen { memory, granted: asked.saturating_sub(counter("requests_throttled")) }
}
