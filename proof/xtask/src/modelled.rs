//! Which atomic operations of the core crates the models execute, and that an argument exists for
//! each of the others: `proof/modelled/executed.txt`, which this writes, and
//! `proof/modelled/argued.txt`, which people write.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::repo::Repo;
use crate::tidy::{Finding, orderings};

const CORE: [&str; 5] = [
    "crates/submeter-sys/src/",
    "crates/submeter-percpu/src/",
    "crates/submeter-events/src/",
    "crates/submeter/src/",
    "crates/submeter-alloc/src/",
];
const EXECUTED: &str = "proof/modelled/executed.txt";
const ARGUED: &str = "proof/modelled/argued.txt";
/// Maximum number of lines from the call of an operation down to its last ordering.
const REACH: usize = 8;

/// The lines with atomics by file and function, as `FILE: FUNCTION`. The two orderings of one
/// operation, on separate lines, count once.
type Sites = BTreeMap<String, BTreeSet<usize>>;

fn sites(repo: &Repo) -> Sites {
    let mut sites = Sites::new();
    for (file, rust) in repo.rust_files() {
        let core = CORE.iter().any(|start| file.path.starts_with(start));
        let is_test = ["tests.rs", "/models/"].iter().any(|part| file.path.contains(part));
        if !core || is_test || repo.is_test(&file.path) {
            continue;
        }
        let lines = orderings::lines_with_orderings(rust);
        for &line in lines.keys().filter(|&&line| !rust.is_test_line(line)) {
            if lines.contains_key(&(line - 1)) && !has_call(&file.text, line) {
                continue;
            }
            let around = |&&(_, first, lines): &&(String, usize, usize)| {
                (first..first + lines).contains(&line)
            };
            let inner = rust.functions.iter().filter(around).max_by_key(|(_, first, _)| *first);
            let function = inner.map_or("-", |(name, ..)| name);
            sites.entry(format!("{}: {function}", file.path)).or_default().insert(line);
        }
    }
    sites
}

/// Returns whether an operation is called on a line, rather than only an ordering of it named.
fn has_call(text: &str, line: usize) -> bool {
    text.lines().nth(line - 1).is_some_and(|text| text.contains('('))
}

