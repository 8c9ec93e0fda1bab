//! Runs the chores of the repository: `cargo xtask tidy`, `modelled`, `regress`, `benchmarks`,
//! `pictures` and `site`.

#![forbid(unsafe_code)]

mod benchmarks;
mod modelled;
mod pictures;
mod regress;
mod repo;
mod rust;
mod site;
mod tidy;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo xtask tidy [DIRECTORY], modelled DIRECTORY, regress, \
    benchmarks [--check], pictures, or site";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    run(&args, &mut io::stdout()).unwrap_or_else(|what| {
        eprintln!("xtask: {what}; {USAGE}");
        ExitCode::from(2)
    })
}

/// Runs a command; the error says in a line what is wrong with its input.
fn run(args: &[&str], out: &mut dyn Write) -> Result<ExitCode, String> {
    match args {
        ["tidy"] => tidy_at(&workspace_root(), out),
        ["tidy", root] => tidy_at(Path::new(root), out),
        ["modelled", noted] => modelled_in(Path::new(noted)),
        ["modelled", ..] => Err("modelled needs the directory of SUBMETER_MODELLED".to_owned()),
        ["regress"] => regress::run(&workspace_root()).map(|worse| ExitCode::from(u8::from(worse))),
        ["regress", ..] => Err("regress takes no argument".to_owned()),
        ["benchmarks"] => splice(false),
        ["benchmarks", "--check"] => splice(true),
        ["benchmarks", ..] => Err("benchmarks takes no argument except --check".to_owned()),
        ["pictures"] => draw(&workspace_root()),
        ["site"] => publish(&workspace_root()),
        ["-h" | "--help"] => {
            println!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        [] => Err("no command".to_owned()),
        [command, ..] => Err(format!("unknown command {command:?}")),
    }
}

fn tidy_at(root: &Path, out: &mut dyn Write) -> Result<ExitCode, String> {
    let repo = open(root)?;
    let mut findings = tidy::findings(&repo);
    match tidy::packages::check(root, &repo) {
        Ok(more) => findings.extend(more),
        Err(error) => println!("skipped: the count of packages: cargo fetch ({error})"),
    }
    let unwritable = |error: io::Error| error.to_string();
    for finding in &findings {
        writeln!(out, "{finding}").map_err(unwritable)?;
    }
    if findings.is_empty() {
        writeln!(out, "tidy: {} files, no findings", repo.files().len()).map_err(unwritable)?;
        Ok(ExitCode::SUCCESS)
    } else {
        eprintln!("tidy: {} findings in {} files", findings.len(), repo.files().len());
        Ok(ExitCode::FAILURE)
    }
}

fn open(root: &Path) -> Result<repo::Repo, String> {
    repo::Repo::open(root).map_err(|error| format!("{}: {error}", root.display()))
}

/// Writes which atomics models have executed; fails if one has neither a model nor an argument, or
/// if the list did not say so.
fn modelled_in(noted: &Path) -> Result<ExitCode, String> {
    let root = workspace_root();
    let missing = modelled::run(&root, &open(&root)?, noted)?;
    missing.iter().for_each(|what| println!("{what}"));
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes the tables of records into their documents; with `check`, fails if that would change one.
fn splice(check: bool) -> Result<ExitCode, String> {
    let root = workspace_root();
    let mut differ = false;
    for file in benchmarks::FILES {
        let path = root.join(file);
        let was = std::fs::read_to_string(&path).map_err(|error| format!("{file}: {error}"))?;
        let is = match benchmarks::claimed(&was, &|| benchmarks::claims(&root))? {
            Some(is) => is,
            None => benchmarks::spliced(file, &was, &|record| benchmarks::tables(&root, record))?,
        };
        if was == is {
            println!("benchmarks: {file} agrees with its records");
        } else if check {
            println!("{file}: differs from its records: run cargo xtask benchmarks");
            differ = true;
        } else {
            std::fs::write(&path, is).map_err(|error| format!("{file}: {error}"))?;
        }
    }
    Ok(if differ { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Redraws the pictures.
fn draw(root: &Path) -> Result<ExitCode, String> {
    let repo = open(root)?;
    for file in repo.files() {
        let Some(target) = pictures::target(&file.path) else { continue };
        let svg = pictures::svg(&file.text).map_err(|error| format!("{}: {error}", file.path))?;
        std::fs::write(root.join(&target), svg).map_err(|error| format!("{target}: {error}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the site; fails if one of its links leads nowhere.
fn publish(root: &Path) -> Result<ExitCode, String> {
    let (start, broken) = site::make(root)?;
    broken.iter().for_each(|line| println!("{line}"));
    println!("site: {}, {} broken links", start.display(), broken.len());
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the root of the workspace. Cargo also sets the package's directory at run time; a path
/// compiled in would be wrong after the checkout is moved.
fn workspace_root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.ancestors().nth(2).map_or(package.clone(), Path::to_path_buf)
}

/// Returns the Cargo that runs this.
fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_fails_the_run() {
        let dir = std::env::temp_dir().join(format!("submeter-xtask-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::write(dir.join("Cargo.toml"), "[workspace]\n").expect("a file");
        std::fs::write(dir.join("a.md"), "see `docs/gone.md`\n").expect("a file");
        let mut out = Vec::new();
        let code = run(&["tidy", dir.to_str().expect("a UTF-8 path")], &mut out);
        std::fs::remove_dir_all(&dir).expect("removed");
        assert_eq!(code, Ok(ExitCode::FAILURE));
        assert!(out.starts_with(b"a.md:1: dead path `docs/gone.md`"));
    }

    #[test]
    fn wrong_usage_is_a_line() {
        for args in [&[][..], &["tidier"], &["tidy", "/nonexistent/submeter"]] {
            let said = run(args, &mut Vec::new()).expect_err("refused");
            assert_eq!(said.lines().count(), 1, "{args:?}");
        }
        assert_eq!(USAGE.lines().count(), 1);
    }
}
