//! The choice of a clock if perf events are refused, and if the variable names one. Each case runs
//! in a separate process, because the choice is made once.

use submeter_sys::clock::{self, Source, ThreadClock};

use crate::again as world;

/// Prints the chosen clock and uses it.
fn report() {
    let mut clock = ThreadClock::new();
    let before = clock.now_ns();
    std::hint::black_box((0..100_000u64).sum::<u64>());
    assert!(clock.now_ns() > before, "{:?}", clock.source());
    let choice = clock::choice();
    println!("chosen {:?}, because {}", choice.source, choice.reason);
}

/// Returns whether there is no usable counter.
fn is_without_counter(text: &str) -> bool {
    let is_without = text.contains("time stamp counter");
    if is_without {
        assert!(text.contains("chosen Syscall"), "{text}");
        eprintln!("skipped: the counter varies here");
    }
    is_without
}

#[test]
fn another_source_serves_who_asks_for_it() {
    if world::is_child() {
        return report();
    }
    let name = "clock::another_source_serves_who_asks_for_it";
    let text = world::again(name, &[("SUBMETER_CLOCK", "syscall")]);
    assert!(text.contains("chosen Syscall, because SUBMETER_CLOCK=syscall"), "{text}");
    let text = world::again(name, &[("SUBMETER_CLOCK", "sundial")]);
    assert!(text.contains("\"sundial\" is not ticks or syscall; using syscall"), "{text}");
    let text = world::again(name, &[("SUBMETER_CLOCK", "ticks")]);
    if !is_without_counter(&text) {
        assert!(text.contains("chosen Ticks, because SUBMETER_CLOCK=ticks"), "{text}");
    }
}

/// Without perf events the CPU's counter is used, with sequences and without.
#[test]
fn the_counter_serves_without_perf_events() {
    if world::is_child() {
        return report();
    }
    let name = "clock::the_counter_serves_without_perf_events";
    for (errno, variables) in
        [(libc::EPERM, &[][..]), (libc::ENOSYS, &[("SUBMETER_RSEQ", "off")][..])]
    {
        let filter = world::deny(libc::SYS_perf_event_open, None, errno);
        let Some(text) = world::again_under(name, variables, &filter) else { return };
        if !is_without_counter(&text) {
            assert!(text.contains("chosen Ticks"), "{text}");
            assert!(text.contains("seccomp"), "the remedy is named: {text}");
        }
    }
}

#[test]
fn without_a_descriptor_the_counter_is_used() {
    if !world::is_child() {
        let name = "clock::without_a_descriptor_the_counter_is_used";
        let text = world::again(name, &[]);
        if !text.contains("chosen PerfPage") {
            eprintln!("skipped: no perf page to run out of here; allow perf_event_open");
        }
        return;
    }
    report();
    if clock::choice().source != Source::PerfPage {
        return;
    }
    let none = libc::rlimit { rlim_cur: 0, rlim_max: libc::RLIM_INFINITY };
    let mut before = none;
    // SAFETY: 1. Both structures are live: they are local variables.
    let limited = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut before);
        let none = libc::rlimit { rlim_max: before.rlim_max, ..none };
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none)
    };
    assert_eq!(limited, 0, "{}", std::io::Error::last_os_error());
    let mut clock = ThreadClock::new();
    let (first, source) = (clock.now_ns(), clock.source());
    std::hint::black_box((0..100_000u64).sum::<u64>());
    let later = clock.now_ns();
    // SAFETY: 1. As above. It comes before any assertion, whose report may need a descriptor.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const before) };
    assert_eq!(source, Source::Ticks);
    assert!(later > first);
    assert_eq!(ThreadClock::new().source(), Source::PerfPage, "the next one has one again");
}
