//! Many threads at once: no update may be lost, and no limit may be exceeded.
//!
//! Every loop is bounded by a number of steps, never by time. `SUBMETER_STRESS=N` multiplies the
//! steps.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

#[path = "../../../crates/submeter-percpu/tests/it/witness.rs"]
mod witness;

use self::witness::Witness;
use fastrand::Rng;
use submeter::{Charge, Group, Snapshot, Tree};
use submeter_testkit::TestSchema;

const THREADS: u64 = 4;

/// Steps of each thread.
fn steps() -> u64 {
    let factor = std::env::var("SUBMETER_STRESS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    match () {
        () if cfg!(miri) => 12,
        // Each add takes tens of microseconds, see `tree`.
        () if cfg!(submeter_inject) => 10_000 * factor,
        () => 100_000 * factor,
    }
}

fn tree() -> (TestSchema, Tree) {
    // Builds with injected delays stay longer in each sequence, so that a flush often has to wait.
    #[cfg(submeter_inject)]
    submeter_sys::inject::delay(submeter_sys::inject::Point::BeforeCommit, 100_000);
    let schema = TestSchema::new();
    let tree = Tree::new(schema.schema.clone()).expect("a tree");
    (schema, tree)
}

/// Two parents with three leaves each.
fn leaves(tree: &Tree) -> Vec<Group> {
    let paths = ["/a/x", "/a/y", "/a/z", "/b/x", "/b/y", "/b/z"];
    paths.iter().map(|path| tree.get_or_create(path).expect("a small tree")).collect()
}

/// Runs `work` on threads, and `watch` repeatedly until all of them are done.
fn with_watcher<R: Send>(work: impl Fn(u64) -> R + Sync, mut watch: impl FnMut() + Send) -> Vec<R> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                watch();
                // Outside Miri it does not yield: a watcher that yields to four workers hardly runs
                // at all.
                if cfg!(miri) {
                    thread::yield_now();
                }
            }
        });
        let work = &work;
        let workers: Vec<_> = (0..THREADS).map(|t| scope.spawn(move || work(t))).collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Relaxed);
        watcher.join().expect("the watcher saw nothing wrong");
        results.into_iter().map(|result| result.expect("the worker saw nothing wrong")).collect()
    })
}

/// Asserts that in a snapshot, a parent that counts nothing itself is the sum of its children,
/// whatever other threads do.
fn assert_parents_are_sums(schema: &TestSchema, snapshot: &Snapshot) {
    let groups = snapshot.groups();
    let leaf = |at: usize| !groups.iter().any(|group| group.parent() == Some(at));
    for (at, parent) in groups.iter().enumerate().filter(|(at, _)| !leaf(*at)) {
        let children = || groups.iter().filter(|group| group.parent() == Some(at));
        let counter: u64 = children().map(|child| child.counter(schema.counters[0])).sum();
        assert_eq!(parent.counter(schema.counters[0]), counter, "{}", parent.path());
        let gauge: i64 = children().map(|child| child.gauge(schema.gauge)).sum();
        assert_eq!(parent.gauge(schema.gauge), gauge, "{}", parent.path());
        let records: u64 = children().map(|c| c.histogram(schema.histogram).count()).sum();
        assert_eq!(parent.histogram(schema.histogram).count(), records, "{}", parent.path());
    }
}

