//! `top --once`: one table, for a pipe or a log.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use super::figures::figure;
use super::source::Source;
use super::state::{Column, Row, State};
use super::view::sentence;
use submeter_terminal as show;
use submeter_terminal::Failure;

/// Prints the table.
pub(super) fn run(source: &Source, columns: &[String]) -> Result<ExitCode, Failure> {
    let mut state = State::new();
    state.update(source.tree()?);
    // Printed apart from the table, which scripts read.
    if let Some(notice) = state.notice() {
        show::tell(&format!("{notice}\n"));
    }
    for verdict in &state.verdicts {
        show::tell(&format!("{}\n", sentence(verdict, io::stderr().is_terminal())));
    }
    if !columns.is_empty() {
        state.choose(columns).map_err(Failure::new)?;
    }
    show::print(&table(&state)).map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

/// Lays the table out.
pub(super) fn table(state: &State) -> String {
    let views = shown(state);
    let titles = views.iter().map(|&view| state.views[view].title.to_lowercase());
    let heading: Vec<String> = ["tenant".to_owned()].into_iter().chain(titles).collect();
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    let rows: Vec<Vec<String>> = state.rows().map(|row| cells(state, &views, &row)).collect();
    show::table_within(&heading, &rows)
}

fn cells(state: &State, views: &[usize], row: &Row<'_>) -> Vec<String> {
    let name = if row.depth == 0 { "/" } else { row.node.name() };
    let figures = views.iter().map(|&at| figure(state.views[at].shape, row.node.figures[at]));
    [format!("{}{name}", "  ".repeat(row.depth))].into_iter().chain(figures).collect()
}

/// Returns the views that have a column, each followed by its limit.
fn shown(state: &State) -> Vec<usize> {
    let columns = state.columns().into_iter();
    columns
        .flat_map(|column| match column {
            Column::View(view) => [Some(view), state.limit_beside(view)],
            Column::Name => [None, None],
        })
        .flatten()
        .collect()
}
