//! The layout of the page: one scale for all tenants, and bars only against limits.

use std::time::Duration;

use serde_json::{Value, json};
use submeter::Rate;

use crate::shown::{Outcome, shown};

/// One pile above the table shows all tenants on one scale.
#[tokio::test]
async fn one_pile_shows_all_tenants_on_one_scale() -> Outcome {
    let Some((program, browser)) = shown().await? else { return Ok(()) };
    browser.until("band.parts !== null && !band.box.hidden").await?;
    // No line of a row has a scale of its own, and the pile takes the width of the page.
    assert_eq!(browser.value("document.querySelectorAll('#rows .spark').length").await?, 0);
    let places = "(() => { const [pile, rows, page] = [band.slider, table.grid, band.box]\
                  .map((node) => node.getBoundingClientRect()); \
                  return [pile.bottom < rows.top, pile.bottom < innerHeight / 2, \
                  pile.width > page.width * 0.6]; })()";
    assert_eq!(browser.value(places).await?, json!([true, true, true]));
    // As high as the figure, for each tenant, in the busiest second.
    for (path, requests) in [("/acme", 9000), ("/beta/one", 2500)] {
        program.tenant(path, requests);
    }
    // Lines with a colour; one of their places may be free.
    let lines = "band.values.slice(0, BANDS).map((line, i) => [line, i])\
                 .filter(([line]) => line && line.some(Boolean))";
    let most = format!("Math.max(0, ...{lines}.flatMap(([line]) => line))");
    browser.until(&format!("{most} > 5000")).await?;
    let heights = format!(
        "{lines}.map(([line, i]) => {{ \
           const at = line.indexOf(Math.max(...line)); \
           const path = band.parts[i].path.getAttribute('d').slice(1, -1).split('L')\
             .map((point) => Number(point.split(' ')[1])); \
           const above = path[at], below = path[path.length - 1 - at]; \
           return [(below - above) / 100 * band.most, line[at], band.most / 500]; }})"
    );
    let heights = browser.value(&heights).await?;
    assert!(heights.as_array().is_some_and(|all| all.len() > 1), "{heights}");
    for of in heights.as_array().ok_or("a list")? {
        let [drawn, is, off] = [0, 1, 2].map(|at| of[at].as_f64().unwrap_or(f64::NAN));
        assert!(is > 0.0 && (drawn - is).abs() <= off, "{heights}");
    }
    browser.close().await
}

/// A bar shows how much of a limit is used; without a limit there is no bar.
#[tokio::test]
async fn a_bar_is_the_used_part_of_a_limit() -> Outcome {
    let Some((program, browser)) = shown().await? else { return Ok(()) };
    let tenant = program.tenant("/acme", 1);
    let held = tenant.try_charge(program.memory, 1 << 18).expect("it is a fourth");
    let bars = "[...table.nodes.values()].sort((a, b) => a.ariaRowIndex - b.ariaRowIndex)\
                .flatMap((row) => [...row.querySelectorAll('.meter')].filter((bar) => !bar.hidden)\
                .map((bar) => [row.group.path, bar.firstChild.style.width]))";
    browser.until(&format!("{bars}.some(([, width]) => parseFloat(width) > 20)")).await?;
    let Value::Array(bars) = browser.value(bars).await? else { return Err("a list".into()) };
    let widths: Vec<(&str, f64)> = bars
        .iter()
        .map(|bar| {
            let width = bar[1].as_str().unwrap_or_default().trim_end_matches('%');
            (bar[0].as_str().unwrap_or_default(), width.parse().unwrap_or(0.0))
        })
        .collect();
    let wanted = [("/acme", 25.0), ("/beta/one", 0.0), ("/beta/two", 0.0), ("/gone", 0.0)];
    assert_eq!(widths, wanted, "the root and /beta have no limit");
    drop(held);
    browser.close().await
}

