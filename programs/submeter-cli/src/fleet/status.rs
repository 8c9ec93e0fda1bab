//! `submeter fleet status`: which member holds how much of each limit.

use std::process::ExitCode;

use serde::Serialize;
use submeter::visible;
use submeter_bank::{Budget, Limit, Operate};
use submeter_terminal::{self as show, Failure};

use super::{Engine, EngineError};
use crate::cli::{FleetStatusArgs, MEMORY, RATE};

/// The bank's answer, as JSON.
#[derive(Serialize)]
struct StatusDoc {
    bank: String,
    /// Whether the bank lends nothing new for the moment, because it does not know yet what was
    /// lent before.
    learns: bool,
    limits: Vec<LimitDoc>,
}

#[derive(Serialize)]
struct LimitDoc {
    path: String,
    resource: String,
    limit: u64,
    floors: u64,
    per_member: Option<u64>,
    /// The sum that all members hold.
    lent: u64,
    leases: Vec<LeaseDoc>,
}

#[derive(Serialize)]
struct LeaseDoc {
    member: String,
    /// In hexadecimal: as a number it exceeds what many JSON readers keep exactly.
    epoch: String,
    amount: u64,
    wants: u64,
    held_for_s: f64,
    ends_in_s: f64,
}

/// Runs the command.
pub(super) fn run(args: &FleetStatusArgs) -> Result<ExitCode, Failure> {
    let engine = Engine::new(&args.bank.bank, &args.bank.service)?;
    let limits = limits(&engine).map_err(Failure::new)?;
    let learns = engine.learns().map_err(Failure::new)?;
    let doc = StatusDoc { bank: args.bank.bank.to_string(), learns, limits };
    let text = if args.json {
        let json = serde_json::to_string_pretty(&doc);
        json.map_err(|error| Failure::new(format_args!("cannot write JSON: {error}")))? + "\n"
    } else {
        table(&doc)
    };
    show::print(&text).map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

fn limits(engine: &Engine) -> Result<Vec<LimitDoc>, EngineError> {
    let limits = engine.limits()?;
    limits.into_iter().map(|limit| with_leases(engine, &limit)).collect()
}

fn with_leases(engine: &Engine, limit: &Limit) -> Result<LimitDoc, EngineError> {
    let holders = engine.holders(&limit.budget)?;
    let leases = holders.into_iter().map(|lent| LeaseDoc {
        member: lent.member,
        epoch: format!("{:016x}", lent.epoch),
        amount: lent.amount,
        wants: lent.wants,
        held_for_s: tenths(lent.held_for.as_secs_f64()),
        ends_in_s: tenths(lent.ends_in.as_secs_f64()),
    });
    let leases: Vec<LeaseDoc> = leases.collect();
    Ok(LimitDoc {
        path: limit.budget.path().to_owned(),
        resource: limit.budget.resource().to_owned(),
        limit: limit.most,
        floors: limit.floors,
        per_member: limit.per_member,
        lent: leases.iter().fold(0, |sum, lease| lease.amount.saturating_add(sum)),
        leases,
    })
}

fn tenths(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}

fn table(doc: &StatusDoc) -> String {
    if doc.limits.is_empty() {
        return format!("{} has no limits: set one with `submeter fleet set`\n", doc.bank);
    }
    let mut rows = Vec::new();
    for limit in &doc.limits {
        let of = |n| written(&limit.resource, n);
        let name = format!("{} of {}", limit.resource, visible(&limit.path));
        let [none, held] = [String::new(), of(limit.lent)];
        rows.push(vec![name, of(limit.limit), held, none.clone(), none.clone(), none]);
        for lease in &limit.leases {
            rows.push(vec![
                format!("  {}", visible(&lease.member)),
                String::new(),
                of(lease.amount),
                of(lease.wants),
                format!("{:.0} s", lease.held_for_s),
                format!("{:.0} s", lease.ends_in_s),
            ]);
        }
    }
    let table = show::table(&["", "limit", "lent", "wants", "held for", "ends in"], &rows, false);
    match doc.learns {
        false => table,
        true => format!(
            "{table}the bank is learning what was lent before it started: it lends nothing new for \
             about the length of a lease\n"
        ),
    }
}

/// Writes an amount of a budget.
pub(super) fn amount(budget: &Budget, n: u64) -> String {
    written(budget.resource(), n)
}

fn written(resource: &str, n: u64) -> String {
    match resource {
        MEMORY => show::bytes(n),
        RATE => format!("{}/s", show::count(n)),
        _ => show::count(n),
    }
}
