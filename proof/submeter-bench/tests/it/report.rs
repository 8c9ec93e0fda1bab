//! `submeter-bench --html`: a report of a run, and of a record.

use std::fs;

use submeter_program::{TempFile, text};

use super::BENCH;

const RECORD: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/record/x86_64-linux/2026-11-27-busy.json.zst");
const QUIET: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/record/x86_64-linux/2026-11-27-all.json.zst");

#[test]
fn a_record_becomes_a_report_without_measuring() {
    let file = TempFile::new("report.html", "");
    let output = BENCH.run(&["--from", RECORD, "--html", file.path()]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), out.as_str(), err.as_str()), (Some(0), "", ""));
    let page = fs::read_to_string(file.path()).expect("written");
    for part in ["<h2 id=\"rcuref\">", "<h2 id=\"kill\">", "<td>AMD EPYC</td>", "<svg"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn a_run_writes_its_report_beside_its_record() {
    let (html, json) = (TempFile::new("run.html", ""), TempFile::new("run.json", ""));
    let args = ["rcuref", "--quick", "--rounds", "1", "--html", html.path(), "--json", json.path()];
    let output = BENCH.run(&args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let measured = fs::read_to_string(html.path()).expect("written");
    assert!(measured.matches("pairs/s").count() >= 12, "{measured}");
    let again = BENCH.run(&["--from", json.path(), "--html", html.path()]);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    let again = fs::read_to_string(html.path()).expect("written");
    assert!(measured == again, "the report from the record equals that of the run");
}

#[test]
fn a_record_becomes_tables_in_a_document() {
    let output = BENCH.run(&["--from", RECORD, "--markdown", "-"]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for part in [
        "| processor |",
        "## References taken without a retry loop",
        "| cpus | rcuref | rcuarc | inc_not_zero |",
        "*What bounds it.*",
    ] {
        assert!(out.contains(part), "{part} in {out}");
    }
    // Every line of a table has as many cells as its heading.
    let columns = |line: &str| line.replace("\\|", "").matches('|').count();
    for lines in out.lines().collect::<Vec<_>>().windows(2) {
        if lines.iter().all(|line| line.starts_with('|')) {
            assert_eq!(columns(lines[0]), columns(lines[1]), "{lines:?}");
        }
    }
    let file = TempFile::new("report.md", "");
    BENCH.run(&["--from", RECORD, "--markdown", file.path()]);
    assert_eq!(fs::read_to_string(file.path()).expect("written"), out);
}

#[test]
fn two_records_gated_ratios_stand_side_by_side() {
    let beside = |record: &str| {
        let output = BENCH.run(&["--from", record, "--beside", RECORD, "--markdown", "-"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let out = beside(QUIET);
    assert!(out.contains("| load | – | the bench kept each CPU busy"), "{out}");
    let out = beside(RECORD);
    let ratios = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').skip(3).map(|cell| cell.trim().to_owned()).collect()
    };
    let lines: Vec<Vec<String>> =
        out.lines().filter(|line| line.contains('×')).map(ratios).collect();
    assert!(lines.len() > 20, "{out}");
    // The same samples, so the same ratios.
    assert!(lines.iter().all(|line| line.len() == 2 && line[0] == line[1]), "{out}");
    BENCH.refuses(&["--from", RECORD, "--beside", QUIET], &["--markdown"]);
    BENCH.refuses(
        &["--from", RECORD, "--beside", "/nonexistent", "--markdown", "-"],
        &["cannot read"],
    );
}

/// A file that cannot be read or written is a one-line error.
#[test]
fn a_bad_file_is_an_error_of_one_line() {
    let (html, odd) = (TempFile::new("never.html", ""), TempFile::new("odd.json", "{\"rows\": 7}"));
    let plain = TempFile::new("plain.json.zst", "{}");
    BENCH.refuses(&["--from", plain.path(), "--html", html.path()], &[plain.path(), "cannot read"]);
    let none = "/nonexistent/record.json";
    BENCH.refuses(&["--from", none, "--html", html.path()], &[none, "cannot read", "--json"]);
    BENCH.refuses(&["--from", odd.path(), "--html", html.path()], &[odd.path(), "--json"]);
    let place = "/nonexistent/report.html";
    BENCH.refuses(&["--from", RECORD, "--html", place], &[place, "cannot write", "--html"]);
    BENCH.refuses(&["rcuref", "--html", place], &[place, "cannot write", "--html"]);
    BENCH.refuses(&["--from", RECORD], &["--html", "--markdown"]);
    BENCH.refuses(&["--markdown", "-"], &["--from"]);
    BENCH.refuses(&["--from", RECORD, "--markdown", place], &[place, "--markdown"]);
    BENCH.refuses(&["rcuref", "--from", RECORD, "--html", html.path()], &["--from"]);
    assert_eq!(fs::read_to_string(html.path()).expect("there"), "", "nothing was written");
}
