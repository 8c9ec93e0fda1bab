//! The kernel's events count on the thread that opened them; missing ones are refused.

use std::time::{Duration, Instant};

use submeter_sys::perf_event::{
    Config, Event, SOFTWARE_CONTEXT_SWITCHES, SOFTWARE_TASK_CLOCK, TYPE_HARDWARE, TYPE_SOFTWARE,
    Together,
};

fn burn(ms: u64) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(ms) {
        std::hint::black_box((0..1000u64).sum::<u64>());
    }
}

/// Opens a software event, or prints why that fails.
fn software(event: u64, leader: Option<&Event>) -> Option<Event> {
    match Event::open(&Config::new(TYPE_SOFTWARE, event), leader) {
        Ok(event) => Some(event),
        Err(error) => {
            eprintln!("skipped: perf_event_open is refused here ({error}): grant CAP_PERFMON");
            None
        }
    }
}

#[test]
fn an_event_counts_while_its_thread_runs() {
    let Some(clock) = software(SOFTWARE_TASK_CLOCK, None) else { return };
    let before = clock.read().expect("open");
    burn(5);
    let after = clock.read().expect("open");
    assert!(after.value > before.value && after.enabled_ns > before.enabled_ns);
    assert_eq!(after.enabled_ns, after.running_ns, "software is never short of counters");
    let waited = Instant::now();
    std::thread::sleep(Duration::from_millis(300));
    let woken = clock.read().expect("open");
    assert!(waited.elapsed().as_nanos() / 2 > u128::from(woken.value - after.value));
}

#[test]
fn a_disabled_leader_takes_its_group_along() {
    let Some(leader) = software(SOFTWARE_TASK_CLOCK, None) else { return };
    let mut member = Config::new(TYPE_SOFTWARE, SOFTWARE_CONTEXT_SWITCHES);
    // Switches happen in the kernel.
    member.kernel = true;
    let Ok(member) = Event::open(&member, Some(&leader)) else {
        eprintln!("skipped: events in the kernel are refused here: grant CAP_PERFMON");
        return;
    };
    leader.disable().expect("open");
    let (clock, switches) = (leader.read().expect("open"), member.read().expect("open"));
    std::thread::sleep(Duration::from_millis(1));
    assert_eq!(leader.read().expect("open").value, clock.value);
    assert_eq!(member.read().expect("open").value, switches.value);
    leader.enable().expect("open");
    // All members of a group that was enabled on a running thread count from its next switch on.
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let after = member.read().expect("open");
    assert!(after.value > switches.value, "{after:?} after {switches:?}");
}

/// An event that joins others counts at once, and is read with them.
#[test]
fn what_joins_others_counts_at_once() {
    /// `PERF_COUNT_SW_PAGE_FAULTS`
    const PAGE_FAULTS: u64 = 2;
    if software(SOFTWARE_TASK_CLOCK, None).is_none() {
        return;
    }
    let mut together = Together::new().expect("as above");
    assert_eq!(together.read().expect("open").count(), 0);
    let mut open = |event| together.open(&Config::new(TYPE_SOFTWARE, event)).expect("as above");
    let (faults, (clock, number)) = (open(PAGE_FAULTS), open(SOFTWARE_TASK_CLOCK));
    let before = clock.read().expect("open");
    // Spin instead of sleeping: a switch would start the event in any case. The time is short, so
    // there is rarely one.
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(300) {
        std::hint::spin_loop();
    }
    let after = clock.read().expect("open");
    assert!(after.value > before.value && after.running_ns > before.running_ns, "{after:?}");
    let all: Vec<(u64, u64)> = together.read().expect("open").collect();
    assert_eq!(all.iter().map(|&(id, _)| id).collect::<Vec<_>>(), [faults.1, number]);
    assert!(all[1].1 >= after.value, "{all:?}, and {after:?} before");
    drop(faults);
    // Closing one event leaves the others open.
    assert!(together.read().expect("open").map(|(id, _)| id).eq([number]));
}

#[test]
fn the_uncountable_is_refused_and_not_zero() {
    /// No unit of any machine has this number.
    const NOBODY: u32 = 0x7fff_ffff;
    let error = Event::open(&Config::new(NOBODY, 0), None).expect_err("no such unit");
    assert!(error.raw_os_error().is_some(), "{error}");
    // `PERF_COUNT_HW_INSTRUCTIONS`: either it counts, or it is an error.
    match Event::open(&Config::new(TYPE_HARDWARE, 1), None) {
        Err(error) => eprintln!("skipped: no hardware counters here ({error}): use bare metal"),
        Ok(event) => {
            burn(5);
            let counts = event.read().expect("open");
            assert!(counts.value > 0 || counts.running_ns == 0);
        }
    }
}
