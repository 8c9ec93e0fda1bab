//! Tests of frames, as text.

use anstyle::{AnsiColor, Effects};
use submeter_http::wire::{Figure, Placement, ValueDoc, VerdictDoc, VerdictKind};

use super::layout::Layout;
use super::once;
use super::screen::Screen;
use super::state::{Action, Column, State};
use super::state_tests::{GROUPS, kept, state, tree};
use super::theme::Theme;
use super::view::draw;

fn frame(state: &State, width: u16, height: u16) -> (Vec<String>, Screen) {
    let (lines, screen, _) = frame_with_layout(state, width, height);
    (lines, screen)
}

fn frame_with_layout(state: &State, width: u16, height: u16) -> (Vec<String>, Screen, Layout) {
    let (mut screen, mut layout) = (Screen::new(width, height), Layout::default());
    draw(&mut screen, state, Theme::colored(), &mut layout);
    let line = |y| screen.text(y).trim_end().to_owned();
    ((0..usize::from(height)).map(line).collect(), screen, layout)
}

#[test]
fn a_wide_terminal_shows_every_column() {
    let mut state = state();
    state.update(tree(&GROUPS));
    let (lines, _) = frame(&state, 126, 12);
    #[rustfmt::skip]
    let expected = [
        "submeter  127.0.0.1:11211  up 1 min 15 s                                                                                  live",
        "requests/s 2.10k   p99 180 µs   hits 92.5 %   CPU 21.0 %   memory 2.05 MiB of 4.00 MiB   refused/s 0   tenants 4",
        "                                                                                                                            ██",
        "requests/s of All tenants, up to 2.10k",
        "Tenant                                                   Requests/s ▼      p99    Hits     CPU     Memory  Refused/s     Items",
        "▾ All tenants                                          ██       2.10k   180 µs  92.5 %  21.0 %   2.05 MiB          0     2,100",
        "    b                                                  ██       1.20k   180 µs  92.5 %  12.0 %   1.17 MiB         12     1,200",
        "  ▾ a                                                  ██         900   180 µs  92.5 %   9.0 %    900 KiB          0       900",
        "      y                                                ██         600   180 µs  92.5 %   6.0 %    600 KiB          0       600",
        "      x                                                ██         300   180 µs  92.5 %   3.0 %    300 KiB          0       300",
        "    c                                                  ▁▁           0        –       –     0 %        0 B          0         0",
        "↑↓ move   ←→ fold   / filter   s sort   c columns   d detail   ? help   q quit",
    ];
    assert_eq!(lines, expected, "\n{}\n", lines.join("\n"));
}

#[test]
fn a_narrow_terminal_shows_the_main_columns() {
    let mut state = state();
    state.act(Action::SortBy(Column::Name));
    state.act(Action::CloseAll);
    let (lines, _) = frame(&state, 48, 10);
    let expected = [
        "submeter  127.0.0.1:11211  up 1 min 15 s    live",
        "requests/s 2.10k   p99 180 µs   hits 92.5 %",
        "                                               █",
        "requests/s of All tenants, up to 2.10k",
        "Tenant ▲                     Requests/s      p99",
        "▾ All tenants                     2.10k   180 µs",
        "  ▸ a (2)                           900   180 µs",
        "    b                             1.20k   180 µs",
        "    c                                 0        –",
    ];
    assert_eq!(lines[..9], expected, "\n{}\n", lines.join("\n"));
}

fn verdict(kind: VerdictKind, group: &str, text: &str) -> VerdictDoc {
    let [group, text] = [group, text].map(str::to_owned);
    let [short, why] = [(); 2].map(|()| String::new());
    let (tenants, since_ms) = (1, 0);
    VerdictDoc { kind, group, tenants, text, short, why, remedy: None, since_ms, ended_ms: None }
}

