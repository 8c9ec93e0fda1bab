//! Reads tenants' statistics from CSV.
//!
//! One cluster per line; the header names the columns; `#` starts a comment. A figure that is `NA`
//! or empty is taken from [`Profile::typical`].

use std::collections::HashSet;
use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use submeter_terminal::short;

use super::profile::{BUILT_IN, Profile};
use super::verb::Verb;

/// Maximum length of a key in the protocol.
pub const KEY_MAX: u32 = 250;
/// Maximum length of a value that is sent: 1 MiB minus what a server may count as an item's
/// overhead.
pub const VALUE_MAX: u32 = (1 << 20) - 1024;

/// The column names, in the order of [`Columns`].
const COLUMNS: [&str; 8] = [
    "tenant",
    "key_bytes",
    "value_bytes",
    "request_rate_kqps",
    "zipf_alpha",
    "wss_mb_no_ttl",
    "operations",
    "ttls",
];

/// Returns the built-in tenants.
pub fn built_in() -> Result<Vec<Profile>, String> {
    parse(BUILT_IN.as_bytes(), "the built-in table")
}

/// Reads a file. The error is one line that names file, line, field and remedy.
pub fn read(path: &Path) -> Result<Vec<Profile>, String> {
    let name = path.display().to_string();
    let wrong = |why: &dyn Display| {
        format!("cannot read {}: {why}; use a CSV file for --tenants-file", short(&name))
    };
    let mut text = Vec::new();
    // One byte more, which shows whether there is more. A device may have no end.
    let read = File::open(path).and_then(|file| file.take(MOST + 1).read_to_end(&mut text));
    read.map_err(|e| wrong(&e))?;
    if text.len() as u64 > MOST {
        return Err(wrong(&format_args!("it is larger than {} MiB, the maximum", MOST >> 20)));
    }
    parse(&text, &name)
}

/// Maximum number of bytes read from a file: a hundred thousand tenants.
const MOST: u64 = 16 << 20;

/// Parses CSV that came from `name`.
pub fn parse(text: &[u8], name: &str) -> Result<Vec<Profile>, String> {
    let text = std::str::from_utf8(text).map_err(|error| {
        let before = &text[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        format!("{name} line {line} is not UTF-8: {error}")
    })?;
    let mut records = records(text);
    let header = records.next().map_or_else(Vec::new, |header| header.fields);
    let columns = COLUMNS.map(|column| header.iter().position(|field| *field == column));
    for (column, at) in COLUMNS.iter().zip(&columns) {
        if at.is_none() {
            return Err(format!(
                "{name} has no column {column:?}: its first line must name {}",
                COLUMNS.join(",")
            ));
        }
    }
    let mut profiles = Vec::new();
    let mut names = HashSet::new();
    for record in records {
        let (line, len) = (record.line, record.fields.len());
        if len != header.len() {
            return Err(format!(
                "{name} line {line} has {len} fields, but the header has {}: write NA for an \
                 unknown value",
                header.len()
            ));
        }
        let row = Row { file: name, record: &record, columns: &columns };
        let profile = row.profile()?;
        if !names.insert(profile.source.clone()) {
            return Err(row.wrong(0, "is a duplicate: give each line its own tenant"));
        }
        profiles.push(profile);
    }
    if profiles.is_empty() {
        return Err(format!("{name} has no tenants: add a line below its header"));
    }
    Ok(profiles)
}

/// A line with fields.
struct Record<'t> {
    line: usize,
    fields: Vec<&'t str>,
}

/// Splits lines at commas. No field may contain one, since all of them are names and figures.
fn records(text: &str) -> impl Iterator<Item = Record<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines.map(|(line, text)| Record { line, fields: text.split(',').map(unquoted).collect() })
}

/// Removes the quotes that some programs put around each field.
fn unquoted(field: &str) -> &str {
    let field = field.trim();
    field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(field)
}

struct Row<'a> {
    file: &'a str,
    record: &'a Record<'a>,
    columns: &'a [Option<usize>; 8],
}

