//! The page can be used without a mouse, without sight, on a phone, and without motion.

use std::time::Duration;

use serde_json::{Value, json};
use submeter_browser::{Browser, Key, Program};

use crate::shown::{Outcome, ROWS, shown};

/// The element that has the focus, as the path of its row or its id.
const FOCUS: &str = "((document.activeElement.group || {}).path || document.activeElement.id)";

#[tokio::test]
async fn the_keyboard_reaches_what_a_mouse_does() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    let focus = async |at: &str| {
        let expression = format!("{FOCUS} === {}", json!(at));
        if browser.until(&expression).await.is_err() {
            return Err(
                format!("the focus is at {}, not {at:?}", browser.value(FOCUS).await?).into()
            );
        }
        Outcome::Ok(())
    };
    let fold = |path: &str| {
        let path = json!(path);
        format!("[...table.nodes.values()].find((row) => row.group.path === {path}).ariaExpanded")
    };
    // The first stop skips what is above the table.
    browser.press([Key::Tab]).await?;
    assert_eq!(browser.value("document.activeElement.className").await?, "skip");
    browser.press([Key::Enter, Key::Tab]).await?;
    // From the table's own box to its columns, and by one stop to its rows.
    browser.value("table.grid.focus()").await?;
    browser.press(['/']).await?;
    focus("filter").await?;
    browser.press("beta".chars()).await?;
    browser.until(&format!("{ROWS}.length === 4")).await?;
    browser.press([Key::Escape]).await?;
    browser.until(&format!("{ROWS}.length === 6")).await?;
    browser.press([Key::Down]).await?;
    focus("/").await?;
    browser.press([Key::Down, Key::Down]).await?;
    focus("/beta").await?;
    assert_eq!(browser.value(&fold("/beta")).await?, "true");
    browser.press([Key::Left]).await?;
    assert_eq!(browser.value(&fold("/beta")).await?, "false");
    browser.until(&format!("{ROWS}.length === 4")).await?;
    browser.press([Key::Right, Key::Right]).await?;
    focus("/beta/one").await?;
    browser.press([Key::Left]).await?;
    focus("/beta").await?;
    browser.press([Key::End]).await?;
    focus("/gone").await?;
    browser.press([Key::Home]).await?;
    focus("/").await?;
    browser.press([Key::Down, Key::Enter]).await?;
    focus("detail").await?;
    assert_eq!(browser.value("model.selected").await?, "/acme");
    browser.press([Key::Escape]).await?;
    focus("/acme").await?;
    assert_eq!(browser.value("document.getElementById('detail').hidden").await?, true);
    browser.close().await
}

/// The keyboard moves through time, pauses and limits.
#[tokio::test]
async fn the_keyboard_moves_pauses_and_limits() -> Outcome {
    let Some((program, browser)) = shown().await? else { return Ok(()) };
    browser.until("band.parts !== null && !band.box.hidden").await?;
    browser.value("band.slider.focus()").await?;
    browser.press([Key::Left, Key::Left]).await?;
    let said = "band.slider.getAttribute('aria-valuetext')";
    browser.until(&format!("{said}.startsWith('2 seconds ago: ')")).await?;
    browser.press([Key::Escape]).await?;
    browser.until(&format!("{said}.startsWith('now: ')")).await?;
    // CPU time of no tenant is explained, with the alert about it.
    browser.value("band.parts.at(-1).button.click()").await?;
    browser.until("!band.why.hidden && band.why.textContent.includes('alert Submeter')").await?;
    assert_eq!(browser.value("band.parts.at(-1).button.ariaExpanded").await?, "true");

    let state =
        |wanted: &str| format!("document.getElementById('state').dataset.state === '{wanted}'");
    browser.press(['p']).await?;
    browser.until(&state("paused")).await?;
    let number = browser.value("model.number").await?.as_u64().ok_or("a number")?;
    program.tenant("/acme", 50);
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(browser.value("model.number").await?, number, "what is shown stays");
    browser.press(['p']).await?;
    browser.until(&state("live")).await?;
    browser.until(&format!("model.number > {number}")).await?;

    // As from a sentence: the remedy is filled in, and must be confirmed before it is applied.
    browser.value("detail.limit('/acme', 'requests=5/s')").await?;
    browser.until("document.activeElement.matches('.limiter input')").await?;
    browser.press([Key::Enter]).await?;
    browser.until("document.activeElement.textContent === 'Set requests=5/s for /acme'").await?;
    browser.press([Key::Enter]).await?;
    let told = |text: &str| {
        format!("document.querySelector('.limiter .said').textContent === {}", json!(text))
    };
    browser.until(&told("Set: requests=5/s")).await?;
    let undo = "[...document.querySelectorAll('.limiter button')].at(-1)";
    browser.until(&format!("!{undo}.hidden")).await?;
    browser.value(&format!("{undo}.focus()")).await?;
    browser.press([Key::Enter]).await?;
    browser.until(&told("Set: no limits")).await?;
    browser.close().await
}