#[test]
fn who_is_harmed_is_said_above_the_graph() {
    let mut doc = tree(&GROUPS);
    doc.verdicts = vec![
        verdict(VerdictKind::Takes, "/a", " takes most:\u{a0}9\u{1b}."),
        verdict(VerdictKind::Waits, "/\u{202e}b", " waits."),
    ];
    let mut state = state();
    state.update(doc);
    let (lines, screen) = frame(&state, 80, 12);
    assert_eq!(lines[2], r"/a takes most: 9\u{1b}.  /\u{202e}b waits.");
    let style = |x| screen.cell(x, 2).1;
    assert_eq!(style(0), Theme::colored().bad);
    assert_eq!(style(30), Theme::colored().warn);
    assert_eq!(lines[4], "requests/s of All tenants, up to 2.10k");
    assert!(lines[5].starts_with("Tenant"), "{}", lines[5]);
    assert!(lines[8].starts_with("  ▾!a "), "{lines:#?}");
    assert_eq!(screen.cell(3, 8), ("!", Theme::colored().bad));
    // Where there is room no sentence is cut; a low screen keeps the room for the rows.
    let (lines, screen) = frame(&state, 22, 24);
    assert_eq!(lines[2..5], ["/a takes most:", r"9\u{1b}.  /\u{202e}b", "waits."], "{lines:#?}");
    assert_eq!(screen.cell(0, 4).1, Theme::colored().warn);
    let (lines, _) = frame(&state, 22, 12);
    assert_eq!(lines[2], "/a takes most:…", "the rest has no room, and a word stays whole");
    assert!(lines[3].trim().chars().all(|c| !c.is_ascii_alphabetic()), "the graph: {lines:#?}");
    let (lines, _) = frame(&state, 14, 12);
    assert_eq!(lines[2], "/a takes…", "no room for the mark beside the last word");
    state.update(tree(&GROUPS));
    let (lines, _) = frame(&state, 80, 12);
    assert!(lines[4].starts_with("Tenant"), "no line where there is nothing to say: {lines:?}");
}

/// A usual terminal has room for the notice, the verdict and what is refused.
#[test]
fn a_usual_terminal_has_room_for_the_verdict() {
    let mut doc = tree(&GROUPS);
    for group in &mut doc.groups {
        group.overview.insert("refused_per_s".to_owned(), Figure(Some(15e3)));
    }
    doc.server.notice = Some("The bank learns.".to_owned());
    doc.verdicts = vec![verdict(VerdictKind::Refused, "/b", " is refused: over its rate.")];
    let mut state = state();
    state.update(doc);
    let lines = frame(&state, 80, 24).0;
    assert_eq!(lines[2..4], ["The bank learns.", "/b is refused: over its rate."]);
    assert!(lines[8].starts_with("Tenant") && lines[8].contains("Refused/s"), "{}", lines[8]);
    let row = lines.iter().find(|line| line.starts_with("   !b "));
    assert!(row.is_some_and(|row| row.contains("15.0k")), "{}", lines.join("\n"));
}

#[test]
fn a_tiny_terminal_does_not_panic() {
    let mut state = state();
    for (width, height) in [(1, 1), (8, 2), (20, 6), (300, 3)] {
        frame(&state, width, height);
    }
    for action in [Action::Help, Action::Choose, Action::Detail, Action::Detail] {
        state.act(action);
        for (width, height) in [(1, 1), (3, 3), (20, 9)] {
            frame(&state, width, height);
        }
    }
}

#[test]
fn the_selected_row_stands_out_and_stays_in_view() {
    let mut state = state();
    state.act(Action::Last);
    let (lines, screen) = frame(&state, 60, 9);
    // Three rows fit; the last is one of them.
    assert!(lines[7].trim_start().starts_with('c'), "{lines:?}");
    let is_inverted = |y| screen.cell(5, y).1.get_effects().contains(Effects::INVERT);
    assert!(is_inverted(7) && !is_inverted(6));
}

/// A lost server is reported at the top and the figures stay.
#[test]
fn a_lost_server_is_reported_and_figures_stay() {
    let mut state = state();
    state.set_lost("cannot reach http://x: nothing listens there; start it".to_owned());
    let (lines, _) = frame(&state, 80, 12);
    assert!(lines[0].contains("lost, retrying: cannot reach http://x"), "{lines:?}");
    assert!(lines[5].contains("All tenants"), "{lines:?}");
    let (lines, _) = frame(&State::new(), 80, 12);
    assert!(lines[5].contains("Waiting"), "{lines:?}");
}

