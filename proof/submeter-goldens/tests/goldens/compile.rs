//! The library's assembly, compiled once for each instruction set.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::asm::{Isa, Line, functions};

/// The index of rows, which is a choice of the build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// The CPU's number.
    ByCpu,
    /// The thread's `mm_cid`.
    ByMmCid,
}

/// Returns the functions whose name begins with one of `prefixes`, in order of name. `None`, after
/// printing why, if the target is not installed.
pub(crate) fn compiled(
    isa: Isa,
    rows: Rows,
    prefixes: &[&str],
) -> Option<Vec<(String, Vec<Line>)>> {
    static TEXTS: [OnceLock<Option<String>>; 4] = [const { OnceLock::new() }; 4];
    let text = TEXTS[isa as usize * 2 + rows as usize].get_or_init(|| compile(isa, rows));
    let mut found = functions(isa, text.as_ref()?, "submeter_codegen_");
    found.retain(|(name, _)| prefixes.iter().any(|prefix| name.starts_with(prefix)));
    Some(found)
}

/// Returns the directory of the golden files of `isa` and `rows`.
pub(crate) fn golden_dir(isa: Isa, rows: Rows) -> PathBuf {
    let isa = Path::new(env!("CARGO_MANIFEST_DIR")).join("asm").join(match isa {
        Isa::X86_64 => "x86_64",
        Isa::Aarch64 => "aarch64",
    });
    match rows {
        Rows::ByCpu => isa,
        Rows::ByMmCid => isa.join("mm_cid"),
    }
}

/// Returns the assembly, `None` when the target is not installed.
fn compile(isa: Isa, rows: Rows) -> Option<String> {
    let target = match isa {
        Isa::X86_64 => "x86_64-unknown-linux-gnu",
        Isa::Aarch64 => "aarch64-unknown-linux-gnu",
    };
    let sysroot = rustc(&["--print", "sysroot"]);
    if !Path::new(sysroot.trim()).join("lib/rustlib").join(target).join("lib").is_dir() {
        eprintln!("skipped: {target} is not installed (rustup target add {target})");
        return None;
    }
    let (name, flags) = match rows {
        Rows::ByCpu => ("goldens", ""),
        Rows::ByMmCid => ("goldens-mm_cid", "--cfg submeter_mm_cid"),
    };
    // A separate target directory: the current one is locked and has other flags.
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let objects = out.join(target).join("release/deps");
    // Deletes the output of the last run, because cargo recompiles only what is missing or older
    // than its source.
    for old in outputs(&objects) {
        fs::remove_file(old).expect("the last run's output can be removed");
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["rustc", "--quiet", "--locked", "--release", "--lib"])
        // As a user's program is built by default: without link-time optimisation, in many codegen
        // units.
        .args(["--config", "profile.release.lto=false"])
        .args(["--config", "profile.release.codegen-units=16"])
        .args(["--config", "profile.release.debug=0"])
        // Its callees are compiled as far as they are inlined, which every level above 0 does; the
        // rest is not compared.
        .args(["--config", "profile.release.opt-level=1"])
        .args(["--config", "profile.release.package.submeter-goldens.opt-level=3"])
        .args(["--target", target, "--target-dir"])
        .arg(&out)
        // As part of an executable: a shared library would call through a table.
        .args(["--", "--emit=asm", "-Crelocation-model=pie"])
        // The reviewed code was built without the flags of this build (coverage, injection, a CPU
        // model).
        .env("RUSTFLAGS", flags)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // One file per codegen unit.
    let assembly =
        outputs(&objects).filter(|path| path.extension().is_some_and(|kind| kind == "s"));
    let text: String = assembly.map(|path| fs::read_to_string(path).expect("readable")).collect();
    assert!(!text.is_empty(), "assembly was asked for");
    Some(text)
}

/// Returns the files that compiling the library left in `directory`.
fn outputs(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.to_string_lossy().contains("submeter_goldens-"))
}

/// Runs the compiler and returns what it prints.
pub(crate) fn rustc(arguments: &[&str]) -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(arguments).output().expect("rustc runs");
    String::from_utf8(output.stdout).expect("UTF-8")
}
