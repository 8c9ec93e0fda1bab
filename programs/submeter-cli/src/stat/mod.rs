//! `submeter stat`: perf events of a running server's tenants, printed in the format of `perf
//! stat`.
//!
//! The server counts while the connection is open and sends totals; the counts of an interval are
//! the difference of two totals.

mod client;
mod figure;
mod plan;
mod print;

use std::process::ExitCode;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::mpsc;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use self::client::Client;
use self::print::{Format, Printer};
use crate::cli::{Names, StatArgs};
use submeter_terminal::signals;
use submeter_terminal::{Destination, Failure};

/// The interval if none is printed and none ends the run. The totals that the server sends in
/// between are enough for Ctrl-C.
const DAY: Duration = Duration::from_secs(86_400);

/// How much later than due counts may come: a busy machine may delay them, a server that is stopped
/// sends none.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long to listen once more after that.
const ONCE_MORE: Duration = Duration::from_secs(1);

/// Runs the command.
pub(crate) fn run(args: &StatArgs) -> Result<ExitCode, Failure> {
    let flat = |lists: &[Names]| lists.iter().flat_map(|names| names.0.clone()).collect::<Vec<_>>();
    let (groups, for_each) = (flat(&args.groups), flat(&args.for_each_group));
    let wanted = plan::wanted(&args.events, &groups, &for_each)?;
    if let Some(separator) = &args.field_separator {
        plan::told_apart(&wanted, separator)?;
    }
    // The server's interval is the printed one, or else the one that ends the run.
    let every = args.interval.or(args.timeout).unwrap_or(DAY);
    let latest = every + PATIENCE;
    let client = Client::new(&args.page, &wanted, every)?;
    let format = match (&args.field_separator, args.json) {
        (_, true) => Format::Json,
        (Some(separator), _) => Format::Fields(separator.clone()),
        (None, _) => Format::People,
    };
    let out = args.output.clone().unwrap_or(Destination::Output);
    out.check(print::FLAG).map_err(Failure::new)?;
    let mut printer = Printer::new(format, client.url().to_owned(), args.interval.is_some(), out);
    let cannot = |e| Failure::new(format_args!("cannot start: {e}"));
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let result = runtime.block_on(async {
        let signals = signals::listen().map_err(cannot)?;
        let mut totals = client.connect();
        let mut stopped = std::pin::pin!(signals::arrived(signals));
        let mut left = args.repeat.unwrap_or(1);
        let mut is_whole = false;
        loop {
            let next = tokio::select! {
                next = next(&mut totals, latest) => next,
                () = &mut stopped => break,
            };
            let Ok(next) = next else {
                printer.end(false)?;
                return Err(Failure::new(format_args!(
                    "{} has sent no counts for {latest:?}: is the server stopped?",
                    client.url()
                )));
            };
            let Some(next) = next else {
                printer.end(false)?;
                return Err(Failure::new(format_args!(
                    "{} ended the count: is the server still running?",
                    client.url()
                )));
            };
            let next = next?;
            let enough = args.timeout.is_some_and(|timeout| next.elapsed() >= timeout);
            if !printer.add(next)? {
                break;
            }
            if enough {
                left -= 1;
                if left == 0 {
                    is_whole = true;
                    break;
                }
                printer.end_run();
                totals = client.connect();
            }
        }
        printer.end(is_whole)?;
        Ok(ExitCode::SUCCESS)
    });
    // Otherwise the reading thread would wait for the server's next totals.
    runtime.shutdown_background();
    result
}

/// Waits for totals that are due within `latest`.
async fn next<T>(totals: &mut mpsc::Receiver<T>, latest: Duration) -> Result<Option<T>, Elapsed> {
    match timeout(latest, totals.recv()).await {
        // If this process was stopped in the meantime, as by Ctrl-Z, its own time is over, and what
        // the server has sent is not read yet. A dropped `recv` loses nothing.
        Err(_) => timeout(ONCE_MORE, totals.recv()).await,
        in_time => in_time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Totals that arrive after their time, as to a process that was stopped, are read.
    #[tokio::test]
    async fn totals_that_come_late_are_read() {
        let latest = Duration::from_millis(5);
        let (sender, mut totals) = mpsc::channel(1);
        // Polled in this order, so that the time is over before they are sent, on any machine.
        let late = async {
            tokio::time::sleep(latest * 2).await;
            sender.send(7).await
        };
        let (next_one, sent) = tokio::join!(next(&mut totals, latest), late);
        sent.expect("it listens");
        assert_eq!(next_one.expect("once more"), Some(7));
        next(&mut totals, latest).await.expect_err("nothing was sent");
        drop(sender);
        assert_eq!(next(&mut totals, latest).await.expect("the end"), None);
    }
}