#[test]
fn an_active_filter_is_shown() {
    let mut state = state();
    state.act(Action::Filter);
    state.act(Action::Type('y'));
    let (lines, _) = frame(&state, 80, 9);
    assert!(lines[8].starts_with("filter y█"), "{lines:?}");
    state.act(Action::Type('?'));
    let (lines, _) = frame(&state, 80, 9);
    assert!(lines[5].starts_with("No tenant's path contains this"), "{lines:?}");
}

#[test]
fn wide_characters_keep_the_columns() {
    let mut state = State::new();
    state.update(tree(&[("/", 1.0), ("/租户租户租户租户租户租户租户", 1.0), ("/b", 1.0)]));
    let (_, screen) = frame(&state, 48, 10);
    let unit = |y| (30..48).rev().find(|&x| screen.cell(x, y).0 == "s").expect("a p99");
    assert_eq!(unit(6), unit(7));
}

/// A name from right to left moves none of the figures beside it, whole or cut.
#[test]
fn names_from_right_to_left_keep_their_place() {
    let name = "سلام".repeat(9);
    let mut doc = tree(&[("/", 1.0), ("/שלום", 1.0), (&format!("/{name}"), 1.0), ("/b", 1.0)]);
    doc.verdicts = vec![verdict(VerdictKind::Waits, "/שלום", " waits.")];
    let mut state = State::new();
    state.update(doc);
    state.act(Action::SortBy(Column::Name));
    let (lines, screen) = frame(&state, 48, 24);
    assert_eq!(lines[2], "/\u{2068}שלום\u{2069} waits.");
    assert!(lines[10].starts_with("   !\u{2068}שלום\u{2069}    "), "{lines:#?}");
    assert!(lines[11].starts_with("    \u{2068}سلام") && lines[11].contains("…\u{2069} "));
    let unit = |y| (30..48).rev().find(|&x| screen.cell(x, y).0 == "s").expect("a p99");
    assert_eq!([9, 10].map(unit), [unit(11); 2], "as wide as the terminal shows it: {lines:#?}");
    state.act(Action::Last);
    state.act(Action::Move(-1));
    state.act(Action::Detail);
    let lines = frame(&state, 80, 40).0.join("\n");
    assert_eq!(lines.matches("/\u{2068}שלום\u{2069}").count(), 3, "with graph and detail: {lines}");
}

#[test]
fn once_prints_the_tree_as_a_table() {
    let text = anstream::adapter::strip_str(&once::table(&state())).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), GROUPS.len() + 1);
    assert!(lines[0].starts_with("tenant") && lines[0].ends_with("items"), "{text}");
    assert!(lines[0].contains("  memory limit  "), "of two quotas it says which: {text}");
    assert!(lines[1].starts_with('/') && lines[1].contains("2.10k"), "{text}");
    assert!(lines[4].starts_with("    y"), "{text}");
}

/// A tenant that waits for room is coloured until its average is noise.
#[test]
fn who_waits_for_room_has_a_colour() {
    let style = |share| {
        let mut tree = tree(&GROUPS);
        for view in &mut tree.views {
            (view.is_trouble, view.is_pressure) =
                (view.key == "hit_ratio", view.key == "hit_ratio");
        }
        for group in &mut tree.groups {
            group.overview.insert("hit_ratio".to_owned(), Figure(Some(share)));
        }
        let mut state = state();
        state.update(tree);
        let (lines, screen) = frame(&state, 126, 12);
        assert!(lines[6].contains(&format!("{:.1} %", share * 100.0)), "{}", lines[6]);
        let x = lines[6].chars().position(|c| c == '%').expect("a share");
        screen.cell(x, 6).1.get_fg_color()
    };
    assert_eq!([0.02, 0.004].map(style), [Some(AnsiColor::Yellow.into()), None]);
}