impl Row<'_> {
    fn profile(&self) -> Result<Profile, String> {
        let name = self.field(0).unwrap_or("");
        self.check_name(name)?;
        let typical = Profile::typical(name);
        let key_bytes = self.number(1, 1..=KEY_MAX, typical.key_bytes)?;
        let value_bytes = self.number(2, 0..=VALUE_MAX, typical.value_bytes)?;
        let rate_kqps = self.number(3, 0.000_001..=1e9, typical.rate_kqps)?;
        let zipf_alpha = self.number(4, 0.0..=20.0, typical.zipf_alpha)?;
        let working_set_mb = self.number(5, 0.0..=1e15, typical.working_set_mb)?;
        let operations = match self.field(6) {
            None => typical.operations,
            Some(text) => self.operations(text)?,
        };
        let ttls_s = match self.field(7) {
            None => typical.ttls_s,
            Some(text) => self.ttls(text)?,
        };
        Ok(Profile {
            source: typical.source,
            key_bytes,
            value_bytes,
            rate_kqps,
            zipf_alpha,
            working_set_mb,
            operations,
            ttls_s,
        })
    }

    /// Returns the field of a column; `None` if it is empty or `NA`.
    fn field(&self, column: usize) -> Option<&str> {
        let field = *self.columns[column].and_then(|at| self.record.fields.get(at))?;
        (!field.is_empty() && field != "NA").then_some(field)
    }

    fn wrong(&self, column: usize, why: &str) -> String {
        let line = self.record.line;
        let field = self.columns[column].and_then(|at| self.record.fields.get(at));
        let field = short(field.unwrap_or(&""));
        format!("{} line {line}, field {}: {field:?} {why}", short(self.file), COLUMNS[column])
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        let bad = |c: char| c.is_control() || c.is_whitespace() || c == '/';
        if name.is_empty() || name.len() > 100 || name.contains(bad) || name.starts_with('.') {
            return Err(self.wrong(
                0,
                "is not a tenant name: use 1 to 100 bytes without blanks or '/', not starting with \
                 '.'",
            ));
        }
        Ok(())
    }

    fn number<T>(
        &self,
        column: usize,
        range: std::ops::RangeInclusive<T>,
        otherwise: T,
    ) -> Result<T, String>
    where
        T: FromStr + PartialOrd + std::fmt::Display,
    {
        let Some(text) = self.field(column) else { return Ok(otherwise) };
        text.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| {
            let why = format!("is not a number from {} to {} (or NA)", range.start(), range.end());
            self.wrong(column, &why)
        })
    }

    fn operations(&self, text: &str) -> Result<Vec<(Verb, f64)>, String> {
        let parse = |part: &str| {
            let (verb, share) = part.split_once('=')?;
            Some((Verb::parse(verb.trim())?, share_of(share)?))
        };
        let operations: Option<Vec<_>> = text.split(';').map(parse).collect();
        operations
            .filter(|all| all.iter().any(|(_, share)| *share > 0.0))
            .ok_or_else(|| self.wrong(6, "is not a mix of commands: use the form get=0.9;set=0.1"))
    }

    fn ttls(&self, text: &str) -> Result<Vec<(u64, f64)>, String> {
        let parse = |part: &str| {
            let (ttl, share) = part.split_once(':')?;
            Some((ttl_s(ttl.trim())?, share_of(share)?))
        };
        let ttls: Option<Vec<_>> = text.split(';').map(parse).collect();
        ttls.filter(|all| all.iter().any(|(_, share)| *share > 0.0)).ok_or_else(|| {
            self.wrong(7, "is not a list of times to live: use the form 300s:0.8;12h:0.2")
        })
    }
}

fn share_of(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share))
}

/// Parses `30s`, `5m`, `1.8h` or `92.6d`; at least a second, because 0 would mean no expiry.
fn ttl_s(text: &str) -> Option<u64> {
    let number = text.get(..text.len().checked_sub(1)?)?.parse::<f64>().ok()?;
    let unit_s = match text.as_bytes().last()? {
        b's' => 1.0,
        b'm' => 60.0,
        b'h' => 3600.0,
        b'd' => 86_400.0,
        _ => return None,
    };
    // Ten years: a longer time is surely a typo, and dates beyond 2106 do not fit in 32 bits.
    let ttl = (number * unit_s).round();
    (1.0..=315_360_000.0).contains(&ttl).then_some(ttl as u64)
}

#[cfg(test)]
#[path = "tenants_file_tests.rs"]
mod tests;
