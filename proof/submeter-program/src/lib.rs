//! Runs a program of this workspace from its tests: until it exits, beside the test, or with input
//! that it must refuse. Every wait is bounded, and a failed assertion leaves no process behind.

mod world;

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

pub use world::World;

/// Longer than any step takes on a loaded machine; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(600);

/// A program to test.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    path: &'static str,
}

impl Program {
    /// Names the program at `path`, which is `env!("CARGO_BIN_EXE_…")`: only the package that
    /// builds a program knows where it is.
    #[must_use]
    pub const fn new(path: &'static str) -> Program {
        Program { path }
    }

    /// Runs it until it exits.
    ///
    /// # Panics
    /// When it cannot be started, or does not exit in time.
    pub fn run(self, args: &[&str]) -> Output {
        self.run_in(args, &[])
    }

    /// Runs it until it exits, with these variables in its environment.
    ///
    /// # Panics
    /// When it cannot be started, or does not exit in time.
    pub fn run_in(self, args: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(self.path);
        command.args(args).envs(variables.iter().copied()).stdin(Stdio::null());
        output_within(command, PATIENCE)
    }

    /// Runs it until it exits successfully, and returns what it printed on standard output.
    ///
    /// # Panics
    /// When it cannot be started, does not exit in time, or fails.
    pub fn prints(self, args: &[&str]) -> String {
        let output = self.run(args);
        let printed = text(&output.stdout);
        assert!(output.status.success(), "{args:?}: {printed}{}", text(&output.stderr));
        printed
    }

    /// Asserts that it refuses its input: exit code 2, nothing on standard output, and one line on
    /// standard error that contains every part.
    ///
    /// # Panics
    /// When it does anything else.
    pub fn refuses(self, args: &[&str], parts: &[&str]) {
        let output = self.run(args);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{args:?}: {out}{err}");
        assert_eq!(out, "", "{args:?}");
        assert_eq!(err.lines().count(), 1, "{args:?}: {err}");
        assert!(err.starts_with("error: "), "{args:?}: {err}");
        for part in parts {
            assert!(err.contains(part), "{args:?}: {err} names {part}");
        }
    }

    /// Starts it.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(self, args: &[&str]) -> Running {
        self.start_in(args, &[])
    }

    /// Starts it with these variables in its environment.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start_in(self, args: &[&str], variables: &[(&str, &str)]) -> Running {
        let mut command = Command::new(self.path);
        command.args(args).envs(variables.iter().copied());
        Running::spawn(command)
    }

    /// Starts it with a soft limit of `n` open files.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start_with_files(self, n: u32, args: &[&str]) -> Running {
        self.start_with("-S", n, args)
    }

    /// Starts it so that it can never have more than `n` open files.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start_with_files_at_most(self, n: u32, args: &[&str]) -> Running {
        self.start_with("", n, args)
    }

    fn start_with(self, which: &str, n: u32, args: &[&str]) -> Running {
        let mut command = Command::new("sh");
        let script = format!("ulimit {which} -n {n} && exec \"$0\" \"$@\"");
        command.args(["-c", &script, self.path]).args(args);
        Running::spawn(command)
    }
}

/// A program that runs concurrently with the test; killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    seen: String,
}

impl Running {
    fn spawn(mut command: Command) -> Running {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Running { child, stdout, seen: String::new() }
    }

    /// Reads lines until one contains `part`, and returns that line.
    ///
    /// # Panics
    /// When its output ends first, or the line does not arrive in time.
    pub fn line_with(&mut self, part: &str) -> String {
        self.line_within(part, PATIENCE)
    }

    fn line_within(&mut self, part: &str, patience: Duration) -> String {
        // A program that prints nothing more is ended, and so is its output.
        let _end = end_after(patience, self.child.id());
        loop {
            let mut line = String::new();
            let n = self.stdout.read_line(&mut line).expect("readable");
            self.seen.push_str(&line);
            assert!(n > 0, "ended without {part}: {}", self.seen);
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Reads lines until one contains `label`, and returns the socket address that follows it.
    ///
    /// # Panics
    /// When its output ends first, or something else follows.
    pub fn address_after(&mut self, label: &str) -> SocketAddr {
        let line = self.line_with(label);
        let address = line.split(label).nth(1).and_then(|rest| rest.split_whitespace().next());
        let address = address.unwrap_or_default().trim_end_matches([',', '/']);
        address.parse().unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Returns its process ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal by name.
    ///
    /// # Panics
    /// When the signal cannot be sent.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Sends it a signal by name, and returns all output once it has exited successfully.
    ///
    /// # Panics
    /// When it does not exit in time, or fails.
    pub fn end_by(self, signal: &str) -> String {
        self.signal(signal);
        let (code, output) = self.end();
        assert_eq!(code, Some(0), "{output}");
        output
    }

    /// Returns whether it has exited.
    ///
    /// # Panics
    /// When the system does not know it.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Waits for it to exit; returns the exit code and all output.
    ///
    /// # Panics
    /// When it does not exit in time.
    #[must_use]
    pub fn end(mut self) -> (Option<i32>, String) {
        let since = Instant::now();
        self.stdout.read_to_string(&mut self.seen).expect("readable");
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                let mut err = String::new();
                let mut stderr = self.child.stderr.take().expect("piped");
                stderr.read_to_string(&mut err).expect("readable");
                return (status.code(), std::mem::take(&mut self.seen) + &err);
            }
            assert!(since.elapsed() < PATIENCE, "it does not exit: {}", self.seen);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills a process after this time, unless what it returns is dropped before: a read from a program
/// has no timeout.
fn end_after(patience: Duration, id: u32) -> mpsc::Sender<()> {
    let (in_time, waits) = mpsc::channel();
    std::thread::spawn(move || {
        if waits.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").args(["-KILL", &id.to_string()]).status();
        }
    });
    in_time
}

/// Runs a command until it exits, with its output.
fn output_within(mut command: Command, patience: Duration) -> Output {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let since = Instant::now();
    let child = command.spawn().expect("the program starts");
    let _end = end_after(patience, child.id());
    let output = child.wait_with_output().expect("readable");
    assert!(since.elapsed() < patience, "it does not exit: {output:?}");
    output
}

/// A file that is removed with its test.
#[derive(Debug)]
pub struct TempFile(pub PathBuf);

impl TempFile {
    /// Writes a file whose name ends in `name`; two files of the same name are different.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn new(name: &str, content: &str) -> TempFile {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: only that no two numbers are equal matters.
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("submeter-{}-{n}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, content).expect("writable");
        TempFile(path)
    }

    /// Returns its path.
    ///
    /// # Panics
    /// When the path is not UTF-8.
    #[must_use]
    pub fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // A test may have removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns output as text.
///
/// # Panics
/// When it is not UTF-8.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A silent program is waited for no longer than allowed.
    #[test]
    #[should_panic(expected = "ended without a word")]
    fn a_silent_program_is_waited_for_in_bounds() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo some; exec sleep 600"]);
        let mut running = Running::spawn(command);
        running.line_with("some");
        running.line_within("a word", Duration::from_millis(50));
    }

    /// A program that does not exit is waited for no longer than allowed.
    #[test]
    #[should_panic(expected = "it does not exit")]
    fn a_program_without_end_is_ended_in_bounds() {
        let mut command = Command::new("sleep");
        command.arg("600");
        output_within(command, Duration::from_millis(50));
    }
}
