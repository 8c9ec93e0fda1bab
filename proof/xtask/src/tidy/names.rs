//! An item that a sentence places in a file must be there: after a function has moved, a sentence
//! that says `Type::function` in such and such a path would otherwise send readers to the wrong
//! file forever.

use super::{Finding, doc_text, markdown, numbered, paths};
use crate::repo::{File, Repo};

/// Words that may introduce an item's name.
const ITEMS: [&str; 9] =
    ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "macro_rules!"];

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repo.files() {
        // A record describes the files of its day.
        let prose: Vec<(usize, &str)> = match &file.rust {
            Some(Ok(rust)) => {
                let comments = (1..).zip(rust.comments.iter().map(String::as_str));
                comments.map(|(line, text)| (line, doc_text(text).unwrap_or(text))).collect()
            }
            _ if file.path.ends_with(".md") && !file.path.contains("/record/") => {
                let lines = markdown(numbered(&file.text)).filter(|line| !line.fenced);
                lines.map(|line| (line.number, line.text)).collect()
            }
            _ => continue,
        };
        placed(repo, file, &prose, &mut findings);
    }
    findings
}

/// Checks each `item` in `path`, also across consecutive lines.
fn placed(repo: &Repo, file: &File, prose: &[(usize, &str)], findings: &mut Vec<Finding>) {
    // The text between backticks, with its line and what precedes it.
    let mut spans = Vec::new();
    let mut between = String::new();
    for (line, text) in prose {
        // Backticks that a line leaves open are not code, or belong to a fence.
        let even = text.matches('`').count() % 2 == 0;
        for (at, part) in text.split('`').enumerate().filter(|_| even) {
            if at % 2 == 1 {
                spans.push((*line, std::mem::take(&mut between), part));
            } else {
                between.push_str(part.trim_start_matches("//"));
            }
        }
        between.push(' ');
        if text.trim_start_matches(['/', '!']).trim().is_empty() {
            between.push('.');
        }
    }
    for pair in spans.windows(2) {
        let [(line, _, item), (_, between, path)] = pair else { continue };
        let Some(name) = item_name(item) else { continue };
        if between.trim() != "in" || !path.contains('/') || !paths::is_path(path) {
            continue;
        }
        let places = paths::resolved(repo, &file.path, path);
        let below = |known: &str| {
            let is_it = |place: &&str| {
                known.strip_prefix(*place).is_some_and(|r| r.is_empty() || r.starts_with('/'))
            };
            places.iter().any(is_it)
        };
        let mut files = repo.files().iter().filter(|other| below(&other.path)).peekable();
        // Dead paths are the subject of another rule.
        if files.peek().is_some() && !files.any(|other| has(&other.text, name)) {
            let what = format!("`{item}` is not in `{path}` – name the file that has it");
            findings.push(Finding::new(&file.path, *line, what));
        }
    }
}

/// Returns the last part of `Type::item`; a word without `::` may be anything.
fn item_name(span: &str) -> Option<&str> {
    let span = span.strip_suffix("()").unwrap_or(span);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let (_, name) = span.rsplit_once("::")?;
    (span.chars().all(is_plain) && !name.is_empty()).then_some(name)
}

/// Returns whether a file defines an item or an enum's variant of that name.
fn has(text: &str, name: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && !"_!".contains(c));
    let mut before = "";
    let defines = words.any(|word| {
        let is_it = word == name && ITEMS.contains(&before);
        if !word.is_empty() {
            before = word;
        }
        is_it
    });
    let variant = |line: &str| {
        let rest = line.trim_start().strip_prefix(name)?;
        rest.starts_with([',', '(', ' ']).then_some(())
    };
    defines || name.starts_with(char::is_uppercase) && text.lines().any(|l| variant(l).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let code =
            "struct Block;\nimpl Block {\n    pub fn add(&self) {}\n}\nenum E {\n    One,\n}\n";
        let files = [("crates/a/Cargo.toml", ""), ("crates/a/src/b/raw.rs", code), (path, text)];
        check(&Repo::of(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_item_that_its_file_lacks_is_found() {
        let text = "# T\n`Block::gone` in `crates/a/src/b/raw.rs`, and `Block::lost` in\n`crates/a/src/b`.\n";
        let found = found("T.md", text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("T.md:2: `Block::gone` is not in"), "{found:?}");
        assert!(found[1].starts_with("T.md:2: `Block::lost` is not in"), "{found:?}");
    }

    #[test]
    fn a_comment_is_looked_at_too() {
        let text = "//! See `Block::gone` in\n//! `b/raw.rs`.\n";
        assert_eq!(found("crates/a/src/lib.rs", text).len(), 1);
    }

    #[test]
    fn what_is_there_or_no_item_is_left_alone() {
        for text in [
            "`Block::add` in `crates/a/src/b/raw.rs`\n",
            "`Block::add()` in `crates/a/src`, `E::One` in `crates/a/src/b/raw.rs`\n",
            "`loom` in `crates/a/src/b/raw.rs`\n",
            "`Block::gone` and `crates/a/src/b/raw.rs`\n",
            "`Block::gone` in `crates/z/src/b.rs`\n",
            "`Block::gone` in `words`\n",
        ] {
            assert_eq!(found("T.md", text), Vec::<String>::new(), "{text}");
        }
    }
}