/// The graph grows with the terminal, and shows the limit at its top.
#[test]
fn the_graph_ends_at_the_limit() {
    let mut state = state();
    state.act(Action::SortBy(Column::View(4)));
    let half = 2.0 * 1024.0 * 1024.0;
    state.remember(kept("/", "memory_bytes", &[Some(0.0), None, Some(half), Some(2.0 * half)]));
    let (lines, _) = frame(&state, 40, 24);
    #[rustfmt::skip]
    assert_eq!(lines[2..6], [
        "                                       █",
        "                                      ▅█",
        "                                    ▁ ██",
        "memory of All tenants, up to 4.00 MiB, …",
    ], "\n{}\n", lines.join("\n"));
    let (lines, _) = frame(&state, 80, 50);
    assert_eq!(lines[24], "memory of All tenants, up to 4.00 MiB, its limit");
    assert!(lines[25].starts_with("Tenant "), "what the rows leave is the graph's");
}

#[test]
fn refusals_have_a_column_where_few_have_room() {
    let mut state = State::new();
    // From one second to the next, a column that appeared stays, so that none takes turns.
    for (at_s, refused, has_column) in
        [(0, 0.0, false), (1, 9.0, true), (2, 0.0, true), (60, 0.0, true), (61, 0.0, false)]
    {
        let mut doc = tree(&GROUPS);
        doc.at_ms += at_s * 1000;
        for group in &mut doc.groups {
            group.overview.insert("refused_per_s".to_owned(), Figure(Some(refused)));
        }
        state.update(doc);
        let heading = frame(&state, 60, 24).0[6].clone();
        assert_eq!(heading.contains("Refused/s"), has_column, "{at_s}: {heading}");
        assert_ne!(heading.contains("CPU"), has_column, "{at_s}: {heading}");
        assert!(heading.contains("Requests/s"), "after the first: {heading}");
    }
}

/// The detail shows every metric and what happened at its limit.
#[test]
fn the_detail_has_every_metric_and_its_limit() {
    let mut state = state();
    state.act(Action::Move(1));
    state.act(Action::Detail);
    let (lines, _) = frame(&state, 100, 30);
    #[rustfmt::skip]
    let expected = [
        "── /b ──────────────────────────────────────────────────────────────────────────────────────────────",
        "requests/s 1.20k   p99 180 µs   hits 92.5 %   CPU 12.0 %   memory 1.17 MiB   refused/s 12",
        "items 1,200",
        "Metric                           Total         Own  Per second",
        "Requests                       120,000     120,000       1.20k",
        "Latency                        120,000     120,000",
        "    p50 90.0 µs  p90 150 µs  p99 180 µs  p99.9 190 µs",
        "Memory                        1.14 MiB    1.14 MiB",
        "    limit 4.00 MiB, peak 2.29 MiB",
        "    12 refused, 2.00 KiB reclaimed, 1 times despite low",
        "    waited for room: some 2.5 % of 10 s, 0.5 % of a minute, 3.00 s in all; full 0.0 % of 10 s, 0.5 %",
        "    of a minute, 3.00 s in all",
    ];
    let at = lines.iter().position(|line| line.starts_with("── /b")).expect("the detail");
    assert_eq!(lines[at..at + 12], expected, "\n{}\n", lines.join("\n"));
    assert!(lines[11].contains("All tenants") && lines[12].contains('b'), "rows stay: {lines:?}");
}

