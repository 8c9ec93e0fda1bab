//! Takes the picture of the page that the README shows.
//!
//! `cargo run -p submeter-browser --features long --example picture -- http://127.0.0.1:8080/ FILE`
//!
//! The tenants are those of `cargo run --release -- serve --load 8`.

use std::error::Error;
use std::time::Duration;
use std::{env, fs};

use serde_json::json;
use submeter_browser::Browser;

/// How long the page is open beforehand: its lines are two minutes long.
const PAST: Duration = Duration::from_secs(120);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, file] = &arguments[..] else {
        return Err("wanted: the address of a page, and a file for its picture".into());
    };
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let screen = json!({ "width": 1280, "height": 900, "deviceScaleFactor": 2, "mobile": false });
    browser.devtools("Emulation.setDeviceMetricsOverride", screen).await?;
    browser.open(address).await?;
    tokio::time::sleep(PAST).await;
    // During a burst, which the sentence above the table reports.
    let bursts = "model.verdicts.some((it) => it.kind === 'bursts' && it.ended_ms === undefined)";
    browser.until(bursts).await?;
    fs::write(file, browser.picture().await?).map_err(|error| format!("{file}: {error}"))?;
    browser.close().await
}
