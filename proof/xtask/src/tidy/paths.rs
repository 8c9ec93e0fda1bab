//! Every path that a document or a comment names must exist.

use fast_glob::glob_match;

use super::{Finding, doc_text, markdown, numbered};
use crate::repo::{File, Repo};
use crate::rust::Rust;

/// Directories whose paths are checked whatever their ending, even if they do not exist yet.
const TOP: [&str; 8] =
    ["crates", "programs", "proof", "examples", "docs", ".ci", ".cargo", ".github"];

/// Endings that make any name with a `/` one of our paths. `.c` and `.h` are not among them: those
/// are Linux's.
const ENDINGS: [&str; 4] = [".rs", ".md", ".toml", ".asm"];

/// Endings that make even a bare name one of our files.
const BARE_ENDINGS: [&str; 3] = [".rs", ".md", ".asm"];

/// The directory of the measurements behind the figures.
const RECORDS: &str = "proof/submeter-bench/record/";

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repo.files() {
        match &file.rust {
            Some(Ok(rust)) => rust_file(repo, file, rust, &mut findings),
            _ if file.path.ends_with(".md") => document(repo, file, &mut findings),
            _ => {}
        }
    }
    findings
}

fn document(repo: &Repo, file: &File, findings: &mut Vec<Finding>) {
    for line in markdown(numbered(&file.text)) {
        records(repo, file, line.number, line.text, findings);
        if line.fenced {
            continue;
        }
        for span in backticked(line.text).filter(|span| is_path(span)) {
            require(repo, file, line.number, span, findings);
        }
        for target in link_targets(line.text).filter(|target| is_local(target)) {
            require(repo, file, line.number, target, findings);
        }
    }
}

fn rust_file(repo: &Repo, file: &File, rust: &Rust, findings: &mut Vec<Finding>) {
    for (line, comment) in (1..).zip(&rust.comments) {
        records(repo, file, line, comment, findings);
        for span in backticked(comment).filter(|span| is_path(span)) {
            require(repo, file, line, span, findings);
        }
        let targets = doc_text(comment).into_iter().flat_map(link_targets);
        for target in targets.filter(|target| is_path(target)) {
            require(repo, file, line, target, findings);
        }
    }
}

/// Checks a figure's record wherever it is named, with or without backticks or a fence.
fn records(repo: &Repo, file: &File, line: usize, text: &str, findings: &mut Vec<Finding>) {
    let is_end = |c: char| !c.is_ascii_alphanumeric() && !"_-./*{},".contains(c);
    let named = |word: &&str| word.len() > RECORDS.len() && word.starts_with(RECORDS);
    for word in text.split(is_end).filter(named) {
        require(repo, file, line, word.trim_end_matches(['.', ',']), findings);
    }
}

fn require(repo: &Repo, file: &File, line: usize, path: &str, findings: &mut Vec<Finding>) {
    if !resolves(repo, &file.path, path) {
        let what = format!("dead path `{path}` – name one that exists");
        findings.push(Finding::new(&file.path, line, what));
    }
}

/// Tries the path relative to the root, the file's directory, its crate and its crate's `src`.
fn resolves(repo: &Repo, from: &str, path: &str) -> bool {
    !resolved(repo, from, path).is_empty()
}

/// Returns the files and directories that a path in the file `from` may mean.
pub(super) fn resolved<'r>(repo: &'r Repo, from: &str, path: &str) -> Vec<&'r str> {
    let path = path.split('#').next().unwrap_or("");
    let path = path.trim_end_matches(|c: char| c.is_ascii_digit() || c == ':');
    let path = path.strip_suffix('/').unwrap_or(path);
    let named = |known: &&str| known.rsplit('/').next() == Some(path);
    let bare: Vec<&str> =
        if path.contains('/') { Vec::new() } else { repo.paths().filter(named).collect() };
    if !bare.is_empty() {
        return bare;
    }
    let dir = from.rsplit_once('/').map_or("", |(dir, _)| dir);
    let package = repo.package_of(from);
    let bases = ["", dir, package, &format!("{package}/src")];
    let meant = bases.iter().filter_map(|base| normalise(base, path));
    meant.flat_map(|path| matches(repo, &path)).collect()
}

