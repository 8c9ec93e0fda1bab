//! The table of BENCHMARKS.md: a row for each claim of the README, with its figure from a record.
//!
//! For each claim, `proof/submeter-bench/claims.toml` names the words of the README and the row of
//! a record. It is an error if the README no longer makes a claim, if no record has the row, or if
//! the figure is not the record's, rounded as the README rounds it.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use toml::Table;

/// The claims, relative to the root.
pub(crate) const FILE: &str = "proof/submeter-bench/claims.toml";
/// The record that `cargo xtask regress` compares with.
const FIRST: &str = "all";

const HEAD: &str = "| README | what is measured | submeter | beside it | ratio | table |\n\
                    |---|---|--:|--:|--:|---|\n";

/// Returns the path of the record that code is compared with.
///
/// # Errors
/// One line: the claims cannot be read, or have no such record.
pub(crate) fn first_record(root: &Path) -> Result<String, String> {
    Ok(path_of(&read(root)?, FIRST)?.to_owned())
}

/// Returns the table.
///
/// # Errors
/// One line that names the claim and what is wrong with it.
pub(crate) fn table(root: &Path) -> Result<String, String> {
    let claims = read(root)?;
    let readme = std::fs::read_to_string(root.join("README.md")).map_err(|e| e.to_string())?;
    let mut records = BTreeMap::new();
    for claim in crate::definitions::list(&claims, "claim") {
        let name = word(claim, "record").ok_or("a claim without a record")?;
        if !records.contains_key(name) {
            let path = root.join(path_of(&claims, name)?);
            records.insert(name.to_owned(), crate::definitions::record(&path)?);
        }
    }
    rows(&claims, &readme, &records)
}

fn read(root: &Path) -> Result<Table, String> {
    let text = std::fs::read_to_string(root.join(FILE)).map_err(|e| format!("{FILE}: {e}"))?;
    text.parse().map_err(|error| format!("{FILE}: {error}"))
}

fn path_of<'t>(claims: &'t Table, name: &str) -> Result<&'t str, String> {
    let path = claims.get("records").and_then(|records| word(records, name));
    path.ok_or_else(|| format!("{FILE}: no record {name:?} in [records]"))
}

fn rows(claims: &Table, readme: &str, records: &BTreeMap<String, Value>) -> Result<String, String> {
    // Lines of a document may break anywhere.
    let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let mut text = HEAD.to_owned();
    for claim in crate::definitions::list(claims, "claim") {
        let says = word(claim, "says").ok_or_else(|| format!("{FILE}: a claim without says"))?;
        let wrong = |what: &str| format!("{FILE}: {says:?}: {what}");
        if !readme.contains(&says.to_lowercase()) {
            return Err(wrong("README does not say so: correct one of the two"));
        }
        let name = word(claim, "record").unwrap_or_default();
        let record = records.get(name).ok_or_else(|| wrong("no record"))?;
        let variant = word(claim, "variant").ok_or_else(|| wrong("no variant"))?;
        let (value, unit) = find(record, claim, variant).ok_or_else(|| wrong("no such row"))?;
        if let Some(figure) = word(claim, "figure")
            && (!says.contains(figure) || !is_rounded(figure, value, &unit))
        {
            let amount = amount(value, &unit);
            return Err(wrong(&format!("the record has {amount}, not {figure}")));
        }
        let per = |unit: &str| scale(unit).unwrap_or(1.0);
        let (beside, ratio) = match word(claim, "beside") {
            None => ("–".to_owned(), "–".to_owned()),
            Some(other) => {
                let (than, of) =
                    find(record, claim, other).ok_or_else(|| wrong("no row beside it"))?;
                (
                    format!("{other} {}", amount(than, &of)),
                    format!("{} ×", digits(value * per(&unit) / (than * per(&of)))),
                )
            }
        };
        let table = word(claim, "table").unwrap_or_default();
        let shows = word(claim, "shows").unwrap_or_default();
        let ours = amount(value, &unit);
        text += &format!(
            "| {says} | {shows} | {ours} | {beside} | {ratio} | `{table}` of [{name}][{name}] |\n"
        );
    }
    text += "\n";
    for (name, record) in records {
        let machine = &record["machine"];
        let said = |key: &str| machine[key].as_str().unwrap_or("?").to_owned();
        let path = path_of(claims, name)?;
        let tables = path.trim_end_matches(".json.zst");
        text += &format!(
            "- [{name}]({tables}.md): {}, {} CPUs, Linux {}, commit {}, {} ([samples]({path}))\n",
            said("cpu_model"),
            machine["cpus"],
            said("kernel"),
            said("commit"),
            said("date").split('T').next().unwrap_or_default(),
        );
    }
    text += "\n";
    for name in records.keys() {
        let tables = path_of(claims, name)?.trim_end_matches(".json.zst");
        text += &format!("[{name}]: {tables}.md\n");
    }
    Ok(text)
}

fn word<'t>(table: &'t toml::Value, key: &str) -> Option<&'t str>
where
{
    table.get(key)?.as_str()
}

