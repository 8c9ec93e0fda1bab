//! Reports of the project's own records, and of deliberately awkward ones.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use scraper::{Html, Selector};

use super::definition::{Definition, TEXTS};
use super::format::amount;
use super::{Record, anchor, definitions, html, markdown};
use crate::row::{Row, quantile};

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
    {"table": "times", "params": {"measure": "hold", "bucket_us": "0-1"}, "variant": "locks", "value": 5.0, "unit": "count"},
    {"table": "times", "params": {"measure": "hold", "bucket_us": "1-"}, "variant": "locks", "value": 3.0, "unit": "count"},
    {"table": "times", "params": {"measure": "hold", "bucket_us": "0-1"}, "variant": "lockless", "value": 0.0, "unit": "count"}
  ],
  "absent": [{"table": "t", "variant": "peer", "reason": "no <compiler> here"}],
  "notes": ["t: a note & more", {"table": "t", "note": "another <note>"}, "u: not shown"]
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

/// Returns the project's own records.
fn records() -> Vec<(PathBuf, Record)> {
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
}

fn all<'a>(page: &'a Html, selector: &str) -> Vec<scraper::ElementRef<'a>> {
    let selector = Selector::parse(selector).expect("a selector");
    page.select(&selector).collect()
}

fn text_of(page: &Html, selector: &str) -> String {
    all(page, selector).iter().flat_map(|element| element.text()).collect()
}

/// Parses a page, and asserts what holds for every report.
fn valid(page: &str) -> Html {
    let parsed = Html::parse_document(page);
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    assert!(all(&parsed, "script, link, iframe, object, embed, img, base, form").is_empty());
    for attribute in ["src", "href", "xlink:href", "action", "srcset", "style"] {
        for element in parsed.tree.nodes().filter_map(scraper::ElementRef::wrap) {
            let value = element.attr(attribute).unwrap_or("#");
            assert!(value.starts_with('#'), "{attribute}={value} leads out of the file");
        }
    }
    let style = text_of(&parsed, "style");
    assert!(!style.contains("url(") && !style.contains("@import"), "the style fetches something");
    let ids: Vec<&str> = all(&parsed, "[id]").iter().filter_map(|e| e.attr("id")).collect();
    let unique: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(unique.len(), ids.len(), "ids are unique");
    for link in all(&parsed, "a[href]") {
        let target = &link.attr("href").expect("selected by it")[1..];
        assert!(unique.contains(target), "#{target} is nowhere");
    }
    for svg in all(&parsed, "svg") {
        for words in ["title", "desc"] {
            let selector = Selector::parse(words).expect("a selector");
            let text: String = svg.select(&selector).flat_map(|element| element.text()).collect();
            assert!(!text.trim().is_empty(), "a plot without {words}");
        }
        assert_eq!(svg.attr("role"), Some("img"));
    }
    for table in all(&parsed, "table") {
        let heads = Selector::parse("th").expect("a selector");
        assert!(table.select(&heads).all(|head| head.attr("scope").is_some()), "th with a scope");
    }
    parsed
}

/// Returns all machine-readable values of the page.
fn values(page: &Html, selector: &str) -> Vec<f64> {
    let data = all(page, selector);
    data.iter()
        .map(|data| data.attr("value").expect("a value").parse().expect("a number"))
        .collect()
}

#[test]
fn the_project_s_records_become_valid_reports_with_every_value() {
    for (path, record) in records() {
        let page = valid(&html(&record, definitions()));
        let mut shown = values(&page, "td data");
        shown.sort_by(f64::total_cmp);
        for row in &record.rows {
            let value = row.figure().expect("every row has a figure");
            let found = shown.binary_search_by(|shown| shown.total_cmp(&value)).is_ok();
            assert!(found, "{}: {row:?} is not shown", path.display());
        }
        assert!(!all(&page, "svg").is_empty(), "{}: no plot", path.display());
        assert!(!text_of(&page, "main").contains("could not be drawn"), "{}", path.display());
    }
}