/// Rows and the detail show each limit beside what it limits, also where the screen is small.
#[test]
fn limits_stand_beside_what_they_limit() {
    let mut doc = tree(&GROUPS);
    let (mut rate, mut cpu) = (doc.views[0].clone(), doc.views[3].clone());
    for (used, limit, key) in [(0, &mut rate, "rate"), (3, &mut cpu, "cpu_limit")] {
        (limit.key, limit.place) = (key.to_owned(), Placement::Nowhere);
        doc.views[used].limit = Some(key.to_owned());
    }
    doc.views.extend([rate, cpu]);
    let b = doc.groups.iter_mut().find(|group| group.path == "/b").expect("one of them");
    b.overview.extend(
        [("rate", 1200.0), ("cpu_limit", 0.25)]
            .map(|(key, limit)| (key.to_owned(), Figure(Some(limit)))),
    );
    let mut state = State::new();
    state.update(doc);
    let (lines, screen) = frame(&state, 80, 12);
    #[rustfmt::skip]
    assert_eq!(lines[5..8], [
        "▾ All tenants                  2.10k            180 µs  92.5 %  21.0 %",
        "    b                          1.20k of 1.20k   180 µs  92.5 %  12.0 % of 25.0 %",
        "  ▾ a                            900            180 µs  92.5 %   9.0 %",
    ]);
    assert_eq!(screen.cell(41, 6).1, Theme::colored().accent, "nothing is left");
    assert!(frame(&state, 120, 12).0[5].contains("2.05 MiB "), "that of all is among the totals");
    let used = |state: &State| {
        let (lines, _) = frame(state, 80, 30);
        let at = lines.iter().position(|line| line.starts_with("── ")).expect("a detail");
        lines[at + 1..].to_vec()
    };
    state.act(Action::Detail);
    assert_eq!(used(&state)[1], "memory 2.05 MiB of 4.00 MiB   refused/s 0   items 2,100");
    state.act(Action::Move(1));
    let expected = "requests/s 1.20k of 1.20k   p99 180 µs   hits 92.5 %   CPU 12.0 % of 25.0 %";
    assert_eq!(used(&state)[0], expected);
}

#[test]
fn time_that_was_waited_is_a_time_per_second() {
    let mut doc = tree(&GROUPS);
    doc.schema[0].unit = "nanoseconds".to_owned();
    doc.schema[0].name = "waited_ns".to_owned();
    doc.groups[0].values.insert("waited_ns".to_owned(), ValueDoc::Unsigned(9));
    doc.groups[0].rates.insert("waited_ns".to_owned(), 22.61e9);
    let mut state = State::new();
    state.update(doc);
    state.act(Action::Detail);
    let (lines, _) = frame(&state, 80, 30);
    let waited = lines.iter().find(|line| line.starts_with("Waited ns ")).expect("a metric");
    assert!(waited.ends_with(" 22.6 s"), "{waited}");
}

#[test]
fn own_is_what_no_living_group_below_has() {
    let doc = tree(&[("/", 2100.0), ("/a", 1000.0), ("/a/x", 300.0), ("/a/y", 600.0)]);
    let mut state = State::new();
    state.update(doc);
    state.act(Action::Move(1));
    state.act(Action::Detail);
    let (lines, _) = frame(&state, 100, 23);
    let requests = lines.iter().find(|line| line.starts_with("Requests ")).expect("a metric");
    let words: Vec<&str> = requests.split_whitespace().collect();
    assert_eq!(words, ["Requests", "100,000", "10,000", "1.00k"], "2 groups below count 90,000");
    assert!(lines.iter().any(|line| line.starts_with("── /a, 2 groups below ─")), "{lines:?}");
}

#[test]
fn absent_metrics_are_the_last_of_the_detail() {
    let mut doc = tree(&GROUPS);
    doc.groups[0].values.insert("requests".to_owned(), ValueDoc::Unsigned(0));
    let mut state = State::new();
    state.update(doc);
    state.act(Action::Detail);
    let (lines, _) = frame(&state, 100, 30);
    let at = |start: &str| lines.iter().position(|line| line.starts_with(start)).expect("a line");
    assert!(at("Latency") < at("Memory") && at("Memory") < at("Requests "), "{lines:?}");
}

