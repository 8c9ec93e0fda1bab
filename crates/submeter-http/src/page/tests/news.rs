//! What the page says of who harms whom, run by node.

use std::process::Command;

/// Runs the parts of the page that need no document, and then `test`, which fails by an exception.
fn run(test: &str) {
    let script = [
        "\"use strict\"; const location = { pathname: '/' };",
        include_str!("../client/visible.js"),
        include_str!("../client/format.js"),
        include_str!("../client/draw.js"),
        include_str!("../client/model.js"),
        include_str!("../client/news.js"),
        "const assert = require('node:assert');",
        test,
    ]
    .join("\n");
    match Command::new("node").args(["-e", &script]).output() {
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{error}");
        }
        Err(e) => println!("skipped: the page's scripts: {e}; install node (nodejs.org)"),
    }
}

#[test]
fn a_page_told_of_other_metrics_loads_anew() {
    run(r"
        let loads = 0;
        location.reload = () => { loads++; };
        const full = (views, schema) => {
            model.full({ groups: [], lines: [], process: [], server: {}, schema, views, number: 0, at_ms: 0 });
            return loads;
        };
        const view = { key: 'r', title: 'R', shape: 'rate', place: 'headline' };
        assert.equal(full([view], [{ name: 'jobs' }]), 0);
        assert.equal(full([view], [{ name: 'jobs' }]), 0, 'as it was');
        assert.equal(full([view], [{ name: 'jobs' }, { name: 'db_queries' }]), 1);
        assert.equal(full([], [{ name: 'jobs' }]), 2);
        ");
}

/// A spike does not flatten its line, and a burst that lasts is not cut.
#[test]
fn a_spike_flattens_no_line() {
    run(r"
        const calm = Array(57).fill(10);
        assert.equal(ceiling([...calm, 9000, 10, null], 1), 40, 'a spike');
        assert.equal(ceiling([...calm, 12], 1), 12 * 1.08, 'nothing to cut');
        assert.equal(ceiling([...Array(35).fill(10), ...Array(25).fill(900)], 1), 900 * 1.08, 'a burst');
        assert.equal(ceiling([0, 0, 5], 100), 100, 'noise');
        assert.equal(ceiling([], 0), 1, 'nothing');
        ");
}

#[test]
fn above_a_processor_is_above_100_percent() {
    run(r"
        const cores = (n) => format.text(SHAPES.cores.show(n)).replace(NBSP, ' ');
        assert.deepEqual([0, 0.099, 1, 1.7, 31.5].map(cores), ['0 %', '9.9 %', '100 %', '170 %', '3150 %']);
        ");
}

#[test]
fn rows_change_places_at_a_fifth_more_only() {
    run(r"
        const view = { key: 'r', title: 'R/s', shape: 'rate', place: 'headline' };
        const order = (figures) => {
            [...model.groups.values()].slice(1).forEach((group, i) => { group.row = [figures[i]]; });
            model.number++;
            const names = model.rows().slice(1).map((group) => group.name).join('');
            return [names, model.isHeld];
        };
        const groups = [[0, null, '', [0]], ...['a', 'b', 'c'].map((name, i) => [i + 1, 0, name, [0]])];
        model.full({ groups, lines: [], process: [], server: {}, schema: [], views: [view], number: 0, at_ms: 0 });
        assert.deepEqual(order([30, 20, 10]), ['abc', false]);
        assert.deepEqual(order([30, 33, 10]), ['abc', true], 'a tenth more');
        assert.deepEqual(order([30, 37, 10]), ['bac', false]);
        assert.deepEqual(order([10, 11, 90]), ['cba', false]);
        model.sort = { key: 'r', down: false };
        assert.deepEqual(order([10, 11, 90]), ['abc', false], 'another order begins anew');
        ");
}

#[test]
fn a_filter_leaves_rows_out_and_moves_none() {
    run(r"
        const view = { key: 'r', title: 'R/s', shape: 'rate', place: 'headline' };
        const groups = [[0, null, '', [0]], ...['a1', 'b', 'c1'].map((name, i) => [i + 1, 0, name, [30 - i]])];
        model.full({ groups, lines: [], process: [], server: {}, schema: [], views: [view], number: 0, at_ms: 0 });
        const names = () => model.rows().slice(1).map((group) => group.name).join();
        assert.equal(names(), 'a1,b,c1');
        let sorted = 0;
        const { sorted: sort } = model;
        model.sorted = (...of) => { sorted++; return sort.apply(model, of); };
        for (const [filter, left] of [['1', 'a1,c1'], ['b', 'b'], ['', 'a1,b,c1']]) { model.filter = filter; assert.equal(names(), left); }
        assert.equal(sorted, 0, 'once for each message');
        model.tick({ gone: [], new: [[4, 0, 'd', [99]]], rows: [], number: 1, at_ms: 1, process: 0 });
        assert.equal(names(), 'd,a1,b,c1');
        ");
}

/// Rows that come ahead of their tick are shown with it, and those of a broken stream are not.
#[test]
fn rows_are_shown_with_their_tick() {
    run(r"
        const view = { key: 'r', title: 'R/s', shape: 'rate', place: 'headline' };
        const groups = [[0, null, '', [0]], [1, 0, 'a', [1]], [2, 0, 'b', [2]]];
        const full = () => model.full({ groups, lines: [], process: [], server: {}, schema: [], views: [view], number: 0, at_ms: 0 });
        const shown = () => [1, 2].map((id) => model.groups.get(id).row[0]);
        const tick = (rows) => model.tick({ gone: [], new: [], rows, number: 1, at_ms: 1, process: 0 });
        full();
        model.ahead.push([[1, [10]]]);
        assert.deepEqual(shown(), [1, 2]);
        tick([[2, [20]]]);
        assert.deepEqual(shown(), [10, 20]);
        model.ahead.push([[1, [77]]]);
        full();
        tick([]);
        assert.deepEqual(shown(), [1, 2]);
        ");
}

/// Refusals are one column, and a rate has its limit beside it.
#[test]
fn what_is_refused_is_one_column() {
    run(r"
        const view = (key, more) => ({ key, title: `${key}/s`, shape: 'rate', place: 'table', limit: null, ...more });
        const views = [view('requests', { place: 'headline', limit: 'rate' }), view('rate', { place: 'nowhere' }),
            view('over rate', { is_refusal: true, is_trouble: true }), view('over CPU', { is_refusal: true, is_trouble: true })];
        const groups = [[0, null, '', [9, null, 7, 2]], [1, 0, 'a', [9, 10, 7, 2]]];
        model.full({ groups, lines: [], process: [], server: {}, schema: [], views, number: 0, at_ms: 0 });
        assert.deepEqual(model.columns.map((column) => column.title), ['requests/s', 'Refused/s, by']);
        const [requests, refused] = model.columns, tenant = model.groups.get(1);
        assert.equal(model.get(tenant, refused), 9);
        assert.deepEqual(refused.of.filter((one) => model.get(tenant, one)).map((one) => one.key), ['over rate', 'over CPU']);
        assert.equal(model.get(tenant, requests.limit), 10);
        assert(requests.bound, 'there is room for it');
        ");
}

/// A line has a point for each second, however many samples there were.
#[test]
fn a_line_has_a_point_for_each_second() {
    run(r"
        Object.assign(model, { at: 100_000, times: [70_000, 90_000, 99_000, 100_000] });
        const line = model.seconds([1, 2, 3, 4]);
        assert.equal(line.length, SLOTS);
        assert.deepEqual([0, 1, 2, 10, 11, 30, 31].map((ago) => line[SLOTS - 1 - ago]), [4, 3, 2, 2, 1, 1, null]);
        assert.deepEqual(model.seconds([7], 0).slice(-3), [0, 0, 7], 'a late comer');
        ");
}

#[test]
fn names_are_shown_as_the_library_shows_them() {
    use submeter::{is_hidden, visible};
    // Every character that does not stay as it is, alone between letters.
    let all = (0..=0x10_ffff).filter_map(char::from_u32);
    let changed = all.filter(|c| visible(&format!("a{c}b")).to_string() != format!("a{c}b"));
    let changed: Vec<(u32, bool)> = changed.map(|c| (c.into(), is_hidden(c))).collect();
    let mut names: Vec<String> =
        [" ", "  ", "/", "a b", "a  b", " a ", "/a /b", "/a/ b"].map(str::to_owned).into();
    names.extend(
        [r"a\u{20}", r"a\u", r"\\u{1}", "a\u{e0041}b", "", "/שלום/42", "é😀\u{fe0f}"]
            .map(str::to_owned),
    );
    let shown: Vec<(&str, String)> =
        names.iter().map(|name| (name.as_str(), visible(name).to_string())).collect();
    let changed = serde_json::to_string(&changed).expect("JSON");
    let shown = serde_json::to_string(&shown).expect("JSON");
    run(&format!(
        r"
        const changed = new Map({changed});
        for (let n = 0; n < 0x110000; n++) {{
            if (n >= 0xd800 && n < 0xe000) continue;
            const c = String.fromCodePoint(n), to = `a${{escaped(c)}}b`;
            if (visible(`a${{c}}b`) !== (changed.has(n) ? to : `a${{c}}b`)) assert.fail(to);
            if (plain(`a${{c}}b`) !== (changed.get(n) ? to : `a${{c}}b`)) assert.fail(to);
        }}
        for (const [name, seen] of {shown}) assert.equal(visible(name), seen);
        "
    ));
}

/// A name reverses no sentence, and no two look alike.
#[test]
fn a_name_turns_no_sentence_around() {
    run(r"
        const made = (tag, ...children) => ({ tag, children, append(...more) { children.push(...more); }, contains: () => false,
            classList: { toggle() {} }, get firstChild() { return this.children[0]; } });
        const by = { news: made(), 'news-said': made(), earlier: { lastElementChild: made() } };
        globalThis.document = { getElementById: (id) => by[id], activeElement: null };
        globalThis.setText = (node, text) => { node.text = plain(text); };
        globalThis.arrange = (box, nodes) => { box.children = nodes; };
        globalThis.setAttr = (node, name, value) => { node[name] = value; };
        globalThis.el = (tag, _, ...children) => made(tag, ...children);
        const names = ['\u202e acme-bank', 'ac\u200bme', 'acme', 'acme '];
        const view = { key: 'r', title: 'Requests/s', shape: 'rate', place: 'headline' };
        model.full({ groups: [[0, null, '', [0]], ...names.map((n, i) => [i + 1, 0, n, [4 - i]])],
            lines: [], process: [], server: {}, schema: [], views: [view], number: 0, at_ms: 9000,
            verdicts: [{ kind: 'waits', group: '/\u202e acme-bank', text: ' waits 9 ms.', short: ' waits.', why: '\u202ewhy 9\u00a0ms' }],
            marks: [[1, 'waits'], [1, 'refused'], [2, 'bursts']],
            earlier: [{ kind: 'bursts', group: '/acme', text: ' burst.', since_ms: 1000, ended_ms: 4000 }] });
        news.paint();
        const [name, text, , , why] = by.news.children[0].children;
        assert.deepEqual([name.firstChild.tag, name.firstChild.text, text.text], ['bdi', '/\\u{202e} acme-bank', ' waits 9 ms.']);
        assert.equal(why.text, '\\u{202e}why 9\u00a0ms', 'a sentence, not a name');
        assert.equal(by['news-said'].text, '/\\u{202e} acme-bank waits.');
        assert.match(by.earlier.lastElementChild.children[0].children[1].text, /^ burst\. \d/);
        assert.deepEqual([...news.marks], [[1, 'waits'], [2, 'bursts']], 'the worst of each');
        assert.equal(new Set([...model.groups.values()].map((group) => group.title)).size, 5);
        assert.ok(model.byPath('/ac\u200bme'), 'asked for by its own name');
        ");
}

/// A copied command has the token's header if one is required.
#[test]
fn a_copied_command_has_the_tokens_header() {
    run(r#"
        const of = (token) => curl('http://h/api/limit?path=%2Fa', `it's`, token);
        assert.equal(of(), String.raw`curl -H 'X-Submeter: 1' --data-raw 'it'\''s' 'http://h/api/limit?path=%2Fa'`);
        assert.equal(of(true), of().replace(' --data', ' -H "Authorization: Bearer $TOKEN" --data'));
        "#);
}
