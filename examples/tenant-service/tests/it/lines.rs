//! The number of lines of the example that are about submeter.

use std::collections::HashSet;

const SOURCES: [&str; 3] = [
    include_str!("../../src/main.rs"),
    include_str!("../../src/api.rs"),
    include_str!("../../src/store.rs"),
];

/// The program's own names for things it has from submeter: a program without submeter would not
/// have lines with these names either, or not in this form.
const OWN: [&str; 18] = [
    "submeter",
    "submeter_http",
    "schema",
    "tree",
    "keys",
    "Keys",
    "metric",
    "group",
    "limit",
    "heap",
    "hold",
    "held",
    "killed",
    "turn",
    "turns",
    "JOBS",
    "page",
    "MEMORY_BYTES",
];

/// Returns the lines of code. rustfmt decides their length, so no line counts as two.
fn code(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().map(str::trim).filter(|line| !line.starts_with("//"))
}

/// Returns the words of a line, so that `hold` is not found in `household`.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Returns the names that a program imports from submeter, and methods of traits among them.
fn imported(text: &'static str) -> impl Iterator<Item = &'static str> {
    let uses = text.split("\nuse ").skip(1).filter_map(|rest| rest.split(';').next());
    let ours = uses.filter(|path| path.starts_with("submeter"));
    ours.flat_map(words).filter(|name| *name != "self")
}

#[test]
fn at_most_seventy_five_lines_are_about_submeter() {
    let mut names: HashSet<&str> = SOURCES.into_iter().flat_map(imported).collect();
    assert!(names.contains("MeterLayer") && names.contains("switch"), "{names:?}");
    names.extend(OWN);
    names.insert("in_current_group");
    let about = |line: &&str| words(line).any(|word| names.contains(word));
    let about: Vec<&str> = SOURCES.into_iter().flat_map(code).filter(about).collect();
    println!("{} lines: {about:#?}", about.len());
    assert!(about.len() <= 75, "{} lines: {about:#?}", about.len());
    // The count sees these lines.
    for part in ["Quota<Bytes>", "RateLayer::new", "switch::inherit(work)", ".kill()", "_ = &held"]
    {
        assert!(about.iter().any(|line| line.contains(part)), "{part} is not in {about:#?}");
    }
}