/// A detail without room says how much is missing, can take the whole screen, and scrolls there.
#[test]
fn a_detail_without_room_says_what_is_missing() {
    let mut state = state();
    state.act(Action::Move(1));
    state.act(Action::Detail);
    let (lines, _) = frame(&state, 100, 14);
    assert_eq!(lines[12], "  and 9 more lines: d shows them", "\n{}\n", lines.join("\n"));
    state.act(Action::Detail);
    let mut layout = Layout::default();
    let mut scrolled = |action| {
        state.act(action);
        let mut screen = Screen::new(100, 14);
        draw(&mut screen, &state, Theme::colored(), &mut layout);
        state.scrolled = layout.scrolled;
        let text = |y| screen.text(y).trim_end().to_owned();
        (text(5), text(11), text(12))
    };
    let (first, _, more) = scrolled(Action::Move(0));
    assert!(first.starts_with("── /b"), "{first}");
    assert_eq!(more, "  lines 1 to 7 of 12: ↑↓");
    let (_, last, more) = scrolled(Action::Move(99));
    assert_eq!(
        (last.as_str(), more.as_str()),
        ("    of a minute, 3.00 s in all", "  lines 6 to 12 of 12: ↑↓")
    );
    let (first, ..) = scrolled(Action::Move(-1));
    assert!(first.starts_with("Requests "), "from the last line, not from beyond: {first}");
    let (first, ..) = scrolled(Action::First);
    assert!(first.starts_with("── /b"), "the row is the same: {first}");
    state.act(Action::Detail);
    let (lines, _) = frame(&state, 100, 14);
    assert!(lines[5].contains("All tenants"), "\n{}\n", lines.join("\n"));
}

#[test]
fn a_click_selects_a_row_or_sorts_by_a_heading() {
    let mut state = state();
    let (lines, _, layout) = frame_with_layout(&state, 126, 12);
    let x = |word: &str| {
        let at = lines[4].find(word).expect("a column");
        lines[4][..at].chars().count()
    };
    let click = |x, y| layout.click(&state, x, y);
    assert_eq!(click(0, 4), Some(Action::SortBy(Column::Name)));
    assert_eq!(click(x("Requests/s"), 4), Some(Action::Reverse), "ordered by it already");
    assert_eq!(click(x("Memory"), 4), Some(Action::SortBy(Column::View(4))));
    assert_eq!(click(x("Refused/s"), 4), Some(Action::SortBy(Column::View(6))));
    assert_eq!(click(7, 5), Some(Action::Select(0)));
    assert_eq!(click(7, 10), Some(Action::Select(5)));
    for (x, y) in [(0, 0), (0, 3), (0, 11), (0, 99), (125, 4)] {
        let on_a_row = click(x, y);
        assert!(on_a_row.is_none() || (x, y) == (125, 4), "{x} {y}: {on_a_row:?}");
    }
    state.act(Action::Select(3));
    assert_eq!(state.current().map(|node| node.path.as_str()), Some("/a/y"));
    state.act(Action::Help);
    assert_eq!(layout.click(&state, 7, 5), None, "a box lies over it");
}

#[test]
fn a_click_reaches_rows_that_were_scrolled() {
    let mut state = state();
    state.act(Action::Last);
    let (lines, _, layout) = frame_with_layout(&state, 60, 9);
    assert!(lines[5].trim_start().starts_with('y'), "{lines:?}");
    assert_eq!(layout.click(&state, 3, 5), Some(Action::Select(3)));
    assert_eq!(layout.click(&state, 3, 8), None, "the footer");
}

#[test]
fn the_list_marks_shown_columns_and_scrolls() {
    let mut state = state();
    state.choose(&["items".to_owned()]).expect("it exists");
    state.act(Action::Choose);
    state.act(Action::Last);
    let (lines, _) = frame(&state, 100, 20);
    let marked: Vec<&String> = lines.iter().filter(|line| line.contains('✓')).collect();
    assert!(marked.len() == 1 && marked[0].contains("✓ Items"), "\n{}\n", lines.join("\n"));
    assert!(lines.iter().any(|line| line.contains("cpu_cores")), "\n{}\n", lines.join("\n"));
    let (lines, _) = frame(&state, 100, 9);
    assert!(lines.iter().any(|line| line.contains("✓ Items")), "the cursor is in view: {lines:?}");
}

