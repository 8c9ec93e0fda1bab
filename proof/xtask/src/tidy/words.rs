//! No unfinished work: no marks for later, no skipped tests, no fence that does not compile, and no
//! silenced lint without a reason.

use super::{Finding, doc_text, markdown, numbered};
use crate::repo::{File, Repo};
use crate::rust::{Rust, Token};

/// Written in parts, so that this file passes its own rule.
const MARKS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repo.files() {
        match &file.rust {
            Some(Ok(rust)) => rust_file(file, rust, &mut findings),
            _ => other_file(file, &mut findings),
        }
    }
    findings
}

fn rust_file(file: &File, rust: &Rust, findings: &mut Vec<Finding>) {
    let comments = || rust.comments.iter().enumerate().map(|(i, text)| (i + 1, text.as_str()));
    for (line, comment) in comments() {
        marks(&file.path, line, comment, findings);
    }
    let docs = comments().filter_map(|(line, text)| Some((line, doc_text(text)?)));
    fences(&file.path, docs, findings);
    for pair in rust.tokens.windows(2) {
        if matches!(pair[0].text.as_str(), "todo" | "unimplemented") && pair[1].text == "!" {
            let what = format!("`{}!` – finish it or remove it", pair[0].text);
            findings.push(Finding::new(&file.path, pair[0].line, what));
        }
    }
    for attribute in rust.attributes().filter(|attribute| !attribute.is_empty()) {
        if let Some(what) = bad_attribute(attribute) {
            findings.push(Finding::new(&file.path, attribute[0].line, what));
        }
    }
}

fn other_file(file: &File, findings: &mut Vec<Finding>) {
    let is_markdown = file.path.ends_with(".md");
    if is_markdown {
        fences(&file.path, numbered(&file.text), findings);
    }
    for (line, text) in numbered(&file.text) {
        if is_markdown {
            // A mark between backticks is only being mentioned.
            let prose: Vec<&str> = text.split('`').step_by(2).collect();
            marks(&file.path, line, &prose.join(" "), findings);
        } else if !file.path.ends_with("Cargo.lock") && !file.path.starts_with("LICENSE") {
            marks(&file.path, line, text, findings);
        }
    }
}

fn marks(path: &str, line: usize, text: &str, findings: &mut Vec<Finding>) {
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    if let Some(mark) = words.find(|word| MARKS.contains(word)) {
        let what = format!("`{mark}` – do it, or open an issue and remove the mark");
        findings.push(Finding::new(path, line, what));
    }
}

fn fences<'t>(
    path: &str,
    lines: impl Iterator<Item = (usize, &'t str)>,
    findings: &mut Vec<Finding>,
) {
    for line in markdown(lines) {
        let tags = line.opens.unwrap_or("").split([',', ' ']);
        if tags.into_iter().any(|tag| tag.trim() == "ignore") {
            let what = "code fence that is not compiled – make it compile, or tag it `text`";
            findings.push(Finding::new(path, line.number, what));
        }
    }
}

fn bad_attribute(attribute: &[Token]) -> Option<String> {
    let name = attribute[0].text.as_str();
    let has = |word: &str| attribute.iter().any(|token| token.text == word);
    if name == "ignore" || (name == "cfg_attr" && has("ignore")) {
        return Some("test that is skipped – scale it by cfg instead".to_owned());
    }
    let silences = |i: usize| {
        let open = attribute.get(i + 1).is_some_and(|token| token.text == "(");
        open && matches!(attribute[i].text.as_str(), "allow" | "expect")
    };
    if matches!(name, "allow" | "expect" | "cfg_attr")
        && (0..attribute.len()).any(silences)
        && !has("reason")
    {
        return Some("lint silenced without a reason – add `reason = \"…\"`".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&Repo::of(&[(path, text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn marks_are_found_in_comments_and_prose() {
        for mark in MARKS {
            assert_eq!(found("a.rs", &format!("fn f() {{}} // {mark}: later\n")).len(), 1);
            assert_eq!(found("a.md", &format!("{mark} later\n")).len(), 1);
            assert_eq!(found("run", &format!("# {mark}\n")).len(), 1);
            assert!(found("a.rs", &format!("const M: &str = \"{mark}\"; // x{mark}\n")).is_empty());
            assert!(found("a.md", &format!("no `{mark}` here\n")).is_empty());
        }
    }

    #[test]
    fn unfinished_macros_are_found() {
        for text in ["fn f() { todo!() }\n", "fn f() { std::unimplemented!(\"x\") }\n"] {
            assert_eq!(found("a.rs", text).len(), 1, "{text}");
        }
        assert!(found("a.rs", "fn todo() { todo() }\n").is_empty());
    }

    #[test]
    fn skipped_tests_are_found() {
        for text in [
            "#[test]\n#[ignore]\nfn f() {}\n",
            "#[test]\n#[ignore = \"slow\"]\nfn f() {}\n",
            "#[cfg_attr(miri, ignore)]\n#[test]\nfn f() {}\n",
        ] {
            assert_eq!(found("a.rs", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn fences_that_do_not_compile_are_found() {
        assert_eq!(found("a.rs", "/// ```ignore\n/// f()\n/// ```\nfn f() {}\n").len(), 1);
        assert_eq!(found("a.md", "```rust,ignore\nf()\n```\n").len(), 1);
        assert!(found("a.md", "```text\n```\n```rust\n```\n").is_empty());
    }

    #[test]
    fn silenced_lints_need_a_reason() {
        assert_eq!(found("a.rs", "#[allow(dead_code)]\nfn f() {}\n").len(), 1);
        assert_eq!(found("a.rs", "#![expect(unsafe_code)]\n").len(), 1);
        assert_eq!(found("a.rs", "#![cfg_attr(loom, allow(dead_code))]\n").len(), 1);
        assert!(found("a.rs", "#[allow(dead_code, reason = \"why\")]\nfn f() {}\n").is_empty());
        assert!(found("a.rs", "fn f() { x.expect(\"y\"); }\n").is_empty());
    }
}
