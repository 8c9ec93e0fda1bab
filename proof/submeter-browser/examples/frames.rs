//! Measures the frames of the page while it shows ten thousand tenants that all change.
//!
//! `cargo run --release -p submeter-browser --features long --example frames -- --json FILE`
//!
//! An empty page is measured alternately with it: frames that it misses were missed by the browser
//! and the machine.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use std::{env, fs};

use serde_json::{Value, json};
use submeter::Group;
use submeter_browser::{Browser, Program};

const TENANTS: usize = 10_000;

/// The time in which every tenant answers requests once.
const ROUND: Duration = Duration::from_millis(200);

/// Duration of each phase of a turn, in milliseconds of the page.
const PHASE_MS: u32 = 5_000;

const TURNS: usize = 4;

/// What is done in each frame of a phase.
const PHASES: [(&str, &str); 4] = [
    ("empty_page", ""),
    ("untouched", ""),
    ("scrolling", "scrollBy(0, 120 * (Math.floor(n / 120) % 2 ? -1 : 1));"),
    (
        "filtering",
        "if (n % 12 === 0) { const box = document.getElementById('filter');\
         box.value = n % 24 ? '' : String(Math.floor(n / 24) % 10);\
         box.dispatchEvent(new Event('input')); }",
    ),
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let file = match &arguments[..] {
        [] => None,
        [flag, file] if flag == "--json" => Some(file),
        _ => return Err(format!("{arguments:?}: only --json FILE is known").into()),
    };
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let program = Program::start().await?;
    let path = |n: usize| format!("/region-{:02}/tenant-{n:05}", n % 40);
    let tenants: Vec<Group> = (0..TENANTS).map(|n| program.tenant(&path(n), 1)).collect();
    for tenant in &tenants {
        tenant.set_limit(program.memory, Some(1 << 30));
    }
    let over = AtomicBool::new(false);
    let frames = thread::scope(|scope| {
        scope.spawn(|| {
            // Relaxed, as below: it only ends the loop.
            while !over.load(Ordering::Relaxed) {
                for (n, tenant) in tenants.iter().enumerate() {
                    tenant.add(program.requests, 1 + n as u64 % 97);
                    tenant.record(program.latency, 20_000 + 1_000 * (n as u64 % 89));
                }
                thread::sleep(ROUND);
            }
        });
        let frames = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(measure(&browser, program.address()))
        });
        over.store(true, Ordering::Relaxed);
        frames
    })?;
    for (phase, frames) in &frames {
        let [p50, p99, longest] = [0.5, 0.99, 1.0].map(|part| quantile(frames, part));
        let late = frames.iter().filter(|ms| **ms > 50.0).count();
        println!(
            "{phase:<11} {:>5} frames, p50 {p50:.1} ms, p99 {p99:.1} ms, longest {longest:.1} ms, \
             {late} over 50 ms",
            frames.len()
        );
    }
    if let Some(file) = file {
        let agent = browser.value("navigator.userAgent").await?;
        let frames: Value = frames.iter().map(|(name, ms)| (name.to_string(), json!(ms))).collect();
        let record = json!({
            "browser": agent, "tenants": TENANTS, "turns": TURNS, "phase_ms": PHASE_MS,
            "frames_ms": frames,
        });
        fs::write(file, format!("{record}\n")).map_err(|error| format!("{file}: {error}"))?;
    }
    browser.close().await
}

/// Returns the times between frames of each phase, in milliseconds.
async fn measure(
    browser: &Browser,
    address: &str,
) -> Result<Vec<(&'static str, Vec<f64>)>, Box<dyn Error>> {
    let mut frames: Vec<(&str, Vec<f64>)> = PHASES.map(|(name, _)| (name, Vec::new())).to_vec();
    for turn in 0..TURNS {
        eprintln!("turn {} of {TURNS}", turn + 1);
        for ((name, act), (_, frames)) in PHASES.iter().zip(&mut frames) {
            match *name {
                "empty_page" => browser.goto("about:blank").await?,
                "untouched" => {
                    browser.open(address).await?;
                    browser.until(&format!("model.tenants() === {TENANTS}")).await?;
                    browser.value("document.getElementById('expand').click()").await?;
                    // Its past comes with the page, but the first frames belong to loading it.
                    tokio::time::sleep(Duration::from_secs(2)).await;
                }
                _ => {}
            }
            let script = format!(
                "const frames = []; let n = 0, last = performance.now(), end = last + {PHASE_MS};
                 const frame = (now) => {{
                   frames.push(now - last); last = now; n++;
                   {act}
                   if (now < end) requestAnimationFrame(frame); else done(frames.slice(1));
                 }};
                 requestAnimationFrame(frame);"
            );
            let measured = browser.run(&script).await?;
            let measured = measured.as_array().ok_or("no frames")?;
            frames.extend(measured.iter().filter_map(Value::as_f64));
        }
    }
    Ok(frames)
}

fn quantile(of: &[f64], part: f64) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (part * (sorted.len() - 1) as f64).round() as usize;
    sorted[at]
}
