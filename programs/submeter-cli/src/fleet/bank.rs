//! `submeter fleet bank`: a bank of this host, until a signal or a time.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use submeter_bank::{Ledger, MemoryBank, Past, SocketServer};
use submeter_terminal::{self as show, BOLD, DIM, Failure, signals};

use crate::cli::{BankServeArgs, SecretAddress};
use crate::log;

/// Runs the command.
pub(super) fn run(args: &BankServeArgs) -> Result<ExitCode, Failure> {
    log::start(args.log);
    serve(args).or_else(|failure| log::report(args.log, failure))
}

fn serve(args: &BankServeArgs) -> Result<ExitCode, Failure> {
    let early = signals::Early::new();
    let deaf = |e: std::io::Error| Failure::new(format_args!("cannot listen to signals: {e}"));
    let early = early.map_err(deaf)?;
    let shortest = std::time::Duration::from_millis(200);
    if args.lease < shortest {
        return Err(Failure::new(format_args!(
            "--lease {}: no member renews leases that short: take 0.2 or more",
            args.lease.as_secs_f64()
        )));
    }
    let mut ledger = Ledger::new(args.lease, past(&args.listen));
    for (budget, most) in args.limit.iter().flat_map(|limit| &limit.budgets) {
        if ledger.has_limit(budget) {
            return Err(Failure::new(format_args!("{budget} has two limits: keep one (--limit)")));
        }
        ledger.set_limit(budget, *most, 0).map_err(Failure::new)?;
    }
    let learns = ledger.learns();
    let bank = Arc::new(MemoryBank::from(ledger));
    let server = SocketServer::start(&args.listen, args.unix_mode, bank)
        .map_err(|e| Failure::new(format_args!("{e} (--listen)")))?;
    let lends = if learns { "in a moment, after what was lent before has ended" } else { "now" };
    let text = format!(
        "{BOLD}submeter{BOLD:#} {}\n  {DIM}bank{DIM:#}   {BOLD}{}{BOLD:#}\n  \
         {DIM}leases{DIM:#} last {} s, and are lent {lends}\n\n",
        env!("CARGO_PKG_VERSION"),
        SecretAddress::unix(&args.listen),
        args.lease.as_secs_f64(),
    );
    show::print(&text).map_err(Failure::new)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(format_args!("cannot start threads: {e}")))?;
    runtime.block_on(async {
        let signals = early.listen().map_err(deaf)?;
        match args.seconds {
            Some(seconds) => {
                // Either way it is time.
                let _ = tokio::time::timeout(seconds, signals::arrived(signals)).await;
            }
            None => signals::arrived(signals).await,
        }
        Ok::<_, Failure>(())
    })?;
    drop(server);
    Ok(ExitCode::SUCCESS)
}

/// The lock of a server stays when it ends: without one this is the first, and nothing was lent.
fn past(socket: &Path) -> Past {
    let mut lock = socket.as_os_str().to_owned();
    lock.push(".lock");
    if PathBuf::from(lock).exists() { Past::Unknown } else { Past::None }
}
