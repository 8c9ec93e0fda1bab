//! Everything that the page shows is visible, by day and in the dark.

use std::collections::BTreeMap;

use super::super::client;

type Colours = BTreeMap<&'static str, [f64; 3]>;

/// Reads the opaque colours `--name: #rrggbb` of the block that follows `start`.
fn colours(start: &str) -> Colours {
    let (_, block) = client::PAGE.split_once(start).expect(start);
    let (block, _) = block.split_once('}').expect("an end");
    let declarations = block.split(';').filter_map(|one| one.trim().split_once(": #"));
    declarations.filter_map(|(name, hex)| Some((name, rgb(hex)?))).collect()
}

/// Reads `rgb` or `rrggbb`; with a fourth component it is transparent, and not a colour on its own.
fn rgb(hex: &str) -> Option<[f64; 3]> {
    let width = match hex.len() {
        3 => 1,
        6 => 2,
        _ => return None,
    };
    let part = |i: usize| u8::from_str_radix(&hex[i * width..][..width], 16).ok();
    let scale = if width == 1 { 15.0 } else { 255.0 };
    Some([part(0)?, part(1)?, part(2)?].map(|part| f64::from(part) / scale))
}

/// The contrast of two colours as the Web Content Accessibility Guidelines define it, 1 to 21.
fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let linear = |c: f64| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
    let luminance =
        |[r, g, b]: [f64; 3]| 0.05 + 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    let (one, other) = (luminance(one), luminance(other));
    one.max(other) / one.min(other)
}

#[test]
fn text_and_bars_stand_out_in_both_themes() {
    const BEHIND: [&str; 5] = ["--bg", "--surface", "--raised", "--hover", "--chosen"];
    let dark = colours(":root[data-theme=\"dark\"] {");
    for (theme, colours) in [("light", colours(":root {")), ("dark", dark)] {
        // The guidelines require 4.5 for text, 3 for signs and lines. Bars of the past are behind
        // those of the present, and only ever on a panel.
        for (least, behind, names) in [
            (4.5, &BEHIND[..], &["--text", "--soft", "--faint", "--accent", "--warn", "--bad"][..]),
            (3.0, &BEHIND, &["--second", "--good"]),
            (1.5, &["--surface"], &["--past"]),
        ] {
            for (name, behind) in names.iter().flat_map(|n| behind.iter().map(move |b| (n, b))) {
                let got = contrast(colours[name], colours[behind]);
                assert!(got >= least, "{theme}: {name} on {behind} has {got:.2} of {least}");
            }
        }
    }
}

#[test]
fn the_chosen_dark_is_the_dark_of_the_system() {
    let system = colours(":root:not([data-theme=\"light\"]) {");
    assert_eq!(system, colours(":root[data-theme=\"dark\"] {"));
    assert!(colours(":root {").keys().eq(system.keys()), "each colour has one for the dark");
}
