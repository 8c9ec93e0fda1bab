//! axe finds no barrier on the page.
//!
//! axe-core is not part of the repository: npm fetches it where available.

use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use submeter_browser::{Browser, Program};

type Outcome = Result<(), Box<dyn Error>>;

/// Pinned to a version, as a newer one may find more.
const AXE: &str = "axe-core@4.14.1";

/// Runs axe, and returns its findings, each with the first place.
const FINDINGS: &str = "axe.run().then(({ violations }) => done(violations.map(\
    ({ id, nodes }) => `${id}: ${nodes[0].html} ${nodes[0].failureSummary}`)))";

/// Returns the text of axe. Returns `None`, and says why, if npm does not have it.
fn axe() -> Result<Option<String>, Box<dyn Error>> {
    let at = Path::new(env!("CARGO_TARGET_TMPDIR")).join(AXE);
    let text = at.join("node_modules/axe-core/axe.min.js");
    if !text.exists() {
        let npm = ["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"];
        let installed = Command::new("npm").args(npm).arg("--prefix").arg(&at).arg(AXE).output();
        match installed {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                println!("skipped: axe on the page: npm has no {AXE}: {said}");
                return Ok(None);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                println!("skipped: axe on the page: apt-get install npm");
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(fs::read_to_string(text)?))
}

/// Shows a scene on a desktop and on a phone, in the light and the dark scheme, and expects no
/// finding.
async fn expect_none(browser: &Browser, axe: &str, of: &Program, name: &str, act: &str) -> Outcome {
    for (width, height) in [(1400, 900), (390, 800)] {
        browser.resize(width, height).await?;
        for scheme in ["light", "dark"] {
            let features = json!([
                { "name": "prefers-color-scheme", "value": scheme },
                { "name": "prefers-reduced-motion", "value": "reduce" },
            ]);
            let media = json!({ "features": features });
            browser.devtools("Emulation.setEmulatedMedia", media).await?;
            browser.open(of.address()).await?;
            browser.until(act).await?;
            let cut = "[...document.querySelectorAll('main section, main aside')]\
                       .filter((box) => box.getBoundingClientRect().left < 0).length";
            assert_eq!(browser.value(cut).await?, 0, "{name}, {width} px: cut off");
            let found = browser.run(&format!("{axe}; {FINDINGS}")).await?;
            assert_eq!(found, Value::Array(Vec::new()), "{name}, {width} px, {scheme}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn axe_finds_nothing_in_any_scene() -> Outcome {
    let Some(axe) = axe()? else { return Ok(()) };
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let program = Program::start().await?;
    let empty = "!document.getElementById('empty').hidden";
    expect_none(&browser, &axe, &program, "an empty server", empty).await?;
    for (path, requests) in [("/acme", 300), ("/beta/one", 200), ("/beta/two", 100)] {
        program.tenant(path, requests).set_limit(program.memory, Some(1 << 20));
    }
    let scenes = [
        ("the table", "table.nodes.size === 5"),
        (
            "nothing matches",
            "(filter.value = 'zzz', filter.dispatchEvent(new Event('input')), \
              !document.getElementById('empty').hidden)",
        ),
        ("a moment of the past", "(band.parts && (moment.set(1), band.explain()), !!band.parts)"),
        (
            "the detail",
            "(model.selected || detail.open('/acme'), \
              !!document.querySelector('.all-metrics td.zero'))",
        ),
        (
            "a limit that is asked about",
            "(model.selected || detail.limit('/acme', 'requests=5/s'), \
              !!document.querySelector('.limiter input'))",
        ),
    ];
    for (name, act) in scenes {
        expect_none(&browser, &axe, &program, name, act).await?;
    }
    browser.close().await
}
