//! What an idle group weighs, all included: `cargo bench -p submeter --bench group_bytes`.
//!
//! The growth of the process's resident memory over 100,000 groups of a schema of 16 metrics,
//! divided by their number: a tree of 1 + 10 + 100 + 1000 + 100,000, with the handles dropped and
//! kept, and after one update each and a flush, for information. Exits with 1 when an idle group
//! weighs more than 512 bytes.
//!
//! Each figure comes from a process of its own: what another left in the allocator would be reused.

use std::process::{Command, ExitCode};

use submeter::{Count, Group, Schema, Tree};

const GROUPS: usize = 100_000;
const METRICS: usize = 16;
const BYTES_MAX: f64 = 512.0;

fn main() -> ExitCode {
    match std::env::args().skip(1).find(|it| it != "--bench").as_deref() {
        Some(mode @ ("dropped" | "kept" | "updated")) => {
            println!("{}", grow(mode));
            ExitCode::SUCCESS
        }
        Some(other) => {
            eprintln!("group_bytes: unknown argument {other:?}: call it without any");
            ExitCode::from(2)
        }
        None => compare(),
    }
}

/// Measures each way in a child of its own.
fn compare() -> ExitCode {
    if resident().is_none() {
        println!("skipped: /proc/self/status says nothing of it: run it on Linux");
        return ExitCode::SUCCESS;
    }
    let program = std::env::current_exe().expect("this program's own path");
    let mut fits = true;
    for (mode, idle) in [("dropped", true), ("kept", true), ("updated", false)] {
        let output = Command::new(&program).arg(mode).output().expect("runs itself");
        let bytes: f64 = String::from_utf8_lossy(&output.stdout)
            .trim()
            .parse()
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        let name = if idle { format!("idle, handles {mode}") } else { "after one update".into() };
        println!("{name:<24}{bytes:>8.1} bytes a group");
        fits &= !idle || bytes <= BYTES_MAX;
    }
    ExitCode::from(u8::from(!fits))
}

/// Returns by how many bytes a group has made this process grow.
fn grow(mode: &str) -> f64 {
    let mut schema = Schema::builder();
    let metrics: Vec<_> = (0..METRICS)
        .map(|n| schema.counter::<Count>(&format!("metric_{n}"), "One of sixteen"))
        .collect();
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let mut parents = vec![tree.root().clone()];
    for _ in 0..3 {
        let level = parents.iter().flat_map(|parent| children(parent, 10)).collect();
        parents = level;
    }
    // Reserved and touched before the measurement: the handles are the caller's memory.
    let mut kept: Vec<Option<Group>> = (0..GROUPS).map(|n| Some(parents[n % 7].clone())).collect();
    kept.iter_mut().for_each(|group| *group = None);
    let before = resident().expect("checked by the parent");
    let mut slots = kept.iter_mut();
    for parent in &parents {
        for child in children(parent, GROUPS / parents.len()) {
            if mode != "dropped" {
                *slots.next().expect("room for each") = Some(child);
            }
        }
    }
    if mode == "updated" {
        kept.iter().flatten().for_each(|group| group.add(metrics[0], 1));
    }
    tree.flush();
    let after = resident().expect("checked by the parent");
    (after - before) as f64 / GROUPS as f64
}

fn children(parent: &Group, count: usize) -> impl Iterator<Item = Group> {
    (0..count).map(|n| parent.create_child(&format!("tenant-{n}")).expect("room for one more"))
}

/// Returns the resident bytes of this process, as the kernel rounds them.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: usize = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}
