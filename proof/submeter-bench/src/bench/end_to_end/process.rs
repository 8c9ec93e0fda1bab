//! The servers as processes: each is started on its own port, and killed when it is dropped.

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use submeter_sys::cpu::affinity;

use super::Variant;
use super::control::Control;
use super::workload::{DELIMITER, MEMORY_MIB, Workload};
use crate::bench::proc_memory::resident_bytes_of;

/// Time limit for a server's first answer.
const START: Duration = Duration::from_secs(10);
/// How many ports are tried: another process may take one between its choice and its use.
const PORTS: usize = 3;

/// A running server.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) variant: Variant,
    pub(super) address: SocketAddr,
    child: Child,
    /// Kept open, so that the server can write to it.
    _stdout: Option<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts the server with as many threads as this process has CPUs, and waits until it answers.
    ///
    /// # Errors
    /// The server's own message, or that it does not answer.
    pub(super) fn start(variant: Variant, workload: &Workload) -> io::Result<Process> {
        let threads = affinity()?.len().to_string();
        if !variant.is_memcached() {
            return submeter(variant, &threads, workload);
        }
        let program = memcached().ok_or_else(|| io::Error::other("memcached has gone"))?;
        let mut tried = memcached_at(variant, &program, &threads);
        for _ in 1..PORTS {
            if tried.is_ok() {
                break;
            }
            tried = memcached_at(variant, &program, &threads);
        }
        tried
    }

    /// Returns the CPU time of all its threads so far. `None` if the kernel does not report it.
    pub(super) fn cpu(&self) -> Option<Duration> {
        let mut all_ns = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()? {
            let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            all_ns += text.split_whitespace().next()?.parse::<u64>().ok()?;
        }
        Some(Duration::from_nanos(all_ns))
    }

    /// Returns its resident memory. `None` if the kernel does not report it.
    pub(super) fn resident_bytes(&self) -> Option<u64> {
        resident_bytes_of(self.child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has already exited, which is the goal.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Finds memcached as a shell does.
pub(super) fn memcached() -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        fs::metadata(path)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join("memcached")).find(is_program)
}

/// Starts a process that a terminal's Ctrl-C does not reach: it ends with its `Process`, after the
/// last slice.
fn spawn(command: &mut Command) -> io::Result<Child> {
    let spawned = command.process_group(0).stdin(Stdio::null()).spawn();
    let program = command.get_program().display();
    spawned
        .map_err(|error| io::Error::new(error.kind(), format!("cannot start {program}: {error}")))
}

/// Starts this program again, as a server.
fn submeter(variant: Variant, threads: &str, workload: &Workload) -> io::Result<Process> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["--serve", threads]);
    match variant {
        Variant::SubmeterNoPerfEvents => _ = command.args(["--world", "no_perf_events"]),
        Variant::SubmeterPlain => _ = command.arg("--plain"),
        Variant::SubmeterLimited => {
            workload.names().for_each(|name| _ = command.args(["--limited", name]));
        }
        _ => {}
    }
    let mut child = spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut stdout = stdout.map(BufReader::new);
    // Any failure from here on also ends the process.
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut process = Process { variant, address, child, _stdout: None };
    let mut line = String::new();
    if let Some(stdout) = &mut stdout {
        stdout.read_line(&mut line)?;
    }
    let Ok(address) = line.trim().parse() else {
        let mut said = String::new();
        if let Some(mut stderr) = stderr {
            stderr.read_to_string(&mut said)?;
        }
        let line = said.lines().next().unwrap_or("it exited without a message");
        return Err(io::Error::other(format!("the cache: {line}")));
    };
    process.address = address;
    process._stdout = stdout;
    Ok(process)
}

/// Starts memcached on a port that was free a moment ago.
fn memcached_at(variant: Variant, program: &PathBuf, threads: &str) -> io::Result<Process> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut command = Command::new(program);
    command.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0"]);
    command.args(["-t", threads, "-m", &MEMORY_MIB.to_string()]);
    // memcached refuses to run as root unless a user is named.
    if fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
        command.args(["-u", "root"]);
    }
    if variant.counts_tenants() {
        command.args(["-D", &char::from(DELIMITER).to_string()]);
    }
    let child = spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let mut process = Process { variant, address, child, _stdout: None };
    let since = Instant::now();
    loop {
        if let Some(status) = process.child.try_wait()? {
            return Err(io::Error::other(format!(
                "memcached on {address} exited at once: {status}"
            )));
        }
        // Another process may have taken the port first: the answer must come from the process that
        // was started.
        let asked = Control::connect(address).and_then(|mut control| control.stat("pid"));
        match asked {
            Ok(pid) if pid == u64::from(process.child.id()) => return Ok(process),
            _ if since.elapsed() < START => thread::sleep(Duration::from_millis(10)),
            Ok(pid) => {
                return Err(io::Error::other(format!("{address} belongs to process {pid}")));
            }
            Err(error) => {
                let text = format!("memcached on {address} does not answer: {error}");
                return Err(io::Error::other(text));
            }
        }
    }
}
