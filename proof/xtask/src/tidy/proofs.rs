//! Every test that a document names as a proof must exist; otherwise a table of proofs would
//! outlive the names of its tests. So must every test that a script selects or leaves out: a filter
//! that matches no name reports nothing.

use std::collections::BTreeSet;

use super::{Finding, markdown, numbered};
use crate::repo::Repo;

/// A lowercase name with this many words is a test's. Metrics and functions have fewer.
const WORDS_MIN: usize = 5;

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let is_rust = |path: &str| path.ends_with(".rs");
    // Words rather than functions: macros also make tests, from names that they are given.
    let sources = repo.files().iter().filter(|file| is_rust(&file.path));
    let known: BTreeSet<&str> =
        sources.flat_map(|file| file.text.split(|c: char| !is_plain(c))).collect();
    let mut findings = Vec::new();
    // A record describes the tests of its day.
    let documents = repo.files().iter().filter(|file| file.path.ends_with(".md"));
    for file in documents.filter(|file| !file.path.contains("/record/")) {
        for line in markdown(numbered(&file.text)).filter(|line| !line.fenced) {
            let spans = line.text.split('`').skip(1).step_by(2);
            for name in spans.filter(|name| is_test(name) && !is_known(&known, name)) {
                let what = format!("no test is called `{name}` – name one that exists");
                findings.push(Finding::new(&file.path, line.number, what));
            }
        }
    }
    // Scripts contain parts of names, for filters.
    for file in repo.files().iter().filter(|file| file.text.starts_with("#!")) {
        let lines = numbered(&file.text).filter(|(_, text)| !text.trim_start().starts_with('#'));
        for (number, text) in lines {
            let words = text.split(|c: char| !is_plain(c)).filter(|word| is_filter(word));
            for word in words.filter(|word| !known.iter().any(|name| name.contains(word))) {
                let what = format!("no test has `{word}` in its name – name one that exists");
                findings.push(Finding::new(&file.path, number, what));
            }
        }
    }
    findings
}

/// Returns whether a word of a script looks like a test's name. Names of formats contain numbers.
fn is_filter(word: &str) -> bool {
    is_test(word) && !word.split('_').any(|part| part.parse::<u32>().is_ok())
}

fn is_plain(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'
}

fn is_test(name: &str) -> bool {
    let name = name.strip_suffix('…').unwrap_or(name);
    let words = name.split('_').filter(|word| !word.is_empty());
    name.chars().all(is_plain) && words.count() >= WORDS_MIN
}

/// Returns whether a test has this name, or a name with this prefix if it ends in `…`.
fn is_known(known: &BTreeSet<&str>, name: &str) -> bool {
    match name.strip_suffix('…') {
        None => known.contains(name),
        Some(start) => known.range(start..).next().is_some_and(|name| name.starts_with(start)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let tests =
            "//! Tests.\nfn a_charge_is_given_back_once() {}\nlooms!(loom_a_2_finds_the_race);\n";
        let files = [("crates/a/tests/it/main.rs", tests), (path, text)];
        check(&Repo::of(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_test_that_is_gone_is_found() {
        for gone in
            ["a_charge_is_given_back_twice", "a_charge_is_given_back", "loom_a_2_misses_the_…"]
        {
            let found = found("SAFETY.md", &format!("# T\n| x | `{gone}` |\n"));
            assert_eq!(found.len(), 1, "{gone}: {found:?}");
            assert!(found[0].starts_with("SAFETY.md:2: no test is called `"), "{found:?}");
        }
    }

    #[test]
    fn a_filter_that_fits_no_test_is_found() {
        let script = "#!/bin/bash\n# an_old_name_in_a_comment\nrun --skip charge_is_given_back_once \
                      --format cyclone_dx_json_1_6 SUBMETER_A_B_C_D\n";
        assert_eq!(found("run", script), Vec::<String>::new());
        let found = found("run", &script.replace("_once", "_twice"));
        assert_eq!(
            found,
            ["run:3: no test has `charge_is_given_back_twice` in its name – name one \
                            that exists"]
        );
    }

    /// Tests that exist, other names and records are left alone.
    #[test]
    fn existing_tests_and_records_are_left_alone() {
        let text = "`a_charge_is_given_back_once`, `loom_a_2_finds_the_race`, `loom_a_2_finds_the_…`\n\
                    `try_get_many` `app_backend_info` `/a_b_c_d_e` `A_B_C_D_E`\n\
                    ```text\n`a_b_c_d_e`\n```\n";
        assert_eq!(found("SAFETY.md", text), Vec::<String>::new());
        assert!(found("proof/a/record/1.md", "`a_test_of_another_day`\n").is_empty());
    }
}
