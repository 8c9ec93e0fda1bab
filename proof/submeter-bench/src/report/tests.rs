//! Reports of the project's own records, and of deliberately awkward ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::definition::{Definition, TEXTS};
use super::format::amount;
use super::{Record, definitions, html, markdown};
use crate::row::{Params, Row, quantile};

/// A record with a bit of everything, including text that looks like HTML.
const RECORD: &str = r#"{
  "machine": {"cpu_model": "A <b>fast</b> & odd one", "arch": "x86_64", "cpus": 2, "kernel": "6.18",
    "backend": "rseq", "backend_reason": "the self-test passed", "load_average": [2.5, 1.0, 0.5],
    "date": "2026-11-21T02:28:35Z", "version": "0.1.0", "commit": null, "rustc": "rustc 1.95.0",
    "debug_build": true, "interrupted": true, "warnings": ["t: </style><script>alert(1)</script>"],
    "clock": "the time-stamp counter"},
  "rows": [
    {"table": "t", "params": {"cpus": "1", "n": 10}, "variant": "base", "value": 100.0, "unit": "loops/s",
      "samples": [90.0, 100.0, 100.0, 110.0]},
    {"table": "t", "params": {"cpus": "all", "n": 10}, "variant": "base", "value": 50.0, "unit": "loops/s",
      "samples": [50.0]},
    {"table": "t", "params": {"cpus": "1", "n": 10}, "variant": "<i>ours</i>", "value": 250.0, "unit": "loops/s",
      "samples": [250.0, null]},
    {"table": "t", "params": {"cpus": "all", "n": 10}, "variant": "<i>ours</i>", "value": null,
      "unit": "loops/s", "samples": []},
    {"table": "\"odd\" name", "params": {}, "variant": "v", "value": 3.0, "unit": "us", "samples": [3.0]},
    {"table": "sizes", "params": {"operation": "add", "n": 10}, "variant": "v", "value": 11.0, "unit": "ns"},
    {"table": "sizes", "params": {"operation": "kill", "n": 10}, "variant": "v", "value": 12.0, "unit": "ns"},
    {"table": "sizes", "params": {"operation": "add", "n": 100}, "variant": "v", "value": 13.0, "unit": "ns"},
    {"table": "sizes", "params": {"operation": "kill", "n": 100}, "variant": "v", "value": 14.0, "unit": "ns"},
    {"table": "sizes", "params": {"operation": "add", "n": 1000}, "variant": "v", "value": 15.0, "unit": "ns"},
    {"table": "sizes", "params": {"operation": "kill", "n": 1000}, "variant": "v", "value": 16.0, "unit": "ns"},
    {"table": "times", "params": {"measure": "hold", "bucket_us": "0-1"}, "variant": "locks", "value": 5.0, "unit": "count"},
    {"table": "times", "params": {"measure": "hold", "bucket_us": "1-5"}, "variant": "locks", "value": 3.0, "unit": "count"},
    {"table": "times", "params": {"measure": "hold", "bucket_us": "5-"}, "variant": "locks", "value": 1.0, "unit": "count"},
    {"table": "times", "params": {"measure": "hold", "bucket_us": "0-1"}, "variant": "lockless", "value": 0.0, "unit": "count"}
  ],
  "absent": [{"table": "t", "variant": "peer", "reason": "no <compiler> here"}],
  "notes": ["t: a note & more", "t: another <note>", "u: not shown"]
}"#;

const DEFINITION: &str = r#"
table = "t"
title = "A table <of tests>"
document = "t.txt: somebody, 2013"
baseline = "base"
ratio = "how much faster"
how = "by hand"
bounds = "patience"
bias = "to whom it may concern"
[variants.base]
about = "what it was before"
[variants.peer]
about = "somebody else's"
peer = true
[[cell]]
params = { n = 10 }
variant = "theirs"
value = 7.0
unit = "x"
ours = { params = { cpus = 1, n = 10 }, variant = "<i>ours</i>" }
[[cell]]
params = { n = 20 }
variant = "theirs"
value = 8.0
unit = "x"
ours = { params = { cpus = 1, n = 20 }, variant = "base" }
[[cell]]
params = { test = "timed" }
variant = "old"
value = 6.0
unit = "s real"
ours = { params = { cpus = 1 }, variant = "base" }
[[cell]]
params = { test = "timed" }
variant = "new"
value = 2.0
unit = "s real"
ours = { params = { cpus = 1 }, variant = "<i>ours</i>" }
[[cell]]
params = { n = 30 }
variant = "theirs"
value = 9.0
unit = "x"
reason = "no <network> here"
"#;

