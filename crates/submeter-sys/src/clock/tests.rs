use std::time::{Duration, Instant};

use super::*;

/// Returns the sources available here; prints those that are not.
fn clocks() -> Vec<ThreadClock> {
    let try_one = |source| match ThreadClock::on(source) {
        Ok(clock) => Some(clock),
        Err(error) => {
            eprintln!("skipped: {}: {}", source.name(), error);
            None
        }
    };
    [Source::PerfPage, Source::Ticks, Source::Syscall].into_iter().filter_map(try_one).collect()
}

/// Computes for about `ms` of wall time.
fn burn(ms: u64) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(ms) {
        std::hint::black_box((0..100u64).sum::<u64>());
    }
}

#[test]
fn the_choice_is_made_once_and_gives_its_reason() {
    let choice = choice();
    assert!(ptr::eq(choice, super::choice()));
    assert!(!choice.reason.is_empty());
    eprintln!("{}: {}", choice.source.name(), choice.reason);
}

#[test]
fn a_clock_never_goes_back() {
    for mut clock in clocks() {
        let (mut last, end) = (0, if cfg!(miri) { 100 } else { 200_000 });
        for i in 0..end {
            let now = if i % 5 == 0 { clock.begin_ns() } else { clock.now_ns() };
            assert!(now >= last, "{}: {now} after {last}", clock.source().name());
            last = now;
            if i % 1000 == 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }
}

/// An interrupted query is repeated a bounded number of times.
#[test]
fn an_interrupted_question_is_asked_again() {
    let answers = |took: &[u64], close| {
        let mut asked = 0;
        let latest = Asked::until_close(close, || {
            asked += 1;
            Asked { armed: asked, before: 0, ns: 0, took: took[asked as usize - 1] }
        });
        (latest.armed, asked)
    };
    assert_eq!(answers(&[10], 20), (1, 1), "close enough");
    assert_eq!(answers(&[900, 10], 20), (2, 2), "the second is");
    assert_eq!(answers(&[900, 800, 700], 20), (3, 3), "none is, as under an emulator");
    assert_eq!(answers(&[900], 0), (1, 1), "there is no counter");
}

#[test]
fn waiting_costs_no_cpu_time() {
    for mut clock in clocks() {
        let before = clock.now_ns();
        std::thread::sleep(Duration::from_millis(if cfg!(miri) { 0 } else { 200 }));
        let used = clock.now_ns() - before;
        // The CPU time of waiting and coming back; a clock that missed the wait would say 200 ms.
        assert!(cfg!(miri) || used < 100_000_000, "{}: {used} ns", clock.source().name());
    }
}

/// Intervals of a preempted thread sum up to the kernel's answer.
#[cfg(not(miri))]
#[test]
fn preempted_intervals_sum_up_stress() {
    use std::sync::atomic::{AtomicU64, Ordering};

    // More threads than CPUs, all computing: each is preempted every few milliseconds.
    let threads = 2 * std::thread::available_parallelism().map_or(2, usize::from);
    let preempted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for mut clock in clocks() {
                    let (start, oracle) = (clock.now_ns(), thread_cpu_ns());
                    let (mut sum, mut last, until) = (0, start, Instant::now());
                    while until.elapsed() < Duration::from_millis(150) {
                        let now = clock.now_ns();
                        sum += now - last;
                        last = now;
                        burn_a_little();
                    }
                    // Queries the kernel, so that neither end is an estimate.
                    let (sum, truth) =
                        (sum + clock.ask(Ends::Interval) - last, thread_cpu_ns() - oracle);
                    let off = sum.abs_diff(truth);
                    // Allows for what the two calls take, and an interrupt between them.
                    let name = clock.source().name();
                    assert!(off < truth / 20 + 2_000_000, "{name}: {sum} against {truth}");
                }
                // Relaxed: read after the joins.
                preempted.fetch_add(preemptions().unwrap_or(1), Ordering::Relaxed);
            });
        }
    });
    assert_ne!(preempted.into_inner(), 0, "no thread was preempted");
}

/// Returns how often the calling thread was preempted; `None` if the system does not say.
#[cfg(not(miri))]
fn preemptions() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let mut lines = status.lines();
    let count = lines.find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?;
    count.trim().parse().ok()
}