fn matches<'r>(repo: &'r Repo, path: &str) -> Vec<&'r str> {
    if !path.contains(['*', '{']) {
        // The root has no entry of its own.
        let root = path.is_empty().then_some("");
        return root.into_iter().chain(repo.paths().filter(|known| *known == path)).collect();
    }
    repo.paths().filter(|known| glob_match(path, known)).collect()
}

/// Joins the paths and resolves `.` and `..`; `None` for a path that leaves the repository.
fn normalise(base: &str, path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in base.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Returns whether a word is meant as a path of this repository.
pub(super) fn is_path(word: &str) -> bool {
    let word = word.split('#').next().unwrap_or("");
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./*{},:".contains(c);
    if word.is_empty() || !word.chars().all(plain) || word.contains("::") || word.contains("//") {
        return false;
    }
    let word = word.trim_end_matches(|c: char| c.is_ascii_digit() || c == ':');
    match word.split_once('/') {
        // Absolute: a group's path, or a system file.
        Some(("", _)) => false,
        Some((first, _)) => TOP.contains(&first) || ENDINGS.iter().any(|end| word.ends_with(end)),
        None => {
            let ending = BARE_ENDINGS.iter().find_map(|end| word.strip_suffix(end));
            ending.is_some_and(|stem| !stem.is_empty() && !stem.contains('*'))
        }
    }
}

/// Returns whether a Markdown link leads to a file of the repository.
fn is_local(target: &str) -> bool {
    !target.is_empty() && !target.starts_with('#') && !target.contains(':')
}

fn backticked(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn link_targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| {
        let target = rest.split(')').next()?;
        target.split_whitespace().next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let mut all = vec![
            ("crates/a/Cargo.toml", ""),
            ("crates/a/src/x/raw.rs", ""),
            ("docs/images/page.png", ""),
            ("README.md", "# A\n"),
        ];
        all.extend(files);
        check(&Repo::of(&all)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_dead_path_in_a_document_is_found() {
        for dead in [
            "`crates/a/src/y.rs`",
            "`docs/none/`",
            "`gone.rs`",
            "`src/gone.rs`",
            "`crates/*/src/gone.rs`",
            "[x](docs/gone.html)",
            "![x](../page.png)",
            "proof/submeter-bench/record/none.json",
        ] {
            let text = format!("# T\nsee {dead}.\n");
            let found = found(&[("docs/t.md", &text)]);
            assert_eq!(found.len(), 1, "{dead}: {found:?}");
            assert!(found[0].starts_with("docs/t.md:2: dead path `"), "{found:?}");
        }
    }

    #[test]
    fn a_dead_path_in_a_comment_is_found() {
        let text =
            "//! See `crates/a/src/y.rs`.\n// and `x/gone.rs`\n/// [z](../z.md)\nfn f() {}\n";
        assert_eq!(found(&[("crates/a/src/lib.rs", text)]).len(), 3);
    }

    /// A live path is found from the root, its directory, its crate and `src`.
    #[test]
    fn a_live_path_is_found_from_each_start() {
        let text = "//! `crates/a/src/x/raw.rs:17` `x/raw.rs` `src/x/` `raw.rs` [r](../../../README.md#a)\n\
                    //! `crates/*/src/{x,y}/raw.rs` `crates/a/`\n";
        assert_eq!(found(&[("crates/a/src/lib.rs", text)]), Vec::<String>::new());
        assert!(found(&[("docs/t.md", "![p](images/page.png) [t](#top)\n")]).is_empty());
    }

    #[test]
    fn paths_outside_the_repository_are_left_alone() {
        let text = "`/acme/web` `kernel/cgroup/rstat.c` `https://x.y/z.rs` `crate::a::b` `get/set` \
                    [k](https://docs.kernel.org/a.html) `Cargo build` `proof/submeter-bench/record/…`\n\
                    ```text\n`src/gone.rs`\n```\n";
        assert_eq!(found(&[("docs/t.md", text)]), Vec::<String>::new());
    }
}
