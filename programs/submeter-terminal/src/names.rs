//! Names in a row of cells: their width, and what keeps them from moving what is beside them.

use std::borrow::Cow;

use submeter::visible;
use unicode_width::UnicodeWidthChar;

/// What stands between these has a direction of its own: U+2068 and U+2069.
const ISOLATE: char = '\u{2068}';
const ISOLATE_END: char = '\u{2069}';

/// Returns the width of a text in cells. Terminals give each character its own cells, also where a
/// font joins two of them.
pub fn width(text: &str) -> usize {
    text.chars().map(cells).sum()
}

fn cells(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Cuts a text that is wider than that, and ends it with an ellipsis.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if width(text) <= most {
        return Cow::Borrowed(text);
    }
    let (mut cut, mut used) = (String::new(), 0);
    for c in text.chars() {
        used += cells(c);
        if used >= most {
            break;
        }
        cut.push(c);
    }
    cut.push('…');
    if cut.rfind(ISOLATE) > cut.rfind(ISOLATE_END) {
        cut.push(ISOLATE_END);
    }
    Cow::Owned(cut)
}

/// Returns a name or a path such that a terminal shows what follows it in its place. In a terminal
/// that lays text out by direction, the figures after a name in Hebrew or Arabic letters would be
/// read from right to left as well. Spaces in front of it stay in front.
///
/// The characters for this are invisible: it is for terminals only. Apply it last, because
/// [`plain`](crate::plain) escapes them.
pub fn isolated(name: &str) -> Cow<'_, str> {
    if !name.contains(is_right_to_left) {
        return Cow::Borrowed(name);
    }
    // Each level by itself, so that the levels of a path keep their order.
    let level = |level: &str| {
        if !level.contains(is_right_to_left) {
            return level.to_owned();
        }
        let start = level.len() - level.trim_start_matches(' ').len();
        format!("{}{ISOLATE}{}{ISOLATE_END}", &level[..start], &level[start..])
    };
    Cow::Owned(name.split('/').map(level).collect::<Vec<_>>().join("/"))
}

/// Returns a name or a path as people read it: [`visible`], and [`isolated`] for a terminal.
pub fn displayed(name: &str, is_terminal: bool) -> String {
    let shown = visible(name).to_string();
    if is_terminal { isolated(&shown).into_owned() } else { shown }
}

/// Returns whether a character is in one of the ranges that Unicode reserves for scripts that are
/// written from right to left.
const fn is_right_to_left(c: char) -> bool {
    matches!(
        c,
        '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefe}'
        | '\u{10800}'..='\u{10fff}' | '\u{1e800}'..='\u{1efff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_levels_from_right_to_left_are_isolated() {
        assert_eq!(isolated("/acme/租"), "/acme/租");
        assert_eq!(isolated("/acme/שלום 1/x"), "/acme/\u{2068}שלום 1\u{2069}/x");
        assert_eq!(isolated("    سلام"), "    \u{2068}سلام\u{2069}");
        assert_eq!(displayed("/סל\u{200b}", true), "/\u{2068}סל\\u{200b}\u{2069}");
        assert_eq!(displayed("/סל\u{200b}", false), "/סל\\u{200b}");
    }

    /// An isolate that is cut ends, or it would contain the figures beside it.
    #[test]
    fn what_is_shortened_has_whole_isolates() {
        assert_eq!(shortened("acme", 4), "acme");
        assert_eq!(shortened("acme web", 5), "acme…");
        assert_eq!(shortened("租租租", 4), "租…");
        let name = isolated("/שלום עולם");
        assert_eq!(width(&name), 10);
        assert_eq!(shortened(&name, 7), "/\u{2068}שלום …\u{2069}");
        assert_eq!(shortened(&format!("{name} and more"), 13), format!("{name} a…"));
    }
}
