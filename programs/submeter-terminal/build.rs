//! Gives the programs their version, with the commit that they were built from, if it is known.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SUBMETER_COMMIT");
    let version = env::var("CARGO_PKG_VERSION").expect("Cargo says which version it builds");
    let package = env::var("CARGO_MANIFEST_DIR").expect("Cargo says where it builds");
    let package = Path::new(&package);
    println!("cargo::rerun-if-env-changed=SUBMETER_DATE");
    if let Some(date) = env::var("SUBMETER_DATE").ok().or_else(|| committed(package)) {
        println!("cargo::rustc-env=SUBMETER_DATE={date}");
    }
    match env::var("SUBMETER_COMMIT").ok().or_else(|| packed(package)).or_else(|| cloned(package)) {
        Some(commit) => {
            println!("cargo::rustc-env=SUBMETER_COMMIT={commit}");
            println!("cargo::rustc-env=SUBMETER_VERSION={version} ({commit})");
        }
        None => println!("cargo::rustc-env=SUBMETER_VERSION={version}"),
    }
}

/// Returns the commit that `cargo package` recorded in an archive of crates.io.
fn packed(package: &Path) -> Option<String> {
    let noted = fs::read_to_string(package.join(".cargo_vcs_info.json")).ok()?;
    let (_, rest) = noted.split_once("\"sha1\"")?;
    let sha1 = rest.split('"').nth(1)?.get(..9)?;
    Some(marked(sha1, noted.contains("\"dirty\": true")))
}

/// Returns the day of the checked-out commit.
fn committed(package: &Path) -> Option<String> {
    cloned(package)?;
    let show = ["show", "--no-patch", "--format=%cs", "HEAD"];
    let output = Command::new("git").arg("-C").arg(package).args(show).output().ok()?;
    let day = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(day.trim().to_owned())
}

/// Returns the checked-out commit, with a mark if the sources differ from it.
fn cloned(package: &Path) -> Option<String> {
    let root = package.ancestors().nth(2)?.canonicalize().ok()?;
    let git = |args: &[&str]| {
        let output = Command::new("git").arg("-C").arg(&root).args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    // In a copy inside another repository, git would report that repository's commit.
    if Path::new(&git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != root {
        return None;
    }
    let sources = ["crates", "programs", "Cargo.toml", "Cargo.lock"];
    let watched = ["HEAD", "logs/HEAD"].map(|name| git(&["rev-parse", "--git-path", name]));
    for path in watched.into_iter().flatten().chain(sources.map(str::to_owned)) {
        let path = root.join(path);
        // Cargo treats a missing file as changed on every build.
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let status = [&["--no-optional-locks", "status", "--porcelain", "--"], &sources[..]].concat();
    Some(marked(&git(&["rev-parse", "--short=9", "HEAD"])?, !git(&status)?.is_empty()))
}

fn marked(commit: &str, dirty: bool) -> String {
    format!("{commit}{}", if dirty { "-dirty" } else { "" })
}
