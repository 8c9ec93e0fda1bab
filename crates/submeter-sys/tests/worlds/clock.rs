//! The choice of a clock where perf events are refused, where sequences are off, and where the
//! variable asks for the system call. Each case has a process of its own: the choice is made once.

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

/// Returns whether the self-test found no answer, as when the kernel schedules no other thread for
/// a quarter of a second.
fn undecided(text: &str) -> bool {
    let undecided = text.contains("could not be tested");
    if undecided {
        eprintln!("skipped: the machine was too busy for the clock's self-test; run it again");
    }
    undecided
}

#[test]
fn the_system_call_serves_who_asks_for_it() {
    if world::is_child() {
        return report();
    }
    let name = "clock::the_system_call_serves_who_asks_for_it";
    let text = world::again(name, &[("SUBMETER_CLOCK", "syscall")]);
    assert!(text.contains("chosen Syscall, because SUBMETER_CLOCK=syscall"), "{text}");
    let text = world::again(name, &[("SUBMETER_CLOCK", "sundial")]);
    assert!(text.contains("\"sundial\" is not syscall; took that"), "{text}");
}

#[test]
fn without_perf_events_nothing_is_lost_but_speed() {
    if world::is_child() {
        return report();
    }
    let name = "clock::without_perf_events_nothing_is_lost_but_speed";
    let filter = world::deny(libc::SYS_perf_event_open, None, libc::EPERM);
    let Some(text) = world::again_under(name, &[], &filter) else { return };
    if submeter_sys::probe().rseq().is_some() {
        assert!(text.contains("chosen Syscall"), "{text}");
        if text.contains("time stamp counter") {
            eprintln!("skipped: the clock would not ask for perf events here: its counter varies");
            return;
        }
        assert!(text.contains("seccomp"), "the remedy is named: {text}");
    }
}

#[test]
fn without_perf_events_and_sequences_the_mark_serves() {
    if world::is_child() {
        return report();
    }
    let name = "clock::without_perf_events_and_sequences_the_mark_serves";
    let filter = world::deny(libc::SYS_perf_event_open, None, libc::ENOSYS);
    let Some(text) = world::again_under(name, &[("SUBMETER_RSEQ", "off")], &filter) else { return };
    if undecided(&text) {
        return;
    }
    match ThreadClock::on(Source::RseqMark) {
        // From Linux 6.19 on, a wait may leave the mark in place; the self-test must have noticed.
        Ok(_) => {
            assert!(text.contains("chosen RseqMark") || text.contains("missed a wait"), "{text}")
        }
        Err(_) => assert!(text.contains("chosen Syscall"), "{text}"),
    }
}

#[test]
fn a_thread_that_finds_no_descriptor_goes_on_by_the_system_call_and_is_counted() {
    if !world::is_child() {
        let name =
            "clock::a_thread_that_finds_no_descriptor_goes_on_by_the_system_call_and_is_counted";
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
    assert_eq!(clock::slow_threads(), 0);
    let none = libc::rlimit { rlim_cur: 0, rlim_max: libc::RLIM_INFINITY };
    let mut before = none;
    // SAFETY: 1. Both structures are live: they are here.
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
    // SAFETY: 1. As above. Before any assertion, whose report may want a descriptor.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const before) };
    assert_eq!((source, clock::slow_threads()), (Source::Syscall, 1));
    assert!(later > first);
    assert_eq!(ThreadClock::new().source(), Source::PerfPage, "the next one has one again");
}