#[tokio::test]
async fn a_phone_has_room_for_use_of_each_limit() -> Outcome {
    let Some((program, browser)) = shown().await? else { return Ok(()) };
    let tenant = program.tenant("/acme", 1);
    let rate = Rate::new(500, Duration::from_secs(1));
    tenant.set_rate(program.rate, Some(rate)).expect("it can be kept");
    let held = tenant.try_charge(program.memory, 1 << 18).expect("it is a fourth");
    browser.resize(390, 800).await?;
    // Rows that are made there, too, end at the edge.
    browser.until("matchMedia('(max-width: 720px)').matches && model.columns[0].bound").await?;
    let ends = "(table.nodes.forEach((row) => row.remove()), table.nodes.clear(), table.paint(), \
                [...table.nodes.values()].filter(({ cells: { cells: [{ node }] } }) => \
                parseFloat(getComputedStyle(node).paddingRight) > 0).length)";
    assert_eq!(browser.value(ends).await?, 0);
    let row = "(() => { const row = [...table.nodes.values()]\
               .find((row) => row.group.path === '/acme'), { sub, label } = row.cells; \
               return [sub.textContent.replaceAll('\\u202f', ' '), \
               [sub, label].every((one) => one.scrollWidth <= one.clientWidth)]; })()";
    let mut refused = Value::Null;
    for _ in 0..100 {
        // With the time that all take, there is no room for both.
        program.tenant("/acme", 12_345);
        tenant.record(program.latency, 123_456);
        tenant.try_charge(program.memory, 1 << 20).expect_err("over its limit");
        tokio::time::sleep(Duration::from_millis(100)).await;
        refused = browser.value(row).await?;
        if refused[0].as_str().is_some_and(|sub| sub.contains("refused")) {
            break;
        }
    }
    let sub = refused[0].as_str().unwrap_or_default();
    assert!(sub.ends_with("/s memory refused · 256 KiB of 1.00 MiB"), "{refused}");
    assert_eq!(refused[1], true, "none is cut: {refused}");
    let calm = "256 KiB of 1.00 MiB · limit 500";
    browser.until(&format!("{row}[0] === '{calm}' && {row}[1]")).await?;
    drop(held);
    browser.close().await
}

/// Each tile has its line, and none has a bar that is always full.
#[tokio::test]
async fn each_tile_has_a_line_and_no_full_bar() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    let tiles = "[...document.querySelectorAll('.tile')]\
                 .map((tile) => [tile.querySelectorAll('.spark .line').length, \
                 tile.querySelectorAll('.meter').length])";
    let Value::Array(tiles) = browser.value(tiles).await? else { return Err("a list".into()) };
    assert!(tiles.len() >= 3 && tiles.iter().all(|of| *of == json!([1, 0])), "{tiles:?}");
    // Beside a title on a phone there is no room for the least and the most.
    browser.resize(390, 800).await?;
    let over = "tiles.all.map(({ note }) => { note.textContent = '51.0 MiB – 53.0 MiB'; \
                const title = note.parentNode.firstChild; const text = document.createRange(); \
                text.selectNodeContents(title); \
                const [a, b] = [text, note].map((one) => one.getBoundingClientRect()); \
                return a.bottom > b.top && a.right > b.left; })";
    let over = browser.value(over).await?;
    assert!(over.as_array().is_some_and(|all| all.iter().all(|one| *one == false)), "{over}");
    browser.close().await
}

/// All of the pile is told in one unit: the parts of what the process used, which add up.
#[tokio::test]
async fn the_parts_of_the_pile_add_up() -> Outcome {
    let Some((program, browser)) = shown().await? else { return Ok(()) };
    for (path, requests) in [("/acme", 9000), ("/beta/one", 2500)] {
        program.tenant(path, requests);
    }
    browser.until("band.parts && band.parts.filter(({ item }) => !item.hidden).length > 1").await?;
    browser.press(['p']).await?;
    browser.until("link.isPaused").await?;
    // As of a program that charges CPU time, half of which belongs to no tenant.
    let told = "(() => { \
        const root = model.rootHistory[model.divided.key].map((value) => value || 0); \
        model.process = root.map((value) => 2 * value + 1); \
        model.divided = { ...model.divided, shape: 'cores', as: SHAPES.cores }; \
        model.rootHistory[model.divided.key] = root; \
        band.paint(); moment.set(root.length - 1 - root.indexOf(Math.max(...root))); \
        return band.parts.filter(({ item }) => !item.hidden) \
          .map(({ figures }) => figures.textContent); })()";
    let told = browser.value(told).await?;
    let parts: Vec<f64> = told
        .as_array()
        .ok_or("a list")?
        .iter()
        .map(|part| part.as_str().and_then(|part| part.strip_suffix('%')?.parse().ok()))
        .collect::<Option<_>>()
        .ok_or_else(|| format!("parts: {told}"))?;
    assert!(parts.len() > 2 && (parts.iter().sum::<f64>() - 100.0).abs() < 0.5, "{told}");
    assert!(parts.last().is_some_and(|nobody| *nobody >= 50.0), "{told}");
    // All tenants have a colour: there are no others, unless rounding does not explain what is
    // missing.
    let others = "[0.0003, 0.01].map((more) => { \
        const root = model.rootHistory[model.divided.key]; \
        model.rootHistory[model.divided.key] = root.map((value) => value + more); \
        band.paint(); model.rootHistory[model.divided.key] = root; \
        return !band.parts[BANDS].item.hidden; })";
    assert_eq!(browser.value(others).await?, json!([false, true]));
    browser.close().await
}

