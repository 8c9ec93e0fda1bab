//! A cargo command in a text must find what it names, seen from the root, where the reader is.

use super::{Finding, numbered};
use crate::repo::Repo;

/// What a command names, and the folder of the package that contains it.
const TARGETS: [(&str, &str); 4] =
    [("--example", "examples"), ("--bench", "benches"), ("--test", "tests"), ("--bin", "src/bin")];

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    // A record says what was run at a commit that it names.
    let texts = repo.files().iter().filter(|file| !file.path.contains("/record/"));
    let lines = texts.flat_map(|file| numbered(&file.text).map(move |(at, line)| (file, at, line)));
    // In code it may be a part of a test's text, and a script may be in another directory when it
    // runs one.
    let prose = lines.filter(|(file, _, line)| {
        file.path.ends_with(".md") || file.rust.is_some() && line.trim_start().starts_with("//")
    });
    let wrong = prose.flat_map(|(file, at, line)| {
        let said = move |what| Finding::new(&file.path, at, what);
        commands(line).filter_map(|command| wrong(repo, command)).map(said).collect::<Vec<_>>()
    });
    wrong.collect()
}

/// Returns the commands of a line that run a part of a package.
fn commands(line: &str) -> impl Iterator<Item = &str> {
    let runs = |rest: &&str| ["run ", "test ", "bench "].iter().any(|verb| rest.starts_with(verb));
    let ends = |c: char| matches!(c, '`' | '"' | '#' | '|' | '&' | ';');
    let each = line.split("cargo ").skip(1).filter(runs);
    each.map(move |rest| rest.split(ends).next().unwrap_or(rest))
}

fn wrong(repo: &Repo, command: &str) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().take_while(|&word| word != "--").collect();
    let after = |flag: &str| {
        let at = words.iter().position(|&word| word == flag)?;
        words.get(at + 1).copied().filter(|word| !word.starts_with(['-', '$', '{']))
    };
    let (folder, target) =
        TARGETS.iter().find_map(|&(flag, folder)| Some((folder, after(flag)?)))?;
    let Some(package) = after("-p") else {
        let is_all = words.iter().any(|word| ["--workspace", "--manifest-path"].contains(word));
        return (!is_all).then(|| format!("`cargo {command}` finds no `{target}`: add -p PACKAGE"));
    };
    let named = |name: &str| format!("name = \"{name}\"");
    let manifest = repo.files().iter().find(|file| {
        file.path.ends_with("Cargo.toml") && file.text.lines().any(|line| line == named(package))
    });
    let Some(manifest) = manifest else {
        return Some(format!("`cargo {command}`: no package is called `{package}`"));
    };
    let home = manifest.path.trim_end_matches("Cargo.toml");
    let files = [".rs", "/main.rs"].map(|end| format!("{home}{folder}/{target}{end}"));
    let is_there = repo.files().iter().any(|file| files.contains(&file.path));
    let missing = !is_there && !manifest.text.contains(&named(target));
    missing.then(|| format!("`cargo {command}`: there is no `{}`", files[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_finds_nothing_is_found() {
        let tree = [("x/Cargo.toml", "[package]\nname = \"x\"\n"), ("x/examples/e.rs", "")];
        for (text, remedy) in [
            ("Run `cargo run --release -p x --example e -- 4`.", None),
            ("Run `cargo test -p x --lib` or `cargo test --workspace --test it`.", None),
            ("Run `cargo run --example e`.", Some("add -p PACKAGE")),
            ("Run `cargo run -p y --example e`.", Some("no package is called `y`")),
            ("    cargo bench -p x --bench e", Some("there is no `x/benches/e.rs`")),
        ] {
            let files = [&tree[..], &[("a.md", text), ("a/record/b.md", text)]].concat();
            let found: Vec<String> =
                check(&Repo::of(&files)).iter().map(ToString::to_string).collect();
            assert_eq!(found.len(), usize::from(remedy.is_some()), "{found:?}");
            assert!(remedy.is_none_or(|remedy| found[0].contains(remedy)), "{found:?}");
        }
    }
}