fn small() -> (Record, Vec<Definition>) {
    let record = Record::parse(RECORD).expect("a record");
    (record, vec![Definition::parse(DEFINITION).expect("a definition")])
}

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The project's own records.
static RECORDS: LazyLock<Vec<(PathBuf, Record)>> = LazyLock::new(|| {
    let files = fs::read_dir(folder("record/x86_64-linux")).expect("the records' folder");
    let paths = files.map(|file| file.expect("a file").path());
    let kept = paths.filter(|path| path.extension().is_some_and(|extension| extension == "zst"));
    let records: Vec<_> = kept
        .map(|path| {
            let text = crate::reports::text_of(&path).expect("a record's text");
            let record = Record::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            (path, record)
        })
        .collect();
    assert!(!records.is_empty());
    records
});

/// Returns a minimal definition of `table`.
fn bare(table: &str) -> Definition {
    Definition::parse(&format!("table = '{table}'\ntitle = 'T'")).expect("a definition")
}

fn plain(text: &str) -> String {
    text.replace('\u{a0}', " ")
}

/// The project's records become pages with every table and with plots: of each table, the newest.
#[test]
fn our_records_become_pages_with_plots() {
    let has = |record: &Record, of: &Definition| record.table(&of.table).next().is_some();
    let newest = |of: &Definition| {
        let having = RECORDS.iter().filter(|(_, record)| has(record, of));
        having.max_by_key(|(path, _)| path).map(|(path, record)| (path, record))
    };
    let pages: BTreeMap<_, _> = definitions().iter().filter_map(newest).collect();
    assert!(pages.len() > 3, "{}", pages.len());
    for (path, record) in pages {
        let page = html(record, definitions());
        let tables = definitions().iter().filter(|of| has(record, of));
        for definition in tables {
            let section = format!("<h2 id=\"{}\">", definition.table);
            let (_, section) = page.split_once(&section).expect("a section of each table");
            let section = section.split("<h2").next().unwrap_or_default();
            for part in ["<table>", "<svg", "<dl>"] {
                assert!(section.contains(part), "{}: {}: {part}", path.display(), definition.table);
            }
        }
        assert!(!page.contains("could not be drawn"), "{}", path.display());
        for outside in ["<script", "<link", "<img", "src=", "url(", "@import"] {
            assert!(!page.contains(outside), "{}: {outside}", path.display());
        }
    }
}

