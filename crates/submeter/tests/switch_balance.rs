//! The CPU time of groups and the unattributed time add up to that of the process. A program of its
//! own, because other tests' threads would count too.
#![cfg(not(miri))]

use std::hint::black_box;
use std::time::Instant;

use submeter::switch::clock;
use submeter::{Group, Schema, Tree};

/// More threads than CPUs, so that each is preempted and migrated every few milliseconds.
const THREADS: usize = 4;
/// The CPU time that a thread uses in its groups; it uses half as much outside.
const INSIDE_NS: u64 = 300_000_000;

/// A thread's CPU time according to the kernel.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    /// CPU time between the first and the last look inside groups, and between the looks around
    /// them. The kernel mostly preempts a thread as it returns from a look, and the cost of that
    /// comes after the look.
    inside_ns: u64,
    around_ns: u64,
    all_ns: u64,
    switches: u64,
}

fn work(iterations: u64) {
    black_box((0..iterations).map(black_box).sum::<u64>());
}

/// Keeps switching between the parts of `group`, with occasional work outside.
fn burn(group: &Group, parts: &[Group]) -> Used {
    let mut used = Used::default();
    let mut before = clock::thread_cpu_ns();
    while used.inside_ns < INSIDE_NS {
        let entered = group.enter();
        let start = clock::thread_cpu_ns();
        for _ in 0..500 {
            for part in parts {
                part.run(|| work(20));
                used.switches += 2;
            }
        }
        let inside = clock::thread_cpu_ns() - start;
        drop(entered);
        used.inside_ns += inside;
        let start = clock::thread_cpu_ns();
        used.around_ns += start - before;
        before = start;
        while before - start < inside / 2 {
            work(1000);
            before = clock::thread_cpu_ns();
        }
    }
    used.all_ns = clock::thread_cpu_ns();
    used
}

/// Maximum number of times that the sums are compared.
///
/// Between two switches, CPU time is the difference of a counter that keeps running while an
/// interrupt or the hypervisor has the CPU; the kernel's own answer leaves such time out. On a busy
/// machine that alone may amount to a hundredth in each round. An error in the switch shows in
/// every round, and on an otherwise idle machine too.
const ROUNDS: usize = 5;

/// Groups and the unattributed time sum up to the process at 100,000 switches a second.
#[test]
fn the_balance_holds_at_100_000_switches_stress() {
    let mut noise = 0;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let before = clock::process_cpu_ns();
        match compare_with_the_kernel(100) {
            Ok(balance) => {
                eprintln!("{balance}");
                return;
            }
            Err(difference) => eprintln!("once more: {difference}"),
        }
        // Other threads took more than a tenth of the time that all CPUs had for these.
        let cpus = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
        let had = start.elapsed().as_nanos() as u64 * cpus as u64;
        noise += usize::from((clock::process_cpu_ns() - before) * 10 < had * 9);
    }
    assert_eq!(noise, ROUNDS, "wrong though nothing else ran: see above");
    println!(
        "skipped: too noisy: {ROUNDS} rounds beside other programs; within a tenth is checked"
    );
    compare_with_the_kernel(10).expect("noise is less");
}

/// Lets threads switch between groups, and returns an error if what the groups were charged, or the
/// rest, differs from the kernel's answers by more than one part in `part`.
fn compare_with_the_kernel(part: u64) -> Result<String, String> {
    let mut schema = Schema::builder();
    let cpu = schema.cpu_time("cpu", "CPU time");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let main_before = clock::thread_cpu_ns();
    let groups: Vec<_> =
        (0..THREADS).map(|n| tree.create(&format!("/{n}")).expect("new")).collect();
    let used: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = groups
            .iter()
            .map(|group| {
                let parts = ["a", "b", "c"].map(|name| group.create_child(name).expect("new"));
                scope.spawn(move || burn(group, &parts))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let balance = tree.cpu_balance().expect("CPU time is declared");
    let main_ns = clock::thread_cpu_ns() - main_before;
    type Range = std::ops::RangeInclusive<u64>;
    let near = |what: &dyn std::fmt::Debug, found: u64, expected: Range, of: u64| {
        let off = found.abs_diff(found.clamp(*expected.start(), *expected.end()));
        (off <= of / part).then_some(()).ok_or(format!("{what:?}: {found} for {expected:?}"))
    };
    let (mut inside_ns, mut around_ns) = (0, 0);
    for (group, used) in groups.iter().zip(&used) {
        near(used, group.read(cpu).value, used.inside_ns..=used.around_ns, used.inside_ns)?;
        assert!(used.switches * 10_000 >= used.inside_ns, "too few for this test: {used:?}");
        inside_ns += used.inside_ns;
        around_ns += used.around_ns;
    }
    // The start and end of a thread cost the process time that no thread can see.
    let all_ns = main_ns + used.iter().map(|used| used.all_ns).sum::<u64>();
    near(&balance, balance.process_ns, all_ns..=all_ns, all_ns)?;
    near(&balance, balance.attributed_ns, inside_ns..=around_ns, all_ns)?;
    let outside_ns = all_ns - around_ns..=all_ns - inside_ns;
    near(&balance, balance.unattributed_ns(), outside_ns.clone(), all_ns)?;
    Ok(format!("{balance:?}, by thread {inside_ns} inside and {outside_ns:?} outside"))
}

#[test]
fn a_tree_that_meters_no_cpu_time_has_no_balance() {
    let tree = Tree::new(Schema::builder().build().expect("empty")).expect("address space");
    assert_eq!(tree.cpu_balance(), None);
}
