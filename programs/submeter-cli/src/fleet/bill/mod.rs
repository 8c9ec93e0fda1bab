//! `submeter fleet bill`: what the members of a fleet have counted, stored so that nothing is
//! counted twice, and its sums.
//!
//! For each epoch of a tree the bill keeps the reading with the largest sequence: a duplicate or
//! late reading changes nothing. Totals include descendants. A deleted group stays as it was last
//! read, and its counts at that time are subtracted from its parent, which received them at the
//! deletion. Each tenant is thus billed for what it counted, and all lines add up to the roots.
//!
//! In the file a reading is one line, synced before the next is written, without the groups that
//! have not changed. A torn last line is ignored, and its member is read again. In PostgreSQL a
//! reading is one transaction, which replaces the run's row if its sequence is larger, and the
//! invoice is a view.

mod file;
mod invoice;
mod ledger;
#[cfg(feature = "postgres")]
mod postgres;
mod record;
mod store;

use std::io::{IsTerminal as _, stdout};
use std::process::ExitCode;

use submeter_http::wire::totals::TotalsDoc;
use submeter_terminal::{self as show, Failure};

use self::record::Record;
use self::store::{Place, Store};
use crate::cli::{FleetBillArgs, LogArgs, LogForm};
use crate::logger;
use crate::top::client::Client;

/// Runs the command.
pub(super) fn run(args: &FleetBillArgs) -> Result<ExitCode, Failure> {
    if args.urls.is_empty() && !args.sum {
        return Err(Failure::new(
            "nothing to do: specify the servers' pages to read (URL..., as in 10.0.0.1:9411), or \
             add --sum for the invoice of what was read before",
        ));
    }
    logger::start(LogArgs { verbose: false, log: LogForm::Plain });
    let place = Place::of(args)?;
    // Errors in an address are reported before anything is read or written.
    let clients = Client::each(&args.access, &args.urls)?;
    let mut missed = Vec::new();
    let mut text = String::new();
    if !clients.is_empty() {
        // A file is locked before the members are asked, so that of two concurrent runs neither has
        // an older reading.
        let mut store = place.open()?;
        for client in &clients {
            match client.totals() {
                Ok(totals) => match keep(&mut store, client.url(), totals) {
                    Ok(said) => text.push_str(&said),
                    Err(failure) => missed.push(failure.line().to_owned()),
                },
                // The others are to be billed all the same.
                Err(failure) => missed.push(failure.line().to_owned()),
            }
        }
    }
    if args.sum {
        text = invoice::text(&place.invoice()?, args.json)?;
    }
    show::print(&text).map_err(Failure::new)?;
    match missed.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Err(Failure::new(format_args!(
            "{} of {} servers not read: {}",
            missed.len(),
            clients.len(),
            missed.join("; ")
        ))),
    }
}

/// Writes the new readings, and reports it.
fn keep(store: &mut Store, url: &str, totals: TotalsDoc) -> Result<String, Failure> {
    let TotalsDoc { member, units, readings, .. } = totals;
    let name = show::displayed(&member, stdout().is_terminal());
    let mut new = 0;
    for reading in readings {
        let record = Record { member: member.clone(), units: units.clone(), reading };
        new += usize::from(store.add(record)?);
    }
    let url = show::plain(url);
    Ok(match new {
        0 => format!("{name} at {url}: already read\n"),
        1 => format!("{name} at {url}: read\n"),
        _ => format!("{name} at {url}: read, including restored totals\n"),
    })
}
