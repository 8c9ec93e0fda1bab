//! What the compiler makes of each sequence equals what was reviewed: `tests/asm/<isa>/<sequence>.asm`.
//!
//! `SUBMETER_BLESS=1` rewrites the golden files; the diff is then reviewed like source.
//!
//! **What is compared.** Lines marked `|` come from the sequence's own `asm!` and must be equal. The
//! others are the compiler's (moving arguments, returning the answer): only their number is held, from above, because
//! another compiler may order them otherwise without costing more.
//!
//! **Registers are numbered** in order of appearance, those of the sequence first, keeping width. Which
//! register the allocator picks depends on the function around a sequence, and is not part of
//! what was reviewed; the numbering keeps what is: the instructions, the shape of every operand, and which
//! operands are the same register. Labels are numbered the same way.
// It compiles by itself, without these flags: under them it would find the same again.
#![cfg(not(any(miri, submeter_no_rseq, submeter_inject)))]

use std::path::{Path, PathBuf};
use std::process::Command;

mod codegen {
    pub(crate) mod asm;
}
use codegen::asm::{Isa, Line, functions};

const TARGETS: [(Isa, &str); 2] =
    [(Isa::X86_64, "x86_64-unknown-linux-gnu"), (Isa::Aarch64, "aarch64-unknown-linux-gnu")];

#[test]
fn each_sequence_is_compiled_to_what_was_reviewed() {
    let bless = std::env::var_os("SUBMETER_BLESS").is_some_and(|value| value == "1");
    let mut differences = Vec::new();
    for (isa, target) in TARGETS {
        let Some(text) = compile(target) else { continue };
        let functions = functions(isa, &text, "submeter_codegen_");
        assert!(functions.len() >= 9, "only {} functions in the assembly", functions.len());
        for (name, lines) in functions {
            holds_the_instruction_count(isa, &name, &lines);
            let path = golden_dir(isa).join(format!("{name}.asm"));
            if bless {
                std::fs::create_dir_all(golden_dir(isa)).expect("writable");
                std::fs::write(&path, render(&lines)).expect("writable");
            } else if let Some(difference) = compare(&path, &lines) {
                differences.push(difference);
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{}\nIf this is intended: SUBMETER_BLESS=1 cargo test -p submeter-sys --test codegen, and review the diff.",
        differences.join("\n")
    );
}

/// A get or put takes at most 10 instructions on x86-64, with the mode test and the load of the area's
/// offset (which the example is given in a register, hence 9). AArch64 has neither an add to memory nor
/// a one-instruction address of the descriptor: 11, and 2 for the area's address.
///
/// An update, with the tests of mark and batch: 16, and 20 on AArch64.
fn holds_the_instruction_count(isa: Isa, name: &str, lines: &[Line]) {
    let most = match (name, isa) {
        ("get" | "put", Isa::X86_64) => 9,
        ("get" | "put", Isa::Aarch64) => 13,
        ("add_marked_within", Isa::X86_64) => 16,
        ("add_marked_within", Isa::Aarch64) => 20,
        _ => return,
    };
    let own = lines.iter().filter(|line| line.own && line.hot).count();
    assert!(own > 4, "{name}: only {own} instructions found");
    // The area's address is the compiler's `add` on AArch64, one more than the sequence's own.
    let own = own + usize::from(isa == Isa::Aarch64);
    assert!(own <= most, "{name} on {isa:?} takes {own} instructions, more than {most}");
}

/// Returns the assembly of the example for `target`, `None` when that target is not installed.
fn compile(target: &str) -> Option<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let sysroot = Command::new(rustc).args(["--print", "sysroot"]).output().expect("rustc runs");
    let sysroot = String::from_utf8(sysroot.stdout).expect("UTF-8");
    if !Path::new(sysroot.trim()).join("lib/rustlib").join(target).join("lib").is_dir() {
        eprintln!("skipped: {target} is not installed (rustup target add {target})");
        return None;
    }
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    // A target directory of its own: the one in use is locked, and has other flags.
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("codegen");
    let examples = out.join(target).join("release/examples");
    if examples.is_dir() {
        std::fs::remove_dir_all(&examples).expect("writable");
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(manifest)
        .args(["rustc", "--quiet", "--locked", "--release", "--example", "codegen"])
        .args(["--target", target, "--target-dir"])
        .arg(&out)
        .args(["--", "--emit=asm"])
        // Flags of this build (coverage, injection, a CPU model) are not part of what was reviewed.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let assembly: Vec<PathBuf> = std::fs::read_dir(&examples)
        .expect("built")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "s"))
        .collect();
    assert_eq!(assembly.len(), 1, "one assembly file in {}", examples.display());
    Some(std::fs::read_to_string(&assembly[0]).expect("readable"))
}

fn golden_dir(isa: Isa) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/asm").join(match isa {
        Isa::X86_64 => "x86_64",
        Isa::Aarch64 => "aarch64",
    })
}

fn render(lines: &[Line]) -> String {
    lines.iter().map(|line| line.render() + "\n").collect()
}

/// Returns what differs between the golden file and what was compiled now.
fn compare(path: &Path, lines: &[Line]) -> Option<String> {
    let Ok(golden) = std::fs::read_to_string(path) else {
        return Some(format!("{} does not exist", path.display()));
    };
    let (mine, others): (Vec<&str>, Vec<&str>) =
        golden.lines().partition(|line| line.starts_with('|'));
    let now: Vec<String> = lines.iter().filter(|line| line.own).map(Line::render).collect();
    let around = lines.iter().filter(|line| !line.own).count();
    if mine != now {
        return Some(format!(
            "{}: the sequence changed.\nreviewed:\n{}\nnow:\n{}",
            path.display(),
            mine.join("\n"),
            now.join("\n")
        ));
    }
    (around > others.len()).then(|| {
        format!(
            "{}: {around} lines around the sequence, {} were reviewed; now:\n{}",
            path.display(),
            others.len(),
            render(lines)
        )
    })
}