#[tokio::test]
async fn tab_reaches_every_control_and_enter_works_it() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    browser.until("band.parts !== null && !band.box.hidden").await?;
    // By its id, or else by its text.
    let stop = "(() => { const at = document.activeElement; \
                return at.id || at.getAttribute('aria-label') || at.textContent.trim(); })()";
    let to = async |wanted: &str| {
        for _ in 0..40 {
            browser.press([Key::Tab]).await?;
            if browser.value(stop).await?.as_str().is_some_and(|at| at.contains(wanted)) {
                return Outcome::Ok(());
            }
        }
        Err(format!("no way to {wanted}, but to {}", browser.value(stop).await?).into())
    };
    let state =
        |wanted: &str| format!("document.getElementById('state').dataset.state === '{wanted}'");
    to("pause").await?;
    browser.press([Key::Enter]).await?;
    browser.until(&state("paused")).await?;
    browser.press([Key::Enter]).await?;
    browser.until(&state("live")).await?;
    to("theme").await?;
    for wanted in ["light", "dark"] {
        browser.press([Key::Enter]).await?;
        let theme = "document.documentElement.dataset.theme";
        assert_eq!(browser.value(theme).await?, wanted);
    }
    to("Moment of the last two minutes").await?;
    browser.press([Key::Left]).await?;
    browser.until("moment.ago === 1").await?;
    to("filter").await?;
    to("expand").await?;
    to("collapse").await?;
    browser.press([Key::Enter]).await?;
    browser.until(&format!("{ROWS}.length === 4")).await?;
    to("Tenant").await?;
    let sorted = "[model.sort.key, model.sort.down]";
    browser.press([Key::Enter]).await?;
    let name = browser.value(sorted).await?;
    to("Requests").await?;
    browser.press([Key::Enter]).await?;
    assert_ne!(browser.value(sorted).await?, name);
    // From a row to its limits, whose line is copied.
    browser.press(['/']).await?;
    browser.press([Key::Down, Key::Down, Key::Enter]).await?;
    browser.until("document.querySelector('.limiter input') !== null").await?;
    to("Limits of ").await?;
    browser.press("requests=7/s".chars()).await?;
    to("Copy line for the file").await?;
    browser.press([Key::Enter]).await?;
    let said = "document.querySelector('.limiter .said').textContent";
    browser.until(&format!("{said}.endsWith(' requests=7/s')")).await?;
    browser.close().await
}

