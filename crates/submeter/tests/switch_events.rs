//! Events are charged to the group that a thread is in. Needs `perf_event_open`; what the kernel
//! refuses is reported as skipped.
#![cfg(all(target_os = "linux", not(miri)))]

use submeter::perf::{Event, EventKind, parse};
use submeter::{Count, Counter, Schema, SchemaBuilder, Tree, switch};

#[path = "it/work.rs"]
#[expect(dead_code, reason = "shared with tests that also burn CPU time")]
mod work;

use work::{fault, pages_are_small};

/// Declares the events of a list that this machine has, under their own names.
fn declare(schema: &mut SchemaBuilder, list: &str) -> Vec<Counter<Count>> {
    let mut counters = Vec::new();
    for event in parse(list).expect("valid").iter().flat_map(|group| group.events()) {
        let name = event.kind().to_string().replace('-', "_");
        match schema.event(&name, "An event", event) {
            Ok(counter) => counters.push(counter),
            Err(error) => eprintln!("skipped: {error}"),
        }
    }
    counters
}

#[test]
fn events_are_charged_to_the_group_they_are_in() {
    if !pages_are_small() {
        return;
    }
    let mut schema = Schema::builder();
    let [faults] = declare(&mut schema, "page-faults:u")[..] else { return };
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let group = |path| tree.get_or_create(path).expect("created");
    let (a, x, b) = (group("/a"), group("/a/x"), group("/b"));
    // Each thread opens its own events, and charges the last group when it ends.
    let threads = [(x.clone(), 2000), (b.clone(), 700)].map(|(group, pages)| {
        std::thread::spawn(move || {
            group.run(|| fault(pages));
            fault(5000);
            std::mem::forget(group.enter());
            fault(pages);
        })
    });
    for thread in threads {
        thread.join().expect("no panic");
    }
    a.run(|| b.run(|| fault(100)));
    tree.flush();
    let read = |group: &submeter::Group| group.read(faults).value;
    assert!((4000..5000).contains(&read(&x)), "{}", read(&x));
    assert!((1500..2500).contains(&read(&b)), "{}", read(&b));
    assert_eq!(read(tree.root()), read(&a) + read(&b), "nothing from outside");
    assert_eq!(switch::lost_events(), 0);
}

#[test]
fn cpu_time_and_events_of_several_trees_nest() {
    if !pages_are_small() {
        return;
    }
    let tree = |list: &str| {
        let mut schema = Schema::builder();
        let cpu = schema.cpu_time("cpu", "CPU time");
        let counters = declare(&mut schema, list);
        (Tree::new(schema.build().expect("valid")).expect("address space"), cpu, counters)
    };
    let (one, cpu, faults) = tree("page-faults:u");
    let (two, _, both) = tree("page-faults:u,task-clock:u");
    let (&[faults], &[also_faults, clock]) = (&faults[..], &both[..]) else { return };
    one.root().run(|| {
        fault(500);
        two.root().run(|| fault(1500));
        fault(500);
    });
    let (in_one, in_two) = (one.root().sum(faults), two.root().sum(also_faults));
    assert!((1000..1400).contains(&in_one), "{in_one}");
    assert!((1500..1900).contains(&in_two), "{in_two}");
    assert!(two.root().read(clock).value > 0 && one.root().read(cpu).value > 0);
}

#[test]
fn an_event_the_machine_lacks_declares_nothing() {
    let mut schema = Schema::builder();
    let error = schema.event("odd", "None", &Event::new(EventKind::Software(999)));
    assert!(error.expect_err("refused").to_string().contains("<not supported>"));
    let schema = schema.build().expect("valid");
    assert!(schema.events().is_empty() && schema.metrics().is_empty());
}
