//! A program in a document must compile: either it equals a file, which `<!-- file: PATH -->` above
//! its fence names, or the document is an item's documentation. A file's own `//!` lines are left
//! out.

use super::{Finding, markdown, numbered};
use crate::repo::Repo;

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repo.files().iter().filter(|file| file.path.ends_with(".md")) {
        for (line, text) in numbered(&file.text) {
            let Some(shown) = text.strip_prefix("<!-- file: ") else { continue };
            let shown = shown.trim_end_matches("-->").trim();
            let Some(source) = repo.files().iter().find(|other| other.path == shown) else {
                let what = format!("no file `{shown}` to show – name one");
                findings.push(Finding::new(&file.path, line, what));
                continue;
            };
            let fence: Vec<&str> = file.text.lines().skip(line + 1).collect();
            let end = fence.iter().position(|line| *line == "```").unwrap_or(fence.len());
            let program = source.text.lines().skip_while(|l| l.is_empty() || l.starts_with("//!"));
            if fence[..end] != program.collect::<Vec<_>>() {
                let what = format!("fence differs from `{shown}` – copy the file in");
                findings.push(Finding::new(&file.path, line, what));
            }
        }
        let programs = programs(&file.text);
        if !programs.is_empty() && !is_included(repo, &file.path) {
            let what = "no compiler sees this program – have a crate's lib.rs include the document";
            findings.extend(programs.iter().map(|line| Finding::new(&file.path, *line, what)));
        }
    }
    findings
}

/// Returns the lines of Rust fences that show no file.
fn programs(text: &str) -> Vec<usize> {
    let shows = |line: usize| {
        line > 1 && text.lines().nth(line - 2).is_some_and(|l| l.starts_with("<!-- file: "))
    };
    let fences = markdown(numbered(text)).filter(|l| l.opens.is_some_and(is_rust));
    fences.map(|line| line.number).filter(|&line| !shows(line)).collect()
}

fn is_rust(tag: &str) -> bool {
    tag.split(',').next() == Some("rust")
}

/// Returns whether the document is an item's documentation.
fn is_included(repo: &Repo, document: &str) -> bool {
    repo.rust_files().any(|(file, _)| {
        let mut included = file.text.split("include_str!(").skip(1);
        included.any(|after| match after.strip_prefix('"').and_then(|path| path.split_once('"')) {
            Some((path, _)) => joined(folder(&file.path), path) == document,
            // A macro makes modules of the documents beside it.
            None => {
                after.starts_with("concat!(stringify!") && folder(&file.path) == folder(document)
            }
        })
    })
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "# X\n<!-- file: a.rs -->\n```rust\nfn main() {}\n```\nend\n";

    #[test]
    fn an_equal_fence_passes() {
        assert!(
            check(&Repo::of(&[("a.rs", "//! A.\n\nfn main() {}\n"), ("x.md", SHOWN)])).is_empty()
        );
    }

    #[test]
    fn a_fence_that_differs_is_found() {
        let found = check(&Repo::of(&[("a.rs", "fn main() { f() }\n"), ("x.md", SHOWN)]));
        assert_eq!(found[0].to_string(), "x.md:2: fence differs from `a.rs` – copy the file in");
    }

    #[test]
    fn a_program_that_nothing_compiles_is_found() {
        let readme = "# X\n```text\nfn\n```\n```rust,no_run\nfn main() {}\n```\n";
        let lib = |path: &str| format!("//! L.\n#[doc = include_str!({path})]\nstruct Readme;\n");
        let found = |lib: &str| {
            let files = [("crates/a/README.md", readme), ("crates/a/src/lib.rs", lib)];
            check(&Repo::of(&files)).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found(&lib("\"../README.md\"")), Vec::<String>::new());
        for other in ["\"../../README.md\"", "\"README.md\"", "concat!(stringify!(a), \".md\")"] {
            let found = found(&lib(other));
            assert_eq!(found.len(), 1, "{other}: {found:?}");
            assert!(
                found[0].starts_with("crates/a/README.md:5: no compiler sees this"),
                "{found:?}"
            );
        }
        // A program that equals a file compiles there, and those of a folder become modules.
        assert!(check(&Repo::of(&[("a.rs", "fn main() {}\n"), ("x.md", SHOWN)])).is_empty());
        let guide =
            [("g/a.md", "```rust\nf();\n```\n"), ("g/mod.rs", &*lib("concat!(stringify!(a))"))];
        assert!(check(&Repo::of(&guide)).is_empty());
    }

    #[test]
    fn a_missing_file_is_found() {
        let found = check(&Repo::of(&[("x.md", SHOWN)]));
        assert_eq!(found[0].to_string(), "x.md:2: no file `a.rs` to show – name one");
    }
}
