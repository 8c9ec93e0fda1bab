//! More threads than perf pages may be locked for: they are charged all the same.
//!
//! In a program of its own: its child drops privileges, so that the limit of locked memory applies.
#![cfg(all(target_os = "linux", not(miri)))]
#![expect(unsafe_code, reason = "forks, sets limits, gives up privilege")]

#[path = "common/fork.rs"]
mod fork;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use submeter::perf::{Request, RequestState, Session, parse};
use submeter::switch::clock::{self, Source};
use submeter::{Schema, Tree};
use submeter_sys::clock::ThreadClock;

/// The user `nobody` on every distribution, whose limit no other process has used up.
const NOBODY: libc::uid_t = 65_534;

/// Returns more threads than `kernel.perf_event_mlock_kb` allows pages on a machine with a few
/// CPUs.
fn threads() -> usize {
    // All CPUs, not only those that this process may use: the kernel counts all. SAFETY: takes a
    // number and returns one.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as usize;
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_mlock_kb");
    let kib: usize = text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(516);
    kib / 4 * cpus + 50
}

/// Drops the privileges that exempt this process from the limit. Returns whether that worked.
fn drop_privileges() -> bool {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads the structure that it is given; the other takes a number.
    unsafe {
        libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const none) == 0 && libc::setuid(NOBODY) == 0
    }
}

fn all_are_charged(threads: usize) -> bool {
    const EACH_NS: u64 = 100_000;
    let mut schema = Schema::builder();
    let cpu = schema.cpu_time("cpu", "CPU time");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let group = tree.create("/a").expect("new");
    let request = Request::group(&group, parse("task-clock").expect("valid").remove(0));
    let session = Session::open(&tree, [request]);
    let together = Barrier::new(threads);
    let none_is_left = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                group.run(|| {
                    let start = clock::thread_cpu_ns();
                    while clock::thread_cpu_ns() < start + EACH_NS {}
                });
                // All threads have a clock at the same time.
                together.wait();
                if ThreadClock::new().source() != Source::PerfPage {
                    // Relaxed: the threads are joined before it is read.
                    none_is_left.store(true, Ordering::Relaxed);
                }
                together.wait();
            });
        }
    });
    let (charged, least) = (group.sum(cpu), threads as u64 * EACH_NS);
    let counts = &session.counts()[0];
    eprintln!("{threads} threads, {charged} of {least} ns: {counts:?}");
    // A clock may start a little later than its thread.
    let least = least - least / 10;
    none_is_left.into_inner()
        && charged >= least
        && counts.values()[0] >= least
        && *counts.state() == RequestState::Counting
}

#[test]
fn threads_without_a_page_are_charged() {
    let threads = threads();
    if clock::choice().source != Source::PerfPage || threads > 2000 {
        eprintln!("skipped: needs perf's pages and few CPUs: {:?}", clock::choice());
        return;
    }
    assert!(fork::in_a_fork(|| {
        if !drop_privileges() {
            eprintln!("skipped: cannot drop privileges here: run as root");
            return true;
        }
        all_are_charged(threads)
    }));
}
