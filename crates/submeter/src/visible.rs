//! Names as shown to people.

use std::fmt::{self, Write};

/// Returns a name or a path for people to read: all of its characters are visible.
///
/// Clients choose names, and a name may have invisible characters or ones that reverse the text
/// after them: `/ac\u{200b}me` looks like `/acme`, and U+202E makes a following `78 %` read `87 %`.
/// These are written as in Rust, `\u{202e}`, and so is every space except a plain one between two
/// characters of a name. So different names never look the same because of invisible characters;
/// similar letters may still look alike.
///
/// It compares each character with two dozen ranges and allocates nothing. Do not use it for output
/// that programs read (JSON, `/metrics`, labels): a name is written unchanged there, and their
/// syntax escapes it.
///
/// # Examples
/// ```
/// use submeter::visible;
///
/// assert_eq!(visible("/acme/web shop").to_string(), "/acme/web shop");
/// assert_eq!(visible("/ac\u{200b}me").to_string(), r"/ac\u{200b}me");
/// assert_eq!(visible("/acme ").to_string(), r"/acme\u{20}");
/// // Text that is spelled like an escape differs from an escape.
/// assert_eq!(visible(r"/ac\u{200b}me").to_string(), r"/ac\u{5c}u{200b}me");
/// ```
#[must_use]
pub fn visible(name: &str) -> Visible<'_> {
    Visible(name)
}

/// A name in the form shown to people: see [`visible`].
///
/// # Examples
/// ```
/// let shown: submeter::Visible<'_> = submeter::visible("/a\u{ad}b");
/// assert_eq!(format!("{shown}: 3 requests"), r"/a\u{ad}b: 3 requests");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Visible<'a>(&'a str);

impl fmt::Display for Visible<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The start of a name, where a space is as invisible as after another space.
        let mut before = ' ';
        let mut rest = self.0.chars();
        while let Some(c) = rest.next() {
            let is_seen = match c {
                ' ' => {
                    !matches!(before, ' ' | '/')
                        && !matches!(rest.as_str().as_bytes(), [] | [b'/', ..])
                }
                '\\' => !rest.as_str().starts_with("u{"),
                c => !is_hidden(c) && !is_blank(c),
            };
            match is_seen {
                true => f.write_char(c)?,
                false => write!(f, "{}", c.escape_unicode())?,
            }
            before = c;
        }
        Ok(())
    }
}

/// Returns whether a character is invisible, or changes how those around it are shown: characters
/// of Unicode's categories Cc, Cf, Zl and Zp, those that Unicode calls default ignorable (variation
/// selectors, tags, fillers), and three more without ink. Spaces and combining marks are not among
/// them.
///
/// For whole lines that contain names; for a name alone use [`visible`], which escapes more.
///
/// # Examples
/// ```
/// use submeter::is_hidden;
///
/// assert!(['\n', '\u{1b}', '\u{202e}', '\u{feff}', '\u{fe0f}'].into_iter().all(is_hidden));
/// assert!(!['a', ' ', 'é', '租', '😀', '\u{301}'].into_iter().any(is_hidden));
/// ```
#[must_use]
pub const fn is_hidden(c: char) -> bool {
    // Unicode 17. Ranges, not a table of categories, which would be a dependency; the page has the
    // same in `visible.js`, and a test compares them.
    matches!(
        c,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}'
        | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{16fe4}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d159}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Returns whether a character looks like a space.
const fn is_blank(c: char) -> bool {
    matches!(
        c,
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}'
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Invisible characters are shown.
    #[test]
    fn no_two_names_look_alike() {
        let hidden =
            (0..=0x10_ffff).filter_map(char::from_u32).filter(|&c| is_hidden(c) || is_blank(c));
        let more = [' ', '\\', 'u', '{', '/'].into_iter();
        let mut shown = BTreeMap::new();
        let mut look = |name: String| {
            let text = visible(&name).to_string();
            assert!(!text.chars().any(|c| is_hidden(c) || is_blank(c)), "{name:?}: {text}");
            assert!(
                !text.starts_with(' ') && !text.ends_with(' ') && !text.contains("  "),
                "{name:?}"
            );
            if let Some(other) = shown.insert(text, name.clone()) {
                assert_eq!(name, other, "both look the same");
            }
        };
        for c in hidden.chain(more) {
            for name in ["acme", "ac{}me", "{}acme", "acme{}", "a{}{}b", "{}", "/a{}/b", r"a\{}"] {
                look(name.replace("{}", &c.to_string()));
            }
            look(format!("a{}b", c.escape_unicode()));
        }
    }
}
