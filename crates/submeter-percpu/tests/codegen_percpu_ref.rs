//! A get or put of `percpu_ref`, as a caller finds it: at most 10 instructions, with the mode test.
//!
//! The sequence itself, 8 of them, is held to its review by `submeter-sys`; here it is the way
//! there that counts: two loads, nothing saved, no call.
#![cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom, shuttle))))]
// It compiles by itself, without these flags: under them it would find the same again.
#![cfg(not(any(submeter_no_rseq, submeter_inject)))]

use std::fs;
use std::path::Path;
use std::process::Command;

#[path = "../../submeter-sys/tests/codegen/asm.rs"]
#[expect(dead_code, reason = "shared with the sequences' test, which needs more of it")]
mod asm;
use asm::{Isa, functions};

/// The functions of the example, and how many instructions they may take up to their return.
const MOST: [(&str, usize); 5] = [
    // One more each: the pointer's own load, the answer.
    ("percpu_arc_clone", 11),
    ("percpu_arc_drop", 10),
    ("percpu_ref_get", 10),
    ("percpu_ref_put", 10),
    ("percpu_ref_tryget_live", 11),
];

#[test]
fn gets_and_puts_take_ten_instructions() {
    let assembly = compile();
    let functions = functions(Isa::X86_64, &assembly, "submeter_codegen_percpu_");
    let names: Vec<String> = functions.iter().map(|(name, _)| format!("percpu_{name}")).collect();
    assert_eq!(names, MOST.map(|(name, _)| name));
    for ((_, lines), (name, most)) in functions.iter().zip(MOST) {
        let hot: Vec<String> =
            lines.iter().filter(|line| line.hot).map(|line| line.render()).collect();
        let text = hot.join("\n");
        let end = hot.iter().position(|line| line.contains("ret"));
        let end = end.unwrap_or_else(|| panic!("{name} does not return:\n{text}"));
        assert!((8..=most).contains(&end), "{name} takes {end} instructions:\n{text}");
        for avoided in ["push", "call", "lock"] {
            let found = hot[..end].iter().any(|line| line.contains(avoided));
            assert!(!found, "{name} has a {avoided} on its way:\n{text}");
        }
    }
}

/// Returns the assembly of the example.
fn compile() -> String {
    // A target directory of its own: the one in use is locked, and has other flags.
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("codegen_percpu_ref");
    let examples = out.join("release/examples");
    if examples.is_dir() {
        fs::remove_dir_all(&examples).expect("the last run's output can be removed");
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["rustc", "--quiet", "--locked", "--release", "--example", "codegen_percpu_ref"])
        // What the linker does later to other crates' code is not looked at, nor debug lines.
        .args(["--config", "profile.release.lto=false", "--config", "profile.release.debug=0"])
        .arg("--target-dir")
        .arg(&out)
        .args(["--", "--emit=asm"])
        // Flags of this build (coverage, injection, a CPU model) are not part of what was reviewed.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let assembly = fs::read_dir(&examples)
        .expect("the example was built")
        .map(|entry| entry.expect("readable").path())
        .find(|path| path.extension().is_some_and(|extension| extension == "s"));
    fs::read_to_string(assembly.expect("assembly was asked for")).expect("readable")
}
