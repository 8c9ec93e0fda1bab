//! Limits of size: a file has one purpose, a function fits on one and a half screens.

use super::Finding;
use crate::repo::Repo;

const LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// Files and functions (`path` or `path:function`) that may be longer, each with its reason.
const EXCEPTIONS: &[(&str, &str)] = &[];

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    check_but(repo, EXCEPTIONS)
}

fn check_but(repo: &Repo, exceptions: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used = vec![false; exceptions.len()];
    let mut excepted = |name: &str| {
        let at = exceptions.iter().position(|(known, _)| *known == name);
        at.inspect(|&at| used[at] = true).is_some()
    };
    for (file, rust) in repo.rust_files() {
        let lines = file.text.lines().count();
        if lines > LINES_MAX && !excepted(&file.path) {
            let what = format!("{lines} lines of {LINES_MAX} at most – split it by purpose");
            findings.push(Finding::new(&file.path, LINES_MAX, what));
        }
        for (name, first, lines) in &rust.functions {
            if *lines > FUNCTION_LINES_MAX && !excepted(&format!("{}:{name}", file.path)) {
                let what = format!(
                    "function `{name}` has {lines} lines of {FUNCTION_LINES_MAX} at most – extract a \
                     part that deserves a name"
                );
                findings.push(Finding::new(&file.path, *first, what));
            }
        }
    }
    for ((name, _), _) in exceptions.iter().zip(&used).filter(|(_, used)| !**used) {
        let what = format!("exception for {name} is no longer needed – remove it");
        findings.push(Finding::new("proof/xtask/src/tidy/size.rs", 1, what));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    #[test]
    fn a_long_file_is_found() {
        let lines = "// x\n".repeat(LINES_MAX + 1);
        let found = check(&Repo::of(&[("a.rs", &lines), ("b.rs", &lines[5..])]));
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].to_string(),
            "a.rs:600: 601 lines of 600 at most – split it by purpose"
        );
    }

    #[test]
    fn a_long_function_is_found() {
        let found = check(&Repo::of(&[("a.rs", &long(71)), ("b.rs", &long(70))]));
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().starts_with("a.rs:1: function `f` has 71 lines"));
    }

    #[test]
    fn an_exception_silences_and_must_be_needed() {
        let repo = Repo::of(&[("a.rs", &long(71))]);
        assert!(check_but(&repo, &[("a.rs:f", "a table")]).is_empty());
        let found = check_but(&repo, &[("a.rs:f", "a table"), ("b.rs", "gone")]);
        assert!(
            found[0].to_string().contains("exception for b.rs is no longer needed"),
            "{found:?}"
        );
    }
}
