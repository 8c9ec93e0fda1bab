//! Text hygiene: no trailing white space, no carriage returns, a newline at the end, and comments
//! no wider than the code.

use super::{Finding, numbered};
use crate::repo::{File, Repo};

/// rustfmt's width of code, which it does not apply to comments.
const COMMENT_COLUMNS_MAX: usize = 100;

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    // The input of a fuzzer is bytes, not text.
    for file in repo.files().iter().filter(|file| !file.path.contains("/corpus/")) {
        for (line, text) in numbered(&file.text) {
            // `str::lines` removes a carriage return together with its newline.
            if text.ends_with([' ', '\t']) {
                findings.push(Finding::new(&file.path, line, "trailing white space – remove it"));
            }
        }
        if let Some(at) = file.text.find('\r') {
            let line = file.text[..at].lines().count();
            let what = "carriage return – save with Unix line ends";
            findings.push(Finding::new(&file.path, line.max(1), what));
        }
        if !file.text.is_empty() && !file.text.ends_with('\n') {
            let line = file.text.lines().count();
            findings.push(Finding::new(&file.path, line, "no newline at the end – add one"));
        }
        wide_comments(file, &mut findings);
    }
    findings
}

fn wide_comments(file: &File, findings: &mut Vec<Finding>) {
    let Some(Ok(rust)) = &file.rust else { return };
    for ((line, text), comment) in numbered(&file.text).zip(&rust.comments) {
        let columns = text.chars().count();
        if columns > COMMENT_COLUMNS_MAX && !comment.is_empty() {
            let what = format!(
                "comment of {columns} columns, {COMMENT_COLUMNS_MAX} at most – wrap it, or make \
                 a list of a table"
            );
            findings.push(Finding::new(&file.path, line, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        check(&Repo::of(&[("a.txt", text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn white_space_at_the_end_of_a_line_is_found() {
        assert_eq!(found("a\nb \nc\t\n").len(), 2);
        assert!(found("a b\n\n c\n").is_empty());
    }

    #[test]
    fn carriage_returns_are_found_once() {
        assert_eq!(found("a\r\nb\r\n"), ["a.txt:1: carriage return – save with Unix line ends"]);
    }

    #[test]
    fn a_wide_comment_is_found() {
        let found = |text: &str| check(&Repo::of(&[("a.rs", text)])).len();
        let dashes = "–".repeat(COMMENT_COLUMNS_MAX - 3);
        assert_eq!(found(&format!("// {dashes}\nfn f() {{}}\n")), 0);
        assert_eq!(found(&format!("// {dashes}–\nfn f() {{}}\n")), 1);
        assert_eq!(found(&format!("fn f() {{}} // {dashes}\n")), 1);
        assert_eq!(found(&format!("const S: &str = \"// {dashes}\";\n")), 0);
    }

    #[test]
    fn a_corpus_is_bytes() {
        let repo = Repo::of(&[("a/corpus/b", "a\r\nb ")]);
        assert!(check(&repo).is_empty());
    }

    #[test]
    fn a_missing_last_newline_is_found() {
        assert_eq!(found("a\nb"), ["a.txt:2: no newline at the end – add one"]);
        assert!(found("").is_empty());
    }
}
