//! `top --json`: the tree as the server writes it, once or as one line per second.

use std::process::ExitCode;
use std::time::Duration;

use tokio::runtime;
use tokio::time::{MissedTickBehavior, interval};

use super::client::Client;
use submeter_terminal::{Failure, signals, stream};

/// Prints one object.
pub(super) fn once(client: &Client) -> Result<ExitCode, Failure> {
    print(&client.tree_and_text()?.1)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints one object per second until Ctrl-C, or until the reader or the server is gone.
pub(super) fn run(client: Client) -> Result<ExitCode, Failure> {
    let cannot = |e| Failure::new(format_args!("cannot start: {e}"));
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    runtime.block_on(async {
        let signals = signals::listen().map_err(cannot)?;
        tokio::select! {
            ended = lines(client) => ended,
            () = signals::arrived(signals) => Ok(ExitCode::SUCCESS),
        }
    })
}

async fn lines(client: Client) -> Result<ExitCode, Failure> {
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        seconds.tick().await;
        let client = client.clone();
        let answer = tokio::task::spawn_blocking(move || client.tree_and_text()).await;
        let (_, text) = answer.map_err(Failure::new)??;
        if !print(&text)? {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Prints a line; returns false if the reader closed the pipe, which is how `| head -1` ends a
/// stream.
fn print(line: &str) -> Result<bool, Failure> {
    stream(&format!("{line}\n")).map_err(Failure::new)
}
