//! The goldens of the sequences.
//!
//! Lines marked `|` come from the sequence's own `asm!` and must be equal. The others come from the
//! compiler (moving arguments, returning the result): only their number is checked, as an upper
//! limit, because another compiler may order them differently at the same cost.

use std::path::Path;

use crate::asm::{Isa, Line};
use crate::compile::{Rows, compiled, golden_dir};
use crate::{bless, wanted};

#[test]
fn each_sequence_compiles_to_what_was_reviewed() {
    compare_all(Rows::ByCpu);
}

/// Each sequence on rows by thread compiles to what was reviewed.
#[test]
fn sequences_on_rows_by_thread_are_as_reviewed() {
    compare_all(Rows::ByMmCid);
}

fn compare_all(rows: Rows) {
    if !wanted() {
        return;
    }
    let mut differences = Vec::new();
    for isa in [Isa::X86_64, Isa::Aarch64] {
        let Some(functions) = compiled(isa, rows, &["add", "get", "put"]) else {
            continue;
        };
        assert!(functions.len() >= 9, "only {} functions in the assembly", functions.len());
        for (name, lines) in functions {
            assert_instruction_count(isa, rows, &name, &lines);
            let directory = golden_dir(isa, rows);
            let path = directory.join(format!("{name}.asm"));
            if bless() {
                std::fs::create_dir_all(directory).expect("writable");
                std::fs::write(&path, render(&lines)).expect("writable");
            } else if let Some(difference) = compare(&path, &lines) {
                differences.push(difference);
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{}\nIf this is intended: SUBMETER_BLESS=1 cargo test -p submeter-goldens, and review the diff.",
        differences.join("\n")
    );
}

/// Checks the number of instructions. A get or put takes at most 10 on x86-64, including the mode
/// test and the load of the area's offset (9 here, because the function receives the offset in a
/// register). AArch64 has neither an add to memory nor a one-instruction address of the descriptor:
/// 11, and 2 for the area's address.
///
/// An update, which finds its word and tests mark and batch, takes at most 24; 22 on AArch64, where
/// the compiler finds the word outside the sequence. Two of them keep
/// the batch's boundaries away from 0, which halves the number of updates that leave the fast path.
///
/// On rows by thread each takes 2 more, and 3 on AArch64: an unregistered thread has the number 0,
/// so that `cpu_id` is tested too.
fn assert_instruction_count(isa: Isa, rows: Rows, name: &str, lines: &[Line]) {
    let most = match (name, isa) {
        ("get" | "put", Isa::X86_64) => 9,
        ("get" | "put", Isa::Aarch64) => 13,
        ("add_indexed_within", Isa::X86_64) => 24,
        ("add_indexed_within", Isa::Aarch64) => 22,
        _ => return,
    };
    let own = lines.iter().filter(|line| line.own && line.hot).count();
    assert!(own > 4, "{name}: only {own} instructions found");
    let most = match (rows, isa) {
        (Rows::ByCpu, _) => most,
        (Rows::ByMmCid, Isa::X86_64) => most + 2,
        (Rows::ByMmCid, Isa::Aarch64) => most + 3,
    };
    // On AArch64 the compiler computes the area's address with an `add` outside the sequence.
    let own = own + usize::from(isa == Isa::Aarch64);
    assert!(own <= most, "{name} on {isa:?} takes {own} instructions, more than {most}");
}

fn render(lines: &[Line]) -> String {
    lines.iter().map(|line| line.render() + "\n").collect()
}

/// Returns the differences between the golden file and the compiled code.
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
