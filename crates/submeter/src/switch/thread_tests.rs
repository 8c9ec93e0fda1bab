use std::time::{Duration, Instant};

use submeter_sys::clock::Source;

use super::*;
use crate::{Count, Schema, Tree};

/// Charging the group that is left, and dropping its handle, are sequences too.
#[test]
fn a_parked_thread_is_in_no_sequence() {
    let mut schema = Schema::builder();
    let counter = schema.counter::<Count>("counter", "Counts");
    schema.cpu_time("cpu", "CPU time");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let Some(rseq) = Rseq::known() else {
        eprintln!("skipped: no sequences here: {}", submeter_sys::probe().reason);
        return;
    };
    let (a, b) = (tree.create("/a").expect("created"), tree.create("/b").expect("created"));
    let entered = a.enter();
    b.run(|| a.inc(counter));
    park();
    assert!(rseq.is_at_rest(), "parked");
    a.inc(counter);
    drop(entered);
    assert!(rseq.is_at_rest(), "left");
}

/// Returns what two groups are charged by a new thread that waits outside, in one group, and parked
/// in the other; `None` if `source` is unavailable.
fn charged_with(source: Source, waits: impl Fn() + Sync) -> Option<[u64; 2]> {
    let mut schema = Schema::builder();
    let cpu = schema.cpu_time("cpu", "CPU time");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let groups = ["/a", "/b"].map(|path| tree.create(path).expect("created"));
    let thread = || {
        let clock = ThreadClock::on(source).ok()?;
        with(|thread| thread.time.clock = Some(clock))?;
        for _ in 0..10 {
            waits();
            let mut entered = groups[0].enter();
            waits();
            entered.switch_to(&groups[1]);
            park();
            waits();
        }
        Some(groups.each_ref().map(|group| group.sum(cpu)))
    };
    std::thread::scope(|scope| scope.spawn(thread).join().expect("no panic"))
}

/// Groups are charged everything that the clock reports.
#[test]
fn time_beside_cpu_is_charged_where_declared() {
    let mut schema = Schema::builder();
    schema.cpu_time("cpu", "CPU time");
    let beside = [schema.off_cpu("off", "Waits"), schema.cpu_error("error", "Errors")];
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let groups = ["/a", "/b"].map(|path| tree.create(path).expect("created"));
    let thread = || {
        let clock = ThreadClock::on(Source::Ticks).ok()?;
        with(|thread| thread.time.clock = Some(clock))?;
        // By time, not by count: after 20 µs the kernel is asked, and no error remains.
        let burn = |us| {
            let began = Instant::now();
            while began.elapsed() < Duration::from_micros(us) {}
        };
        for at in 0..300 {
            burn(5);
            groups[at % 2].run(|| burn(1));
            burn(5);
            groups[1 - at % 2].run(|| std::thread::sleep(Duration::from_micros(100)));
        }
        with(|thread| super::beside(thread.time.clock.as_ref()))
    };
    let told = std::thread::scope(|scope| scope.spawn(thread).join().expect("no panic"));
    let Some(told) = told else {
        eprintln!("skipped: no counter of constant rate here");
        return;
    };
    assert_eq!(beside.map(|counter| tree.root().sum(counter)), told);
    let [off, error] = told;
    assert!(off > 0, "{told:?}");
    if error == 0 {
        eprintln!("skipped: errors: each stay takes 20 us on this CPU, and the kernel is asked");
    }
}

/// Nor is a wait of a parked thread charged.
#[test]
fn waits_are_charged_to_no_group_between() {
    const WAIT: Duration = Duration::from_millis(3);
    for source in [Source::PerfPage, Source::Ticks, Source::Syscall] {
        let Some(charged) = charged_with(source, || std::thread::sleep(WAIT)) else {
            eprintln!("skipped: {}: cannot be had here", source.name());
            continue;
        };
        // A wait that is charged is charged 10 times. Entering and leaving a group takes a thread
        // some microseconds.
        let most = 5 * WAIT.as_nanos() as u64;
        assert!(charged.iter().all(|&ns| ns > 0 && ns < most), "{source:?}: {charged:?}");
    }
}
