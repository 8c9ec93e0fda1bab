//! The three kinds of read, flushes of subtrees, and the guarantees that Linux documents for the
//! same mechanism.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use submeter::{Bytes, Count, Counter, Gauge, Quota, Schema, Tolerance, Tree};

use crate::stop::StopOnDrop;
use crate::witness::Witness;

const MINUTE: Duration = Duration::from_secs(60);
const ROUNDS: u64 = if cfg!(miri) { 20 } else { 2000 };

struct Fixture {
    tree: Tree,
    requests: Counter<Count>,
    sent: Counter<Bytes>,
    open: Gauge<Count>,
    memory: Quota<Bytes>,
}

fn fixture() -> Fixture {
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests", "Requests answered");
    let sent = schema.counter::<Bytes>("sent", "Bytes of answers");
    let open = schema.gauge::<Count>("open", "Connections open");
    let memory = schema.quota::<Bytes>("memory", "Memory held");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    Fixture { tree, requests, sent, open, memory }
}

#[test]
fn a_tolerant_read_flushes_only_when_it_must() {
    let f = fixture();
    let (web, root) = (f.tree.get_or_create("/a/web").expect("created"), f.tree.root());
    f.tree.flush();
    web.add(f.requests, 1000);
    let loose = Tolerance::max_error(10_000).max_age(MINUTE);
    assert_eq!(root.read_within(f.requests, loose).value, 0, "off by less than is accepted");
    assert_eq!(root.read_within(f.requests, Tolerance::ANY).value, 0, "anything is accepted");

    let read = root.read_within(f.requests, Tolerance::max_error(999).max_age(MINUTE));
    assert_eq!((read.value, read.max_error), (1000, 0), "the error is too large");

    web.add(f.requests, 1);
    let read = root.read_within(f.requests, Tolerance::ANY.max_age(Duration::ZERO));
    assert_eq!((read.value, read.max_error), (1001, 0), "it is too old");

    std::thread::sleep(Duration::from_millis(5));
    let before = root.read(f.requests);
    let read = root.read_within(f.requests, Tolerance::EXACT);
    assert_eq!((read.value, read.max_error), (1001, 0));
    assert!(read.age >= before.age, "what is exact is not flushed for being old");
}

#[test]
fn a_partial_flush_is_exact_and_leaves_the_rest() {
    let f = fixture();
    let get = |path: &str| f.tree.get_or_create(path).expect("created");
    let (web, api, other) = (get("/a/web"), get("/a/api"), get("/b/web"));
    let a = get("/a");
    for group in [&web, &api, &other, &a] {
        group.add(f.requests, 10);
        group.adjust(f.open, -3);
    }
    let before = Instant::now();
    let report = a.flush();
    assert_eq!(report.groups, 4, "/a/web, /a/api, /a and /");
    // The age of this flush, not of a flush of the whole tree.
    assert!(a.read(f.requests).age <= before.elapsed());
    assert_eq!((a.read(f.requests).value, web.read(f.requests).value), (30, 10));
    assert_eq!((f.tree.root().read(f.requests).value, other.read(f.requests).value), (30, 0));
    assert_eq!(f.tree.root().read(f.open).value, -9);
    assert!(other.read(f.requests).max_error >= 10);
    assert!(f.tree.root().read(f.requests).max_error >= 10);
    assert!(a.read(f.requests).age <= f.tree.root().read(f.requests).age);

    assert_eq!(a.flush().groups, 0, "nothing is left there");
    assert_eq!(web.sum(f.requests), 10);
    assert_eq!(other.sum(f.requests), 10, "a leaf by itself");
    assert_eq!(f.tree.flush().groups, 0, "and nothing anywhere");
    assert_eq!(f.tree.root().read(f.requests).max_error, 0);
}

