//! Every atomic operation has a comment that says why its ordering suffices and what it pairs with.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::repo::Repo;
use crate::rust::{Rust, Token};

const NAMES: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

/// How far above the operation its comment may begin.
const REACH: usize = 6;

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in repo.rust_files() {
        if repo.is_test(&file.path) {
            continue;
        }
        let lines = lines_with_orderings(rust);
        for &line in lines.keys().filter(|line| !rust.is_test_line(**line)) {
            // The two orderings of a compare-exchange may be on separate lines.
            let near = lines.range(line.saturating_sub(1)..=line + 1);
            let orderings = near.flat_map(|(_, names)| names).copied().collect();
            if !is_explained(rust, line, &orderings) {
                let what = format!(
                    "atomic without a reason – say within {REACH} lines above why the ordering \
                     suffices and what it pairs with: `// Release: pairs with …, so that …`"
                );
                findings.push(Finding::new(&file.path, line, what));
            }
        }
    }
    findings
}

/// Returns the lines that name orderings or call a fence, without imports, and the orderings that
/// they name.
pub(crate) fn lines_with_orderings(rust: &Rust) -> BTreeMap<usize, BTreeSet<&str>> {
    let mut lines = BTreeMap::<usize, BTreeSet<&str>>::new();
    let mut importing = false;
    for (i, token) in rust.tokens.iter().enumerate() {
        let next = rust.tokens.get(i + 1).map_or("", |next| next.text.as_str());
        match token.text.as_str() {
            "use" => importing = true,
            ";" => importing = false,
            "fence" | "compiler_fence" if next == "(" && !importing => {
                lines.entry(token.line).or_default();
            }
            name if NAMES.contains(&name) && !importing && is_ordering(&rust.tokens[..i]) => {
                lines.entry(token.line).or_default().insert(name);
            }
            _ => {}
        }
    }
    lines
}

/// Returns whether a name that follows `before` is an ordering: bare, or in `Ordering`. Other
/// enumerations have a `Release` too, such as the kinds of key events.
fn is_ordering(before: &[Token]) -> bool {
    match before {
        [.., path, first, second] if first.text == ":" && second.text == ":" => {
            path.text == "Ordering"
        }
        _ => true,
    }
}

/// Returns whether a comment on the line or shortly above names one of the orderings, followed by a
/// colon and a reason. A comment about another ordering is stale, or belongs to another operation.
fn is_explained(rust: &Rust, line: usize, orderings: &BTreeSet<&str>) -> bool {
    let first = line.saturating_sub(REACH).max(1);
    // Joined, because a reason may begin on the line after the name.
    let lines = rust.comments[first - 1..line].iter();
    let comment: Vec<&str> = lines.map(|text| text.trim_start_matches(['/', '!']).trim()).collect();
    let comment = comment.join(" ").trim_end().to_owned();
    NAMES.iter().filter(|name| orderings.is_empty() || orderings.contains(*name)).any(|name| {
        comment.match_indices(name).any(|(at, _)| {
            let rest = &comment[at + name.len()..];
            rest.split_once(':').is_some_and(|(between, reason)| {
                !between.contains('.') && !reason.trim().is_empty()
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<usize> {
        check(&Repo::of(&[("a/src/lib.rs", text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn an_atomic_without_a_comment_is_found() {
        assert_eq!(found("fn f() {\n    X.load(Ordering::Relaxed);\n}\n"), [2]);
        assert_eq!(found("fn f() {\n    X.load(Acquire);\n}\n"), [2]);
        assert_eq!(found("fn f() {\n    fence(order);\n}\n"), [2]);
    }

    /// A comment without ordering or reason does not count.
    #[test]
    fn a_comment_without_a_reason_does_not_count() {
        assert_eq!(found("fn f() {\n    // Loads it.\n    X.load(Ordering::Relaxed);\n}\n"), [3]);
        assert_eq!(found("fn f() {\n    // Relaxed\n    X.load(Ordering::Relaxed);\n}\n"), [3]);
        assert_eq!(found("fn f() {\n    // Relaxed:\n    X.load(Ordering::Relaxed);\n}\n"), [3]);
        let far =
            format!("fn f() {{\n    // Relaxed: why\n{}    X.load(Relaxed);\n}}\n", "\n".repeat(6));
        assert_eq!(found(&far), [9]);
    }

    #[test]
    fn a_comment_on_another_ordering_does_not_count() {
        let text =
            "fn f() {\n    // Relaxed: a statistic.\n    X.store(1, Ordering::Release);\n}\n";
        assert_eq!(found(text), [3]);
        let text = "fn f() {\n    // AcqRel: pairs with g.\n    X.swap(\n    AcqRel,\n    Acquire,\n);\n}\n";
        assert!(found(text).is_empty());
    }

    #[test]
    fn a_reason_nearby_is_enough() {
        for text in [
            "fn f() {\n    // Relaxed: a statistic.\n    X.load(Ordering::Relaxed);\n}\n",
            "fn f() {\n    X.load(Ordering::Relaxed); // Relaxed: a statistic.\n}\n",
            "fn f() {\n    // So it is. Relaxed:\n    // a statistic.\n    X.load(Ordering::Relaxed);\n}\n",
            "fn f() {\n    // SeqCst on both, here and below: one order.\n    fence(SeqCst);\n}\n",
        ] {
            assert!(found(text).is_empty(), "{text}");
        }
    }

    /// Imports, comparisons, strings and tests are left alone.
    #[test]
    fn imports_strings_and_tests_are_left_alone() {
        for text in [
            "use std::sync::atomic::Ordering::{Relaxed, Release};\n",
            "fn f() { a.cmp(&b) == std::cmp::Ordering::Less; }\n",
            "fn f() { g(\"Ordering::Relaxed\"); }\n",
            "fn f() { kind == KeyEventKind::Release; }\n",
            "#[cfg(test)]\nmod tests {\n    fn f() { X.load(Ordering::Relaxed); }\n}\n",
        ] {
            assert!(found(text).is_empty(), "{text}");
        }
        let repo = Repo::of(&[("a/tests/x.rs", "fn f() { X.load(Ordering::Relaxed); }\n")]);
        assert!(check(&repo).is_empty());
    }
}