/// Returns the entries of a list: every line that is not a comment.
fn entries<'r>(repo: &'r Repo, list: &str) -> impl Iterator<Item = (usize, &'r str)> {
    let text = repo.files().iter().find(|file| file.path == list).map_or("", |file| &file.text);
    (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// Returns whether an entry is about a site; `*` stands for every function of a file.
fn is_about(entry: &str, site: &str) -> bool {
    match entry.strip_suffix('*') {
        Some(file) => site.starts_with(file),
        None => entry == site,
    }
}

/// Reports functions with an atomic that are on neither list, entries for functions that do not
/// exist, and arguments for what models execute.
pub(crate) fn check(repo: &Repo) -> Vec<Finding> {
    let sites = sites(repo);
    let counted = |(line, text)| (line, str::rsplit_once(text, ": ").unwrap_or((text, "")));
    let counted: Vec<_> = entries(repo, EXECUTED).map(counted).collect();
    let executed: Vec<_> = counted.iter().map(|&(line, (site, _))| (line, site)).collect();
    let argued: Vec<_> = entries(repo, ARGUED).collect();
    let mut findings = Vec::new();
    for (_, (site, count)) in counted {
        let mut words = count.split(' ');
        let whole = words.next() == words.nth(1);
        if let Some(&(line, _)) = argued.iter().find(|(_, entry)| whole && *entry == site) {
            let what = format!("models execute all of `{site}` – remove the line");
            findings.push(Finding::new(ARGUED, line, what));
        }
    }
    for (site, lines) in &sites {
        if !executed.iter().chain(&argued).any(|(_, entry)| is_about(entry, site)) {
            let (path, function) = site.split_once(": ").expect("made so");
            let what = format!(
                "`{function}` has an atomic that no model executes – model it (`cargo xtask modelled`), or argue in {ARGUED}"
            );
            findings.push(Finding::new(path, *lines.first().expect("one at least"), what));
        }
    }
    for (list, entries) in [(EXECUTED, executed), (ARGUED, argued)] {
        for (line, entry) in entries {
            if !sites.keys().any(|site| is_about(entry, site)) {
                let what = format!("`{entry}` has no atomic – remove the line");
                findings.push(Finding::new(list, line, what));
            }
        }
    }
    findings
}

/// Reads what the models have noted in `from`, and writes which functions they execute. Returns
/// what is wrong: what is neither executed nor argued for, and a list that was out of date.
pub(crate) fn run(root: &Path, repo: &Repo, from: &Path) -> Result<Vec<String>, String> {
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    // The models, by place.
    let mut noted = BTreeMap::<(String, usize), BTreeSet<String>>::new();
    let files = fs::read_dir(from).map_err(|error| format!("{}: {error}", from.display()))?;
    for file in files {
        let path = file.map_err(|error| error.to_string())?.path();
        let model = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for place in read(&path)?.lines() {
            let (file, line) = place.rsplit_once(':').ok_or("a line without a number")?;
            let line = line.parse().map_err(|_| format!("{place}: no number"))?;
            noted.entry((file.to_owned(), line)).or_default().insert(model.clone());
        }
    }
    let argued: Vec<_> = entries(repo, ARGUED).map(|(_, entry)| entry).collect();
    let (mut text, mut missing) = (String::from(HEAD), Vec::new());
    let (mut all, mut done) = (0, 0);
    for (site, lines) in sites(repo) {
        let file = site.split_once(": ").expect("made so").0;
        let (mut models, mut executed) = (BTreeSet::new(), BTreeSet::new());
        for &line in &lines {
            let before = lines.range(..line).next_back().map_or(0, |&before| before + 1);
            let first = before.max(line.saturating_sub(REACH));
            for at in first..=line {
                for model in noted.get(&(file.to_owned(), at)).into_iter().flatten() {
                    models.insert(model);
                    executed.insert(line);
                }
            }
        }
        (all, done) = (all + lines.len(), done + executed.len());
        if let Some(model) = models.first() {
            let (some, n) = (executed.len(), lines.len());
            let others = models.len() - 1;
            text += &format!("{site}: {some} of {n} by {model} and {others} more\n");
        }
        if executed.len() < lines.len() && !argued.iter().any(|entry| is_about(entry, &site)) {
            let which: Vec<_> = lines.difference(&executed).map(usize::to_string).collect();
            missing.push(format!(
                "neither executed nor argued for: {site}: lines {}",
                which.join(", ")
            ));
        }
    }
    let sites_of = |text: &str| -> BTreeSet<String> {
        text.lines().map(|line| line.split(" by ").next().unwrap_or_default().to_owned()).collect()
    };
    let before = repo.files().iter().find(|file| file.path == EXECUTED);
    // Which models there are depends on the run; what they execute must be what the list says.
    if before.is_some_and(|before| sites_of(&before.text) != sites_of(&text)) {
        missing.push(format!("{EXECUTED} was out of date: commit it as it is now"));
    }
    fs::write(root.join(EXECUTED), text).map_err(|error| format!("{EXECUTED}: {error}"))?;
    println!("modelled: {done} of {all} atomic operations are executed by models");
    Ok(missing)
}

const HEAD: &str = "\
# Functions of the core crates with atomic operations that loom models execute: how many of its
# lines with one, and by which models. Written by `cargo xtask modelled`. The others: argued.txt.
";

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "\
fn f() {
    X.load(Ordering::Relaxed);
}
fn g() {
    X.compare_exchange(
        0,
        1,
        Ordering::AcqRel,
        Ordering::Relaxed,
    );
}
#[cfg(loom)]
fn h() {
    X.load(Ordering::Relaxed);
}
";

    fn found(lists: &[(&str, &str)]) -> Vec<String> {
        let files = [&[("crates/submeter/src/a.rs", CODE)], lists].concat();
        check(&Repo::of(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_atomic_on_neither_list_is_found() {
        assert_eq!(found(&[]).len(), 2);
        let executed = "# Why\ncrates/submeter/src/a.rs: g: 1 of 1 by m and 0 more\n";
        let left = found(&[(EXECUTED, executed)]);
        assert!(left.len() == 1 && left[0].contains("a.rs:2: `f`"), "{left:?}");
        assert!(found(&[(ARGUED, "crates/submeter/src/a.rs: *\n")]).is_empty());
    }

    #[test]
    fn an_entry_without_an_atomic_is_found() {
        let argued = "crates/submeter/src/a.rs: *\ncrates/submeter/src/a.rs: h\n";
        let left = found(&[(ARGUED, argued)]);
        assert!(left.len() == 1 && left[0].starts_with("proof/modelled/argued.txt:2"), "{left:?}");
    }

    #[test]
    fn an_argument_for_what_models_execute_is_found() {
        let argued = "crates/submeter/src/a.rs: f\ncrates/submeter/src/a.rs: g\n";
        let executed = |n| format!("crates/submeter/src/a.rs: g: {n} of 2 by m and 0 more\n");
        assert!(found(&[(ARGUED, argued), (EXECUTED, &executed(1))]).is_empty());
        let left = found(&[(ARGUED, argued), (EXECUTED, &executed(2))]);
        assert!(left.len() == 1 && left[0].starts_with("proof/modelled/argued.txt:2"), "{left:?}");
    }

    #[test]
    fn what_models_note_is_found_by_its_lines() {
        let argued = "crates/submeter/src/a.rs: f\n";
        let repo = Repo::of(&[("crates/submeter/src/a.rs", CODE), (ARGUED, argued)]);
        let root = std::env::temp_dir().join(format!("modelled-{}", std::process::id()));
        fs::create_dir_all(root.join("proof/modelled")).expect("a place for files");
        fs::create_dir_all(root.join("noted")).expect("a place for files");
        assert_eq!(run(&root, &repo, &root.join("noted")).expect("read").len(), 1);
        fs::write(root.join("noted/m"), "crates/submeter/src/a.rs:5\n").expect("written");
        assert!(run(&root, &repo, &root.join("noted")).expect("read").is_empty());
        let text = fs::read_to_string(root.join(EXECUTED)).expect("written");
        assert!(text.ends_with("a.rs: g: 1 of 1 by m and 0 more\n"), "{text}");
        for (list, wrong) in [("# Why\n", 1), (&text, 0)] {
            let files = [("crates/submeter/src/a.rs", CODE), (ARGUED, argued), (EXECUTED, list)];
            let found = run(&root, &Repo::of(&files), &root.join("noted")).expect("read");
            assert_eq!(found.len(), wrong, "a list that is out of date: {found:?}");
        }
        fs::remove_dir_all(root).expect("it was there");
    }
}