/// Updates of many threads are conserved while others flush.
#[test]
fn updates_are_conserved_beside_flushes_stress() {
    let (schema, tree) = tree();
    let (leaves, witness) = (leaves(&tree), Witness::new());
    let work = |thread| {
        let mut rng = Rng::with_seed(thread);
        let mut done = vec![(0u64, 0i64, 0u64); leaves.len()];
        for _ in (0..).take_while(|&step| witness.goes_on(step, steps())) {
            let at = rng.usize(..leaves.len());
            let n = rng.u64(..1000);
            leaves[at].add(schema.counters[0], n);
            leaves[at].adjust(schema.gauge, 500 - n.cast_signed());
            leaves[at].record(schema.histogram, n);
            done[at] = (done[at].0 + n, done[at].1 + 500 - n.cast_signed(), done[at].2 + 1);
        }
        done
    };
    let mut seen = 0;
    let done = with_watcher(work, || {
        let snapshot = tree.snapshot();
        assert_parents_are_sums(&schema, &snapshot);
        for leaf in &leaves {
            assert!(leaf.read(schema.counters[0]).value <= leaf.sum(schema.counters[0]));
        }
        // Both see what is in flight.
        let now = snapshot.groups()[0].counter(schema.counters[0]);
        let before = std::mem::replace(&mut seen, now);
        witness.met(before != 0 && now != before);
    });
    witness.assert_met();
    assert_parents_are_sums(&schema, &tree.snapshot());
    let total = |at: usize| {
        done.iter().fold((0, 0, 0), |sum, thread| {
            (sum.0 + thread[at].0, sum.1 + thread[at].1, sum.2 + thread[at].2)
        })
    };
    let mut all = (0, 0, 0);
    for (at, leaf) in leaves.iter().enumerate() {
        let (counter, gauge, records) = total(at);
        assert_eq!(leaf.sum(schema.counters[0]), counter, "{}", leaf.path());
        assert_eq!(leaf.sum(schema.gauge), gauge, "{}", leaf.path());
        let histogram = leaf.read_histogram(schema.histogram).value;
        assert_eq!((histogram.count(), histogram.sum()), (records, counter), "{}", leaf.path());
        all = (all.0 + counter, all.1 + gauge, all.2 + records);
    }
    let root = tree.root();
    assert_eq!((root.sum(schema.counters[0]), root.sum(schema.gauge)), (all.0, all.1));
    assert_eq!(root.read_histogram(schema.histogram).value.count(), all.2);
}

/// A read is within its bound while others add and flush.
///
/// A read's value plus bound covers every add that had returned before it; its value includes no
/// add that had not begun.
///
/// Many other groups make a flush take long; two groups among them are read, with adds of many
/// batches, so that a bound that misses one is far off.
#[test]
fn a_read_is_within_its_bound_stress() {
    let (schema, tree) = tree();
    let (crowd, batches) = (if cfg!(miri) { 6 } else { 300 }, 1 << 20);
    let crowd: Vec<Group> =
        (0..crowd).map(|i| tree.get_or_create(&format!("/crowd/{i}")).expect("room")).collect();
    let read = [0, crowd.len() / 2].map(|at| (&crowd[at], AtomicU64::new(0), AtomicU64::new(0)));
    let (done, witness) = (AtomicU64::new(0), Witness::new());
    let adder = |thread| {
        let mut rng = Rng::with_seed(thread);
        for _ in (0..).take_while(|&n| witness.goes_on(n, steps() / 4)) {
            crowd[rng.usize(..crowd.len())].add(schema.counters[0], 1);
            let (group, begun, returned) = &read[rng.usize(..read.len())];
            let n = rng.u64(..batches);
            begun.fetch_add(n, Ordering::SeqCst);
            group.add(schema.counters[1], n);
            returned.fetch_add(n, Ordering::SeqCst);
        }
        done.fetch_add(1, Ordering::SeqCst);
    };
    let work = |thread| match thread {
        0 => {
            while done.load(Ordering::SeqCst) < THREADS - 1 {
                tree.flush();
            }
        }
        _ => adder(thread),
    };
    let check = |group: &Group, begun: &dyn Fn() -> u64, returned: &dyn Fn() -> u64| {
        let before = returned();
        let reading = group.read(schema.counters[1]);
        let after = begun();
        assert!(reading.value + reading.max_error >= before, "{before} not within {reading:?}");
        assert!(reading.value <= after, "{reading:?} of {after}");
        // Something was flushed, something was not, and something was added in the meantime.
        witness.met(reading.value != 0 && reading.max_error != 0 && after > before);
    };
    let of = |counts: [&AtomicU64; 2]| counts.map(|n| n.load(Ordering::SeqCst)).iter().sum::<u64>();
    let watch = || {
        for (group, begun, returned) in &read {
            let load = |count: &AtomicU64| count.load(Ordering::SeqCst);
            check(group, &|| load(begun), &|| load(returned));
        }
        check(tree.root(), &|| of([&read[0].1, &read[1].1]), &|| of([&read[0].2, &read[1].2]));
    };
    with_watcher(work, watch);
    watch();
    witness.assert_met();
    for (group, _, returned) in &read {
        assert_eq!(group.sum(schema.counters[1]), returned.load(Ordering::SeqCst));
    }
    // Flushes the whole tree, because a read cannot tell which marks of other groups are below its
    // own.
    tree.flush();
    for (group, _, returned) in &read {
        let reading = group.read(schema.counters[1]);
        assert_eq!((reading.value, reading.max_error), (returned.load(Ordering::SeqCst), 0));
    }
}

