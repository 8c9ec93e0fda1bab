//! The reports of `submeter-bench`, from a run that just ended or from a record.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use ruzstd::decoding::StreamingDecoder;

use crate::report::{self, Record};
use submeter_terminal as show;
use submeter_terminal::Failure;

/// What README claims, and the rows of records that it claims it from.
const CLAIMS: &str = "proof/submeter-bench/claims.toml";

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

/// Writes what the definitions lack of a record, and the record of them; returns whether anything.
pub(super) fn gaps(record: &Path) -> Result<bool, Failure> {
    let gaps = report::gaps(&parsed(record)?, report::definitions());
    let mut text: String = gaps.iter().map(|line| format!("{line}\n")).collect();
    text += &format!("definitions: {} gaps\n", gaps.len());
    show::print(&text).map_err(Failure::new)?;
    Ok(!gaps.is_empty())
}

/// Writes the table of README's claims for the project at `root`.
pub(super) fn claims(root: &Path) -> Result<(), Failure> {
    let read = |file: &str| {
        let cannot = |error| Failure::new(format_args!("cannot read {file}: {error}"));
        fs::read_to_string(root.join(file)).map_err(cannot)
    };
    let wrong = |line: String| Failure::new(format_args!("{CLAIMS}: {line}"));
    let claims = report::Claims::parse(&read(CLAIMS)?).map_err(wrong)?;
    let readme = read("README.md")?;
    let record = |(name, path): (&String, &String)| {
        Ok::<_, Failure>((name.clone(), parsed(&root.join(path))?))
    };
    let records = claims.records.iter().map(record).collect::<Result<_, _>>()?;
    let table = claims.table(&readme, &records).map_err(wrong)?;
    show::print(&table).map_err(Failure::new)
}

/// Compares pairs of records by the ratios that definitions gate, and writes what became worse;
/// returns whether anything.
pub(super) fn regress(records: &[PathBuf]) -> Result<bool, Failure> {
    let records = records.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let verdict = report::regress(&records, report::definitions()).map_err(Failure::new)?;
    show::print(&verdict.to_string()).map_err(Failure::new)?;
    Ok(verdict.has_losses())
}

fn read(record: &Path) -> Result<Record, Failure> {
    parsed(record).map(Record::without_removed)
}

fn parsed(record: &Path) -> Result<Record, Failure> {
    let name = record.display();
    let text = text_of(record).map_err(|e| {
        Failure::new(format_args!(
            "cannot read {name}: {e}; make a record with submeter-bench --json"
        ))
    })?;
    Record::parse(&text).map_err(|line| Failure::new(format_args!("{name}: {line}")))
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