/// A tenant that waits for room is amber, and named for users who do not see colours.
#[tokio::test]
async fn a_waiting_tenant_is_amber_and_named() -> Outcome {
    let Some((program, browser)) = shown().await? else { return Ok(()) };
    let said = "document.getElementById('news-said').textContent";
    assert_eq!(browser.value(said).await?, "");
    let tenant = program.tenant("/beta/two", 1);
    let waits = format!("{said}.includes('/beta/two waits for room.')");
    // Averages move every two seconds.
    for _ in 0..60 {
        tokio::task::spawn_blocking({
            let tenant = tenant.clone();
            let memory = program.memory;
            move || Program::stall(&tenant, memory, Duration::from_millis(500))
        })
        .await?;
        if browser.value(&waits).await? == true {
            break;
        }
    }
    browser.until(&waits).await?;
    let row = "[...table.nodes.values()].find((row) => row.group.path === '/beta/two')";
    browser.until(&format!("{row}.querySelector('.tag').textContent === 'waits for room'")).await?;
    let colour = |of: &str| format!("getComputedStyle({of}).color");
    let amber = browser.value(&colour(&format!("{row}.querySelector('.tag')"))).await?;
    let hot = browser.value(&colour(&format!("{row}.querySelector('.s-share .hot')"))).await?;
    let calm = format!("{row}.querySelector('.label')");
    assert_eq!((&amber, browser.value(&colour(&calm)).await? == amber), (&hot, false));
    browser.value("detail.open('/beta/two')").await?;
    let detail = "(document.querySelector('#detail .waits') || {}).textContent";
    browser.until(&format!("/^waited for room.*some [0-9.]+.%.*full /.test({detail})")).await?;
    let overdrafts = "document.getElementById('detail').textContent.includes('beyond the limit')";
    browser.until(overdrafts).await?;
    browser.close().await
}

/// A detail that covers the page keeps the focus until it is closed, which returns it.
#[tokio::test]
async fn a_detail_over_the_page_keeps_the_focus() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    let reachable = "[...document.querySelectorAll('a, button, input, select, summary, [tabindex]')]\
                     .filter((one) => !one.closest('#detail, [inert]') && one.offsetWidth > 0)\
                     .length";
    browser.value("detail.open('/acme')").await?;
    browser.until("document.querySelector('.limiter input') !== null").await?;
    assert!(browser.value(reachable).await?.as_u64() > Some(10), "beside the table it covers none");
    // The button with the focus goes away with what it is in.
    browser.value("document.querySelector('.crumbs button').focus()").await?;
    browser.press([Key::Enter]).await?;
    browser.until("model.selected === '/'").await?;
    assert_eq!(browser.value(FOCUS).await?, "detail");
    browser.value("detail.close()").await?;
    for width in [390, 1000] {
        browser.resize(width, 800).await?;
        for close in
            ["Escape", "history.back()", "document.querySelector('#detail .close').click()"]
        {
            browser.value("table.move(1)").await?;
            assert_eq!(browser.value(FOCUS).await?, "/acme");
            browser.press([Key::Enter]).await?;
            browser.until("document.querySelector('.limiter input') !== null").await?;
            assert_eq!(browser.value(reachable).await?, 0, "{width} px");
            assert_eq!(browser.value(FOCUS).await?, "detail");
            if close == "Escape" {
                browser.press([Key::Escape]).await?;
            } else {
                browser.value(close).await?;
            }
            browser.until("document.getElementById('detail').hidden").await?;
            browser.until(&format!("{FOCUS} === '/acme'")).await?;
            assert!(browser.value(reachable).await?.as_u64() > Some(10), "{close}, {width} px");
        }
        if width == 1000 {
            browser.value("table.move(1)").await?;
            browser.press([Key::Enter]).await?;
            browser.until("!document.getElementById('detail').hidden").await?;
            for kind in ["mousePressed", "mouseReleased"] {
                let click =
                    json!({ "type": kind, "x": 99, "y": 700, "button": "left", "clickCount": 1 });
                browser.devtools("Input.dispatchMouseEvent", click).await?;
            }
            browser.until("document.getElementById('detail').hidden").await?;
            assert_eq!(browser.value(FOCUS).await?, "/acme", "a click beside it");
        }
        // From one tenant to another the keyboard stays inside, and from elsewhere it gets there.
        browser.value("detail.open('/beta/one')").await?;
        browser.until("document.querySelector('.limiter input') !== null").await?;
        browser.until(&format!("{FOCUS} === 'detail'")).await?;
        browser.value("document.querySelectorAll('.crumbs button')[1].focus()").await?;
        browser.press([Key::Enter]).await?;
        browser.until("model.selected === '/beta'").await?;
        assert_eq!(browser.value(FOCUS).await?, "detail");
        browser.press([Key::Escape]).await?;
        browser.until("document.getElementById('detail').hidden").await?;
    }
    browser.close().await
}

