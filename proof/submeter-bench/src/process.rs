//! A separate process for each table, so that none measures in a heap that another left behind.

use std::io::Read;
use std::process::Stdio;
use std::thread::{self, JoinHandle};

use submeter_terminal::{Failure, signals};
use tokio::process::Command;
use tokio::sync::watch;

use crate::args::BenchArgs;
use crate::bench::Part;

/// Measures `table` in a new process of this program. `None` if that failed, in which case the
/// process has printed why. A signal ends it by closing its input, so that it still reports what it
/// has.
pub(crate) async fn measured(
    table: &str,
    args: &BenchArgs,
    stop: watch::Receiver<bool>,
) -> Result<Option<Part>, Failure> {
    let cannot =
        |e: &dyn std::fmt::Display| Failure::new(format_args!("cannot measure {table}: {e}"));
    let program = std::env::current_exe().map_err(|e| cannot(&e))?;
    let mut command = Command::new(program);
    command.args([table, "--alone"]);
    match args.seconds {
        Some(seconds) => drop(command.args(["--seconds", &seconds.as_secs_f64().to_string()])),
        None if args.quick => drop(command.arg("--quick")),
        None => {}
    }
    if let Some(rounds) = args.rounds {
        command.args(["--rounds", &rounds.to_string()]);
    }
    for (of, flag, file) in
        [("rstat", "--trace", &args.trace), ("end_to_end", "--tenants-file", &args.tenants_file)]
    {
        if let Some(file) = file.as_ref().filter(|_| of == table) {
            command.arg(flag).arg(file);
        }
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|e| cannot(&e))?;
    let input = child.stdin.take();
    let mut output = std::pin::pin!(child.wait_with_output());
    let output = tokio::select! {
        output = &mut output => output,
        () = signals::arrived(stop) => {
            drop(input);
            output.await
        }
    };
    let output = output.map_err(|e| cannot(&e))?;
    if !output.status.success() {
        return match output.status.code() {
            Some(2) => Ok(None),
            _ => Err(cannot(&format_args!("its process ended with {}", output.status))),
        };
    }
    serde_json::from_slice(&output.stdout).map(Some).map_err(|e| cannot(&e))
}

/// Waits on a thread until standard input ends: the parent has then exited, or wants no more
/// figures.
pub(crate) fn input_ended() -> JoinHandle<()> {
    thread::spawn(|| {
        let mut rest = Vec::new();
        // An error means the end as well.
        let _ = std::io::stdin().lock().read_to_end(&mut rest);
    })
}
