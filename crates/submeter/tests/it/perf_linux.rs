//! The scheduler on the kernel's counters. Needs `perf_event_open`; what the kernel refuses is
//! reported as skipped.
#![cfg(all(target_os = "linux", not(miri)))]

use submeter::perf::{Event, EventKind, parse};
use submeter::switch::clock;
use submeter_events::{
    EventGroupId, GroupKey, Handle, KernelPmu, Pmu, Scheduler, Scope, State, ThreadPmu,
};

use crate::work::{burn_ms, fault, pages_are_small};

const A: &[GroupKey] = &[GroupKey(1), GroupKey(0)];
const B: &[GroupKey] = &[GroupKey(2), GroupKey(0)];

fn attach(events: &mut Scheduler<KernelPmu>, scope: Scope, list: &str) -> Option<EventGroupId> {
    match events.attach(scope, &parse(list).expect("valid")[0], clock::thread_cpu_ns()) {
        Ok(id) => Some(id),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

#[test]
fn software_events_follow_the_group() {
    let mut events = Scheduler::new(KernelPmu::new());
    let [a, b] = [A, B].map(|chain| attach(&mut events, Scope::Group(chain[0]), "task-clock:u"));
    let root = attach(&mut events, Scope::Group(GroupKey(0)), "{task-clock:u,page-faults:u}:D");
    let (Some(a), Some(b), Some(root)) = (a, b, root) else { return };
    let (mut used_a, mut used_b) = (0, 0);
    for _ in 0..5 {
        events.switch(A, clock::thread_cpu_ns());
        used_a += burn_ms(4);
        events.switch(B, clock::thread_cpu_ns());
        used_b += burn_ms(2);
        // Large enough for malloc to map it, so that every page is new.
        fault(1000);
        events.switch(&[], clock::thread_cpu_ns());
        burn_ms(2);
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

/// Events that the machine lacks are not supported; those that it has count.
#[test]
fn missing_events_are_not_supported() {
    for list in ["cycles:u", "{cycles:u,instructions:u}:D", "r1a8:u"] {
        let mut events = Scheduler::new(KernelPmu::new());
        let Some(id) = attach(&mut events, Scope::Everywhere, list) else { continue };
        burn_ms(3);
        let counts = events.counts(id, clock::thread_cpu_ns()).expect("attached");
        match counts.state {
            State::Active if list != "r1a8:u" => assert!(counts.values[0] > 0, "{counts:?}"),
            State::Active => {}
            // Other processes may be using all counters.
            State::Inactive | State::Error => assert_eq!(counts.scaled(0), None),
        }
    }
    // No kernel has this event, whatever the privileges.
    let refused = KernelPmu::supports(&Event::new(EventKind::Software(999))).expect_err("refused");
    assert!(refused.to_string().contains("<not supported>"), "{refused}");
}

#[test]
fn neither_a_switch_nor_a_rotation_allocates() {
    let mut events = Scheduler::new(KernelPmu::new());
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

/// Prepares and places events, or prints why they were refused.
fn placed(pmu: &mut ThreadPmu, list: &str) -> Option<Vec<Handle>> {
    let groups = parse(list).expect("valid");
    let mut handles = Vec::new();
    for event in groups.iter().flat_map(|group| group.events()) {
        match pmu.prepare(event) {
            Ok(handle) => handles.push(handle),
            Err(error) => {
                eprintln!("skipped: {error}");
                return None;
            }
        }
    }
    assert!(pmu.place(&handles), "none of these needs a counter");
    Some(handles)
}

#[test]
fn all_reads_of_a_moment_agree() {
    let mut pmu = ThreadPmu::new();
    let list = "page-faults:u,minor-faults:u,task-clock,page-faults:u";
    let Some(handles) = placed(&mut pmu, list) else { return };
    let read = |pmu: &mut ThreadPmu| {
        handles.iter().map(|&handle| pmu.read(handle).expect("counts")).collect::<Vec<_>>()
    };
    // Before the first `begin`, every read asks the kernel.
    let before = read(&mut pmu);
    fault(1000);
    assert!(!pages_are_small() || read(&mut pmu)[0] >= before[0] + 1000);
    for moment in 1..20 {
        pmu.begin(moment * 1_000);
        let first = read(&mut pmu);
        fault(10);
        assert_eq!(read(&mut pmu), first, "the same moment");
        assert_eq!((first[2], first[3]), (moment * 1_000, first[0]), "{first:?}");
        pmu.begin(moment * 1_000);
        let later = read(&mut pmu);
        assert!(!pages_are_small() || later[0] >= first[0] + 10, "{later:?} after {first:?}");
        // Counts that are read together belong to the same moment.
        assert!(later[1] <= later[0], "no major faults here: {later:?}");
    }
}

#[test]
fn switches_are_counted_as_the_kernel_does() {
    let mut pmu = ThreadPmu::new();
    let Some(handles) = placed(&mut pmu, "context-switches,cpu-migrations") else { return };
    // Reads by system call, never through the page.
    let oracle = |handle: usize| {
        let mut alone = KernelPmu::new();
        let kind = [EventKind::Software(3), EventKind::Software(4)][handle];
        let event = alone.prepare(&Event::new(kind)).expect("as above");
        assert!(alone.place(&[event]));
        move || alone.read(event).expect("counts")
    };
    let mut oracles = [oracle(0), oracle(1)];
    let mut moment = 0;
    let mut between = |oracle: &mut dyn FnMut() -> u64, at: usize| {
        moment += 1;
        let low = oracle();
        pmu.begin(moment);
        let here = pmu.read(handles[at]).expect("counts");
        (low, here, oracle())
    };
    for at in [0, 1] {
        // Begin with a reading that no switch interrupted: the oracle's values before and after
        // it agree, which happens soon on any machine.
        let (start, here_start) = loop {
            let (low, here, high) = between(&mut oracles[at], at);
            if low == high {
                break (low, here);
            }
        };
        // Not every wait is a switch: on a slow machine it may be over before the thread leaves
        // its CPU. /proc says how many were.
        let before = switches_of_this_thread();
        let mut last = 0;
        for _ in 1..=50u64 {
            std::thread::sleep(std::time::Duration::from_micros(100));
            let switched = switches_of_this_thread() - before;
            let (low, here, high) = between(&mut oracles[at], at);
            last = here - here_start;
            assert!((low - start..=high - start).contains(&last), "{at}: {low} {last} {high}");
            assert!(at == 1 || last >= switched, "{last} of {switched} switches");
        }
        assert!(at == 1 || last > 0, "no wait was a switch");
    }
}

/// Returns the thread's context switches, voluntary or not, as /proc counts them.
fn switches_of_this_thread() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("readable");
    let counts = status.lines().filter_map(|line| line.split_once("_ctxt_switches:"));
    counts.map(|(_, count)| count.trim().parse::<u64>().expect("a number")).sum()
}

/// Events that user mode never sees are refused, and not shown as zero.
#[test]
fn what_user_mode_never_sees_is_refused() {
    for list in ["context-switches:u", "cpu-migrations:u"] {
        let event = parse(list).expect("valid")[0].events()[0];
        let refused = ThreadPmu::supports(&event).expect_err("would stay 0").to_string();
        assert!(refused.contains("only in the kernel"), "{refused}");
    }
}

/// An event group with clocks and counters is placed as a whole or not at all.
#[test]
fn a_mixed_event_group_is_placed_whole_or_not() {
    let mut pmu = ThreadPmu::new();
    let Some(handles) = placed(&mut pmu, "task-clock,page-faults:u") else { return };
    pmu.begin(5);
    assert_eq!(pmu.read(handles[0]), Some(5));
    pmu.remove(&handles);
    handles.iter().for_each(|&handle| pmu.release(handle));
    // A released handle reads as nothing.
    assert_eq!(pmu.read(handles[1]), None);
    assert!(!pmu.place(&handles));
    assert_eq!(pmu.read(handles[0]), Some(5), "time goes on");
}

#[test]
fn attaching_and_detaching_leaves_no_memory() {
    let mut events = Scheduler::new(KernelPmu::new());
    let round = |events: &mut Scheduler<KernelPmu>| {
        let ids = ["page-faults:u", "dummy"].map(|list| attach(events, Scope::Everywhere, list));
        events.switch(&[GroupKey(1)], 1);
        ids.into_iter().flatten().filter_map(|id| events.detach(id, 1)).count()
    };
    if round(&mut events) != 2 {
        // `attach` has printed why.
        return;
    }
    let count = allocation_counter::measure(|| {
        for _ in 0..100 {
            round(&mut events);
        }
    });
    assert_eq!(count.bytes_current, 0);
}