/// Rows are read in the order in which they are seen, and the focused one stays focused.
#[tokio::test]
async fn rows_are_read_in_the_order_seen() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    browser.value("table.move(2)").await?;
    let focus = browser.value(FOCUS).await?;
    let read = "[...document.querySelectorAll('#rows .r')].map((row) => row.group.path)";
    for down in [true, false] {
        browser.value(&format!("table.sortBy('name', {down})")).await?;
        browser.until(&format!("{read}.join() === {ROWS}.join()")).await?;
        assert_eq!(browser.value(FOCUS).await?, focus);
    }
    browser.close().await
}

/// The tabs of the chart are one stop, and arrows move between them.
#[tokio::test]
async fn arrows_move_between_the_tabs_of_a_chart() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    browser.value("detail.open('/acme')").await?;
    browser.until("document.querySelectorAll('#detail [role=tab]').length > 2").await?;
    browser.value("document.querySelector('#detail [role=tab]').focus()").await?;
    let at = "(() => { const tabs = [...document.querySelectorAll('#detail [role=tab]')]; \
              const of = (is) => { const all = tabs.filter(is); \
                return all.length === 1 ? tabs.indexOf(all[0]) : -1; }; \
              const panel = document.getElementById(tabs[0].getAttribute('aria-controls')); \
              return [of((tab) => tab === document.activeElement), of((tab) => tab.tabIndex === 0), \
                of((tab) => tab.ariaSelected === 'true'), tabs.length, \
                panel && panel.getAttribute('role')]; })()";
    let tabs = browser.value(at).await?[3].as_u64().ok_or("a number")?;
    for (key, wanted) in [
        (Key::Right, 1),
        (Key::Left, 0),
        (Key::Left, tabs - 1),
        (Key::Right, 0),
        (Key::End, tabs - 1),
        (Key::Home, 0),
    ] {
        browser.press([key]).await?;
        assert_eq!(browser.value(at).await?, json!([wanted, wanted, wanted, tabs, "tabpanel"]));
    }
    browser.close().await
}

/// Earlier verdicts stay with their times, and lead to their tenant.
#[tokio::test]
async fn what_was_said_is_kept_and_leads_to_tenants() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    let list = "document.getElementById('earlier')";
    assert_eq!(browser.value(&format!("{list}.hidden")).await?, true, "nothing was said");
    // Ten seconds and five seconds before the newest sample, the newest first.
    let said = "model.judged({ verdicts: [], marks: [], earlier: [['/beta/one', 10, 5], \
                ['/acme', 90, 60]].map(([group, from, to]) => ({ group, kind: 'takes', \
                text: ' took most.', short: '', why: '', since_ms: model.at - from * 1000, \
                ended_ms: model.at - to * 1000 })) }), news.paint(), model.at";
    let is_paused = "document.getElementById('state').dataset.state === 'paused'";
    browser.press(['p']).await?;
    browser.until(is_paused).await?;
    browser.value(&format!("[{said}]")).await?;
    assert_eq!(browser.value(&format!("{list}.hidden")).await?, false);
    browser.value(&format!("{list}.querySelector('summary').click()")).await?;
    let clock = "((ago) => new Date(model.at - ago * 1000).toLocaleTimeString())";
    let wanted = format!(
        "[['/beta/one', 10, 5], ['/acme', 90, 60]].map(([group, from, to]) => \
         `${{group}} took most. ${{{clock}(from)}} to ${{{clock}(to)}}`)"
    );
    let lines = format!(
        "[...{list}.querySelectorAll('li')].filter((one) => one.offsetHeight > 0)\
         .map((one) => [...one.children].slice(0, 2).map((part) => part.textContent).join(''))"
    );
    assert_eq!(browser.value(&lines).await?, browser.value(&wanted).await?);
    browser.value(&format!("{list}.querySelectorAll('li .name')[1].click()")).await?;
    browser.until("model.selected === '/acme' && moment.ago === 60").await?;
    browser.close().await
}

