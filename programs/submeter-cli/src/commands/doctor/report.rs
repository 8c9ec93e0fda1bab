//! The diagnosis, as text for people.

use std::fmt::Write;

use serde::Serialize;

use super::facts::{BackendName, Facts};
use super::operations::Operation;
use submeter_terminal::{self as show, BOLD, DIM};

/// Everything that the command reports. The fields' names are those of the JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis {
    #[serde(flatten)]
    pub(crate) facts: Facts,
    pub(crate) world: String,
    pub(crate) remedies: Vec<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) no_operations: Option<String>,
}

/// Writes the diagnosis for a terminal.
pub(crate) fn human(diagnosis: &Diagnosis) -> String {
    let facts = &diagnosis.facts;
    let backend = name(facts.backend);
    let mut text = format!("{BOLD}{backend}{BOLD:#},");
    show::wrap(&mut text, backend.len() + 1, 6, &format!("because {}", facts.reason));
    show::paragraph(&mut text, "world", &diagnosis.world);
    for remedy in &diagnosis.remedies {
        show::paragraph(&mut text, "better", remedy);
    }
    for warning in &diagnosis.warnings {
        show::paragraph(&mut text, "beware", warning);
    }
    text.push('\n');
    for (what, found) in found(facts) {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{DIM}{what:<11}{DIM:#} ");
        show::wrap(&mut text, 12, 12, &found);
    }
    text.push('\n');
    if let Some(missing) = &diagnosis.no_operations {
        let _ = writeln!(text, "{DIM}no figures for operations: {missing}{DIM:#}");
    }
    text.push_str(&operations(&diagnosis.operations));
    text
}

/// Returns the cost of operations, beside the best world and beside the equivalent without
/// submeter.
fn operations(operations: &[Operation]) -> String {
    if operations.is_empty() {
        return String::new();
    }
    let ns = |value: f64| show::three_digits(value);
    let row = |operation: &Operation| {
        let Operation { name, here_ns, best_ns, without_ns } = operation;
        vec![
            (*name).to_owned(),
            ns(here_ns.median),
            format!("{}–{}", ns(here_ns.low), ns(here_ns.high)),
            ns(*best_ns),
            ns(without_ns.median),
        ]
    };
    let heading = ["ns, one thread", "here", "middle half", "best world", "without submeter"];
    let rows: Vec<Vec<String>> = operations.iter().map(row).collect();
    let mut text = show::table(&heading, &rows, false);
    let _ = writeln!(
        text,
        "{DIM}best world: measured on the machine of BENCHMARKS.md; its table worlds has \
         more{DIM:#}"
    );
    text
}

/// Returns the name of each backend for people.
fn name(backend: BackendName) -> &'static str {
    match backend {
        BackendName::LibcRseq => "Restartable sequences, registered by libc",
        BackendName::OwnRseq => "Restartable sequences, registered by submeter",
        BackendName::LockedByCpu => "Locked adds, with words chosen by CPU",
        BackendName::LockedByThread => "Locked adds, with words chosen by thread",
    }
}

fn found(facts: &Facts) -> [(&'static str, String); 7] {
    let restarts = if facts.kernel_may_lose_restarts { ", may lose a restart" } else { "" };
    let cpus = match facts.cpus_possible {
        Some(cpus) => format!("{cpus} possible"),
        None => "unknown number possible".to_owned(),
    };
    let libc = match facts.libc_area_bytes {
        None => "does not know rseq".to_owned(),
        Some(0) => "registers no thread for rseq".to_owned(),
        Some(bytes) => format!("registers every thread for rseq, {bytes} bytes"),
    };
    let mm_cid = match (facts.mm_cid, facts.rows_by_mm_cid) {
        (true, true) => "mm_cid numbers the rows",
        (true, false) => "including mm_cid",
        (false, _) => "no mm_cid",
    };
    let features = match facts.kernel_feature_bytes {
        0 => format!("size unknown, {mm_cid}"),
        bytes => format!("{bytes} bytes filled in, {mm_cid}"),
    };
    let membarrier = match facts.membarrier_errno {
        Some(errno) => format!("refused with errno {errno}"),
        None if facts.membarrier_restarts => "restarts sequences".to_owned(),
        None => "cannot restart sequences".to_owned(),
    };
    [
        ("kernel", format!("Linux {} {}{restarts}", facts.kernel, facts.arch)),
        ("cpus", format!("{cpus}, {} allowed", facts.cpus_allowed.len())),
        ("libc", libc),
        ("rseq area", features),
        ("membarrier", membarrier),
        ("self-test", facts.self_test.clone()),
        ("cpu time", facts.cpu_clock.to_owned()),
    ]
}
