//! A program whose page the tests look at.

use std::error::Error;

use submeter_browser::{Browser, Program};

pub(crate) type Outcome = Result<(), Box<dyn Error>>;

/// The paths of the rows in view, from the top.
pub(crate) const ROWS: &str = "[...table.nodes.values()].sort((a, b) => a.ariaRowIndex - b.ariaRowIndex)\
                    .map((row) => row.group.path)";

/// Shows a program of three tenants, one of them with two below it, if there is a browser.
pub(crate) async fn shown() -> Result<Option<(Program, Browser)>, Box<dyn Error>> {
    let Some(browser) = Browser::start().await? else { return Ok(None) };
    let program = Program::start().await?;
    for (path, requests) in [("/acme", 300), ("/beta/one", 200), ("/beta/two", 100), ("/gone", 1)] {
        program.tenant(path, requests).set_limit(program.memory, Some(1 << 20));
    }
    browser.open(program.address()).await?;
    browser.until(&format!("{ROWS}.length === 6")).await?;
    // In one order, whatever the rates.
    browser.value("table.sortBy('name', false)").await?;
    Ok(Some((program, browser)))
}
