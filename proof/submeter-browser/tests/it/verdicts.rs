//! Sentences on who is harmed and by whom, for those who have only a keyboard or a finger.

use serde_json::json;
use submeter_browser::{Browser, Key};

use crate::shown::{Outcome, shown};

/// Lets the page say something on tenants, while it is paused.
async fn say(browser: &Browser, now: &[&str], earlier: &[&str]) -> Outcome {
    let say = format!(
        "((now, earlier) => {{ \
           const of = (group) => ({{ kind: group === '/acme' ? 'takes' : 'waits', group, \
             text: ' waits 1.62\\u00a0ms.', short: ' waits.', remedy: 'requests=5/s', \
             why: `${{group}} waits 1.62\\u00a0ms; /acme takes most`, since_ms: model.at }}); \
           model.judged({{ verdicts: now.map(of), marks: [], earlier: earlier.map((group) => \
             ({{ ...of(group), ended_ms: model.at }})) }}); \
           news.paint(); }})({}, {})",
        json!(now),
        json!(earlier)
    );
    browser.value(&say).await?;
    Ok(())
}

async fn paused(browser: &Browser) -> Outcome {
    browser.press(['p']).await?;
    browser.until("link.isPaused").await
}

/// Why something is said is shown for each sentence, to any finger or key, without escapes.
#[tokio::test]
async fn each_sentence_can_be_asked_why() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    paused(&browser).await?;
    say(&browser, &["/acme", "/beta/one"], &["/gone"]).await?;
    browser.value("document.querySelector('#earlier summary').click()").await?;
    for path in ["/acme", "/beta/one", "/gone"] {
        let focus = format!(
            "(document.querySelector({}) || document.body).focus()",
            json!(format!("[aria-label='why {path}'], [aria-label=\"why {path}\"]"))
        );
        browser.value(&focus).await?;
        browser.press([Key::Enter]).await?;
        let why = "document.activeElement.closest('#news > *, #earlier li')";
        browser
            .until(&format!("document.activeElement.ariaExpanded === 'true' && {why} !== null"))
            .await?;
        let text = browser.value(&format!("{why}.innerText.replaceAll('\\u00a0', ' ')")).await?;
        let text = text.as_str().unwrap_or_default();
        assert!(text.contains(&format!("{path} waits 1.62 ms; /acme takes most")), "{text}");
    }
    let all = "[...document.querySelectorAll('main *')].map((one) => one.title)\
               .concat(document.getElementById('main').textContent).join(' ')";
    let all = browser.value(all).await?;
    assert!(!all.as_str().unwrap_or(r"\u{").contains(r"\u{"), "{all}");
    browser.close().await
}

/// A button of a sentence stays that of its tenant, and the focus is never lost with it.
#[tokio::test]
async fn the_focus_survives_its_sentence() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    paused(&browser).await?;
    let at = "document.activeElement.ariaLabel || document.activeElement.id || \
              document.activeElement.tagName";
    for (earlier, after) in [(&["/acme"][..], "SUMMARY"), (&[], "Tenants with live figures")] {
        say(&browser, &["/acme", "/beta/one"], &[]).await?;
        browser.value("document.querySelector('[aria-label=\"limit /acme\"]').focus()").await?;
        assert_eq!(browser.value(at).await?, "limit /acme");
        say(&browser, &["/beta/one", "/acme"], &[]).await?;
        assert_eq!(browser.value(at).await?, "limit /acme", "another became worse");
        let names = "[...document.querySelectorAll('#news .name')].map((one) => one.textContent)";
        assert_eq!(browser.value(names).await?, json!(["/beta/one", "/acme"]));
        say(&browser, &["/beta/one"], earlier).await?;
        assert_eq!(browser.value(at).await?, after, "it is no longer said");
    }
    browser.close().await
}

/// What is announced at once does not change while the server stays away, and the title does not
/// keep its last figure.
#[tokio::test]
async fn a_lost_server_is_announced_once() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    let told = "(() => { model.root.row[model.headlines[0].at] = 7; tiles.paint(); \
        const titles = [document.title]; \
        link.state('lost'); titles.push(document.title); \
        const box = document.getElementById('notice'); \
        const said = () => [...document.querySelectorAll('[role=alert]')] \
          .map((one) => one.textContent).join(); \
        const alert = said(), all = box.textContent; \
        link.last -= 60000; link.notice(); \
        const shown = [alert === said(), alert.includes('does not answer'), !box.hidden, \
          all !== box.textContent]; \
        link.state('live'); titles.push(document.title); \
        return [...shown, box.hidden, titles.map((title) => /\\d/.test(title))]; })()";
    let wanted = json!([true, true, true, true, true, [true, false, true]]);
    assert_eq!(browser.value(told).await?, wanted);
    browser.close().await
}

/// How many tenants there are is announced after a filter, not whenever one comes or goes.
#[tokio::test]
async fn tenants_that_come_are_not_announced() -> Outcome {
    let Some((program, browser)) = shown().await? else { return Ok(()) };
    let said = "[...document.querySelectorAll('[role=status]')].map((one) => one.textContent)\
                .filter((text) => /\\d (of|tenants)/.test(text)).join()";
    program.tenant("/new", 1);
    browser.until("document.getElementById('count').textContent === '5 tenants'").await?;
    assert_eq!(browser.value(said).await?, "");
    browser.press(['/']).await?;
    browser.press("beta".chars()).await?;
    browser.until(&format!("{said} === '2 of 5'")).await?;
    browser.close().await
}