/// Every ancestor keeps what killed groups counted.
#[test]
fn killed_groups_counts_stay_above_stress() {
    let (schema, tree) = tree();
    let parent = tree.get_or_create("/a/b").expect("a small tree");
    let (names, witness) = (["x", "y", "z"], Witness::new());
    let work = |thread| {
        let mut rng = Rng::with_seed(thread);
        let mut counted = 0;
        for _ in (0..).take_while(|&step| witness.goes_on(step, steps() / 20)) {
            // Several threads find, fill and kill the same child.
            let Ok(child) = parent.get_or_create_child(names[rng.usize(..names.len())]) else {
                continue;
            };
            for _ in 0..rng.u64(..8) {
                child.add(schema.counters[1], 1);
                counted += 1;
            }
            if rng.u64(..2) == 0 {
                // Another thread may have killed it already: its updates still count.
                let killed = child.kill();
                witness.met(killed.is_err());
                assert!(killed.is_ok() || killed.is_err_and(|error| error.is_killed()));
                child.add(schema.counters[1], 1);
                counted += 1;
            }
        }
        counted
    };
    let mut seen = 0;
    let counted: u64 = with_watcher(work, || {
        let now = parent.sum(schema.counters[1]);
        assert!(now >= seen, "fell from {seen} to {now}");
        seen = now;
        let _ = tree.snapshot();
    })
    .into_iter()
    .sum();
    witness.assert_met();
    for group in [&parent, tree.root()] {
        assert_eq!(group.sum(schema.counters[1]), counted, "{}", group.path());
    }
    for child in parent.children() {
        child.kill().expect("no children, and no other thread kills now");
    }
    assert_eq!(parent.sum(schema.counters[1]), counted);
}

#[test]
fn no_limit_is_exceeded_at_any_level_stress() {
    const LEAF_MAX: u64 = 60;
    const PARENT_MAX: u64 = 100;
    let (schema, tree) = tree();
    let leaves = leaves(&tree);
    let quota = schema.quotas[0];
    for leaf in &leaves {
        leaf.set_limit(quota, Some(LEAF_MAX));
        leaf.parent().expect("not the root").set_limit(quota, Some(PARENT_MAX));
    }
    let work = |thread| {
        let mut rng = Rng::with_seed(thread);
        let mut held: Vec<Charge> = Vec::new();
        let mut refused = 0u64;
        for _ in 0..steps() / 4 {
            match rng.u64(..3) {
                0 if !held.is_empty() => {
                    drop(held.swap_remove(rng.usize(..held.len())));
                }
                1 if !held.is_empty() => {
                    let at = rng.usize(..held.len());
                    refused += u64::from(held[at].resize(rng.u64(..30)).is_err());
                }
                _ => match leaves[rng.usize(..leaves.len())].try_charge(quota, rng.u64(..30)) {
                    Ok(charge) => held.push(charge),
                    Err(_) => refused += 1,
                },
            }
        }
        refused
    };
    let check = || {
        for leaf in &leaves {
            let usage = leaf.usage(quota);
            assert!(usage.current <= LEAF_MAX && usage.peak <= LEAF_MAX, "{usage:?}");
            let usage = leaf.parent().expect("not the root").usage(quota);
            assert!(usage.current <= PARENT_MAX && usage.peak <= PARENT_MAX, "{usage:?}");
        }
    };
    let refused: u64 = with_watcher(work, check).into_iter().sum();
    let mut counted = 0;
    for group in leaves.iter().chain([leaves[0].parent(), leaves[3].parent()].into_iter().flatten())
    {
        assert_eq!(group.usage(quota).current, 0, "{}", group.path());
        counted += group.usage(quota).refused;
    }
    assert_eq!(counted, refused, "each refusal is counted by the group that refused");
    assert!(cfg!(miri) || refused > 0, "the limits were never reached");
}

