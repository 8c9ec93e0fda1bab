//! Every `unsafe` outside tests is justified by numbered conditions, so that a reader can check
//! them one by one and a review can refer to them.

use super::Finding;
use crate::repo::Repo;

const MARK: &str = "SAFETY:";

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in repo.rust_files() {
        if repo.is_test(&file.path) {
            continue;
        }
        for (index, comment) in rust.comments.iter().enumerate() {
            let Some(first) = comment.strip_prefix("//").and_then(|text| after_mark(text)) else {
                continue;
            };
            if rust.is_test_line(index + 1) {
                continue;
            }
            let rest = rust.comments[index + 1..].iter();
            let rest = rest.map_while(|text| text.strip_prefix("//").map(str::trim));
            // Another argument may follow directly, with only comments in between.
            let rest = rest.take_while(|text| after_mark(text).is_none());
            let argument = std::iter::once(first).chain(rest).collect::<Vec<_>>().join(" ");
            if let Some(what) = misnumbered(&argument) {
                findings.push(Finding::new(&file.path, index + 1, what));
            }
        }
    }
    findings
}

fn after_mark(text: &str) -> Option<&str> {
    text.trim_start().strip_prefix(MARK).map(str::trim)
}

/// Returns what is wrong with an argument's numbers. It must begin with condition `1.` and count
/// up, or begin with the numbers of conditions that are listed elsewhere (`1 and 2 as in `add``, or
/// `2 (freed last): …` of a list in the same file).
fn misnumbered(argument: &str) -> Option<String> {
    let words: Vec<&str> = argument.split_whitespace().collect();
    let first = words.first().copied().unwrap_or_default();
    if first.parse::<usize>().is_ok() {
        return None;
    }
    if first != "1." {
        let what =
            "unsafe without numbered conditions – say `// SAFETY: 1. …` and who upholds each";
        return Some(what.to_owned());
    }
    // A number may also end a sentence ("a row of 64."): only one that begins a sentence counts.
    let begins = |at: usize| at == 0 || words[at - 1].ends_with(['.', ':', ';', ')']);
    let numbers = words.iter().enumerate().filter(|&(at, _)| begins(at));
    let numbers = numbers.filter_map(|(_, word)| word.strip_suffix('.')?.parse::<usize>().ok());
    let numbers: Vec<usize> = numbers.collect();
    let counted = numbers.iter().copied().eq(1..=numbers.len());
    (!counted).then(|| format!("conditions numbered {numbers:?} – count them from 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        check(&Repo::of(&[("a/src/lib.rs", text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_argument_without_numbers_is_found() {
        let text = "fn f() {\n    // SAFETY: as above.\n    unsafe { g() }\n}\n";
        assert!(found(text)[0].starts_with("a/src/lib.rs:2: unsafe without numbered conditions"));
        assert_eq!(found("// SAFETY: it is so. 1. For x.\nunsafe impl Send for X {}\n").len(), 1);
    }

    #[test]
    fn conditions_count_from_one() {
        let text = "fn f() {\n    // SAFETY: 1. `p` lives: the caller's promise.\n    // 3. It is \
                    aligned: `new` checked.\n    unsafe { g() }\n}\n";
        assert!(found(text)[0].contains("numbered [1, 3]"), "{:?}", found(text));
        assert!(found(&text.replace("3.", "2.")).is_empty());
    }

    #[test]
    fn citations_figures_and_tests_are_left_alone() {
        for text in [
            "// SAFETY: 1. A row of 64. 2. On Linux 5.10: as documented.\nunsafe impl S for X {}\n",
            "// SAFETY: 1 and 2 as for `Send`.\nunsafe impl Sync for X {}\n",
            "// SAFETY: 2 (freed last): no guard is left.\nunsafe impl Sync for X {}\n",
            "// SAFETY: 1. One.\n// SAFETY: 1. Another.\nunsafe impl S for X {}\n",
            "#[cfg(test)]\nmod tests {\n    // SAFETY: a test.\n    unsafe fn f() {}\n}\n",
            "fn f() { g(\"// SAFETY: none\"); }\n",
        ] {
            assert!(found(text).is_empty(), "{text}: {:?}", found(text));
        }
        let repo = Repo::of(&[("a/tests/x.rs", "// SAFETY: a test.\nunsafe fn f() {}\n")]);
        assert!(check(&repo).is_empty());
    }
}
