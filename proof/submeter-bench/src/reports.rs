//! The reports of `submeter-bench`, from a run that just ended or from a record.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader};
use std::path::Path;

use ruzstd::decoding::StreamingDecoder;

use crate::report::{self, Record};
use submeter_terminal as show;
use submeter_terminal::Failure;

/// Makes the reports from a record that an earlier run wrote.
pub(super) fn again(
    record: &Path,
    html: Option<&Path>,
    markdown: Option<&Path>,
    picture: Option<&Path>,
) -> Result<(), Failure> {
    let name = record.display();
    let record = read(record)?;
    if let Some(html) = html {
        write_html(&record, html)?;
    }
    if let Some(path) = picture {
        let svg = report::picture(&record)
            .map_err(|line| Failure::new(format_args!("{name}: {line}")))?;
        show::write_file(path, &svg).map_err(|e| refused(path, &e, "--picture"))?;
    }
    let Some(path) = markdown else { return Ok(()) };
    write_markdown(&report::markdown(&record, report::definitions()), path)
}

/// Writes the gated ratios of two records side by side.
pub(super) fn beside(record: &Path, other: &Path, markdown: &Path) -> Result<(), Failure> {
    let (record, other) = (read(record)?, read(other)?);
    write_markdown(&report::beside(&record, &other, report::definitions()), markdown)
}

/// Writes the figures of one table alone.
pub(super) fn brief(record: &Path, table: &str, markdown: &Path) -> Result<(), Failure> {
    let name = record.display();
    let text = report::brief(&read(record)?, table);
    write_markdown(&text.map_err(|line| Failure::new(format_args!("{name}: {line}")))?, markdown)
}

fn read(record: &Path) -> Result<Record, Failure> {
    let name = record.display();
    let text = text_of(record).map_err(|e| {
        Failure::new(format_args!(
            "cannot read {name}: {e}; make a record with submeter-bench --json"
        ))
    })?;
    Record::parse(&text)
        .map(Record::without_removed)
        .map_err(|line| Failure::new(format_args!("{name}: {line}")))
}

/// Returns the text of a record, which may be compressed, as those in the repository are.
///
/// # Errors
/// When the file cannot be read, or its name ends in `.zst` and it is not compressed with zstd.
pub(crate) fn text_of(record: &Path) -> io::Result<String> {
    if record.extension().is_none_or(|extension| extension != "zst") {
        return fs::read_to_string(record);
    }
    let file = BufReader::new(File::open(record)?);
    io::read_to_string(StreamingDecoder::new(file).map_err(io::Error::other)?)
}

fn write_markdown(text: &str, path: &Path) -> Result<(), Failure> {
    if path == Path::new("-") {
        return show::print(text).map_err(Failure::new);
    }
    show::write_file(path, text).map_err(|e| refused(path, &e, "--markdown"))
}

/// Makes the report of a run that just ended, from its JSON, so that a later report from the record
/// says the same.
pub(super) fn write(json: &str, html: &Path) -> Result<(), Failure> {
    write_html(&Record::parse(json).map_err(Failure::new)?, html)
}

/// Writes the tables of a run that just ended, for a terminal.
pub(super) fn text(json: &str) -> Result<String, Failure> {
    let record = Record::parse(json).map_err(Failure::new)?;
    Ok(report::text(&record, report::definitions()))
}

/// Makes sure, before the long measurement starts, that the report can be written.
pub(super) fn writable(html: &Path) -> Result<(), Failure> {
    let opened = OpenOptions::new().create(true).append(true).open(html);
    opened.map(drop).map_err(|e| refused(html, &e, "--html"))
}

fn write_html(record: &Record, html: &Path) -> Result<(), Failure> {
    show::write_file(html, &report::html(record, report::definitions()))
        .map_err(|e| refused(html, &e, "--html"))
}

fn refused(path: &Path, error: &std::io::Error, option: &str) -> Failure {
    let path = path.display();
    Failure::new(format_args!("cannot write {path}: {error}; name another file with {option}"))
}