/// Waits for the other threads at `round` by spinning: a futex would spread them over microseconds,
/// and the tested race lasts nanoseconds. Yields occasionally, for machines with fewer CPUs than
/// threads, and at once `alone` on a CPU, where spinning only keeps the other thread from it.
fn meet(at: &AtomicU64, round: u64, alone: bool) {
    let mut spins = 0u32;
    while at.load(Ordering::SeqCst) < round {
        spins += 1;
        if alone || spins.is_multiple_of(2048) || cfg!(miri) {
            thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

/// The setter writes the limit and then reads the usage, a charger does the reverse: whatever the
/// interleaving, a granted charge is either within the limit or part of the reported excess.
#[test]
fn a_lowered_limit_is_not_exceeded_stress() {
    let (schema, tree) = tree();
    let group = tree.get_or_create("/a").expect("a small tree");
    let quota = schema.quotas[1];
    let [start, begun, charged, looked] = [const { AtomicU64::new(0) }; 4];
    let (rounds, witness) = (steps() / 10, Witness::new());
    let alone = thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
    // On one CPU only a preemption lets them meet.
    witness.met(alone);
    let delay = |rng: &mut Rng| (0..rng.u64(..32)).for_each(|_| std::hint::spin_loop());
    let charger = || {
        let mut rng = Rng::with_seed(1);
        for round in 1.. {
            meet(&start, round, alone);
            if start.load(Ordering::SeqCst) == u64::MAX {
                break;
            }
            delay(&mut rng);
            // Relaxed: this decides nothing, and an ordering here would hide the race.
            begun.store(round, Ordering::Relaxed);
            let held = group.try_charge(quota, 10);
            charged.store(round, Ordering::SeqCst);
            meet(&looked, round, alone);
            drop(held);
        }
    };
    let setter = || {
        let mut rng = Rng::with_seed(0);
        // Collected, because a panic here would leave the charger waiting.
        let mut wrong = Vec::new();
        for round in (1..).take_while(|&round| witness.goes_on(round - 1, rounds)) {
            group.set_limit(quota, None);
            start.store(round, Ordering::SeqCst);
            delay(&mut rng);
            let over = charged.load(Ordering::Relaxed) == round;
            let excess = group.set_limit(quota, Some(5)).excess();
            // A charge that began before the limit was set, and was not over when that began.
            witness.met(!over && begun.load(Ordering::Relaxed) == round);
            meet(&charged, round, alone);
            let current = group.usage(quota).current;
            if current > 5 + excess {
                wrong.push((round, current, excess));
            }
            looked.store(round, Ordering::SeqCst);
        }
        start.store(u64::MAX, Ordering::SeqCst);
        wrong
    };
    let wrong = thread::scope(|scope| {
        scope.spawn(charger);
        setter()
    });
    assert_eq!(wrong, [], "(round, held of 5, excess reported)");
    witness.assert_met();
}

/// Groups are created, added to and dropped at every point of a flush. With many other groups a
/// flush spends its time on the marks; without them, on the words.
fn groups_come_and_go_during_flushes(crowd: usize) {
    let (schema, tree) = tree();
    let crowd: Vec<Group> =
        (0..crowd).map(|i| tree.get_or_create(&format!("/crowd/{i}")).expect("room")).collect();
    let new = tree.get_or_create("/new").expect("room");
    let before = tree.group_count();
    let (gone, witness) = (AtomicU64::new(0), Witness::new());
    let work = |thread| {
        let (mut rng, mut counted) = (Rng::with_seed(thread), 0);
        for step in (0..).take_while(|&step| witness.goes_on(step, steps() / 20)) {
            if !crowd.is_empty() {
                (0..4).for_each(|_| crowd[rng.usize(..crowd.len())].add(schema.counters[1], 1));
            }
            let group = new.create_child(&format!("{thread}-{step}")).expect("room");
            group.add(schema.counters[0], 1);
            counted += 1;
            group.kill().expect("nobody else has it");
            gone.fetch_add(1, Ordering::SeqCst);
        }
        counted
    };
    let flush = || {
        let gone_before = gone.load(Ordering::SeqCst);
        let found = tree.flush().groups;
        // A flush that had something to do, and groups that went in the meantime.
        witness.met(found > 0 && gone.load(Ordering::SeqCst) > gone_before);
    };
    let counted: u64 = with_watcher(work, flush).into_iter().sum();
    witness.assert_met();
    assert_eq!(tree.root().sum(schema.counters[0]), counted);
    assert_eq!(tree.group_count(), before);
}

/// Groups that come and go while a flush takes marks are found.
#[test]
fn groups_that_end_amid_marks_are_found_stress() {
    groups_come_and_go_during_flushes(if cfg!(miri) { 20 } else { 500 });
}

/// Groups that come and go while a flush reads words are found.
#[test]
fn groups_that_end_amid_reads_are_found_stress() {
    groups_come_and_go_during_flushes(0);
}
