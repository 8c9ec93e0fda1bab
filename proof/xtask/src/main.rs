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

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo xtask tidy [DIRECTORY], modelled DIRECTORY, regress, \
    benchmarks [--check], pictures, or site";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy_at(&workspace_root()),
        ["tidy", root] => tidy_at(Path::new(root)),
        ["modelled", noted] => modelled_in(Path::new(noted)),
        ["modelled", ..] => refuse("modelled needs the directory of SUBMETER_MODELLED"),
        ["regress"] => verdict(regress::run(&workspace_root())),
        ["regress", ..] => refuse("regress takes no argument"),
        ["benchmarks"] => splice(false),
        ["benchmarks", "--check"] => splice(true),
        ["benchmarks", ..] => refuse("benchmarks takes no argument except --check"),
        ["pictures"] => draw(&workspace_root()),
        ["site"] => publish(&workspace_root()),
        ["-h" | "--help"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        [] => refuse("no command"),
        [command, ..] => refuse(&format!("unknown command {command:?}")),
    }
}

fn tidy_at(root: &Path) -> ExitCode {
    let repo = match repo::Repo::open(root) {
        Ok(repo) => repo,
        Err(error) => return refuse(&format!("{}: {error}", root.display())),
    };
    let mut findings = tidy::findings(&repo);
    match tidy::packages::check(root, &repo) {
        Ok(more) => findings.extend(more),
        Err(error) => println!("skipped: the count of packages: cargo fetch ({error})"),
    }
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files, no findings", repo.files().len());
        ExitCode::SUCCESS
    } else {
        eprintln!("tidy: {} findings in {} files", findings.len(), repo.files().len());
        ExitCode::FAILURE
    }
}

/// Writes which atomics models have executed; fails if one has neither a model nor an argument, or
/// if the list did not say so.
fn modelled_in(noted: &Path) -> ExitCode {
    let root = workspace_root();
    let missing = repo::Repo::open(&root)
        .map_err(|error| format!("{}: {error}", root.display()))
        .and_then(|repo| modelled::run(&root, &repo, noted));
    match missing {
        Err(error) => refuse(&error),
        Ok(missing) => {
            missing.iter().for_each(|what| println!("{what}"));
            if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

/// Fails if ratios became worse.
fn verdict(worse: Result<bool, String>) -> ExitCode {
    worse.map_or_else(|error| refuse(&error), |worse| ExitCode::from(u8::from(worse)))
}

/// Writes the tables of records into their documents; with `check`, fails if that would change one.
fn splice(check: bool) -> ExitCode {
    let root = workspace_root();
    let mut differ = false;
    for file in benchmarks::FILES {
        let path = root.join(file);
        let found = || -> Result<(String, String), String> {
            let was = std::fs::read_to_string(&path).map_err(|error| format!("{file}: {error}"))?;
            let is = match benchmarks::claimed(&was, &|| benchmarks::claims(&root))? {
                Some(is) => is,
                None => {
                    benchmarks::spliced(file, &was, &|record| benchmarks::tables(&root, record))?
                }
            };
            Ok((was, is))
        };
        match found() {
            Err(error) => return refuse(&error),
            Ok((was, is)) if was == is => println!("benchmarks: {file} agrees with its records"),
            Ok(_) if check => {
                println!("{file}: differs from its records: run cargo xtask benchmarks");
                differ = true;
            }
            Ok((_, is)) => {
                if let Err(error) = std::fs::write(&path, is) {
                    return refuse(&format!("{file}: {error}"));
                }
            }
        }
    }
    if differ { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Redraws the pictures.
fn draw(root: &Path) -> ExitCode {
    let drawn = || -> Result<(), String> {
        let repo = repo::Repo::open(root).map_err(|error| error.to_string())?;
        for file in repo.files() {
            let Some(target) = pictures::target(&file.path) else { continue };
            let svg = pictures::svg(&file.text).map_err(|e| format!("{}: {e}", file.path))?;
            std::fs::write(root.join(&target), svg)
                .map_err(|error| format!("{target}: {error}"))?;
        }
        Ok(())
    };
    drawn().map_or_else(|error| refuse(&error), |()| ExitCode::SUCCESS)
}

/// Makes the site; fails if one of its links leads nowhere.
fn publish(root: &Path) -> ExitCode {
    match site::make(root) {
        Err(error) => refuse(&error),
        Ok((start, broken)) => {
            broken.iter().for_each(|line| println!("{line}"));
            println!("site: {}, {} broken links", start.display(), broken.len());
            if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
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

fn refuse(what: &str) -> ExitCode {
    eprintln!("xtask: {what}; {USAGE}");
    ExitCode::from(2)
}
