//! CPU time divided by weights on a real machine. A run lasts as long as the caller chooses,
//! because what a machine's other programs leave to this one is outside the queue's control.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{available_parallelism, scope, sleep};
use std::time::Duration;

use super::Admission;
use super::tests::timed_tree;
use crate::Group;
use crate::switch::clock::thread_cpu_ns;

/// The number of threads per group, which always want more, and the CPU time that each turn uses.
const THREADS: usize = 8;
const TURN_NS: u64 = 500_000;

fn work(group: &Group) {
    group.run(|| {
        let end = thread_cpu_ns() + TURN_NS;
        while thread_cpu_ns() < end {}
    });
}

/// Lets groups share the CPUs for a time. Returns what each used of the total, in percent.
fn shares<const N: usize>(paths: [&str; N], weights: &[(&str, u32)], time: Duration) -> [f64; N] {
    let tree = timed_tree();
    let cpu = tree.schema().cpu_time().expect("declared");
    let places = available_parallelism().map_or(1, usize::from);
    let admission = Admission::new(places as u32);
    let groups = paths.map(|path| tree.get_or_create(path).expect("room"));
    for &(path, weight) in weights {
        let group = tree.get(path).expect("made");
        admission.set_weight(&group, Some(weight)).expect("in range");
    }
    let has_ended = AtomicBool::new(false);
    let used = scope(|scope| {
        for group in groups.iter().flat_map(|group| [group; THREADS]) {
            scope.spawn(|| {
                // Relaxed, here and below: a flag alone.
                while !has_ended.load(Ordering::Relaxed) {
                    let turn = admission.acquire_blocking(group, Duration::MAX).expect("it waits");
                    work(group);
                    drop(turn);
                }
            });
        }
        // Until all threads wait.
        sleep(Duration::from_millis(200));
        let before = groups.each_ref().map(|group| group.sum(cpu));
        sleep(time);
        let after = groups.each_ref().map(|group| group.sum(cpu));
        has_ended.store(true, Ordering::Relaxed);
        std::array::from_fn::<_, N, _>(|at| (after[at] - before[at]) as f64)
    });
    let all: f64 = used.iter().sum();
    used.map(|used| used * 100.0 / all)
}

#[test]
fn fair_weights_divide_the_cpu_of_a_real_machine() {
    let seconds = std::env::var("SUBMETER_SHARES_SECONDS").ok();
    let Some(seconds) = seconds.and_then(|seconds| seconds.parse().ok()) else {
        eprintln!("skipped: shares of a real machine; give SUBMETER_SHARES_SECONDS=10");
        return;
    };
    let time = Duration::from_secs(seconds);
    let check = |shares: &[f64], expected: &[f64]| {
        println!("{shares:.2?} %, and by the weights {expected:.2?}");
        let off = |(share, expected): (&f64, &f64)| (share - expected).abs();
        assert!(shares.iter().zip(expected).all(|pair| off(pair) <= 1.0));
    };
    let flat = shares(["/a", "/b"], &[("/b", 300)], time);
    check(&flat, &[25.0, 75.0]);
    let weights = [("/b", 300), ("/b/y", 300)];
    let nested = shares(["/a", "/b/x", "/b/y"], &weights, time);
    check(&nested, &[25.0, 18.75, 56.25]);
}
