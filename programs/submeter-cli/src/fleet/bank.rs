//! `submeter fleet bank`: a bank of this host, until a signal or a time.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use submeter_bank::{Ledger, MemoryBank, Past, SocketServer};
use submeter_terminal::{self as show, BOLD, DIM, Failure, signals};

use crate::cli::BankServeArgs;
use crate::logger;

/// Maximum duration of leases.
const LONGEST: Duration = Duration::from_secs(3600);

/// Runs the command.
pub(super) fn run(args: &BankServeArgs) -> Result<ExitCode, Failure> {
    logger::start(args.log);
    serve(args).or_else(|failure| logger::report(args.log, failure))
}

fn serve(args: &BankServeArgs) -> Result<ExitCode, Failure> {
    let early = signals::Early::new();
    let cannot_listen =
        |e: std::io::Error| Failure::new(format_args!("cannot install signal handlers: {e}"));
    let early = early.map_err(cannot_listen)?;
    check(args.lease)?;
    let lock = lock_of(&args.listen);
    let past = past(&lock, args.lease);
    let mut ledger = Ledger::new(args.lease, past);
    for (budget, most) in args.limit.iter().flat_map(|limit| &limit.budgets) {
        if ledger.has_limit(budget) {
            return Err(Failure::new(format_args!("{budget} has two limits: keep one (--limit)")));
        }
        ledger.set_limit(budget, *most, 0).map_err(Failure::new)?;
    }
    let learns = ledger.learns();
    let bank = Arc::new(MemoryBank::from(ledger));
    // Noted before anything is lent, and no shorter than what an earlier bank lent for.
    let longest =
        if let Past::LentFor(before) = past { before.max(args.lease) } else { args.lease };
    note(&lock, longest).map_err(|e| {
        let path = args.listen.display();
        Failure::new(format_args!("cannot serve at {path}: {e} (--listen)"))
    })?;
    let server = SocketServer::start(&args.listen, args.unix_mode, bank)
        .map_err(|e| Failure::new(format_args!("{e} (--listen)")))?;
    let lends = match past {
        Past::LentFor(before) if learns => format!(
            "in {:.1} s, when earlier leases have ended: until then servers use what they have",
            before.as_secs_f64()
        ),
        _ => "now".to_owned(),
    };
    let text = format!(
        "{BOLD}submeter{BOLD:#} {}\n  {DIM}bank{DIM:#}   {BOLD}unix:{}{BOLD:#}\n  \
         {DIM}leases{DIM:#} last {} s, and are lent {lends}\n\n",
        env!("CARGO_PKG_VERSION"),
        args.listen.display(),
        args.lease.as_secs_f64(),
    );
    show::print(&text).map_err(Failure::new)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(format_args!("cannot start threads: {e}")))?;
    runtime.block_on(async {
        let signals = early.listen().map_err(cannot_listen)?;
        let own = args.lease;
        tokio::spawn(async move {
            tokio::time::sleep(longest).await;
            // If this fails, the next bank learns for longer than necessary.
            let _ = note(&lock, own);
        });
        match args.seconds {
            Some(seconds) => {
                // Either way the time is over.
                let _ = tokio::time::timeout(seconds, signals::arrived(signals)).await;
            }
            None => signals::arrived(signals).await,
        }
        Ok::<_, Failure>(())
    })?;
    drop(server);
    Ok(ExitCode::SUCCESS)
}

/// Refuses leases of a useless duration. Very long ones are useless too, since the next bank lends
/// nothing for that long.
fn check(lease: Duration) -> Result<(), Failure> {
    let refuse =
        |why: &str| Err(Failure::new(format_args!("--lease {}: {why}", lease.as_secs_f64())));
    if lease < Duration::from_millis(200) {
        return refuse("no member renews leases that short: use 0.2 or more");
    }
    if lease > LONGEST {
        return refuse("a restarted bank would lend nothing for that long: use 3600 or less");
    }
    Ok(())
}

fn lock_of(socket: &Path) -> PathBuf {
    let mut lock = socket.as_os_str().to_owned();
    lock.push(".lock");
    lock.into()
}

/// Reads a server's lock. It stays when the server ends, and says for how long the server lent.
/// Without a lock this is the first server, and nothing was lent.
fn past(lock: &Path, lease: Duration) -> Past {
    match std::fs::read_to_string(lock) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Past::None,
        kept => {
            let micros = kept.ok().and_then(|text| text.trim().parse().ok());
            Past::LentFor(micros.map_or(lease, Duration::from_micros))
        }
    }
}

/// Writes the longest duration of leases that may still be live. One write of fixed width is used,
/// so that a killed process leaves either number; no lease outlives a crash of the host.
fn note(lock: &Path, longest: Duration) -> std::io::Result<()> {
    let micros = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    let mut file = File::options().create(true).truncate(false).write(true).open(lock)?;
    file.write_all(format!("{micros:020}\n").as_bytes())
}
