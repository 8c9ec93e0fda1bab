//! What each line of the screen shows, and what a click on it asks for.

use std::ops::Range;

use super::state::{Action, Column, Pane, State};

/// The line of the totals; above is the header.
pub(super) const TOTALS: usize = 1;

/// Number of rows that stay when the detail is below them, and of lines that make opening it
/// worthwhile.
const ROWS_LEAST: usize = 4;
const PANE_LEAST: usize = 4;

/// The lines of the last frame, top to bottom.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// The notice, and the verdicts on who is harmed and by whom, if there are any.
    pub(super) said: Range<usize>,
    /// The graph; the line below it names what it shows.
    pub(super) graph: Range<usize>,
    pub(super) heading: usize,
    pub(super) rows: Range<usize>,
    pub(super) pane: Range<usize>,
    pub(super) footer: usize,
    /// The cells of the heading that belong to each column.
    pub(super) heads: Vec<(Range<usize>, Column)>,
    /// The first visible row: kept between frames, so that the list scrolls only when the selection
    /// would leave the screen.
    pub(super) top: usize,
    /// The first line of the detail that is visible.
    pub(super) scrolled: usize,
}

impl Layout {
    /// Divides a screen of that height among the `said` lines of messages, the `pane` lines of the
    /// detail, and the rest.
    pub(super) fn fit(&mut self, state: &State, height: usize, said: usize, pane: usize) {
        let graph = match height {
            0..24 => 1,
            24..40 => 3,
            _ => 6,
        };
        let above = TOTALS + 1;
        // The graph gets what the rows leave, unless the screen is small.
        let taken = above + said + graph + 3 + pane;
        let spare = height.saturating_sub(taken + state.rows().len());
        let graph = if height <= 24 { graph } else { graph + spare.min(height / 3) };
        self.said = above..above + said;
        self.graph = self.said.end..self.said.end + graph;
        self.heading = self.graph.end + 1;
        let first = self.heading + 1;
        // Even a tiny terminal shows one row of tenants.
        self.footer = height.saturating_sub(1).max(first + 1);
        let room = self.footer - first;
        let lines = pane;
        let pane = match state.pane {
            Pane::Closed => 0,
            Pane::Below if room >= ROWS_LEAST + PANE_LEAST => {
                pane.min(room - ROWS_LEAST.max(room / 3))
            }
            _ => room,
        };
        self.rows = first..self.footer - pane;
        self.pane = self.footer - pane..self.footer;
        // The last line says how many there are, if not all are visible.
        self.scrolled = state.scrolled.min((lines + 1).saturating_sub(pane));
        if lines <= pane {
            self.scrolled = 0;
        }
        let (count, selected, shown) = (state.rows().len(), state.selected(), self.rows.len());
        self.top = self.top.min(count.saturating_sub(shown)).min(selected);
        self.top = self.top.max((selected + 1).saturating_sub(shown));
    }

    /// Returns what a click asks for. On a row, it selects the row. On a heading, it orders by that
    /// column, and reverses the order if it is already ordered by it.
    pub(super) fn click(&self, state: &State, x: usize, y: usize) -> Option<Action> {
        // A list covers the rows.
        if state.is_help || state.chooser.is_some() {
            return None;
        }
        if y == self.heading {
            let head = self.heads.iter().find(|(cells, _)| cells.contains(&x));
            return head.map(|&(_, column)| match column == state.sort {
                true => Action::Reverse,
                false => Action::SortBy(column),
            });
        }
        let row = self.top + y.checked_sub(self.rows.start).filter(|_| self.rows.contains(&y))?;
        (row < state.rows().len()).then_some(Action::Select(row))
    }
}
