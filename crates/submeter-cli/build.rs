//! Tells the command which compiler builds it, for the records of its benches.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!(
        "cargo::rustc-env=SUBMETER_RUSTC={}",
        version.unwrap_or_else(|_| "unknown".to_owned())
    );
}
