//! The page around the sections: heading, machine, warnings, contents.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use super::definition::Definition;
use super::record::{Machine, Record};
use super::{anchor, figures, section};

const STYLE: &str = include_str!("style.css");

/// Writes the report of `record`: tables of documents first, then our own, in the order of
/// `definitions`; tables without a definition come last.
pub(crate) fn html(record: &Record, definitions: &[Definition]) -> String {
    let (documents, own): (Vec<&Definition>, Vec<&Definition>) =
        definitions.iter().partition(|definition| definition.document.is_some());
    let mut unknown: Vec<&str> = Vec::new();
    for row in &record.rows {
        let known = definitions.iter().any(|definition| definition.table == row.table);
        if !known && !unknown.contains(&row.table.as_ref()) {
            unknown.push(&row.table);
        }
    }
    let known = definitions.iter().map(|definition| definition.table.as_str());
    let tables: Vec<&str> = known.chain(unknown.iter().copied()).collect();
    let machine = &record.machine;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "submeter: what it costs, what it gains · " (machine.date) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "submeter" }
                    p class="lead" {
                        "What it costs to account for the tenants inside a process, and what it gains. Measured on "
                        (machine.cpu_model.as_deref().unwrap_or("a processor without a name"))
                        ", " (machine.cpus) " CPUs, " (machine.date) "."
                    }
                    @if let Some(answer) = figures::answer(record, &tables) { p class="lead" { strong { (answer) } } }
                    @if let Some(picture) = figures::picture(record, definitions) {
                        div class="plots" { (picture) }
                    }
                    p class="small" { (origin(machine)) }
                }
                (warnings(machine))
                main {
                    (figures::first_screen(record, &tables))
                    (facts(machine))
                    (contents(&documents, &own, &unknown))
                    @for definition in documents.iter().chain(&own) {
                        (section::section(record, definition))
                    }
                    @for table in &unknown { (section::undefined(record, table)) }
                }
                footer class="small" {
                    p class="paper" { "Folded tables and plots are not printed: unfold them first." }
                    "Made by submeter " (machine.version) " from a record with " (record.rows.len())
                    " rows. To make it again: " code { "submeter-bench --from RECORD.json --html FILE" } "."
                }
            }
        }
    };
    page.into_string()
}

/// Writes the reasons to doubt figures, before any figure. They are folded, because a figure that
/// is too noisy mentions so itself.
fn warnings(machine: &Machine) -> Markup {
    let mut all: Vec<&str> = Vec::new();
    // The bench writes both warnings itself; a record edited by hand may lack them.
    let mentions = |words: &str| machine.warnings.iter().any(|warning| warning.contains(words));
    if machine.debug_build && !mentions("debug build") {
        all.push("This was a debug build: nothing was optimised, and its figures are meaningless.");
    }
    if machine.interrupted && !mentions("interrupted") {
        all.push("The run was interrupted: figures come from what was measured until then.");
    }
    all.extend(machine.warnings.iter().map(String::as_str));
    html! {
        @if !all.is_empty() {
            aside class="warning" aria-label="Warnings" {
                details {
                    summary { strong { "Before you trust a figure" } " (" (all.len()) ")" }
                    ul { @for warning in &all { li { (warning) } } }
                }
            }
        }
    }
}

/// Returns one line with what figures depend on most.
fn origin(machine: &Machine) -> String {
    let mut parts = vec![
        format!("Linux {}", machine.kernel),
        machine.backend.clone(),
        format!("commit {}", machine.commit.as_deref().unwrap_or("not recorded")),
    ];
    let load = machine.load_average.map(|[minute, ..]| format!("load average {minute}"));
    parts.extend(load);
    // Newer records have more fields.
    for name in ["clock", "pinning", "mode"] {
        let value = machine.more.get(name).map(|value| format!("{name} {}", plain(value)));
        parts.extend(value);
    }
    parts.push(if machine.debug_build { "debug build" } else { "release build" }.to_owned());
    parts.join(" · ")
}

/// Writes the machine's description.
fn facts(machine: &Machine) -> Markup {
    let load = machine.load_average.map(|[one, five, fifteen]| {
        format!("{one} · {five} · {fifteen} (1, 5, 15 minutes, before)")
    });
    let backend = match machine.backend_reason.as_str() {
        "" => machine.backend.clone(),
        reason => format!("{}; {reason}", machine.backend),
    };
    let unknown = || "not recorded".to_owned();
    let known = [
        ("processor", machine.cpu_model.clone().unwrap_or_else(unknown)),
        ("CPUs", format!("{} ({})", machine.cpus, machine.arch)),
        ("kernel", machine.kernel.clone()),
        ("rseq backend", backend),
        ("load average", load.unwrap_or_else(unknown)),
        ("commit", machine.commit.clone().unwrap_or_else(unknown)),
        ("version", machine.version.clone()),
        ("compiler", machine.rustc.clone()),
        ("date", machine.date.clone()),
    ];
    html! {
        section aria-labelledby="machine" {
            h2 id="machine" { "Where the figures come from" }
            dl class="facts" {
                @for (name, value) in known { div { dt { (name) } dd { (value) } } }
                @for (name, value) in &machine.more {
                    div { dt { (name.replace('_', " ")) } dd { (plain(value)) } }
                }
            }
        }
    }
}

/// Writes the value of a field that this version does not know.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "not recorded".to_owned(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(pairs) => {
            let pair = |(name, value): (&String, &Value)| format!("{name} {}", plain(value));
            pairs.iter().map(pair).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

fn contents(documents: &[&Definition], own: &[&Definition], unknown: &[&str]) -> Markup {
    let entry = |table: &str, title: &str| {
        html! { li { a href=(format!("#{}", anchor(table))) { (title) } } }
    };
    let list = |heading: &str, definitions: &[&Definition]| {
        html! {
            @if !definitions.is_empty() {
                div {
                    h3 { (heading) }
                    ul { @for definition in definitions { (entry(&definition.table, &definition.title)) } }
                }
            }
        }
    };
    html! {
        nav aria-label="Tables" {
            (list("The documents' tables", documents))
            (list("Our own tables", own))
            @if !unknown.is_empty() {
                div {
                    h3 { "Other tables" }
                    ul { @for table in unknown { (entry(table, table)) } }
                }
            }
        }
    }
}
