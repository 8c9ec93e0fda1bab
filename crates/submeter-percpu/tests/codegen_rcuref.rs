//! What the compiler makes of the hot paths of `rcuref` equals what was reviewed:
//! `tests/asm/x86_64/<function>.asm`.
//!
//! `SUBMETER_BLESS=1` rewrites the golden files; the diff is then reviewed like source. Registers
//! and labels are numbered in order of appearance, and the cold halves have no names: which ones
//! the compiler picks was not part of the review. A compiler of another minor version may order
//! what is around the locked instruction otherwise, so it is held to the shape alone: one locked
//! increment or decrement, a branch on its sign, and no exchange.
#![cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom, shuttle))))]
// It compiles by itself, without these flags: under them it would find the same again.
#![cfg(not(any(submeter_no_rseq, submeter_inject)))]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../../submeter-sys/tests/codegen/asm.rs"]
#[expect(dead_code, reason = "shared with the sequences' test, which needs more of it")]
mod asm;
use asm::{Isa, functions};

/// The functions of the example, and the locked instruction each is to be.
const HOT: [(&str, &str); 5] = [
    ("rcuarc_clone", "lock incl"),
    ("rcuarc_release", "lock decl"),
    ("rcuref_get", "lock incl"),
    ("rcuref_get_ordered", "lock incl"),
    ("rcuref_put", "lock decl"),
];

#[test]
fn gets_and_puts_are_one_locked_instruction_and_a_branch_on_its_sign() {
    let assembly = compile();
    let functions = functions(Isa::X86_64, &assembly, "submeter_codegen_");
    let names: Vec<&str> = functions.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, HOT.map(|(name, _)| name));
    for ((name, lines), (_, locked)) in functions.iter().zip(HOT) {
        let lines: Vec<String> = lines.iter().map(|line| plain(&line.render())).collect();
        holds_the_shape(name, &lines, locked);
        holds_the_golden(name, &lines);
    }
}

/// Strips the mark of `asm!`, which nothing here is, and the name of a cold half.
fn plain(line: &str) -> String {
    let line = line.get(2..).unwrap_or_default();
    match line
        .find(['_'])
        .filter(|&at| line[at..].starts_with("_ZN") || line[at..].starts_with("_R"))
    {
        Some(at) => format!("{}cold", &line[..at]),
        None => line.to_owned(),
    }
}

fn holds_the_shape(name: &str, lines: &[String], locked: &str) {
    let text = lines.join("\n");
    let lock = lines.iter().position(|line| line.trim_start().starts_with("lock"));
    let at = lock.unwrap_or_else(|| panic!("{name}: no locked instruction in\n{text}"));
    assert!(lines[at].trim_start().starts_with(locked), "{name}: not `{locked}` in\n{text}");
    assert!(
        lines[at + 1].trim_start().starts_with("js "),
        "{name}: no branch on the sign:\n{text}"
    );
    assert_eq!(text.matches("lock").count(), 1, "{name}: more than one lock in\n{text}");
    for exchange in ["xadd", "xchg"] {
        assert!(!text.contains(exchange), "{name}: {exchange} in\n{text}");
    }
}

fn holds_the_golden(name: &str, lines: &[String]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/asm/x86_64/{name}.asm"));
    let header = format!("# {}\n", compiler());
    let now = lines.iter().fold(header.clone(), |text, line| text + line + "\n");
    if std::env::var_os("SUBMETER_BLESS").is_some_and(|value| value == "1") {
        return fs::write(&path, now).expect("the golden file can be written");
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    if !golden.is_empty() && !golden.starts_with(&header) {
        eprintln!("skipped: {name}.asm was reviewed with another compiler; its shape was checked");
        return;
    }
    assert_eq!(
        golden, now,
        "{name}.asm; if this is intended: SUBMETER_BLESS=1 cargo test -p submeter-percpu --test \
         codegen_rcuref, and review the diff"
    );
}

/// Returns the compiler's name and minor version.
fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().expect("rustc runs").stdout;
    let version = String::from_utf8(version).expect("UTF-8");
    let number = version.split_whitespace().nth(1).unwrap_or_default();
    let minor: Vec<&str> = number.split('.').take(2).collect();
    format!("rustc {}", minor.join("."))
}

/// Returns the assembly of the example.
fn compile() -> String {
    // A target directory of its own: the one in use is locked, and has other flags.
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("codegen_rcuref");
    let examples = out.join("release/examples");
    if examples.is_dir() {
        fs::remove_dir_all(&examples).expect("the last run's output can be removed");
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["rustc", "--quiet", "--locked", "--release", "--example", "codegen_rcuref"])
        // What the linker does later to other crates' code is not looked at, nor debug lines.
        .args(["--config", "profile.release.lto=false", "--config", "profile.release.debug=0"])
        .arg("--target-dir")
        .arg(&out)
        .args(["--", "--emit=asm"])
        // Flags of this build (coverage, a CPU model) are not part of what was reviewed.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let assembly: Vec<PathBuf> = fs::read_dir(&examples)
        .expect("the example was built")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "s"))
        .collect();
    assert_eq!(assembly.len(), 1, "one assembly file in {}", examples.display());
    fs::read_to_string(&assembly[0]).expect("readable")
}
