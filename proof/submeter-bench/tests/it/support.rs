//! Shared by the tests: running the program, and temporary files.

use std::io::{BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than any step takes on a loaded machine; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs the program until it exits.
pub(crate) fn bench(args: &[&str]) -> Output {
    bench_in(args, &[])
}

/// Runs the program until it exits, with these variables in its environment.
pub(crate) fn bench_in(args: &[&str], variables: &[(&str, &str)]) -> Output {
    assert_cmd::Command::new(env!("CARGO_BIN_EXE_submeter-bench"))
        .args(args)
        .envs(variables.iter().copied())
        .timeout(PATIENCE)
        .output()
        .expect("the program runs")
}

/// Asserts that the program refuses its input: exit code 2, nothing on standard output, and one
/// line on standard error that contains every part.
pub(crate) fn refused(args: &[&str], parts: &[&str]) {
    let output = bench(args);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{args:?}: {out}{err}");
    assert_eq!(out, "", "{args:?}");
    assert_eq!(err.lines().count(), 1, "{args:?}: {err}");
    assert!(err.starts_with("error: "), "{args:?}: {err}");
    for part in parts {
        assert!(err.contains(part), "{args:?}: {err} names {part}");
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A program that runs concurrently with the test; killed when dropped.
pub(crate) struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    seen: String,
}

impl Running {
    /// Starts the program.
    pub(crate) fn start(args: &[&str]) -> Running {
        let mut program = Command::new(env!("CARGO_BIN_EXE_submeter-bench"));
        program.args(args);
        Running::spawn(program)
    }

    fn spawn(mut program: Command) -> Running {
        let mut child = program
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Running { child, stdout, seen: String::new() }
    }

    /// Returns the process's ID.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Returns whether it has exited.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Waits for it to exit; returns the exit code and all output.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
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

/// A file that is removed with its test.
pub(crate) struct TempFile(pub(crate) std::path::PathBuf);

impl TempFile {
    /// Writes a file whose name is unique to the test.
    pub(crate) fn new(name: &str, content: &str) -> TempFile {
        let name = format!("submeter-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, content).expect("writable");
        TempFile(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // A test may have removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}
