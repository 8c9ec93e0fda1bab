//! What the page asks before it limits a tenant, and what it says afterwards.

use serde_json::{Value, json};
use submeter_browser::{Browser, Key};

use crate::shown::{Outcome, shown};

/// The field of the form.
const FIELD: &str = "document.querySelector('.limiter input')";

/// What the form says.
const SAID: &str = "document.querySelector('.limiter .said').textContent";

/// Opens the form of a tenant with a limit in it.
async fn fill(browser: &Browser, path: &str, limit: &str) -> Outcome {
    browser.value(&format!("detail.limit({}, {})", json!(path), json!(limit))).await?;
    browser.until(&format!("{FIELD} !== null && {FIELD}.value === {}", json!(limit))).await?;
    browser.until(&format!("document.activeElement === {FIELD}")).await
}

/// Sets what is in the field, by keyboard.
async fn confirm(browser: &Browser) -> Outcome {
    browser.press([Key::Enter]).await?;
    browser.until("document.activeElement.textContent.startsWith('Set ')").await?;
    browser.press([Key::Enter]).await
}

/// The question keeps the limit it names, and closes when another one is in the field.
#[tokio::test]
async fn what_is_asked_is_what_is_set() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    let is_open = "!document.querySelector('.limiter .ask').hidden";
    fill(&browser, "/acme", "requests=5/s").await?;
    browser.press([Key::Enter]).await?;
    browser.until(is_open).await?;
    browser.value(&format!("{FIELD}.focus()")).await?;
    browser.press(['0']).await?;
    assert_eq!(browser.value(is_open).await?, false, "the field was edited");
    browser.value(&format!("{FIELD}.value = 'requests=5/s'")).await?;
    browser.press([Key::Enter]).await?;
    browser.until(is_open).await?;
    fill(&browser, "/acme", "requests=9/s").await?;
    assert_eq!(browser.value(is_open).await?, false, "a verdict filled in another limit");
    browser.press([Key::Enter]).await?;
    browser.until("document.activeElement.textContent === 'Set requests=9/s for /acme'").await?;
    browser.value(&format!("{FIELD}.value = 'requests=1/s'")).await?;
    browser.press([Key::Enter]).await?;
    browser.until(&format!("{SAID}.startsWith('Set: ')")).await?;
    assert_eq!(browser.value(SAID).await?, "Set: requests=9/s");
    browser.close().await
}

/// After each answer the keyboard is in the form, and the answer is shown as it was written.
#[tokio::test]
async fn an_answer_keeps_the_focus_and_has_no_escapes() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    let within = "document.activeElement.closest('.limiter') !== null";
    fill(&browser, "/acme", "requests=0/s").await?;
    confirm(&browser).await?;
    browser.until(&format!("{SAID} !== ''")).await?;
    assert_eq!(browser.value(SAID).await?, "requests=0/s grants nothing");
    assert_eq!(browser.value(within).await?, true, "after a refusal");
    fill(&browser, "/acme", "requests=7/s").await?;
    confirm(&browser).await?;
    browser.until(&format!("{SAID} === 'Set: requests=7/s'")).await?;
    assert_eq!(browser.value(within).await?, true, "after a change");
    browser.value("[...document.querySelectorAll('.limiter button')].at(-1).focus()").await?;
    browser.press([Key::Enter]).await?;
    browser.until(&format!("{SAID} === 'Set: no limits'")).await?;
    assert_eq!(browser.value(within).await?, true, "after it was undone");
    browser.close().await
}

/// A size is asked about in its unit, beside what the tenant holds if that is more.
#[tokio::test]
async fn a_size_is_asked_about_in_its_unit() -> Outcome {
    let Some((program, browser)) = shown().await? else { return Ok(()) };
    let held = program.tenant("/acme", 1).try_charge(program.memory, 1 << 18).expect("a fourth");
    browser.value("detail.open('/acme')").await?;
    browser.until("detail.doc && detail.doc.group.values.memory.current === 262144").await?;
    for (limit, means) in [
        ("memory=4", "memory: 4 B. /acme holds 256 KiB now."),
        ("4", "memory: 4 B. /acme holds 256 KiB now."),
        ("requests=5/s,memory=1.5m", "memory: 1.50 MiB."),
        ("requests=5/s", ""),
        ("memory=4x", ""),
    ] {
        fill(&browser, "/acme", limit).await?;
        browser.press([Key::Enter]).await?;
        browser.until("document.activeElement.textContent.startsWith('Set ')").await?;
        let told = "document.querySelector('.limiter .means').textContent";
        let told = browser.value(&format!("{told}.replaceAll('\\u202f', ' ')")).await?;
        assert_eq!(told, means, "{limit}");
    }
    drop(held);
    browser.close().await
}

/// Without a limit in the field there is nothing to copy.
#[tokio::test]
async fn an_example_is_not_copied() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    browser.value("detail.open('/acme')").await?;
    browser.until(&format!("{FIELD} !== null")).await?;
    for text in ["Copy line for the file", "Copy curl", "Set…"] {
        let click = format!(
            "(document.activeElement.blur(), [...document.querySelectorAll('.limiter button')] \
             .find((one) => one.textContent === {}).click())",
            json!(text)
        );
        browser.value(&click).await?;
        browser.until(&format!("{SAID} !== ''")).await?;
        let said = browser.value(SAID).await?;
        let is_copy = said.as_str().is_none_or(|said| said.contains("/acme"));
        assert!(!is_copy, "{text}: {said}");
        let is_back = browser.value(&format!("document.activeElement === {FIELD}")).await?;
        assert_eq!(is_back, Value::Bool(true), "{text}");
    }
    browser.close().await
}
