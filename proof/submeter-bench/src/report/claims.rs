//! The table of BENCHMARKS.md: a row for each claim of the README, with its figure from a record.
//!
//! For each claim, `proof/submeter-bench/claims.toml` names the words of the README and the row of
//! a record. It is an error if the README no longer makes a claim, if no record has the row, or if
//! the figure is not the record's, rounded as the README rounds it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::format::{amount, is_time, scale, times};
use super::record::Record;
use crate::row::{Params, Row};

const HEAD: &str = "| README | what is measured | submeter | beside it | ratio | table |\n\
                    |---|---|--:|--:|--:|---|\n";

/// The claims, as stored in `proof/submeter-bench/claims.toml`.
#[derive(Debug, Deserialize)]
pub(crate) struct Claims {
    /// The path of each record.
    pub(crate) records: BTreeMap<String, String>,
    claim: Vec<Claim>,
}

/// What README says, and the row that it says it from.
#[derive(Debug, Deserialize)]
struct Claim {
    says: String,
    figure: Option<String>,
    shows: String,
    record: String,
    table: String,
    params: Params,
    variant: String,
    beside: Option<String>,
}

impl Claims {
    /// Reads the claims.
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub(crate) fn parse(text: &str) -> Result<Claims, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    /// Returns the table, from README and from the records by their names.
    ///
    /// # Errors
    /// One line that names the claim and what is wrong with it.
    pub(crate) fn table(
        &self,
        readme: &str,
        records: &BTreeMap<String, Record>,
    ) -> Result<String, String> {
        // Lines of a document may break anywhere.
        let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        let mut text = HEAD.to_owned();
        for claim in &self.claim {
            let says = &claim.says;
            let line = claim.line(&readme, records).map_err(|what| format!("{says:?}: {what}"))?;
            text += &line;
        }
        text += "\n";
        let mut links = String::from("\n");
        for (name, path) in &self.records {
            let Some(record) = records.get(name) else { continue };
            let machine = &record.machine;
            let tables = path.trim_end_matches(".json.zst");
            text += &format!(
                "- [{name}]({tables}.md): {}, {} CPUs, Linux {}, commit {}, {} ([samples]({path}))\n",
                machine.cpu_model.as_deref().unwrap_or("?"),
                machine.cpus,
                machine.kernel,
                machine.commit.as_deref().unwrap_or("?"),
                machine.date.split('T').next().unwrap_or_default(),
            );
            links += &format!("[{name}]: {tables}.md\n");
        }
        Ok(text + &links)
    }
}

impl Claim {
    fn line(&self, readme: &str, records: &BTreeMap<String, Record>) -> Result<String, String> {
        let Claim { says, shows, record: name, table, .. } = self;
        if !readme.contains(&says.to_lowercase()) {
            return Err("README does not say so: correct one of the two".to_owned());
        }
        let record = records.get(name).ok_or_else(|| format!("no record {name:?} in [records]"))?;
        let row = self.find(record, &self.variant).ok_or("no such row")?;
        let ours = amount(row.value, &row.unit);
        if let Some(figure) = &self.figure
            && (!says.contains(figure) || !is_rounded(figure, row.value, &row.unit))
        {
            return Err(format!("the record has {ours}, not {figure}"));
        }
        let (beside, ratio) = match &self.beside {
            None => ("–".to_owned(), "–".to_owned()),
            Some(other) => {
                let than = self.find(record, other).ok_or("no row beside it")?;
                let ratio = row.value * scale(&row.unit) / (than.value * scale(&than.unit));
                (format!("{other} {}", amount(than.value, &than.unit)), times(ratio))
            }
        };
        let of = format!("`{table}` of [{name}][{name}]");
        Ok(format!("| {says} | {shows} | {ours} | {beside} | {ratio} | {of} |\n"))
    }

    /// Finds the row that it names and that has no other parameters.
    fn find<'r>(&self, record: &'r Record, variant: &str) -> Option<&'r Row> {
        let same = |params: &Params| params.has(&self.params) && self.params.has(params);
        record.table(&self.table).find(|row| row.variant == variant && same(&row.params))
    }
}

/// Returns whether `figure`, such as `0.2 µs`, is the value rounded to the same number of decimals.
fn is_rounded(figure: &str, value: f64, unit: &str) -> bool {
    let Some((number, of)) = figure.split_once(' ') else { return false };
    // Only times are converted: of any other unit the scale is 1, so that KB would pass for bytes.
    if unit != of && !(is_time(unit) && is_time(of)) {
        return false;
    }
    let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    format!("{:.decimals$}", value * scale(unit) / scale(of)) == number
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: &str = "[records]\nall = \"a/b.json.zst\"\n[[claim]]\nsays = \"a read takes 0.1 µs\"\n\
        figure = \"0.1 µs\"\nshows = \"a read\"\nrecord = \"all\"\ntable = \"t\"\n\
        params = { n = 1 }\nvariant = \"ours\"\nbeside = \"other\"\n";

    fn made(claims: &str, readme: &str) -> Result<String, String> {
        let record = r#"{"machine":{"cpu_model":"X","arch":"a","backend":"b","cpus":2,"kernel":"6.1",
            "commit":"c","date":"2026-01-02T0"},"rows":[
            {"table":"t","params":{"n":1,"m":2},"variant":"ours","value":9,"unit":"ns"},
            {"table":"t","params":{"n":1},"variant":"ours","value":79.1,"unit":"ns"},
            {"table":"t","params":{"n":3},"variant":"ours","value":356,"unit":"bytes"},
            {"table":"t","params":{"n":1},"variant":"other","value":1,"unit":"us"}]}"#;
        let record = Record::parse(record).expect("a record");
        let records = BTreeMap::from([("all".to_owned(), record)]);
        let made = Claims::parse(claims).expect("TOML").table(readme, &records);
        made.map(|text| text.replace('\u{a0}', " "))
    }

    #[test]
    fn a_claim_has_its_row_the_ratio_and_the_machine() {
        let text = made(CLAIM, "It says: a\nread takes 0.1 µs.").expect("a table");
        let row = "| a read takes 0.1 µs | a read | 79.1 ns | other 1 µs | 0.0791 × | `t` of [all][all] |";
        assert!(text.contains(row), "{text}");
        let machine =
            "- [all](a/b.md): X, 2 CPUs, Linux 6.1, commit c, 2026-01-02 ([samples](a/b.json.zst))";
        assert!(text.contains(machine), "{text}");
        assert!(text.ends_with("\n[all]: a/b.md\n"), "{text}");
    }

    #[test]
    fn what_readme_or_records_lack_is_an_error() {
        let readme = "a read takes 0.1 µs";
        for (claims, readme, said) in [
            (CLAIM.to_owned(), "a read is fast", "README does not say so"),
            (CLAIM.replace("n = 1", "n = 2"), readme, "no such row"),
            (CLAIM.replace("\"other\"", "\"gone\""), readme, "no row beside it"),
            (
                CLAIM.replace("n = 1", "n = 3").replace("0.1 µs", "356 KB"),
                "a read takes 356 KB",
                "has 356\u{a0}bytes, not 356 KB",
            ),
            (CLAIM.replace("0.1", "0.2"), "a read takes 0.2 µs", "has 79.1\u{a0}ns, not 0.2 µs"),
        ] {
            let error = made(&claims, readme).expect_err(said);
            assert!(error.contains(said), "{error}");
        }
    }
}
