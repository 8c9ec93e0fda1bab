//! Gives the program the version of its compiler, for its records, and the tables' definitions, for
//! its reports.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!(
        "cargo::rustc-env=SUBMETER_RUSTC={}",
        version.unwrap_or_else(|_| "unknown".to_owned())
    );
    definitions().expect("definitions/ can be read, and Cargo's folder be written");
}

/// Writes the text of every definition as an array, so that a new table is one new file.
fn definitions() -> std::io::Result<()> {
    // Read at run time: a path compiled in might be that of another checkout that shares the target
    // folder.
    let package = env::var_os("CARGO_MANIFEST_DIR").expect("Cargo says where the package lies");
    let folder = Path::new(&package).join("definitions");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path.canonicalize()?);
        }
    }
    files.sort();
    let texts: Vec<String> = files.iter().map(|path| format!("include_str!({path:?})")).collect();
    let array = format!("&[{}]", texts.join(", "));
    let out = env::var_os("OUT_DIR").expect("Cargo says where to write");
    fs::write(Path::new(&out).join("definitions.rs"), array)
}
