//! The hot paths of `rcuref`.
//!
//! The names of the cold halves are left out, because the compiler's choice of them was not
//! reviewed. A compiler of another minor version may order the code around the locked instruction
//! differently, so its output must only have the right shape: one locked increment or decrement, a
//! branch on its sign, and no exchange.

use std::fs;

use crate::asm::Isa;
use crate::compile::{compiled, golden_dir, rustc};
use crate::{bless, wanted};

/// The functions, and the locked instruction that each must have.
const HOT: [(&str, &str); 5] = [
    ("rcuarc_clone", "lock incl"),
    ("rcuarc_release", "lock decl"),
    ("rcuref_get", "lock incl"),
    ("rcuref_get_ordered", "lock incl"),
    ("rcuref_put", "lock decl"),
];

#[test]
fn gets_and_puts_are_one_locked_instruction_and_a_branch_on_its_sign() {
    if !wanted() {
        return;
    }
    let Some(functions) = compiled(Isa::X86_64, &["rcu"]) else { return };
    let names: Vec<&str> = functions.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, HOT.map(|(name, _)| name));
    for ((name, lines), (_, locked)) in functions.iter().zip(HOT) {
        let lines: Vec<String> = lines.iter().map(|line| plain(&line.render())).collect();
        assert_shape(name, &lines, locked);
        assert_golden(name, &lines);
    }
}

/// Strips the mark of `asm!`, which these functions do not use, and the name of a cold half.
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

fn assert_shape(name: &str, lines: &[String], locked: &str) {
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

fn assert_golden(name: &str, lines: &[String]) {
    let path = golden_dir(Isa::X86_64).join(format!("{name}.asm"));
    let header = format!("# {}\n", compiler());
    let now = lines.iter().fold(header.clone(), |text, line| text + line + "\n");
    if bless() {
        return fs::write(&path, now).expect("the golden file can be written");
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    if !golden.is_empty() && !golden.starts_with(&header) {
        eprintln!("skipped: {name}.asm was reviewed with another compiler; its shape was checked");
        return;
    }
    assert_eq!(
        golden, now,
        "{name}.asm; if this is intended: SUBMETER_BLESS=1 cargo test -p submeter-goldens, and \
         review the diff"
    );
}

/// Returns the compiler's name and minor version.
fn compiler() -> String {
    let version = rustc(&["--version"]);
    let number = version.split_whitespace().nth(1).unwrap_or_default();
    let minor: Vec<&str> = number.split('.').take(2).collect();
    format!("rustc {}", minor.join("."))
}
