//! `top --once`: one table, for a pipe or a log.

use std::io::Write;
use std::process::ExitCode;

use super::client::Client;
use super::figures::{percent, rate, time};
use super::state::{Row, State};
use submeter_terminal as show;
use submeter_terminal::Failure;

/// Prints the table.
pub(super) fn run(client: &Client) -> Result<ExitCode, Failure> {
    let mut state = State::new();
    state.update(client.tree()?);
    let text = table(&state);
    // The reader may close the pipe (`submeter top --once | head -3`); nothing is lost.
    let _ = write!(anstream::stdout(), "{text}");
    Ok(ExitCode::SUCCESS)
}

/// Lays the table out.
pub(super) fn table(state: &State) -> String {
    let heading =
        ["tenant", "requests/s", "hits", "p99", "cpu", "memory", "limit", "evictions/s", "items"];
    let rows: Vec<Vec<String>> = state.rows().map(|row| cells(&row)).collect();
    show::table(&heading, &rows, false)
}

fn cells(row: &Row<'_>) -> Vec<String> {
    let figures = &row.node.overview;
    let name = if row.depth == 0 { "/" } else { row.node.name() };
    vec![
        // No-break spaces, because a table trims ordinary ones at the edge of a cell.
        format!("{}{}", "\u{a0}".repeat(2 * row.depth), name),
        rate(figures.requests_per_s),
        percent(figures.hit_ratio),
        time(figures.p99_ns),
        percent(Some(figures.cpu_cores)),
        show::bytes(figures.memory_bytes),
        figures.memory_limit_bytes.map_or_else(|| "–".to_owned(), show::bytes),
        rate(figures.evictions_per_s),
        figures.items.to_string(),
    ]
}