/// Intervals that begin after waits sum up to the kernel's answer.
#[cfg(not(miri))]
#[test]
fn intervals_after_waits_sum_up_stress() {
    // As above, but each interval follows a wait, and some are cut by a preemption. The kernel is
    // queried on both sides of each end: the time of its calls, 5 µs per interval on some machines,
    // lies between the two.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for mut clock in clocks() {
                    let (mut sum, mut least, mut most) = (0, 0, 0);
                    let until = Instant::now();
                    while until.elapsed() < Duration::from_millis(300) {
                        std::thread::sleep(Duration::from_micros(1));
                        // Outside everything: the clock itself must find out about the wait.
                        let outer = thread_cpu_ns();
                        let begin = clock.begin_ns();
                        let inner = thread_cpu_ns();
                        let start = Instant::now();
                        while start.elapsed() < Duration::from_micros(30) {
                            burn_a_little();
                        }
                        least += thread_cpu_ns() - inner;
                        sum += clock.now_ns() - begin;
                        most += thread_cpu_ns() - outer;
                    }
                    let (name, off) = (clock.source().name(), most / 20 + 2_000_000);
                    let range = least.saturating_sub(off)..most + off;
                    assert!(range.contains(&sum), "{name}: {sum}, not in {least}..{most}");
                }
            });
        }
    });
}

/// An interval does not begin in the future, even after a long one without a reading of the clock.
#[cfg(not(miri))]
#[test]
fn an_interval_never_begins_in_the_future() {
    for mut clock in clocks() {
        for _ in 0..20 {
            std::thread::sleep(Duration::from_micros(1));
            // Nothing reads the clock in this time.
            burn(3);
            clock.begin_ns();
            std::thread::sleep(Duration::from_micros(1));
            let begin = clock.begin_ns();
            let truth = thread_cpu_ns();
            let name = clock.source().name();
            assert!(begin < truth + 1_000_000, "{name}: begins at {begin}, before {truth}");
        }
    }
}

fn burn_a_little() {
    std::hint::black_box((0..50u64).sum::<u64>());
}

/// A child, however created, continues without the parent's page.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn a_child_goes_on_without_the_parents_page() {
    let by_fork: fn() -> libc::c_long = || {
        // SAFETY: 1. The child does only what a child of a threaded process may: it reads clocks,
        // maps a page and ends.
        unsafe { libc::fork() }.into()
    };
    let bare: fn() -> libc::c_long = || {
        // SAFETY: 1. As above. 2. No handler of the C library runs, as in a child of `_Fork`; the
        // test needs none.
        unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) }
    };
    let questions: [fn(&mut ThreadClock) -> u64; 2] =
        [|clock| clock.now_ns(), |clock| clock.begin_ns()];
    let each = |make| {
        let of = move |ask| clocks().into_iter().map(move |clock| (clock, make, ask));
        questions.into_iter().flat_map(of)
    };
    let bare = fork::tests::pages_are_wiped().then_some(bare);
    for (mut clock, make, ask) in each(by_fork).chain(bare.into_iter().flat_map(each)) {
        let before = clock.now_ns();
        let child = make();
        assert!(child >= 0, "{}", io::Error::last_os_error());
        if child == 0 {
            let first = ask(&mut clock);
            burn(5);
            let right = first >= before && clock.now_ns() > first;
            drop(clock);
            // SAFETY: 1. As above.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let mut status = -1;
        // SAFETY: 1. `status` is live and writable. 2. `child` is ours to wait for: made above.
        assert_eq!(unsafe { libc::waitpid(child as i32, &raw mut status, 0) }, child as i32);
        assert_eq!(status, 0, "{}", clock.source().name());
        assert!(clock.now_ns() >= before);
    }
}

#[cfg(not(miri))]
#[test]
fn a_process_has_used_at_least_what_a_thread_has() {
    burn(2);
    let thread = thread_cpu_ns();
    assert!(thread > 0 && process_cpu_ns() >= thread);
}

#[cfg(not(miri))]
#[test]
fn the_rate_turns_ticks_into_ns_and_back() {
    let Ok(rate) = ticks::rate() else {
        eprintln!("skipped: no counter of constant rate here");
        return;
    };
    // Some aarch64 counters tick only every 40 ns.
    let tick_ns = rate.ns(1);
    for ns in [1_000, 999_999, 5_000_000] {
        let there_and_back = rate.ns(rate.ticks(ns));
        let off = ns.abs_diff(there_and_back);
        assert!(off <= 2 + tick_ns + ns / 1_000_000, "{ns}: {there_and_back}");
    }
}