/// Returns the value and the unit of the row that a claim names and that has no other parameters.
fn find(record: &Value, claim: &toml::Value, variant: &str) -> Option<(f64, String)> {
    let params = claim.get("params")?.as_table()?;
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let asked =
        |value: &toml::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let is_it = |row: &&Value| {
        let has = row["params"].as_object();
        row["table"] == word(claim, "table").unwrap_or_default()
            && row["variant"] == variant
            && has.is_some_and(|has| {
                has.len() == params.len()
                    && params.iter().all(|(k, v)| has.get(k).is_some_and(|h| plain(h) == asked(v)))
            })
    };
    let row = record["rows"].as_array()?.iter().find(is_it)?;
    Some((row["value"].as_f64()?, row["unit"].as_str()?.to_owned()))
}

/// Returns whether `figure`, such as `0.2 µs`, is the value rounded to the same number of decimals.
fn is_rounded(figure: &str, value: f64, unit: &str) -> bool {
    let Some((number, of)) = figure.split_once(' ') else { return false };
    let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let (Some(from), Some(to)) = (scale(unit), scale(of)) else { return false };
    format!("{:.decimals$}", value * from / to) == number
}

/// Returns the size of a unit as a multiple of the smallest unit of its kind.
fn scale(unit: &str) -> Option<f64> {
    match unit {
        "ns" | "bytes" | "%" => Some(1.0),
        "us" | "µs" => Some(1e3),
        "ms" => Some(1e6),
        _ => None,
    }
}

fn amount(value: f64, unit: &str) -> String {
    let (value, unit) = match unit {
        "us" => return amount(value * 1e3, "ns"),
        "ns" if value >= 1e6 => (value / 1e6, "ms".to_owned()),
        "ns" if value >= 1e3 => (value / 1e3, "µs".to_owned()),
        _ if unit.ends_with("/s") && value >= 1e9 => (value / 1e9, format!("G {unit}")),
        _ if unit.ends_with("/s") && value >= 1e6 => (value / 1e6, format!("M {unit}")),
        _ if unit.ends_with("/s") && value >= 1e3 => (value / 1e3, format!("k {unit}")),
        _ => (value, unit.to_owned()),
    };
    format!("{} {unit}", digits(value))
}

/// Writes three digits.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: &str = "[records]\nall = \"a/b.json.zst\"\n[[claim]]\nsays = \"a read takes 0.1 µs\"\n\
        figure = \"0.1 µs\"\nshows = \"a read\"\nrecord = \"all\"\ntable = \"t\"\n\
        params = { n = 1 }\nvariant = \"ours\"\nbeside = \"other\"\n";

    fn made(claims: &str, readme: &str) -> Result<String, String> {
        let record = serde_json::json!({
            "machine": {"cpu_model": "X", "cpus": 2, "kernel": "6.1", "commit": "c", "date": "2026-01-02T0"},
            "rows": [
                {"table": "t", "params": {"n": 1, "m": 2}, "variant": "ours", "value": 9, "unit": "ns"},
                {"table": "t", "params": {"n": 1}, "variant": "ours", "value": 79.1, "unit": "ns"},
                {"table": "t", "params": {"n": 1}, "variant": "other", "value": 1, "unit": "us"},
            ],
        });
        let claims = claims.parse().expect("TOML");
        rows(&claims, readme, &BTreeMap::from([("all".to_owned(), record)]))
    }

    #[test]
    fn a_claim_has_its_row_the_ratio_and_the_machine() {
        let text = made(CLAIM, "It says: a\nread takes 0.1 µs.").expect("a table");
        let row = "| a read takes 0.1 µs | a read | 79.1 ns | other 1.00 µs | 0.079 × | `t` of [all][all] |";
        assert!(text.contains(row), "{text}");
        assert!(
            text.contains("- [all](a/b.md): X, 2 CPUs, Linux 6.1, commit c, 2026-01-02"),
            "{text}"
        );
    }

    #[test]
    fn what_readme_or_records_lack_is_an_error() {
        let readme = "a read takes 0.1 µs";
        for (claims, readme, said) in [
            (CLAIM.to_owned(), "a read is fast", "README does not say so"),
            (CLAIM.replace("n = 1", "n = 2"), readme, "no such row"),
            (CLAIM.replace("\"other\"", "\"gone\""), readme, "no row beside it"),
            (CLAIM.replace("0.1", "0.2"), "a read takes 0.2 µs", "has 79.1 ns, not 0.2 µs"),
        ] {
            let error = made(&claims, readme).expect_err(said);
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn amounts_have_three_digits_and_a_prefix() {
        for (value, unit, text) in [
            (0.54, "us", "540 ns"),
            (1_000.0, "ns", "1.00 µs"),
            (43_900_000.0, "charges/s", "43.9 M charges/s"),
            (356.024, "bytes", "356 bytes"),
        ] {
            assert_eq!(amount(value, unit), text);
        }
    }
}
