//! What the page says of who hurts whom, run by node.

use std::process::Command;

/// Runs the parts of the page that need no document, and then `test`, which fails by an exception.
fn run(test: &str) {
    let script = [
        "\"use strict\"; const location = { pathname: '/' };",
        include_str!("../page/visible.js"),
        include_str!("../page/format.js"),
        include_str!("../page/draw.js"),
        include_str!("../page/model.js"),
        include_str!("../page/news.js"),
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

/// Shows rates of tenants second by second; `path` sums up what is said.
const SCENE: &str = r"
model.declare([{ key: 'r', title: 'Requests/s', shape: 'rate', place: 'headline' },
    { key: 'o', title: 'Over/s', shape: 'rate', place: 'table', is_trouble: true },
    { key: 's', title: 'Stalls', shape: 'share', place: 'table', is_trouble: true, is_pressure: true },
    { key: 'f', title: 'Failed', shape: 'share', place: 'table', is_trouble: true }]);
const lines = { a: [], b: [], c: [] };
model.full({ groups: [[0, null, '', [0, 0, 0, 0]],
        ...Object.keys(lines).map((n, i) => [i + 1, 0, n, [0, 0, 0, 0]])],
    lines: [], server: {}, schema: [], views: model.views, number: 0, at_ms: 0 });
const second = (a, b, c, over, stalls, failed) => {
    const row = (id, r, o, s, f) => [id, [r, o || 0, s || 0, f || 0]];
    model.tick({ gone: [], new: [], number: 0, at_ms: model.at + 1000,
        rows: [row(0, a + b + c), row(1, a), row(2, b, over), row(3, c, 0, stalls, failed)] });
    return news.hold(judge(model));
};
const times = (n, ...rates) => { let said; for (let i = 0; i < n; i++) said = second(...rates); return said; };
const say = (found, figures) => sentences(found, figures).map((parts) => parts.join(''));
const who = (list) => list.map(({ group }) => group.path).join();
";

fn says(test: &str) {
    run(&[SCENE, test].concat());
}

#[test]
fn a_page_that_is_told_of_other_metrics_loads_anew() {
    run(r"
        let loads = 0;
        location.reload = () => { loads++; };
        const full = (views, schema) => {
            model.full({ groups: [], lines: [], server: {}, schema, views, number: 0, at_ms: 0 });
            return loads;
        };
        const view = { key: 'r', title: 'R', shape: 'rate', place: 'headline' };
        assert.equal(full([view], [{ name: 'jobs' }]), 0);
        assert.equal(full([view], [{ name: 'jobs' }]), 0, 'as it was');
        assert.equal(full([view], [{ name: 'jobs' }, { name: 'db_queries' }]), 1);
        assert.equal(full([], [{ name: 'jobs' }]), 2);
        ");
}

#[test]
fn who_bursts_is_named_with_who_gets_less_and_who_recovers_is_not_blamed() {
    says(
        r"
        for (let period = 0; period < 9; period++) {
            const calm = times(5, 3000, 400, 300);
            if (period) {
                assert.equal(who(calm.bursts), '/c', 'held for some seconds');
                assert.match(say(calm, true)[0], /^\/c burst 4.s ago: 78.% of all/, 'its worst');
                assert.match(say(calm, true)[1], /^\/a got less: 67.% below/);
            }
            assert.equal(calm.ago === undefined, period === 0);
            const burst = times(3, 1000, 400, 5000);
            assert.equal(who(burst.bursts), '/c', 'period ' + period);
            assert.equal(who(burst.suffers), '/a', 'period ' + period);
            assert.match(say(burst, true)[0], /^\/c bursts: 78.% of all Requests\/s, 16.7 times/);
            assert.match(say(burst, true)[1], /^\/a gets less: 67.% below usual/);
        }
        assert.equal(times(8, 3000, 400, 300).bursts.length, 0, 'over');
        assert.equal(times(3, 1000, 400, 300).suffers.length, 0, 'less to do is no harm');
        ",
    );
}

#[test]
fn who_is_refused_is_named_while_it_is() {
    says(
        r"
        assert.deepEqual(say(second(10, 20, 30, 7), true), ['/b is refused: 7 Over/s.']);
        assert.deepEqual(say(second(10, 20, 30, 7), false), ['/b is refused.']);
        assert.deepEqual(say(second(10, 20, 30, 0), true), []);
        ",
    );
}

#[test]
fn who_waits_for_room_is_named_until_its_average_is_noise() {
    says(
        r"
        assert.match(say(second(10, 20, 30, 0, 0.37), true)[0], /^\/c waits for room: 37.% of the last 10.s\.$/);
        assert.deepEqual(say(second(10, 20, 30, 0, 0.37), false), ['/c waits for room.']);
        assert.equal(who(second(10, 20, 30, 0, 0.01).stalls), '/c');
        assert.deepEqual(say(second(10, 20, 30, 0, 0.009), true), []);
        assert.deepEqual(say(second(10, 20, 30, 0, 0, 0.5), true), [], 'another share is no stall');
        ",
    );
}

#[test]
fn a_spike_does_not_flatten_its_line_and_a_burst_that_lasts_is_not_cut() {
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
fn names_are_shown_as_the_library_shows_them() {
    use submeter::{is_hidden, visible};
    // Whatever does not stay as it is, alone between letters.
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

#[test]
fn a_name_turns_no_sentence_around_and_none_looks_like_another() {
    run(r"
        model.declare([{ key: 'r', title: 'Requests/s', shape: 'rate', place: 'headline' },
            { key: 'o', title: 'Over/s', shape: 'rate', place: 'table', is_trouble: true }]);
        const names = ['\u202e acme-bank', 'ac\u200bme', 'acme', 'acme '];
        model.full({ groups: [[0, null, '', [0, 0]], ...names.map((n, i) => [i + 1, 0, n, [0, 4 - i]])],
            lines: [], server: {}, schema: [], views: model.views, number: 0, at_ms: 0 });
        const [said] = sentences(judge(model), true);
        assert.deepEqual(said, ['/\\u{202e} acme-bank', ' and 3 more are refused: 4 Over/s.']);
        assert.equal(new Set([...model.groups.values()].map((group) => group.title)).size, 5);
        assert.ok(model.byPath('/ac\u200bme'), 'asked for by its own name');
        ");
}
