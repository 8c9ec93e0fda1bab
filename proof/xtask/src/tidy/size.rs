//! Limits of size: a file has one purpose, a function fits on one and a half screens, a document
//! answers one question, and a clone does not contain every measurement ever made.

use super::Finding;
use crate::repo::Repo;

const LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
/// Maximum length of a function's name: a whole sentence must be read twice before it is
/// understood.
const NAME_CHARACTERS_MAX: usize = 45;
/// Maximum number of lines of files that everyone would otherwise extend.
const FILES: [(&str, usize); 9] = [
    ("README.md", 100),
    ("ARCHITECTURE.md", 150),
    ("BENCHMARKS.md", 120),
    ("CHANGELOG.md", 60),
    (".ci/check", 120),
    (".ci/test", 120),
    (".ci/proof", 120),
    (".ci/perf", 120),
    (".ci/release", 120),
];
/// Maximum size of a folder of records.
const RECORD_BYTES_MAX: usize = 5_000_000;

/// Files and functions (`path` or `path:function`) that may be longer, each with its reason.
const EXCEPTIONS: &[(&str, &str)] = &[];

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = check_but(repo, EXCEPTIONS);
    findings.extend(repo.sizes().filter_map(|(path, bytes)| large_record(path, bytes)));
    findings.extend(repo.files().iter().filter_map(|file| long_file(&file.path, &file.text)));
    findings
}

fn long_file(path: &str, text: &str) -> Option<Finding> {
    let (_, most) = FILES.into_iter().find(|(known, _)| *known == path)?;
    let lines = text.lines().count();
    (lines > most).then(|| {
        let what = format!("{lines} lines of {most} at most – move what is of one subject alone");
        Finding::new(path, most, what)
    })
}

fn large_record(path: &str, bytes: usize) -> Option<Finding> {
    let is_record = path.rsplit('/').next() == Some("record");
    (is_record && bytes > RECORD_BYTES_MAX).then(|| {
        let what = format!(
            "{bytes} bytes of {RECORD_BYTES_MAX} at most – keep the newest record of each machine, \
             compressed by zstd -19, and cite the commit whose tree has the others"
        );
        Finding::new(path, 1, what)
    })
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
            if name.len() > NAME_CHARACTERS_MAX && !excepted(&format!("{}:{name}", file.path)) {
                let what = format!(
                    "`{name}` has {} characters of {NAME_CHARACTERS_MAX} at most – say the rest in a \
                     sentence above it",
                    name.len()
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
    fn a_long_name_is_found() {
        let named = |n: usize| format!("#[test]\nfn {}() {{}}\n", "f".repeat(n));
        let found = check(&Repo::of(&[("a.rs", &named(46)), ("b.rs", &named(45))]));
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().contains("has 46 characters of 45"), "{found:?}");
    }

    #[test]
    fn a_long_document_is_found() {
        let text = "x\n".repeat(101);
        let files = [("README.md", &*text), ("a/README.md", &text), (".ci/test", &text)];
        let found = check(&Repo::of(&files));
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().starts_with("README.md:100: 101 lines of 100"), "{found:?}");
    }

    #[test]
    fn a_large_record_folder_is_found() {
        let half = "x".repeat(RECORD_BYTES_MAX / 2);
        let files = |more| {
            let deep = [("a/record/x/1.json", half.as_str()), ("a/record/2.json", &half)];
            Repo::of(&[&deep[..], &[("a/record/3.md", more), ("b/3.md", &half)]].concat())
        };
        assert!(check(&files("")).is_empty());
        let found = check(&files("x"));
        assert_eq!(found.len(), 1);
        let said = found[0].to_string();
        assert!(said.starts_with("a/record:1: 5000001 bytes of 5000000 at most – keep"), "{said}");
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