#[test]
fn shown_values_are_the_medians_of_the_samples() {
    let mut compared = 0;
    for (path, record) in records() {
        let page = valid(&html(&record, &[]));
        for row in record.rows.iter().filter(|row| is_median_of_samples(row)) {
            let sorted = row.sorted();
            let median = quantile(&sorted, 0.5).expect("samples");
            let section = format!("#{} data[value=\"{median}\"]", anchor(&row.table));
            let shown = all(&page, &section);
            assert!(!shown.is_empty(), "{}: {row:?} shows no {median}", path.display());
            let text: String = shown[0].text().collect();
            assert_eq!(text, amount(median, &row.unit));
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
    let page = valid(&html(&record, &definitions));
    let lines = all(&page, "table.document tbody tr");
    let text =
        |line: usize| lines[line].text().collect::<Vec<_>>().join(" ").replace('\u{a0}', " ");
    assert_eq!(lines.len(), 5);
    for part in ["n 10", "theirs", "7 ×", "250 loops/s", "2.50 ×", "<i>ours</i>"] {
        assert!(text(0).contains(part), "{part} in {}", text(0));
    }
    assert!(text(1).contains("not in this record"), "{}", text(1));
    for part in ["2 s real", "3 × as a rate", "2.50 ×"] {
        assert!(text(3).contains(part), "a third of the time is three times the rate: {}", text(3));
    }
    assert!(text(4).contains("no <network> here"), "{}", text(4));
}

#[test]
fn one_variant_is_shown_by_size_and_operations_share_a_plot() {
    let (record, _) = small();
    let page = valid(&html(&record, &[]));
    let lines = all(&page, "#table-sizes tbody tr");
    let cells = |line: &scraper::ElementRef<'_>| line.text().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = lines.iter().map(cells).collect();
    assert_eq!(lines, ["add 11\u{a0}ns 13\u{a0}ns", "kill 12\u{a0}ns 14\u{a0}ns"]);
    assert_eq!(all(&page, "#table-sizes svg").len(), 1);
    let words = text_of(&page, "#table-sizes svg desc").replace('\u{a0}', " ");
    assert_eq!(words, "add: from 11 ns to 13 ns. kill: from 12 ns to 14 ns.");
}

#[test]
fn histograms_of_different_runs_are_compared_by_shares() {
    const HISTOGRAM: &str = r#"
        table = "times"
        document = "times.txt"
        baseline = "lockless"
        [[cell]]
        params = { hold_us = "0-1" }
        variant = "locks"
        value = 30
        unit = "holds"
        ours = { params = { bucket_us = "0-1" }, variant = "locks" }
        [[cell]]
        params = { hold_us = "1-" }
        variant = "locks"
        value = 10
        unit = "holds"
        ours = { params = { bucket_us = "1-" }, variant = "locks" }
    "#;
    let definition = Definition::parse(HISTOGRAM).expect("a definition");
    let page = valid(&html(&small().0, &[definition]));
    let text = text_of(&page, "#table-times table.document tbody").replace('\u{a0}', " ");
    assert_eq!(text, "0-175 %3062.5 %51-25 %1037.5 %3");
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
fn each_workload_answers_a_documents_histogram_on_the_page_and_in_markdown() {
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
    let page = valid(&html(&record, &[definition]));
    let text = text_of(&page, "#table-t table.document tbody").replace('\u{a0}', " ");
    assert_eq!(text, "0-175 %3020 %1100 %71-25 %1080 %4not in this record");
}

#[test]
fn the_report_says_who_is_ahead_also_where_it_is_not_submeter() {
    let record = Record::parse(ANSWERS).expect("a record");
    let definition = Definition::parse(ANSWERED).expect("a definition");
    let behind = "workload build, measure flush | 3 µs | other | 2 µs | 1.50 × | other |";
    let ahead = "workload made, measure flush | 2 µs | other | 4 µs | 0.500 × | submeter |";
    let text = markdown(&record, std::slice::from_ref(&definition)).replace('\u{a0}', " ");
    assert!(text.contains(behind) && text.contains(ahead), "{text}");
    let page = valid(&html(&record, std::slice::from_ref(&definition)));
    let text = text_of(&page, "#table-t").replace('\u{a0}', " ");
    assert!(text.contains("1.50 ×other") && text.contains("0.500 ×submeter"), "{text}");
    // Where more is better, the same figures say the opposite.
    let higher = Definition { better: "higher".to_owned(), ..definition };
    let text = markdown(&record, &[higher]).replace('\u{a0}', " ");
    assert!(text.contains("3 µs | base | 4 µs | 0.750 × | base |"), "{text}");
}

#[test]
fn a_variant_without_events_is_mentioned_in_the_title_and_not_drawn() {
    let (record, _) = small();
    let page = valid(&html(&record, &[]));
    assert_eq!(all(&page, "#table-times svg").len(), 1);
    assert!(text_of(&page, "#table-times figcaption").ends_with("none at all: lockless"));
    assert!(!text_of(&page, "#table-times svg text").contains("lockless"));
}

#[test]
fn a_report_opens_with_its_answer_and_one_picture_where_it_has_the_rows() {
    let definitions = super::definition::definitions();
    let full = records().into_iter().find(|(path, _)| path.ends_with("2026-11-23-all.json.zst"));
    let page = valid(&html(&full.expect("a record").1, definitions));
    assert_eq!((all(&page, "header strong").len(), all(&page, "header svg").len()), (1, 1));
    let page = valid(&html(&small().0, definitions));
    assert_eq!((all(&page, "header strong").len(), all(&page, "header svg").len()), (0, 0));
}

#[test]
fn text_from_a_record_is_escaped() {
    let (record, definitions) = small();
    let page = html(&record, &definitions);
    let parsed = valid(&page);
    assert!(all(&parsed, "main i, header b, aside script").is_empty());
    for text in ["A <b>fast</b> & odd one", "t: </style><script>alert(1)</script>"] {
        assert!(text_of(&parsed, "body").contains(text), "{text}");
    }
    for text in ["a note & more", "another <note>", "no <compiler> here", "somebody else's"] {
        assert!(text_of(&parsed, "#table-t").contains(text), "{text}");
    }
    assert!(!page.contains("not shown"));
}

#[test]
fn warnings_come_before_the_figures() {
    let (record, definitions) = small();
    let page = html(&record, &definitions);
    let first = page.find("What it costs</h2>").expect("figures");
    for text in
        ["debug build", "interrupted", "load average 2.5", "commit not recorded", "clock the"]
    {
        let place = page.find(text).unwrap_or_else(|| panic!("{text} is missing"));
        assert!(place < first, "{text} comes too late");
    }
}

#[test]
fn missing_figures_are_reported_as_missing() {
    let (record, _) = small();
    let page = valid(&html(&record, &[]));
    let cards = all(&page, ".figures li");
    assert_eq!(all(&page, ".figures .big.missing").len(), cards.len());
    assert!(values(&page, ".figures data").is_empty());
    let text = text_of(&page, ".figures");
    assert!(text.contains("the table rstat was not measured"), "{text}");
    assert!(!text.contains("submeter-bench rstat"), "no command without a definition: {text}");
    let bare = r#"{"machine":{"arch":"a","cpus":1,"kernel":"k","backend":"r","date":"d","version":"v"},"rows":[]}"#;
    let bare = Record::parse(bare).expect("the least that a record has");
    let definition = Definition::parse(DEFINITION).expect("a definition");
    let rstat = Definition::parse("table = \"rstat\"").expect("a definition");
    let page = valid(&html(&bare, &[definition, rstat]));
    assert!(text_of(&page, ".figures").contains("not measured: submeter-bench rstat"));
    assert!(text_of(&page, "#table-t").contains("no figures of this table"));
}

#[test]
fn text_that_is_not_a_record_is_refused_in_one_line() {
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

#[test]
fn definitions_parse_and_each_of_their_cells_is_in_the_report() {
    for text in TEXTS {
        Definition::parse(text).unwrap_or_else(|error| panic!("{error} in {text}"));
    }
    let definitions = definitions();
    assert_eq!(definitions.len(), TEXTS.len());
    let (record, _) = small();
    let page = valid(&html(&record, definitions));
    for definition in definitions {
        let data = values(&page, &format!("#{} table.document data", anchor(&definition.table)));
        for cell in &definition.cell {
            let found = cell.value.is_none_or(|value| data.contains(&value));
            assert!(found, "{}: {cell:?} is not shown", definition.table);
        }
    }
}