/// While other threads update, each sum of a subtree includes what its caller has added, and in the
/// end nothing is missing.
#[test]
fn sums_of_parts_find_earlier_updates_stress() {
    let f = fixture();
    let (stop, witness) = (AtomicBool::new(false), Witness::new());
    let total = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (f, total, stop, witness) = (&f, &total, &stop, &witness);
            scope.spawn(move || {
                let _stopping = StopOnDrop(stop);
                let mine = f.tree.get_or_create(&format!("/{thread}/deep/leaf")).expect("room");
                let above = f.tree.get(&format!("/{thread}")).expect("made with its child");
                for round in (1..).take_while(|&n| witness.goes_on(n - 1, ROUNDS)) {
                    mine.add(f.requests, 1);
                    total.fetch_add(1, Ordering::SeqCst);
                    let group = if round % 2 == 0 { &mine } else { &above };
                    assert_eq!(group.sum(f.requests), round);
                    if round % 64 == 0 {
                        let known = total.load(Ordering::SeqCst);
                        assert!(f.tree.root().sum(f.requests) >= known);
                    }
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let returned = total.load(Ordering::SeqCst);
                let read = f.tree.root().read(f.requests);
                assert!(read.value + read.max_error >= returned, "{read:?} of {returned}");
                witness.met(returned != 0 && total.load(Ordering::SeqCst) != returned);
            }
        });
    });
    witness.assert_met();
    f.tree.flush();
    assert_eq!(f.tree.root().read(f.requests).value, total.into_inner());
}

/// As in Linux: a flush finds every update that happened before it began. (The models without the
/// barriers, which must fail, are in `submeter-percpu`.)
#[test]
fn rstat_4_a_flush_sees_earlier_updates_stress() {
    let f = fixture();
    let group = f.tree.get_or_create("/a/b").expect("created");
    let noise = f.tree.get_or_create("/a/c").expect("created");
    let (send, updates) = mpsc::sync_channel(0);
    let (stop, witness) = (AtomicBool::new(false), Witness::new());
    let flushes = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let stopping = StopOnDrop(&stop);
        let witness = &witness;
        scope.spawn(|| {
            for round in (1..).take_while(|&n| witness.goes_on(n - 1, ROUNDS)) {
                group.add(f.requests, 1);
                send.send(round).expect("heard");
            }
            drop(send);
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                noise.add(f.sent, 1);
                noise.flush();
                // Relaxed, here and below: a sign that other flushes continue.
                flushes.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut last = 0;
        for round in updates {
            // At least what was sent; it may already include the next update.
            let seen = if round % 2 == 0 {
                group.sum(f.requests)
            } else {
                f.tree.flush();
                group.read(f.requests).value
            };
            assert!((round..=round + 1).contains(&seen), "{seen} after {round}");
            let before = std::mem::replace(&mut last, flushes.load(Ordering::Relaxed));
            witness.met(before != 0 && last != before);
        }
        drop(stopping);
    });
    witness.assert_met();
}

/// Nothing is granted beyond a limit, and nothing that fits is refused unless a charge is in
/// flight.
///
/// As in Linux, where the page counter never grants beyond its maximum, and refuses too early by at
/// most what others are charging at that moment.
#[test]
fn rstat_6_grants_and_refusals_are_exact_stress() {
    const THREADS: u64 = 4;
    const MOST: u64 = 1000;
    let f = fixture();
    let group = f.tree.get_or_create("/a/b").expect("created");
    let above = group.parent().expect("/a");
    // If two charges meet, the second may not fit.
    for (limit, may_refuse) in [(THREADS * MOST, false), (MOST, true)] {
        above.set_limit(f.memory, Some(limit));
        let (granted, witness) = (AtomicU64::new(0), Witness::new());
        std::thread::scope(|scope| {
            for thread in 1..=THREADS {
                let (f, group, granted, witness) = (&f, &group, &granted, &witness);
                scope.spawn(move || {
                    for round in (0..).take_while(|&n| witness.goes_on(n, ROUNDS)) {
                        let n = (round * 7919 + thread * 104_729) % MOST + 1;
                        match group.try_charge(f.memory, n) {
                            Ok(charge) => {
                                // Raised after the grant and lowered before the return, so it never
                                // exceeds what is held.
                                let held = granted.fetch_add(n, Ordering::SeqCst) + n;
                                assert!(held <= limit, "{held} of {limit} were granted");
                                witness.met(!may_refuse && held > n);
                                granted.fetch_sub(n, Ordering::SeqCst);
                                drop(charge);
                            }
                            Err(refused) => {
                                assert!(may_refuse, "all together fit: {refused}");
                                witness.met(true);
                            }
                        }
                    }
                });
            }
        });
        witness.assert_met();
        assert_eq!(f.tree.root().usage(f.memory).current, 0);
    }
}