/// Beside a badge the name of a tenant deep in the tree stays whole.
#[tokio::test]
async fn a_badge_gives_way_to_the_name() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    browser.resize(1400, 900).await?;
    // The least that a name gets there.
    let whole = "(() => { const row = [...table.nodes.values()] \
        .find((row) => row.group.path === '/beta/one'), { label, mark } = row.cells; \
        row.style.setProperty('--depth', 3); label.parentNode.style.width = '231px'; \
        label.textContent = 'tenant4'; mark.textContent = 'waits for room'; \
        const edge = label.parentNode.getBoundingClientRect().right; \
        const badge = mark.getBoundingClientRect(); \
        return [label.scrollWidth <= label.clientWidth, \
          badge.width >= 24 && badge.right <= edge]; })()";
    assert_eq!(browser.value(whole).await?, json!([true, true]));
    browser.close().await
}

/// Where the system chooses the colours, those that tell tenants apart stay, and marks are drawn in
/// the system's.
#[tokio::test]
async fn forced_colours_keep_every_mark() -> Outcome {
    let Some((program, browser)) = shown().await? else { return Ok(()) };
    let held = program.tenant("/acme", 1).try_charge(program.memory, 1 << 18).expect("a fourth");
    for (path, requests) in [("/acme", 9000), ("/beta/one", 2500)] {
        program.tenant(path, requests);
    }
    browser.until("band.parts && band.parts.filter(({ item }) => !item.hidden).length > 1").await?;
    for scheme in ["light", "dark"] {
        let features = json!([
            { "name": "forced-colors", "value": "active" },
            { "name": "prefers-color-scheme", "value": scheme },
        ]);
        let media = json!({ "features": features });
        browser.devtools("Emulation.setEmulatedMedia", media).await?;
        browser.until("matchMedia('(forced-colors: active)').matches").await?;
        browser.value("model.selected || detail.open('/acme')").await?;
        browser.until("document.querySelectorAll('#detail [role=tab]').length > 1").await?;
        // Swatches and dots differ from each other, and nothing is as what is behind it.
        let same = "(() => { \
            model.judged({ verdicts: [{ kind: 'takes', group: '/acme', text: '', short: '', \
              why: '', since_ms: model.at - 9000 }], earlier: [] }); band.paintMarks(); \
            const all = (of) => [...document.querySelectorAll(of)] \
              .filter((one) => one.offsetWidth > 0); \
            const colour = (one) => getComputedStyle(one).backgroundColor; \
            const base = colour(document.documentElement), bad = []; \
            const swatches = all('.legend-list li i, .legend i'); \
            for (const one of [...swatches, ...all('.dot, .marks i, .state i')]) \
              if (colour(one) === base || /, 0\\)/.test(colour(one))) bad.push(one.className || one.parentNode.className); \
            const own = all('.legend-list li i').map(colour); \
            if (new Set(own).size !== own.length || own.length < 2) bad.push('swatches'); \
            for (const meter of all('.meter')) if (colour(meter.firstChild) === colour(meter) \
              || getComputedStyle(meter).borderTopWidth === '0px') bad.push('meter'); \
            const differ = (a, b) => ['borderLeftColor', 'borderLeftWidth', 'backgroundColor'] \
              .some((name) => getComputedStyle(a)[name] !== getComputedStyle(b)[name]); \
            if (!differ(...['true', 'false'].map((is) => \
              document.querySelector(`.r[aria-selected=${is}]`)))) bad.push('row'); \
            if (!differ(...['true', 'false'].map((is) => \
              document.querySelector(`.tabs [aria-selected=${is}]`)))) bad.push('tab'); \
            return bad; })()";
        assert_eq!(browser.value(same).await?, json!([]), "{scheme}");
    }
    drop(held);
    browser.close().await
}

/// However narrow the table, it shows the column that it is sorted by.
#[tokio::test]
async fn the_sorted_column_is_shown() -> Outcome {
    let Some((_program, browser)) = shown().await? else { return Ok(()) };
    let hidden = "(table.grid.style.width = '660px', table.fit(), \
                  model.columns.filter((column, i) => { table.sortBy(column.key); \
                  return document.querySelector(`.head .v${i}`).offsetWidth === 0; }) \
                  .map(({ key }) => key))";
    assert_eq!(browser.value(hidden).await?, json!([]));
    let narrow = "document.querySelectorAll('.head > div').length > \
                  [...document.querySelectorAll('.head > div')].filter((one) => one.offsetWidth).length";
    assert_eq!(browser.value(narrow).await?, true, "some do not fit");
    browser.close().await
}
