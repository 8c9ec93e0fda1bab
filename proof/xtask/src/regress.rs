//! Measures this code against the record that BENCHMARKS.md shows, and measures what seems worse
//! again, alternately with the code that made the record.
//!
//! The record alone does not decide: it may have been made in a lucky hour, or on another machine
//! of the same name. Two programs that run alternately share the machine and the hour, so any
//! difference between them is due to the code.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What README claims; its record `all` is compared with.
const CLAIMS: &str = "proof/submeter-bench/claims.toml";
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

/// Measures, compares, and reports losses that every turn shows; returns whether there are any.
///
/// # Errors
/// One line: what cannot be read, built or run.
pub(crate) fn run(root: &Path) -> Result<bool, String> {
    let record = root.join(first_record(root)?);
    let out = root.join("target/ci/regress");
    create(&out)?;
    build(root, &root.join("target"))?;
    let new = root.join("target/dist/submeter-bench");
    let first = out.join("first.json");
    measure(&new, root, &TABLES, SECONDS[0], &first)?;
    let mut files = vec![record, first];
    let Some((commit, tables)) = worse(&new, &files)? else { return Ok(false) };
    println!("regress: {} again, in turns with {commit}, which made it", tables.join(" "));
    let source = checkout(root, &commit)?;
    let built = root.join("target/ci/old");
    build(&source, &built)?;
    let old = built.join("dist/submeter-bench");
    for turn in 0..TURNS {
        for (name, program, at) in [("old", &old, source.as_path()), ("new", &new, root)] {
            let file = out.join(format!("{name}-{turn}.json"));
            measure(program, at, &tables, SECONDS[1], &file)?;
            files.push(file);
        }
    }
    Ok(worse(&new, &files)?.is_some())
}

/// Returns the path of the record.
fn first_record(root: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(root.join(CLAIMS)).map_err(|e| format!("{CLAIMS}: {e}"))?;
    let claims: toml::Table = text.parse().map_err(|error| format!("{CLAIMS}: {error}"))?;
    let path = claims.get("records").and_then(|records| records.get("all")?.as_str());
    path.map(str::to_owned).ok_or_else(|| format!("{CLAIMS}: no record \"all\" in [records]"))
}

/// Compares pairs of records by the bench itself, which knows how to read them, and prints what it
/// says; returns the commit of the first record, and the tables that have losses.
fn worse(bench: &Path, files: &[PathBuf]) -> Result<Option<(String, Vec<String>)>, String> {
    let mut command = Command::new(bench);
    for pair in files.chunks_exact(2) {
        command.arg("--regress").args(pair);
    }
    let output = command.output().map_err(|error| format!("{}: {error}", bench.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    if !matches!(output.status.code(), Some(0 | 1)) {
        return Err(reason(bench, &output));
    }
    let worse = said.lines().find_map(|line| line.strip_prefix("worse than ")?.split_once(": "));
    let tables = |names: &str| names.split(' ').map(str::to_owned).collect();
    Ok(worse.map(|(commit, names)| (commit.to_owned(), tables(names))))
}

/// Returns what a program said before it failed, or how it ended if it said nothing.
fn reason(program: &Path, output: &Output) -> String {
    match String::from_utf8_lossy(&output.stderr).trim() {
        "" => format!("{}: {}", program.display(), output.status),
        said => said.to_owned(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that fails without a word is named with its status.
    #[test]
    fn a_silent_failure_has_its_status() {
        for (script, told) in [("exit 3", "sh: exit status: 3"), ("echo no >&2; exit 3", "no")] {
            let output = Command::new("sh").args(["-c", script]).output().expect("a shell");
            assert_eq!(reason(Path::new("sh"), &output), told);
        }
    }
}
