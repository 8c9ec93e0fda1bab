//! Tests of frames, as text.

use anstyle::{AnsiColor, Effects};
use submeter_http::wire::Figure;

use super::once;
use super::screen::Screen;
use super::state::{Action, Column, State};
use super::state_tests::{GROUPS, state, tree};
use super::view::{Theme, draw};

fn frame(state: &State, width: u16, height: u16) -> (Vec<String>, Screen) {
    let mut screen = Screen::new(width, height);
    draw(&mut screen, state, Theme::colored(), &mut 0);
    let line = |y| screen.text(y).trim_end().to_owned();
    ((0..usize::from(height)).map(line).collect(), screen)
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
        "",
        "Tenant                                     Requests/s ▼      p99    Hits     CPU     Memory                Refused/s     Items",
        "▾ All tenants                            ██       2.10k   180 µs  92.5 %  21.0 %   2.05 MiB  ━━━━━━──────          0     2,100",
        "    b                                    ██       1.20k   180 µs  92.5 %  12.0 %   1.17 MiB                       12     1,200",
        "  ▾ a                                    ██         900   180 µs  92.5 %   9.0 %    900 KiB                        0       900",
        "      y                                  ██         600   180 µs  92.5 %   6.0 %    600 KiB                        0       600",
        "      x                                  ██         300   180 µs  92.5 %   3.0 %    300 KiB                        0       300",
        "    c                                    ▁▁           0        –       –     0 %        0 B                        0         0",
        "↑↓ move   ←→ fold   / filter   s sort   r reverse   ? help   q quit",
    ];
    assert_eq!(lines, expected, "\n{}\n", lines.join("\n"));
}

#[test]
fn a_narrow_terminal_shows_the_most_important_columns() {
    let mut state = state();
    state.act(Action::SortBy(Column::Name));
    state.act(Action::CloseAll);
    let (lines, _) = frame(&state, 48, 10);
    let expected = [
        "submeter  127.0.0.1:11211  up 1 min 15 s    live",
        "requests/s 2.10k   p99 180 µs   hits 92.5 %",
        "                                               █",
        "",
        "Tenant ▲                     Requests/s      p99",
        "▾ All tenants                     2.10k   180 µs",
        "  ▸ a (2)                           900   180 µs",
        "    b                             1.20k   180 µs",
        "    c                                 0        –",
    ];
    assert_eq!(lines[..9], expected, "\n{}\n", lines.join("\n"));
}

#[test]
fn a_tiny_terminal_does_not_panic() {
    let mut state = state();
    for (width, height) in [(1, 1), (8, 2), (20, 6), (300, 3)] {
        frame(&state, width, height);
    }
    state.act(Action::Help);
    frame(&state, 3, 3);
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

#[test]
fn a_lost_server_is_reported_at_the_top_and_the_figures_stay() {
    let mut state = state();
    state.set_lost("cannot watch http://x: nothing listens there; start it".to_owned());
    let (lines, _) = frame(&state, 80, 12);
    assert!(lines[0].contains("lost, retrying: cannot watch http://x"), "{lines:?}");
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

#[test]
fn once_prints_the_tree_as_a_table() {
    let text = anstream::adapter::strip_str(&once::table(&state())).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), GROUPS.len() + 1);
    assert!(lines[0].starts_with("tenant") && lines[0].ends_with("items"), "{text}");
    assert!(lines[1].starts_with('/') && lines[1].contains("2.10k"), "{text}");
    assert!(lines[4].starts_with("\u{a0}\u{a0}\u{a0}\u{a0}y"), "{text}");
}

#[test]
fn who_waits_for_room_has_a_colour_until_its_average_is_noise() {
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
