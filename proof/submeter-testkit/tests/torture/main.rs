//! Everything that may happen to a process, all at once, while a tree counts: threads moved between
//! CPUs, 10 kHz timers whose handlers update, forks and killed children, stops and continuations,
//! memory allocated and freed, crowds of threads, short-lived groups. Afterwards every total must
//! be exact; every read must be within its bound, and memory must stay bounded. The page faults,
//! context switches, migrations and CPU time that groups are charged with must be those that the
//! kernel counted in their threads.
//!
//! `SUBMETER_TORTURE_SECONDS=N` sets the duration, a few seconds by default; from 60 seconds on the
//! test has its full size. `SUBMETER_TORTURE_MACHINE=own` says that the machine is dedicated: then
//! a CPU is also taken offline and brought back, and the process is frozen and moved between sets
//! of CPUs by its cgroup. It is a program of its own, because it stops the process and handles a
//! signal.
#![cfg(all(target_os = "linux", not(any(miri, submeter_inject))))]
#![expect(unsafe_code, reason = "forks, signals, affinities")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use submeter_testkit::Soak;

mod bounded;
mod events;
#[path = "../common/handler.rs"]
#[expect(dead_code, reason = "shared with tests whose threads interrupt themselves")]
mod handler;
mod machine;
mod tenants;

use bounded::Bounded;
use events::Events;
use tenants::Tenants;

/// The size of a run.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// The time of all rounds together.
    time: Duration,
    rounds: u32,
    /// Groups in the soak's tree.
    groups: usize,
    /// Threads in a crowd.
    crowd: usize,
    /// Maximum amount of memory that is allocated at once.
    pressure_bytes: usize,
}

impl Size {
    fn wanted() -> Size {
        let text = std::env::var("SUBMETER_TORTURE_SECONDS");
        let seconds: u64 = text.as_deref().map_or(Ok(3), str::parse).unwrap_or_else(|_| {
            panic!("SUBMETER_TORTURE_SECONDS is {text:?}: give it a whole number of seconds")
        });
        let time = Duration::from_secs(seconds.max(1));
        if seconds < 60 {
            return Size { time, rounds: 2, groups: 2_000, crowd: 200, pressure_bytes: 32 << 20 };
        }
        let rounds = (seconds / 15).clamp(4, 60) as u32;
        Size { time, rounds, groups: 100_000, crowd: 10_000, pressure_bytes: 256 << 20 }
    }
}

/// The limit of resident memory, in percent of that after the first round.
const RESIDENT_PERCENT_MAX: u64 = 125;
/// Steps of each thread before the first round, for each group: since groups are chosen at random,
/// one in three thousand is left out.
const STEPS_A_GROUP: u64 = 8;
/// An additional allowance for partially used pages of the allocator.
const RESIDENT_SLACK_BYTES: u64 = 48 << 20;

/// Totals are exact, and reads within their bounds, whatever happens to the process.
#[test]
fn totals_survive_whatever_happens_stress() {
    let size = Size::wanted();
    use_one_arena();
    // First, because it forks: the test has no other threads yet.
    let mut machine = machine::Disturber::start();
    let probe = submeter_sys::probe();
    println!(
        "torture: {:?} in {} rounds on Linux {}, {} ({})",
        size.time,
        size.rounds,
        submeter_sys::kernel::release(),
        probe.backend.name(),
        probe.reason
    );
    let bounded = Arc::new(Bounded::new());
    let (tenants, events) = (Tenants::new(), Events::new());
    handler::on_signal({
        let bounded = Arc::clone(&bounded);
        move || bounded.add_in_handler()
    });
    let mut soak = Soak::new(size.groups, 2, 1);
    // Every group is used before memory is first checked: where a busy machine lets a round do
    // little, the groups that later rounds use for the first time would look like a leak.
    soak.round(STEPS_A_GROUP * size.groups as u64, &AtomicBool::new(false), |_| ());
    let start = Instant::now();
    let mut first_resident = None;
    for round in 1..=size.rounds {
        // Counted from here, because the last round may have ended late.
        let end = Instant::now() + size.time / size.rounds;
        one_round(&mut soak, (&bounded, &tenants, &events), size, end);
        let comparison = soak.compare();
        assert_eq!(comparison.groups, size.groups);
        assert_eq!(comparison.differences, []);
        bounded.assert_exact();
        tenants.assert_conserved();
        events.assert_conserved();
        let resident = resident_bytes();
        let first = *first_resident.get_or_insert(resident);
        println!(
            "torture: round {round}, {:.0} s: {}; {bounded}; {tenants}; {events}; resident {} MiB",
            start.elapsed().as_secs_f64(),
            soak.progress(),
            resident >> 20
        );
        assert!(
            resident <= first * RESIDENT_PERCENT_MAX / 100 + RESIDENT_SLACK_BYTES,
            "resident memory grew from {first} to {resident} bytes"
        );
    }
    println!("torture: {}", machine.stop());
    assert_eq!(soak.settle(), size.groups, "nothing but the living is left");
    bounded.assert_used();
    events.assert_used();
}

/// Runs everything at once until `end`, and joins all its threads.
fn one_round(
    soak: &mut Soak,
    (bounded, tenants, events): (&Bounded, &Tenants, &Events),
    size: Size,
    end: Instant,
) {
    let stop = AtomicBool::new(false);
    let running = Running(&stop);
    thread::scope(|scope| {
        // Needed when a thread of the scope panics: the others would never end.
        let _stop = StopOnDrop(&stop);
        let mut threads = vec![
            scope.spawn(|| bounded.read_until(running)),
            scope.spawn(|| bounded.add_until(running)),
            scope.spawn(|| tenants.churn_until(running)),
            scope.spawn(|| machine::move_threads_until(running)),
            scope.spawn(|| machine::interrupt_threads_until(running)),
            scope.spawn(|| machine::take_memory_until(running, size.pressure_bytes)),
            scope.spawn(|| machine::fork_until(running, bounded)),
        ];
        for number in 0..3 {
            threads.push(scope.spawn(move || events.enter_until(running, number)));
        }
        threads.push(scope.spawn(|| {
            while running.go_on() {
                bounded.crowd(size.crowd, running);
            }
        }));
        soak.round(u64::MAX, &stop, |_| {
            let failed = threads.iter().any(thread::ScopedJoinHandle::is_finished);
            if Instant::now() >= end || failed {
                // Relaxed: only ends the loops.
                stop.store(true, Ordering::Relaxed);
            }
        });
    });
}

/// Tells threads whether the round is still running.
#[derive(Clone, Copy)]
struct Running<'a>(&'a AtomicBool);

impl Running<'_> {
    fn go_on(self) -> bool {
        // Relaxed: only ends the loops.
        !self.0.load(Ordering::Relaxed)
    }
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        // Relaxed: only ends the loops.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Lets all threads share one arena of the allocator, where it has arenas.
///
/// Ten thousand threads at a time spread their allocations over 16 arenas, whose pages are then
/// partially free: within an hour resident memory grew by half, while the amount in use stayed the
/// same. A leak would be hidden by that.
fn use_one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: 1. The call has no conditions.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Returns the resident memory of the process, without what the allocator keeps for later.
fn resident_bytes() -> u64 {
    // submeter's own mappings are not given back by this.
    #[cfg(target_env = "gnu")]
    // SAFETY: 1. The call has no conditions.
    unsafe {
        libc::malloc_trim(0);
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib << 10
}
