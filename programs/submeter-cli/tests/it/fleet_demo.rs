//! `submeter fleet demo`: its verdict, and that it leaves no process and no file.

use std::path::Path;

use submeter_program::Running;

use crate::fleet::{Directory, until};
use crate::support::SUBMETER;

/// Three servers, and a load for each.
const CHILDREN: usize = 6;

fn demo(directory: &Directory, more: &[&str]) -> Running {
    let place = directory.0.to_str().expect("UTF-8");
    SUBMETER.start_in(&[&["fleet", "demo"][..], more].concat(), &[("TMPDIR", place)])
}

/// Returns the state and the parent of a process; `None` for one that has ended.
fn state(process: &str) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before may contain spaces.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

fn children(of: u32) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("Linux").flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| state(name).is_some_and(|(_, parent)| parent == of)).collect()
}

fn all_children(demo: &Running) -> Vec<String> {
    let mut found = Vec::new();
    until("all servers and their load run", || {
        found = children(demo.id());
        found.len() == CHILDREN
    });
    found
}

/// Returns whether all have ended. A process that is not waited for stays as a zombie.
fn have_ended(processes: &[String]) -> bool {
    processes.iter().all(|process| state(process).is_none_or(|(state, _)| state == "Z"))
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).expect("readable").next().is_none()
}

/// Asserts that the limit was kept, and that the demo says so if there were too few looks to tell.
fn assert_kept(said: &str) {
    let of = |label: &str| said.lines().filter(|line| line.starts_with(label)).collect::<Vec<_>>();
    let leases = of("leases  at most ");
    assert!(leases.len() == 2 && leases[0].contains(" of 4.00 MiB, "), "{said}");
    assert!(leases[1].contains(" of 3,000/s, "), "{said}");
    let [used] = of("use     at most ")[..] else { panic!("{said}") };
    let looks = used.split_once(" held in ").and_then(|(_, rest)| rest.split_once(" looks"));
    let looks: u32 = looks.and_then(|(n, _)| n.parse().ok()).expect("a number of looks");
    let kept = if looks >= 4 {
        "limit   kept: no sum was above it"
    } else {
        eprintln!("too noisy: {looks} looks at what servers hold");
        "limit   kept by the leases; the machine was too busy to check what was held"
    };
    assert_eq!(of("limit   "), [kept], "{said}");
    assert!(!used.contains(" 0 requests granted"), "{said}");
}

#[test]
fn the_demo_keeps_one_limit_and_leaves_nothing() {
    let directory = Directory::new("demo");
    let mut running = demo(&directory, &["--seconds", "4"]);
    running.line_with("  ends   after 4 s, or Ctrl-C");
    let processes = all_children(&running);
    let (code, said) = running.end();
    assert_eq!(code, Some(0), "{said}");
    assert_kept(&said);
    assert!(have_ended(&processes), "{processes:?}");
    assert!(is_empty(&directory.0));
}

/// The next demo removes what a killed one left, and Ctrl-C ends it cleanly.
#[test]
fn a_demo_removes_what_a_killed_one_left() {
    let directory = Directory::new("killed");
    let mut killed = demo(&directory, &[]);
    killed.line_with("Ctrl-C");
    let processes = all_children(&killed);
    drop(killed);
    until("all have ended by themselves", || have_ended(&processes));
    assert!(!is_empty(&directory.0), "nobody was left to remove it");

    let mut next = demo(&directory, &[]);
    next.line_with("server-2 *");
    let said = next.end_by("INT");
    assert_kept(&said);
    assert!(is_empty(&directory.0));
}
