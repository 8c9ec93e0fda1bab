//! The outcome of a load: a table for people, JSON for programs.

use serde_json::{Value, json};

use submeter_load::drive::{Outcome, Plan};
use submeter_load::tally::Tally;
use submeter_load::verb::Verb;
use submeter_terminal::{self as show, BOLD, DIM};

/// Writes the table of results per tenant, with the total below.
pub(crate) fn table(plan: &Plan, outcome: &Outcome, total: &Tally) -> String {
    let named = plan.tenants.iter().map(|(name, _)| name.as_str()).zip(&outcome.tallies.tenants);
    let mut rows: Vec<Vec<String>> = named.map(|(name, tally)| row(name, tally, outcome)).collect();
    rows.push(row("total", total, outcome));
    let heading = ["tenant", "requests", "throughput", "hits", "p50", "p90", "p99", "p99.9", "max"];
    show::table(&heading, &rows, true)
}

fn row(name: &str, tally: &Tally, outcome: &Outcome) -> Vec<String> {
    let time = |ns| if tally.requests() == 0 { "-".to_owned() } else { show::time(ns) };
    let quantile = |q| time(tally.latency_ns.value_at_quantile(q));
    vec![
        name.to_owned(),
        show::count(tally.requests()),
        show::rate(tally.requests(), outcome.took),
        show::ratio(tally.hits, tally.misses),
        quantile(0.5),
        quantile(0.9),
        quantile(0.99),
        quantile(0.999),
        time(tally.latency_ns.max()),
    ]
}

/// Says in one line or a few whether the values read were the values stored.
pub(crate) fn verdict(outcome: &Outcome, total: &Tally) -> String {
    if total.hits == 0 {
        return format!("{DIM}values{DIM:#}  none were read back, so none were checked\n");
    }
    if total.corrupt == 0 {
        let checked = show::count(total.hits);
        return format!(
            "{DIM}values{DIM:#}  {checked} read back, every byte checked: all correct\n"
        );
    }
    let mut text = format!(
        "{BOLD}values{BOLD:#}  {} of {} read back are CORRUPT\n",
        show::count(total.corrupt),
        show::count(total.hits)
    );
    for corruption in &outcome.tallies.corruptions {
        text.push_str(&format!("  key {}: {}\n", corruption.key, corruption.what));
    }
    text
}

/// Says what was refused, if anything. A refusal is the server's limit at work, not an error of the
/// run.
pub(crate) fn refusals(total: &Tally) -> String {
    if total.refused == 0 {
        return String::new();
    }
    let refused = show::count(total.refused);
    format!(
        "{DIM}refused{DIM:#} {refused} requests with SERVER_ERROR: out of memory, or over a rate \
         or a budget\n"
    )
}

/// Returns the configuration and the results.
pub(crate) fn json(plan: &Plan, outcome: &Outcome, total: &Tally) -> Value {
    let tenants: Vec<Value> = plan
        .tenants
        .iter()
        .zip(&outcome.tallies.tenants)
        .map(|((name, profile), tally)| {
            let mut value = tally_json(tally, outcome);
            value["name"] = json!(name);
            value["group"] = json!(format!("/load/{name}"));
            value["profile"] = json!(profile);
            value
        })
        .collect();
    let corruptions: Vec<Value> =
        outcome.tallies.corruptions.iter().map(|c| json!({"key": c.key, "what": c.what})).collect();
    json!({
        "config": {
            "connect": plan.server.to_string(),
            "tenants": plan.tenants.len(),
            "seconds": plan.seconds.map(|s| s.as_secs_f64()),
            "requests": plan.requests,
            "warm_up": plan.warm_up.as_secs_f64(),
            "ramp": plan.ramp.as_secs_f64(),
            "rate": plan.rate,
            "connections": plan.connections,
            "pipeline": plan.pipeline,
            "delimiter": char::from(plan.delimiter).to_string(),
            "seed": plan.seed,
        },
        "seconds": outcome.took.as_secs_f64(),
        "total": tally_json(total, outcome),
        "tenants": tenants,
        "corruptions": corruptions,
    })
}

fn tally_json(tally: &Tally, outcome: &Outcome) -> Value {
    let by_verb: serde_json::Map<String, Value> = Verb::ALL
        .into_iter()
        .filter(|verb| tally.by_verb[*verb as usize] > 0)
        .map(|verb| (verb.name().to_owned(), json!(tally.by_verb[verb as usize])))
        .collect();
    let h = &tally.latency_ns;
    json!({
        "requests": tally.requests(),
        "requests_per_second": tally.requests() as f64 / outcome.took.as_secs_f64().max(1e-9),
        "by_command": by_verb,
        "hits": tally.hits,
        "misses": tally.misses,
        "fills": tally.fills,
        "done": tally.done,
        "not_stored": tally.not_stored,
        "exists": tally.exists,
        "not_found": tally.not_found,
        "refused": tally.refused,
        "corrupt": tally.corrupt,
        "bytes_sent": tally.bytes_sent,
        "bytes_received": tally.bytes_received,
        "latency_ns": {
            "count": h.len(),
            "min": h.min(),
            "mean": h.mean(),
            "p50": h.value_at_quantile(0.5),
            "p90": h.value_at_quantile(0.9),
            "p99": h.value_at_quantile(0.99),
            "p99_9": h.value_at_quantile(0.999),
            "p99_99": h.value_at_quantile(0.9999),
            "max": h.max(),
        },
    })
}
