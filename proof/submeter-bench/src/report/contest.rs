//! Our rows beside the best of some others', whichever is ahead. A reader would otherwise have to
//! look for this in the tables, and would miss it where it counts against us.

use super::definition::{Contest, Definition};
use super::record::Record;
use super::rows;
use crate::row::Row;

pub(super) const TITLE: &str = "Who is ahead";
pub(super) const HEADING: [&str; 6] =
    ["what", "submeter", "best other", "its figure", "submeter ÷ it", "ahead"];

pub(super) const BEHIND: &str = "Where submeter is behind";
pub(super) const HEADING_BEHIND: [&str; 6] =
    ["table", "what", "submeter", "best other", "its figure", "submeter ÷ it"];

/// Ratios closer to 1 than this are a draw: two runs of the same program differ by as much.
pub(super) const EVEN: f64 = 0.03;

/// One of our rows, and the best of the others' with the same parameters.
pub(super) struct Bout<'a> {
    ours: &'a Row,
    best: &'a Row,
    higher_is_better: bool,
}

/// Returns the definition's contests, one for each of our rows that another variant has too. Counts
/// and shares are excluded: more of them in a histogram's bucket is neither better nor worse.
pub(super) fn bouts<'a>(record: &'a Record, definition: &'a Definition) -> Vec<Bout<'a>> {
    let higher_is_better = definition.better == "higher";
    let of = |contest: &'a Contest, ours: &'a Row| {
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
    let ours = |contest: &'a Contest| {
        let mine = |row: &&Row| row.variant == contest.variant && row.params.has(&contest.params);
        let rows = record
            .table(&definition.table)
            .filter(|row| !["count", "%"].contains(&row.unit.as_ref()));
        rows.filter(mine).filter_map(move |row| of(contest, row))
    };
    definition.contest.iter().flat_map(ours).collect()
}

/// Says how many bouts were lost.
pub(super) fn behind(lost: usize, all: usize) -> String {
    let percent = EVEN * 100.0;
    match lost {
        0 => format!("In none of the {all} rows that others have too, by more than {percent} %."),
        _ => format!("In {lost} of the {all} rows that others have too, by more than {percent} %:"),
    }
}

impl Bout<'_> {
    /// Returns the cells of the columns of [`HEADING`].
    pub(super) fn cells(&self) -> [String; 6] {
        let verdict = rows::verdict(self.ours, self.best);
        let what = match &*self.ours.variant {
            "submeter" => self.ours.params.to_string(),
            variant => format!("{variant}, {}", self.ours.params),
        };
        [
            what,
            rows::figure(self.ours),
            self.best.variant.to_string(),
            rows::figure(self.best),
            verdict.unwrap_or_else(|| "–".to_owned()),
            self.ahead().to_owned(),
        ]
    }

    /// Returns the cells of the columns of [`HEADING_BEHIND`].
    pub(super) fn cells_behind(&self, definition: &Definition) -> [String; 6] {
        let [what, ours, best, figure, ratio, _] = self.cells();
        [definition.table.clone(), what, ours, best, figure, ratio]
    }

    /// Returns whether another is ahead.
    pub(super) fn is_lost(&self) -> bool {
        self.ahead() == self.best.variant
    }

    fn ahead(&self) -> &str {
        let verdict = rows::verdict(self.ours, self.best);
        let verdict = verdict.as_deref();
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
