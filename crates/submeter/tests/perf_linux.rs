//! The scheduler on the kernel's counters. Needs `perf_event_open`; what is refused is skipped, and said.
#![cfg(all(target_os = "linux", not(miri)))]

use std::hint::black_box;

use submeter::perf::{
    Event, EventGroupId, EventKind, GroupKey, LinuxPmu, Scheduler, Scope, State, parse,
};
use submeter::switch::clock;

const A: &[GroupKey] = &[GroupKey(1), GroupKey(0)];
const B: &[GroupKey] = &[GroupKey(2), GroupKey(0)];

fn attach(events: &mut Scheduler<LinuxPmu>, scope: Scope, list: &str) -> Option<EventGroupId> {
    match events.attach(scope, &parse(list).expect("valid")[0], clock::thread_cpu_ns()) {
        Ok(id) => Some(id),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn burn(ms: u64) -> u64 {
    let start = clock::thread_cpu_ns();
    loop {
        let used = clock::thread_cpu_ns() - start;
        if used >= ms * 1_000_000 {
            return used;
        }
        black_box((0..1000u64).sum::<u64>());
    }
}

/// Whether memory comes in pages small enough to be counted; says so if not.
fn pages_are_small() -> bool {
    let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let huge = text.is_ok_and(|text| text.contains("[always]"));
    if huge {
        eprintln!("skipped: huge pages hide page faults: set transparent_hugepage to madvise");
    }
    !huge
}

/// Touches that many pages that were not there before.
fn fault(pages: usize) {
    // More than malloc ever keeps for reuse: fresh from the kernel each time.
    let mut bytes = vec![0u8; 64 << 20];
    for page in 0..pages {
        bytes[page * 4096] = 1;
    }
    black_box(&bytes);
}

#[test]
fn software_events_follow_the_group() {
    let mut events = Scheduler::new(LinuxPmu::new());
    let [a, b] = [A, B].map(|chain| attach(&mut events, Scope::Group(chain[0]), "task-clock:u"));
    let root = attach(&mut events, Scope::Group(GroupKey(0)), "{task-clock:u,page-faults:u}:D");
    let (Some(a), Some(b), Some(root)) = (a, b, root) else { return };
    let (mut used_a, mut used_b) = (0, 0);
    for _ in 0..5 {
        events.switch(A, clock::thread_cpu_ns());
        used_a += burn(4);
        events.switch(B, clock::thread_cpu_ns());
        used_b += burn(2);
        // Large, so that it is mapped, and each page is new.
        fault(1000);
        events.switch(&[], clock::thread_cpu_ns());
        burn(2);
    }
    let now_ns = clock::thread_cpu_ns();
    let mut counts = |id| events.counts(id, now_ns).expect("attached");
    let (a, b, root) = (counts(a), counts(b), counts(root));
    let off = 3_000_000;
    assert!(a.values[0].abs_diff(used_a) < off + used_a / 10, "{a:?}, used {used_a}");
    assert!(b.values[0] + off > used_b, "{b:?}, used {used_b}");
    assert!(root.values[0].abs_diff(a.values[0] + b.values[0]) < off, "{root:?}");
    assert!(!pages_are_small() || root.values[1] >= 1000, "{root:?}");
    assert_eq!((a.state, root.state), (State::Inactive, State::Inactive));
    assert!(root.running_ns == root.enabled_ns && root.scaled(0) == Some(root.values[0]));
}

#[test]
fn what_the_machine_lacks_is_not_supported_and_what_it_has_counts() {
    for list in ["cycles:u", "{cycles:u,instructions:u}:D", "r1a8:u"] {
        let mut events = Scheduler::new(LinuxPmu::new());
        let Some(id) = attach(&mut events, Scope::Everywhere, list) else { continue };
        burn(3);
        let counts = events.counts(id, clock::thread_cpu_ns()).expect("attached");
        match counts.state {
            State::Active if list != "r1a8:u" => assert!(counts.values[0] > 0, "{counts:?}"),
            State::Active => {}
            // Others may hold all counters.
            State::Inactive | State::Error => assert_eq!(counts.scaled(0), None),
        }
    }
    // No kernel has it, with or without privilege.
    let refused = LinuxPmu::supports(&Event::new(EventKind::Software(999))).expect_err("refused");
    assert!(refused.to_string().contains("<not supported>"), "{refused}");
}

#[test]
fn neither_a_switch_nor_a_rotation_allocates() {
    let mut events = Scheduler::new(LinuxPmu::new());
    for list in ["task-clock:u", "page-faults:u", "task-clock:uD"] {
        for chain in [A, B] {
            if attach(&mut events, Scope::Group(chain[0]), list).is_none() {
                return;
            }
        }
    }
    let count = allocation_counter::measure(|| {
        for step in 0..20 {
            events.switch(A, step);
            events.rotate(step);
            events.switch(B, step);
        }
    });
    assert_eq!(count.count_total, 0);
}
