//! Makes the pictures of ARCHITECTURE.md: those in `docs/images` for which `docs/pictures` has a
//! text of the same name.
//!
//! A layout engine would place boxes by itself, and differently with each of its versions; that is
//! not worthwhile for five pictures. The text therefore says where things are. It has one statement
//! per line, with numbers in tens of pixels:
//!
//! ```text
//! picture WIDTH HEIGHT TITLE
//! about WHAT IT SHOWS, for those who cannot see it
//! box STYLE X Y WIDTH HEIGHT FIRST LINE|SECOND LINE
//! arrow X Y X Y LABEL        the label may be missing
//! line X Y X Y               dashed
//! text X Y WORDS
//! head X Y WORDS
//! ```
//!
//! Styles are `own` (one CPU's), `shared`, `rare`, `plain` and `quiet`.

use std::fmt::Write as _;

/// The folders of the texts and of the pictures.
pub(crate) const FROM: &str = "docs/pictures/";
const TO: &str = "docs/images/";

const UNIT: f64 = 10.0;
/// The height of a line of text, in pixels.
const LEADING: f64 = 15.0;

/// Returns the path of the picture that the text at `path` makes.
pub(crate) fn target(path: &str) -> Option<String> {
    Some(format!("{TO}{}.svg", path.strip_prefix(FROM)?.strip_suffix(".txt")?))
}

/// Draws the picture that a text describes.
///
/// # Errors
/// One line that names the invalid statement.
pub(crate) fn svg(text: &str) -> Result<String, String> {
    let mut lines = text.lines().filter(|line| !line.is_empty());
    let first = lines.next().and_then(|line| line.strip_prefix("picture "));
    let ([width, height], title) =
        first.and_then(numbers).ok_or("the first line is not `picture WIDTH HEIGHT TITLE`")?;
    let mut drawn = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>{}</title>\n<defs><marker id=\"to\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" \
         markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0 8 4 0 8z\"/></marker>\
         </defs>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n",
        escaped(title),
    );
    for line in lines {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        drawn += &statement(verb, rest).ok_or_else(|| format!("`{line}` is no statement"))?;
    }
    Ok(drawn + "</svg>\n")
}

fn statement(verb: &str, rest: &str) -> Option<String> {
    match verb {
        "about" => Some(format!("<desc>{}</desc>\n", escaped(rest))),
        "box" => boxed(rest),
        "arrow" => {
            let ([x1, y1, x2, y2], label) = numbers(rest)?;
            let mut drawn = format!(
                "<path d=\"M{x1} {y1} {x2} {y2}\" stroke=\"#000\" marker-end=\"url(#to)\"/>\n"
            );
            if !label.is_empty() {
                // Beside a vertical arrow, above a horizontal one.
                let (x, y) = ((x1 + x2) / 2.0, (y1 + y2) / 2.0);
                let down = (y1 - y2).abs() > (x1 - x2).abs();
                let (x, y, anchor) =
                    if down { (x + 6.0, y + 4.0, "start") } else { (x, y - 6.0, "middle") };
                drawn += &words(x, y, label, &format!("text-anchor=\"{anchor}\""));
            }
            Some(drawn)
        }
        "line" => {
            let ([x1, y1, x2, y2], _) = numbers(rest)?;
            let path = format!("M{x1} {y1} {x2} {y2}");
            Some(format!("<path d=\"{path}\" stroke=\"#888\" stroke-dasharray=\"4 3\"/>\n"))
        }
        "text" | "head" => {
            let ([x, y], text) = numbers(rest)?;
            let more = if verb == "head" { "font-weight=\"bold\"" } else { "" };
            Some(words(x, y, text, more))
        }
        _ => None,
    }
}

fn boxed(rest: &str) -> Option<String> {
    let (style, rest) = rest.split_once(' ')?;
    let fill = match style {
        "own" => "#dbeafe",
        "shared" => "#fef3c7",
        "rare" => "#fee2e2",
        "plain" => "#fff",
        "quiet" => "#f3f4f6",
        _ => return None,
    };
    let ([x, y, width, height], text) = numbers(rest)?;
    let mut drawn = format!(
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"4\" fill=\"{fill}\" \
         stroke=\"#444\"/>\n"
    );
    let lines: Vec<&str> = text.split('|').collect();
    let top = y + height / 2.0 - (lines.len() as f64 - 1.0) / 2.0 * LEADING + 4.0;
    for (line, text) in lines.iter().enumerate() {
        let y = top + line as f64 * LEADING;
        drawn += &words(x + width / 2.0, y, text.trim(), "text-anchor=\"middle\"");
    }
    Some(drawn)
}

fn words(x: f64, y: f64, text: &str, more: &str) -> String {
    let mut drawn = format!("<text x=\"{x}\" y=\"{y}\"");
    if !more.is_empty() {
        let _ = write!(drawn, " {more}");
    }
    drawn + &format!(">{}</text>\n", escaped(text))
}

/// Removes `N` numbers from the front, as pixels, and returns the rest of the line.
fn numbers<const N: usize>(mut rest: &str) -> Option<([f64; N], &str)> {
    let mut found = [0.0; N];
    for number in &mut found {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        *number = (word.parse::<f64>().ok()? * UNIT).round();
        rest = after;
    }
    Some((found, rest))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_become_shapes_in_their_order() {
        let drawn = svg("picture 20 10 A & B\nbox own 1 2 3 4 one|two\narrow 0 0 5 0 to\n");
        let drawn = drawn.expect("a picture");
        for part in [
            "viewBox=\"0 0 200 100\"",
            "<title>A &amp; B</title>",
            "<rect x=\"10\" y=\"20\" width=\"30\" height=\"40\" rx=\"4\" fill=\"#dbeafe\"",
            ">two</text>",
            "<path d=\"M0 0 50 0\"",
        ] {
            assert!(drawn.contains(part), "{part} in {drawn}");
        }
    }

    #[test]
    fn what_is_no_statement_is_named() {
        for wrong in ["circle 1 2", "box gold 1 2 3 4 x", "arrow 1 2 3", "text a b c"] {
            let error = svg(&format!("picture 1 1 X\n{wrong}\n")).expect_err(wrong);
            assert!(error.contains(wrong), "{error}");
        }
        assert!(svg("box own 1 2 3 4 x\n").is_err());
    }

    #[test]
    fn a_text_has_its_picture_beside_the_others() {
        assert_eq!(target("docs/pictures/a.txt").as_deref(), Some("docs/images/a.svg"));
        assert_eq!(target("docs/a.txt"), None);
    }
}
