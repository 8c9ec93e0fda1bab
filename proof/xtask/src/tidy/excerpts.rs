//! A program in a document must equal a file that compiles, which `<!-- file: PATH -->` above its
//! fence names. The file's own `//!` lines are left out.

use super::{Finding, numbered};
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
    }
    findings
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
    fn a_missing_file_is_found() {
        let found = check(&Repo::of(&[("x.md", SHOWN)]));
        assert_eq!(found[0].to_string(), "x.md:2: no file `a.rs` to show – name one");
    }
}
