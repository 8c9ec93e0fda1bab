//! The rules that no compiler checks. Each finding has a place, a problem and a remedy.

mod commands;
mod drawings;
mod excerpts;
mod names;
pub(crate) mod orderings;
pub(crate) mod packages;
mod paths;
mod proofs;
mod rooms;
mod safety;
mod size;
mod text;
mod words;

use std::fmt;

use crate::repo::Repo;

/// A violation of a rule at one place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Applies every rule to every file, in the order of paths and lines.
pub(crate) fn findings(repo: &Repo) -> Vec<Finding> {
    let rules: [fn(&Repo) -> Vec<Finding>; 14] = [
        parses,
        commands::check,
        drawings::check,
        excerpts::check,
        names::check,
        orderings::check,
        crate::modelled::check,
        paths::check,
        proofs::check,
        rooms::check,
        safety::check,
        size::check,
        text::check,
        words::check,
    ];
    let mut findings: Vec<Finding> = rules.iter().flat_map(|rule| rule(repo)).collect();
    findings.sort();
    findings.dedup();
    findings
}

/// Reports files that do not parse, because a file that cannot be checked must not pass as clean.
fn parses(repo: &Repo) -> Vec<Finding> {
    let broken = repo.files().iter().filter_map(|file| match &file.rust {
        Some(Err(error)) => Some(Finding::new(&file.path, 1, format!("not Rust: {error}"))),
        _ => None,
    });
    broken.collect()
}

/// A Markdown line, with whether it is in a code fence, and the fence's tag if it opens one.
struct MarkdownLine<'t> {
    number: usize,
    text: &'t str,
    fenced: bool,
    opens: Option<&'t str>,
}

/// Walks Markdown (a document, or the text of doc comments) line by line.
fn markdown<'t>(
    lines: impl Iterator<Item = (usize, &'t str)>,
) -> impl Iterator<Item = MarkdownLine<'t>> {
    let mut fenced = false;
    lines.map(move |(number, text)| {
        let fence = text.trim_start().strip_prefix("```");
        let was = fenced;
        if fence.is_some() {
            fenced = !fenced;
        }
        let opens = fence.filter(|_| !was).map(str::trim);
        MarkdownLine { number, text, fenced: was || fence.is_some(), opens }
    })
}

/// Returns the doc text of a comment line, without its marker.
fn doc_text(comment: &str) -> Option<&str> {
    comment.strip_prefix("///").or_else(|| comment.strip_prefix("//!"))
}

/// Numbers lines from 1.
fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_does_not_parse_is_a_finding() {
        let repo = Repo::of(&[("a.rs", "fn f( {\n")]);
        assert!(parses(&repo)[0].to_string().starts_with("a.rs:1: not Rust: "));
    }

    #[test]
    fn findings_come_in_order_and_once() {
        let repo = Repo::of(&[("b.md", "see `x/y.md` and `x/y.md`  \n"), ("a.md", "no end")]);
        let found: Vec<String> = findings(&repo).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 3, "{found:#?}");
        assert!(found.is_sorted());
    }
}