/// Each control has a name and the table says how long it is.
#[tokio::test]
async fn each_control_has_a_name() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    browser.value("detail.open('/acme')").await?;
    browser.until("document.querySelectorAll('#detail [role=tab]').length > 0").await?;
    let tree = browser.devtools("Accessibility.getFullAXTree", json!({})).await?;
    let nodes = tree["nodes"].as_array().ok_or("no nodes")?;
    let nodes = || nodes.iter().filter(|node| node["ignored"] != true);
    let role = |node: &Value| node["role"]["value"].as_str().unwrap_or_default().to_owned();
    let name = |node: &Value| node["name"]["value"].as_str().unwrap_or_default().to_owned();
    for node in nodes() {
        let is_control = ["button", "link", "combobox", "searchbox", "tab", "row", "columnheader"]
            .contains(&role(node).as_str());
        // The row of the heads has no name of its own: the heads have names.
        let is_head = role(node) == "row" && name(node).is_empty();
        assert!(!is_control || is_head || !name(node).trim().is_empty(), "no name: {node}");
    }
    let of = |wanted: &str| nodes().filter(|node| role(node) == wanted).count();
    assert_eq!((of("treegrid"), of("main"), of("rowheader"), of("alert")), (1, 1, 6, 0));
    let tabs = nodes().filter(|node| role(node) == "tab").map(name).collect::<Vec<_>>();
    assert!(tabs.iter().all(|tab| !tab.is_empty()) && !tabs.is_empty());
    assert_eq!(browser.value("table.grid.ariaRowCount").await?, "7", "the head counts");
    let chart = "document.querySelector('#detail .chart').getAttribute('aria-label')";
    assert!(browser.value(chart).await?.as_str().is_some_and(|label| label.len() > 10));
    browser.close().await
}

/// The decimal points of a column are aligned, and its head ends with the column.
#[tokio::test]
async fn decimal_points_of_a_column_align() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    let measured = browser
        .run(
            "const rows = [...table.nodes.values()], edge = (node, to) => { \
               const range = document.createRange(); range.setStart(node, 0); \
               range.setEnd(node, to); return range.getBoundingClientRect().right; }; \
             const of = (row, n, u) => { const { figure } = row.cells.cells[0]; \
               figure.set([n, u]); return figure.querySelector('.n').firstChild; }; \
             const points = [['25.4', 'k'], ['4.77', 'k'], ['881', '']].map(([n, u], i) => \
               edge(of(rows[i], n, u), `${n}.`.indexOf('.'))); \
             const head = document.querySelector('.head .v0 span:last-child').firstChild; \
             const ends = [edge(head, head.length), edge(of(rows[0], '4.77', 'k'), 4)]; \
             done([points, ends].map((all) => Math.max(...all) - Math.min(...all)));",
        )
        .await?;
    let apart = |at: usize| measured[at].as_f64().ok_or("a number");
    // In pixels: in some fonts a point is not quite half of a digit.
    assert!(apart(0)? < 1.5 && apart(1)? < 1.5, "{measured}");
    browser.close().await
}

