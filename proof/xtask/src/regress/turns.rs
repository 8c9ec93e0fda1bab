//! Measures this code against the record that BENCHMARKS.md shows, and measures what seems worse
//! again, alternately with the code that made the record.
//!
//! The record alone does not decide: it may have been made in a lucky hour, or on another machine
//! of the same name. Two programs that run alternately share the machine and the hour, so any
//! difference between them is due to the code.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Verdict, compare_all};
use crate::{claims, definitions};

/// The tables with ratios that must not become worse.
const TABLES: [&str; 9] = [
    "rcuref",
    "percpu_ref",
    "kill",
    "percpu_counter",
    "rstat",
    "perf",
    "count",
    "limits",
    "end_to_end",
];
/// The budget of each table in the first run, and in each turn of those that are measured again.
const SECONDS: [&str; 2] = ["4", "8"];
const TURNS: usize = 2;

/// Measures, compares, and reports losses that every turn shows.
///
/// # Errors
/// One line: what cannot be read, built or run.
pub(crate) fn run(root: &Path) -> Result<Verdict, String> {
    let record = root.join(claims::first_record(root)?);
    let out = root.join("target/ci/regress");
    create(&out)?;
    build(root, &root.join("target"))?;
    let new = root.join("target/dist/submeter-bench");
    let first = out.join("first.json");
    measure(&new, root, &TABLES, SECONDS[0], &first)?;
    let verdict = compare_all(&[&record, &first])?;
    let tables = verdict.tables();
    if tables.is_empty() {
        return Ok(verdict);
    }

    print!("{verdict}");
    let commit = definitions::record(&record)?["machine"]["commit"]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| format!("{}: names no commit", record.display()))?;
    println!("regress: {} again, in turns with {commit}, which made it", tables.join(" "));
    let source = checkout(root, &commit)?;
    let built = root.join("target/ci/old");
    build(&source, &built)?;
    let old = built.join("dist/submeter-bench");
    let mut files = vec![record, first];
    for turn in 0..TURNS {
        for (name, program, at) in [("old", &old, source.as_path()), ("new", &new, root)] {
            let file = out.join(format!("{name}-{turn}.json"));
            measure(program, at, &tables, SECONDS[1], &file)?;
            files.push(file);
        }
    }
    compare_all(&files)
}

/// Extracts the source of `commit`, without its history.
fn checkout(root: &Path, commit: &str) -> Result<PathBuf, String> {
    let source = root.join("target/ci/old-source");
    // Left by an earlier run, perhaps for another commit.
    let _ = std::fs::remove_dir_all(&source);
    create(&source)?;
    let archive = root.join("target/ci/old.tar");
    let git = ["archive", "--output", &archive.to_string_lossy(), commit].map(str::to_owned);
    call(Command::new("git").current_dir(root).args(git)).map_err(|error| {
        format!("{error}: the history lacks {commit}: git fetch --unshallow, or make a record")
    })?;
    // Files get the current time, not the commit's date: cargo would otherwise consider what it
    // built from a later commit newer.
    call(
        Command::new("tar").arg("-x").arg("--touch").arg("-f").arg(&archive).arg("-C").arg(&source),
    )?;
    Ok(source)
}

fn build(source: &Path, target: &Path) -> Result<(), String> {
    let args = ["build", "--quiet", "--profile", "dist", "-p", "submeter-bench"];
    call(crate::cargo().current_dir(source).args(args).env("CARGO_TARGET_DIR", target))
}

fn measure<S: AsRef<str>>(
    program: &Path,
    at: &Path,
    tables: &[S],
    seconds: &str,
    file: &Path,
) -> Result<(), String> {
    let tables = tables.iter().map(AsRef::as_ref);
    let mut command = Command::new(program);
    command.current_dir(at).args(tables).args(["--seconds", seconds, "--json"]).arg(file);
    call(command.stdout(std::process::Stdio::null()))
}

fn create(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn call(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{}: {status}", command.get_program().to_string_lossy())),
        Err(error) => Err(format!("{}: {error}", command.get_program().to_string_lossy())),
    }
}