#[test]
fn without_colours_no_cell_has_one() {
    let mut state = state();
    state.act(Action::Move(1));
    state.act(Action::Detail);
    let mut screen = Screen::new(126, 40);
    draw(&mut screen, &state, Theme::plain(), &mut Layout::default());
    for (x, y) in (0..40).flat_map(|y| (0..126).map(move |x| (x, y))) {
        let style = screen.cell(x, y).1;
        assert!(style.get_fg_color().is_none() && style.get_bg_color().is_none(), "{x} {y}");
    }
}

#[test]
fn once_prints_the_columns_that_were_named() {
    let mut state = state();
    state.choose(&["items".to_owned(), "cpu_cores".to_owned()]).expect("they exist");
    let text = anstream::adapter::strip_str(&once::table(&state)).to_string();
    let heading: Vec<&str> = text.lines().next().expect("a heading").split_whitespace().collect();
    assert_eq!(heading, ["tenant", "items", "cpu"]);
    state.choose(&["memory_limit_bytes", "memory_bytes"].map(str::to_owned)).expect("they exist");
    let text = anstream::adapter::strip_str(&once::table(&state)).to_string();
    let root: Vec<&str> = text.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!(root, ["/", "4.00", "MiB", "2.05", "MiB"], "a limit, and none a second time");
}

#[test]
fn boxes_are_as_wide_as_lines_with_whole_borders() {
    for action in [Action::Help, Action::Choose] {
        for width in [120, 80, 60, 56, 55, 30] {
            let mut state = state();
            state.act(action);
            let (lines, _) = frame(&state, width, 30);
            let top = lines.iter().position(|line| line.contains('╭')).expect("a box");
            let edge = |line: &str, corner| line.chars().position(|c| c == corner);
            let ends = (edge(&lines[top], '╭'), edge(&lines[top], '╮'));
            let inner: Vec<&String> =
                lines[top + 1..].iter().take_while(|line| !line.contains('╰')).collect();
            assert!(inner.len() > 5 && ends.1.is_some(), "{lines:#?}");
            for line in inner {
                let right = line.chars().collect::<Vec<_>>().iter().rposition(|&c| c == '│');
                assert_eq!((edge(line, '│'), right), ends, "{action:?} {width}: {lines:#?}");
            }
            let whole = lines.iter().any(|line| line.contains("clicked │"));
            assert_eq!(whole, matches!(action, Action::Help) && width >= 56, "{lines:#?}");
        }
    }
}

#[test]
fn a_box_without_room_says_how_much_is_missing() {
    let mut state = state();
    state.act(Action::Help);
    let (lines, _) = frame(&state, 60, 12);
    assert!(lines[0].contains('╭') && lines[11].contains('╰'), "{lines:#?}");
    assert!(lines[10].contains("… 5 more lines"), "{lines:#?}");
    let (lines, _) = frame(&state, 60, 16);
    assert!(lines.iter().any(|line| line.contains("quit")), "{lines:#?}");
}

#[test]
fn no_frame_has_what_is_not_seen() {
    let mut doc = tree(&[("/", 1.0), ("/we\u{202e}b\u{fe0f}", 1.0)]);
    let hidden = "\u{1b}\u{2028}\u{e0041}";
    doc.server.listen.push_str(hidden);
    for view in &mut doc.views {
        view.title.push_str(hidden);
    }
    for metric in &mut doc.schema {
        metric.name.push_str(hidden);
    }
    let mut state = State::new();
    state.update(doc);
    state.set_lost(hidden.to_owned());
    for action in [Action::Last, Action::Detail, Action::Detail, Action::Choose, Action::Help] {
        state.act(action);
        let (lines, _) = frame(&state, 200, 40);
        let is_seen = |line: &String| !line.contains(submeter::is_hidden);
        assert!(lines.iter().all(is_seen), "{action:?}: {lines:#?}");
        let text = anstream::adapter::strip_str(&once::table(&state)).to_string();
        assert!(text.contains(r"  we\u{202e}b\u{fe0f} "), "{text}");
    }
}