/// A phone needs no sideways scrolling, and its targets are large enough to hit.
#[tokio::test]
async fn a_phone_needs_no_sideways_scrolling() -> Outcome {
    let Some((program, browser)) = shown().await? else { return Ok(()) };
    let phone = json!({ "width": 375, "height": 812, "deviceScaleFactor": 2, "mobile": true });
    browser.devtools("Emulation.setDeviceMetricsOverride", phone).await?;
    browser.until("innerWidth === 375").await?;
    for path in [None, Some("/beta/one")] {
        if let Some(path) = path {
            browser.value(&format!("detail.open({})", json!(path))).await?;
            browser.until("document.querySelectorAll('#detail [role=tab]').length > 0").await?;
        }
        let wide = "document.scrollingElement.scrollWidth";
        assert_eq!(browser.value(wide).await?, 375, "with {path:?} open");
        // The guidelines (WCAG 2.2, 2.5.8) require targets of 24 pixels.
        let small = "[...document.querySelectorAll('button, select, input, .r')]\
                     .map((one) => [one.id || one.className, one.getBoundingClientRect()])\
                     .filter(([, box]) => box.width > 0 && Math.min(box.width, box.height) < 24)\
                     .map(([name]) => name)";
        assert_eq!(browser.value(small).await?, json!([]), "with {path:?} open");
    }
    // Below a name, refusals come first, zeros not at all, and nothing is cut.
    let held = program.tenant("/beta/one", 1).try_charge(program.memory, 1 << 18).expect("room");
    let refusing = tokio::spawn({
        let (tenant, memory) = (program.tenant("/beta/one", 1), program.memory);
        async move {
            loop {
                tenant.try_charge(memory, 1 << 40).expect_err("more than its limit");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    });
    let below = "[...document.querySelectorAll('#rows .sub')]";
    let first = format!(
        "{below}.some(({{ textContent }}) => /^[\\d.]+\\/s [^·]*refused/.test(textContent))"
    );
    browser.until(&first).await?;
    let bad = format!(
        "{below}.filter((one) => one.scrollWidth > one.clientWidth || / 0(\\W|$)/.test(one.textContent))\
         .map((one) => one.textContent)"
    );
    assert_eq!(browser.value(&bad).await?, json!([]));
    // Of two figures that need more than one line, the second is left out.
    let long = "(model.columns.at(-1).of.forEach((view) => { \
                view.title = 'refused by its own memory limit/s'; }), table.paint())";
    browser.value(long).await?;
    browser.until(&first.replace("refused", "refused by its own memory limit$")).await?;
    assert_eq!(browser.value(&bad).await?, json!([]));
    refusing.abort();
    drop(held);
    // The tenant in trouble matters more than its line.
    let whole = "(() => {
        const row = [...table.nodes.values()].find((row) => row.group.path === '/beta/one');
        const label = row.querySelector('.label');
        label.textContent = 'checkout';
        const tag = row.querySelector('.tag');
        tag.textContent = tag.dataset.mark = 'waits for room';
        return label.scrollWidth <= label.clientWidth;
    })()";
    assert_eq!(browser.value(whole).await?, true, "the name beside the widest badge");
    browser.close().await
}

#[tokio::test]
async fn nothing_moves_for_those_who_asked_for_less() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    for (wanted, moves) in [("no-preference", true), ("reduce", false)] {
        let feature = json!({ "name": "prefers-reduced-motion", "value": wanted });
        browser.devtools("Emulation.setEmulatedMedia", json!({ "features": [feature] })).await?;
        // Rows glide to their new places, and what waits for the server pulsates.
        let rows = "(table.box.classList.add('glide'), [...table.nodes.values()]\
                    .some((row) => parseFloat(getComputedStyle(row).transitionDuration) > 0))";
        assert_eq!(browser.value(rows).await?, moves, "{wanted}: rows");
        let state = "(link.state('lost'), document.getAnimations().length > 0)";
        assert_eq!(browser.value(state).await?, moves, "{wanted}: the sign of a lost server");
        browser.value("link.state('live')").await?;
    }
    browser.close().await
}

#[tokio::test]
async fn a_hostile_name_stays_text() -> Outcome {
    let Some((program, browser)) = shown().await? else { return Ok(()) };
    let name = "<img src=x onerror='window.hurt = true'>\"&amp;\u{202e}x";
    let shown = name.replace('\u{202e}', r"\u{202e}");
    let path = format!("/{name}");
    program.tenant(&path, 1);
    browser.until(&format!("{ROWS}.length === 7")).await?;
    let selector = format!("(model.byPath({}) || {{}}).path", json!(path));
    assert_eq!(browser.value(&selector).await?, path.as_str());
    browser.value(&format!("detail.open({})", json!(path))).await?;
    browser.until("document.querySelectorAll('#detail [role=tab]').length > 0").await?;
    assert_eq!(browser.value("document.querySelector('#detail h2').textContent").await?, shown);
    let tip = "[...document.querySelectorAll('.r')].map((row) => row.title)";
    assert!(browser.value(tip).await?.to_string().contains(r"\\u{202e}x"), "the row's tooltip");
    let found = "[window.hurt === undefined, document.querySelectorAll('main img').length]";
    assert_eq!(browser.value(found).await?, json!([true, 0]));
    browser.close().await
}

