//! The hot paths of `rcuref`.
//!
//! The names of the cold halves are left out, because the compiler's choice of them was not
//! reviewed. A compiler of another minor version may order the code around the locked instruction
//! differently, so its output must only have the right shape: one locked instruction, a branch on
//! its result, no other exchange, and no saved register.

use std::fs;

use crate::asm::Isa;
use crate::compile::{Rows, compiled, golden_dir, rustc};
use crate::{bless, wanted};

/// The functions, the locked instruction that each must contain, and the branch after it.
const HOT: [(&str, &str, &str); 6] = [
    ("rcuarc_clone", "lock incl", "js"),
    // It must not touch the object once its reference is put; so it exchanges, and sees a count
    // that another thread has changed.
    ("rcuarc_drop", "lock cmpxchgl", "jne"),
    ("rcuarc_release", "lock decl", "js"),
    ("rcuref_get", "lock incl", "js"),
    ("rcuref_get_ordered", "lock incl", "js"),
    ("rcuref_put", "lock decl", "js"),
];

/// Gets and puts are one locked instruction and a branch on its result.
#[test]
fn gets_and_puts_are_one_locked_instruction() {
    if !wanted() {
        return;
    }
    let Some(functions) = compiled(Isa::X86_64, Rows::ByCpu, &["rcu"]) else { return };
    let names: Vec<&str> = functions.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, HOT.map(|(name, ..)| name));
    for ((name, lines), (_, locked, branch)) in functions.iter().zip(HOT) {
        let lines: Vec<String> = lines.iter().map(|line| plain(&line.render())).collect();
        assert_shape(name, &lines, locked, branch);
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

fn assert_shape(name: &str, lines: &[String], locked: &str, branch: &str) {
    let text = lines.join("\n");
    let lock = lines.iter().position(|line| line.trim_start().starts_with("lock"));
    let at = lock.unwrap_or_else(|| panic!("{name}: no locked instruction in\n{text}"));
    assert!(lines[at].trim_start().starts_with(locked), "{name}: not `{locked}` in\n{text}");
    let next = lines[at + 1].trim_start();
    assert!(next.starts_with(&format!("{branch} ")), "{name}: no `{branch}` behind it in\n{text}");
    assert_eq!(text.matches("lock").count(), 1, "{name}: more than one lock in\n{text}");
    // An exchange with memory is locked without the prefix.
    let others = text.replacen(locked, "", 1);
    for exchange in ["xadd", "xchg"] {
        assert!(!others.contains(exchange), "{name}: {exchange} in\n{text}");
    }
    let saves = lines[..at].iter().any(|line| line.contains("push"));
    assert!(!saves, "{name}: saves a register on its way:\n{text}");
}

fn assert_golden(name: &str, lines: &[String]) {
    let path = golden_dir(Isa::X86_64, Rows::ByCpu).join(format!("{name}.asm"));
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
