//! The report of `submeter-bench`: of what was just measured, or of a record.

use std::fs::{self, OpenOptions};
use std::path::Path;

use crate::report::{self, Record};
use submeter_terminal as show;
use submeter_terminal::Failure;

/// Makes the reports of a record that an earlier run wrote.
pub(super) fn again(
    record: &Path,
    html: Option<&Path>,
    markdown: Option<&Path>,
) -> Result<(), Failure> {
    let name = record.display();
    let text = fs::read_to_string(record).map_err(|e| {
        Failure::new(format_args!(
            "cannot read {name}: {e}; make a record by submeter-bench --json"
        ))
    })?;
    let record =
        Record::parse(&text).map_err(|line| Failure::new(format_args!("{name}: {line}")))?;
    if let Some(html) = html {
        put(&record, html)?;
    }
    let Some(path) = markdown else { return Ok(()) };
    let text = report::markdown(&record, report::definitions());
    if path == Path::new("-") {
        return show::print(&text).map_err(Failure::new);
    }
    fs::write(path, text).map_err(|e| refused(path, &e, "--markdown"))
}

/// Makes the report of what was just measured, from its JSON: so that both ways say the same.
pub(super) fn write(json: &str, html: &Path) -> Result<(), Failure> {
    put(&Record::parse(json).map_err(Failure::new)?, html)
}

/// Writes what was just measured for a terminal.
pub(super) fn text(json: &str) -> Result<String, Failure> {
    let record = Record::parse(json).map_err(Failure::new)?;
    Ok(report::text(&record, report::definitions()))
}

/// Makes sure, before anybody waits for figures, that the report can be written.
pub(super) fn writable(html: &Path) -> Result<(), Failure> {
    let opened = OpenOptions::new().create(true).append(true).open(html);
    opened.map(drop).map_err(|e| refused(html, &e, "--html"))
}

fn put(record: &Record, html: &Path) -> Result<(), Failure> {
    fs::write(html, report::html(record, report::definitions()))
        .map_err(|e| refused(html, &e, "--html"))
}

fn refused(path: &Path, error: &std::io::Error, option: &str) -> Failure {
    let path = path.display();
    Failure::new(format_args!("cannot write {path}: {error}; name another file by {option}"))
}