/// A message is painted in parts, one between two frames, and the next message puts none off.
#[tokio::test]
async fn one_part_is_painted_between_frames() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    paused(&browser).await?;
    let painted = "const parts = [], times = []; \
        painter.parts = painter.parts.map((part, i) => () => { \
          parts.push(i); times.push(document.timeline.currentTime); part(); }); \
        const ask = () => { \
          if (parts.length >= 5) return done([parts, times.every((time, i) => !i || time > times[i - 1])]); \
          painter.ask(false); requestAnimationFrame(ask); }; \
        ask();";
    let painted = browser.run(painted).await?;
    let parts: Vec<u64> =
        painted[0].as_array().ok_or("parts")?.iter().filter_map(Value::as_u64).collect();
    assert_eq!((&parts[..5], &painted[1]), (&[0, 1, 2, 0, 1][..], &json!(true)));
    browser.close().await
}

/// Pauses a page, once everything that it has received is painted.
async fn paused(browser: &Browser) -> Outcome {
    browser.press(['p']).await?;
    browser.until("link.isPaused && !painter.due.size").await
}

/// Continues a page that is paused, until the server's first message of the connection is painted.
async fn resumed(browser: &Browser) -> Outcome {
    browser.value("(window.before = model.groups, 0)").await?;
    browser.press(['p']).await?;
    browser.until("model.groups !== before && !painter.due.size").await
}

/// The first message of a connection describes all groups anew, and the focus is in the same row.
#[tokio::test]
async fn a_reconnection_keeps_the_focus() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    browser.value("table.move(table.rows.indexOf(model.byPath('/beta/one')))").await?;
    paused(&browser).await?;
    resumed(&browser).await?;
    assert_eq!(browser.value(FOCUS).await?, "/beta/one");
    browser.press([Key::Left]).await?;
    browser.until(&format!("{FOCUS} === '/beta'")).await?;
    browser.close().await
}

/// Ten thousand tenants put no more rows into the document than are visible.
#[tokio::test]
async fn only_visible_rows_are_in_the_document() -> Outcome {
    let Some((program, browser)) = shown().await? else { return Ok(()) };
    for n in 0..10_000 {
        program.tenant(&format!("/many/{n}"), 1);
    }
    // A large tree shows only its first level until asked for more.
    browser.until("table.rows.length === 5 && model.tenants() === 10004").await?;
    browser.value("document.getElementById('expand').click()").await?;
    browser.until("table.rows.length === 10007").await?;
    let rows = "document.querySelectorAll('.r').length";
    let seen = browser.value(rows).await?.as_u64().ok_or("a number")?;
    assert!((10..60).contains(&seen), "{seen} rows");
    browser.value("table.move(0)").await?;
    browser.press([Key::End]).await?;
    browser.until("document.activeElement.ariaRowIndex === '10008'").await?;
    let after = browser.value(rows).await?.as_u64().ok_or("a number")?;
    assert!((10..60).contains(&after), "{after} rows at the end");
    // Rows that stay in view have nothing new to say.
    paused(&browser).await?;
    let filled = "const fill = fillRow; let n = 0; fillRow = (...of) => { n++; fill(...of); }; \
                  scrollBy(0, -2 * table.rowHeight()); \
                  setTimeout(() => { fillRow = fill; done(n); }, 200);";
    let filled = browser.run(filled).await?;
    assert!(filled.as_u64().is_some_and(|n| (1..4).contains(&n)), "{filled} of {after}");
    resumed(&browser).await?;
    // Out of view the focused row still knows its place.
    browser.value("scrollTo(0, 0)").await?;
    browser.until("table.first === 0").await?;
    let place = "(table.sortBy('name', !model.sort.down), [document.activeElement]\
                 .map((row) => row.ariaRowIndex - table.rows.indexOf(row.group)))";
    for _ in 0..2 {
        assert_eq!(browser.value(place).await?, json!([2]));
    }
    browser.close().await
}