#[test]
fn shown_values_are_the_medians_of_the_samples() {
    let mut compared = 0;
    for (path, record) in &*RECORDS {
        let rows: Vec<_> = record.rows.iter().filter(|row| is_median_of_samples(row)).collect();
        if rows.is_empty() {
            continue; // Most records have no such table, and are a second's work to write.
        }
        let text = markdown(record, definitions());
        for row in rows {
            let median = quantile(&row.sorted(), 0.5).expect("samples");
            let shown = amount(median, &row.unit);
            assert!(text.contains(&format!("| {shown}")), "{}: {row:?}: {shown}", path.display());
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}

/// Tables whose every figure is the median of its samples.
fn is_median_of_samples(row: &Row) -> bool {
    ["rcuref", "percpu_ref", "percpu_counter"].contains(&row.table.as_ref())
}

#[test]
fn ratios_match_the_values_beside_them() {
    let (record, definitions) = small();
    let text = plain(&markdown(&record, &definitions));
    for line in [
        "| n 10 · theirs | 7 × | 7 × | 250 loops/s | 2.50 × |",
        "| n 20 · theirs | 8 × | 8 × | not in this record | – |",
        // A third of the time is three times the rate.
        "| test timed · new | 2 s real | 3 × as a rate | 250 loops/s | 2.50 × |",
        "| n 30 · theirs | 9 × | 9 × | no <network> here | – |",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

/// One variant is shown by size and operations share a plot.
#[test]
fn operations_of_one_variant_share_a_plot() {
    let page = plain(&html(&small().0, &[bare("sizes")]));
    for line in ["<td>add</td>", "<td>kill</td>", "11 ns</td>", "16 ns</td>"] {
        assert!(page.contains(line), "{line} in {page}");
    }
    assert_eq!(page.matches("<svg").count(), 1);
    let legend = ["\nadd\n", "\nkill\n"].map(|name| page.matches(name).count());
    assert_eq!(legend, [1, 1], "{page}");
}

#[test]
fn buckets_are_plotted_though_no_table_has_them() {
    let (record, _) = small();
    let definitions = [bare("times")];
    let page = html(&record, &definitions);
    assert_eq!(page.matches("<svg").count(), 1);
    // On a logarithmic axis, zero would look like a few.
    assert!(page.contains("locks") && !page.contains("lockless"), "{page}");
    let text = markdown(&record, &definitions);
    assert!(text.contains("4 more rows, such as histograms"), "{text}");
}

/// A document's histogram that two workloads answer, the second only in part.
const ANSWERED: &str = r#"
    table = "t"
    document = "t.txt"
    baseline = "base"
    better = "lower"
    [[answers]]
    name = "built"
    params = { workload = "build" }
    [[answers]]
    name = "made up"
    params = { workload = "made" }
    [[cell]]
    params = { hold_us = "0-1" }
    variant = "base"
    value = 30
    unit = "count"
    ours = { params = { bucket_us = "0-1" }, variant = "base" }
    [[cell]]
    params = { hold_us = "1-" }
    variant = "base"
    value = 10
    unit = "count"
    ours = { params = { bucket_us = "1-" }, variant = "base" }
    [[contest]]
    params = { workload = "build", measure = "flush" }
    variant = "submeter"
    against = ["base", "other"]
    [[contest]]
    params = { workload = "made", measure = "flush" }
    variant = "submeter"
    against = ["base", "other"]
"#;

const ANSWERS: &str = r#"{"machine": {"arch": "a", "cpus": 1, "kernel": "k", "backend": "r", "date": "d", "version": "v"}, "rows": [
    {"table": "t", "params": {"workload": "build", "bucket_us": "0-1"}, "variant": "base", "value": 1, "unit": "count", "samples": [1]},
    {"table": "t", "params": {"workload": "build", "bucket_us": "1-"}, "variant": "base", "value": 4, "unit": "count", "samples": [4]},
    {"table": "t", "params": {"workload": "made", "bucket_us": "0-1"}, "variant": "base", "value": 7, "unit": "count", "samples": [7]},
    {"table": "t", "params": {"workload": "build", "measure": "flush"}, "variant": "submeter", "value": 3, "unit": "us", "samples": [3]},
    {"table": "t", "params": {"workload": "build", "measure": "flush"}, "variant": "base", "value": 4, "unit": "us", "samples": [4]},
    {"table": "t", "params": {"workload": "build", "measure": "flush"}, "variant": "other", "value": 2, "unit": "us", "samples": [2]},
    {"table": "t", "params": {"workload": "made", "measure": "flush"}, "variant": "submeter", "value": 2, "unit": "us", "samples": [2]},
    {"table": "t", "params": {"workload": "made", "measure": "flush"}, "variant": "other", "value": 4, "unit": "us", "samples": [4]}]}"#;

#[test]
fn each_workload_answers_a_documents_histogram() {
    let record = Record::parse(ANSWERS).expect("a record");
    let definition = Definition::parse(ANSWERED).expect("a definition");
    let text = markdown(&record, std::slice::from_ref(&definition)).replace('\u{a0}', " ");
    for line in [
        "| hold us | base, document | base, built | base, made up |",
        "| 0-1 | 75 % | 20 % | 100 % |",
        "| 1- | 25 % | 80 % | not in this record |",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

/// The report says who is ahead, also where it is not submeter.
#[test]
fn the_report_says_who_is_ahead() {
    let record = Record::parse(ANSWERS).expect("a record");
    let definition = Definition::parse(ANSWERED).expect("a definition");
    let behind = "workload build, measure flush | 3 µs | other | 2 µs | 1.50 × | other |";
    let ahead = "workload made, measure flush | 2 µs | other | 4 µs | 0.500 × | submeter |";
    let text = markdown(&record, std::slice::from_ref(&definition)).replace('\u{a0}', " ");
    assert!(text.contains(behind) && text.contains(ahead), "{text}");
    let summary = "In 1 of the 2 rows that others have too, by more than 3 %:";
    let lost = "| t | workload build, measure flush | 3 µs | other | 2 µs | 1.50 × |";
    assert!(text.contains(summary) && text.contains(lost), "{text}");
    // Where more is better, the same figures say the opposite.
    let higher = Definition { better: "higher".to_owned(), ..definition };
    let text = markdown(&record, &[higher]).replace('\u{a0}', " ");
    assert!(text.contains("3 µs | base | 4 µs | 0.750 × | base |"), "{text}");
}

/// A contest covers all our rows and no histograms.
#[test]
fn a_contest_is_of_all_our_rows() {
    let record = Record::parse(ANSWERS).expect("a record");
    let mut definition = Definition::parse(ANSWERED).expect("a definition");
    definition.contest.truncate(1);
    definition.contest[0].params = Params::default();
    let text = markdown(&record, std::slice::from_ref(&definition)).replace('\u{a0}', " ");
    assert!(text.contains("In 1 of the 2 rows"), "one contest finds both: {text}");
    definition.contest[0].variant = "base".to_owned();
    definition.contest[0].against = vec!["other".to_owned()];
    let (bucket, same) = (r#""1-"}, "variant": "base""#, r#""0-1"}, "variant": "other""#);
    assert!(ANSWERS.contains(bucket));
    let record = Record::parse(&ANSWERS.replace(bucket, same)).expect("a record");
    let text = markdown(&record, &[definition]).replace('\u{a0}', " ");
    assert!(text.contains("In 1 of the 1 rows"), "buckets are no contest: {text}");
    assert!(text.contains("| base, workload build, measure flush | 4 µs |"), "named: {text}");
}

#[test]
fn the_page_says_what_the_markdown_says() {
    let (record, definitions) = small();
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let page = html(&record, &definitions).replace("&quot;", "\"");
    let text = markdown(&record, &definitions);
    let is_rule = |word: &&str| word.chars().all(|c| "-:|".contains(c));
    let words = text.lines().flat_map(|line| line.trim_start_matches(['#', '*']).split(" | "));
    let words = words.map(|word| word.trim_matches(['|', '*', ' '])).filter(|word| !is_rule(word));
    let mut compared = 0;
    for word in words {
        // Emphasis ends within a line.
        for part in word.split(".* ") {
            assert!(page.contains(&escaped(part)), "{part:?} in {page}");
            compared += 1;
        }
    }
    assert!(compared > 60, "{compared} of {text}");
    assert!(page.contains("<dt>peer (a peer)</dt><dd>somebody else's</dd>"), "{page}");
    assert!(!page.contains("not shown"), "notes of other tables");
}

/// Rows that were removed since a record was made are not reported.
#[test]
fn what_was_removed_is_not_reported() {
    let row = |params: &str, variant: &str| {
        format!(
            r#"{{"table": "limits", "params": {{"cpus": "1"{params}}}, "variant": "{variant}",
                "value": 1.0, "unit": "pairs/s", "samples": [1.0]}}"#
        )
    };
    let text = format!(
        r#"{{"machine": {{"arch": "x", "cpus": 2, "kernel": "6", "backend": "b", "date": "d",
            "warnings": ["limits: gone_1 is slow", "limits: submeter is slow"]}},
            "absent": [{{"table": "limits", "variant": "gone_1", "reason": "none"}}],
            "notes": ["limits: gone_2: a note", "limits: levels: another"],
            "rows": [{}, {}, {}]}}"#,
        row("", "gone_1"),
        row(r#", "gone_2": "3""#, "submeter"),
        row("", "submeter"),
    );
    let record = Record::parse(&text).expect("a record").without_removed();
    assert_eq!(record.rows.len(), 1);
    assert_eq!(record.machine.warnings, ["limits: submeter is slow"]);
    assert!(record.absent.is_empty());
    assert_eq!(record.notes("limits"), ["levels: another"]);
}

