//! Our rows beside the best of some others', whoever is ahead: what a reader would otherwise have
//! to look for in the tables, and would miss where it speaks against us.

use super::definition::{Contest, Definition};
use super::record::Record;
use super::rows;
use crate::row::Row;

pub(super) const TITLE: &str = "Who is ahead";
pub(super) const HEADING: [&str; 6] =
    ["what", "submeter", "best other", "its figure", "submeter ÷ it", "ahead"];

/// Ratios closer to 1 than this are nobody's lead: two runs of one program differ as much.
pub(super) const EVEN: f64 = 0.03;

/// One of our rows, and the best of the others' with the same parameters.
pub(super) struct Bout<'a> {
    ours: &'a Row,
    best: &'a Row,
    higher_is_better: bool,
}

/// Returns the definition's contests for which the record has rows of both sides.
pub(super) fn bouts<'a>(record: &'a Record, definition: &'a Definition) -> Vec<Bout<'a>> {
    let higher_is_better = definition.better == "higher";
    let of = |contest: &'a Contest| {
        let ours = record.find(&definition.table, &contest.variant, &contest.params)?;
        let others = contest.against.iter().filter_map(|other| {
            let row = record
                .table(&definition.table)
                .find(|row| row.variant == other.as_str() && row.params == ours.params)?;
            Some((row, row.figure()?))
        });
        let merit = |value: f64| if higher_is_better { -value } else { value };
        let (best, _) = others.min_by(|(_, a), (_, b)| merit(*a).total_cmp(&merit(*b)))?;
        ours.figure().map(|_| Bout { ours, best, higher_is_better })
    };
    definition.contest.iter().filter_map(of).collect()
}

impl Bout<'_> {
    /// Returns what is in the columns of [`HEADING`].
    pub(super) fn cells(&self) -> [String; 6] {
        let verdict = rows::verdict(self.ours, self.best);
        [
            self.ours.params.to_string(),
            rows::figure(self.ours),
            self.best.variant.to_string(),
            rows::figure(self.best),
            verdict.clone().unwrap_or_else(|| "–".to_owned()),
            self.ahead(verdict.as_deref()).to_owned(),
        ]
    }

    fn ahead(&self, verdict: Option<&str>) -> &str {
        let ratio = self.ours.figure().zip(self.best.figure()).map(|(ours, best)| ours / best);
        match ratio {
            Some(ratio) if ratio.is_finite() && verdict != Some(rows::NOISY) => {
                match ((ratio - 1.0).abs() < EVEN, (ratio > 1.0) == self.higher_is_better) {
                    (true, _) => "neither",
                    (false, true) => &self.ours.variant,
                    (false, false) => &self.best.variant,
                }
            }
            _ => "–",
        }
    }
}