#[test]
fn text_that_is_no_record_is_refused_in_a_line() {
    for (text, named) in [
        ("", "EOF"),
        ("<html>", "expected value"),
        ("{}", "machine"),
        (r#"{"machine":{},"rows":[]}"#, "arch"),
        (r#"{"machine":{"arch":"a","cpus":"two"},"rows":[]}"#, "two"),
    ] {
        let line = Record::parse(text).expect_err(text);
        assert!(line.contains(named) && line.contains("--json"), "{line}");
        assert!(!line.contains('\n'), "{line}");
    }
}

/// Definitions parse and each of their cells is in the report.
#[test]
fn definitions_parse_and_cells_are_reported() {
    for text in TEXTS {
        Definition::parse(text).unwrap_or_else(|error| panic!("{error} in {text}"));
    }
    let definitions = definitions();
    assert_eq!(definitions.len(), TEXTS.len());
    let newest = RECORDS.iter().find(|(path, _)| path.ends_with("2026-11-27-all.json.zst"));
    let text = markdown(&newest.expect("it is there").1, definitions);
    for definition in definitions {
        // For a histogram only shares are shown.
        for cell in definition.cell.iter().filter(|cell| cell.unit != "count") {
            let value = cell.value.map_or_else(|| "–".to_owned(), |v| amount(v, &cell.unit));
            let found = text.contains(&format!("{} | {value} |", cell.variant));
            assert!(found, "{}: {cell:?} is not shown", definition.table);
        }
    }
}
