//! Sessions in adverse conditions: threads that are already in a group, visits in step with the
//! turns, panics, observers that constantly come and go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::stop::StopOnDrop;
use crate::support::{CYCLES, Counters, Fixture, fixture, one, work};
use fastrand::Rng;
use submeter::perf::{Request, RequestCounts, RequestState, Session};
use submeter::{Group, switch};

/// Opens a session that takes turns at each switch.
fn open(f: &Fixture, counters: usize, requests: Vec<Request>) -> Session {
    let builder = Session::builder().interval(Duration::ZERO);
    builder.open_with(&f.tree, requests, move || Counters::new(counters))
}

#[test]
fn a_thread_parked_in_a_group_is_followed() {
    let f = fixture();
    let requests = [&f.x, &f.a].map(|group| Request::group(group, one("cycles")));
    let in_x = f.x.enter();
    let session = open(&f, 4, requests.into());
    work(CYCLES, 1);
    switch::park();
    work(CYCLES, 10);
    switch::park();
    let values = || session.counts().iter().map(|counts| counts.values()[0]).collect::<Vec<_>>();
    assert_eq!(values(), [10, 10], "what was done after it was first followed");
    work(CYCLES, 100);
    drop(in_x);
    work(CYCLES, 1000);
    switch::park();
    assert_eq!(values(), [110, 110]);
    assert!(f.x.sum(f.cpu) > 0, "as the group is charged");
}

#[test]
fn rotation_starves_nobody_in_turn_long_visits() {
    let f = fixture();
    let lists = ["cycles", "instructions"];
    let of = |group| lists.map(|list| Request::group(group, one(list)));
    let session = open(&f, 1, [of(&f.x), of(&f.y)].concat());
    for _ in 0..20 {
        for group in [&f.x, &f.y] {
            group.run(|| crate::work::burn(Duration::from_micros(200)));
        }
    }
    for counts in session.counts() {
        let (running, enabled) = (counts.running_ns(), counts.enabled_ns());
        assert!(running >= enabled / 5, "{running} of {enabled} ns: {counts:?}");
    }
}

#[test]
fn the_next_switch_counts_as_others_come_and_go() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 5_000 };
    let f = fixture();
    let done = AtomicBool::new(false);
    let missed = std::thread::scope(|scope| {
        let _stopping = StopOnDrop(&done);
        for _ in 0..2 {
            scope.spawn(|| {
                // Relaxed: they only stop some time later.
                while !done.load(Ordering::Relaxed) {
                    drop(switch::observe(|_| None));
                }
            });
        }
        let missed = (0..ROUNDS).filter(|_| {
            let session = open(&f, 1, vec![Request::group(&f.b, one("cycles"))]);
            f.b.run(|| work(CYCLES, 1));
            let missed = *session.counts()[0].state() != RequestState::Counting;
            drop(session);
            missed
        });
        missed.count()
    });
    assert_eq!(missed, 0, "of {ROUNDS} sessions");
}

/// Rotation starves no request, for random requests and random repeating sequences of visits.
#[test]
fn rotation_starves_nobody_in_any_rhythm_stress() {
    const LISTS: [&str; 4] = ["cycles", "instructions", "{cycles,instructions}", "task-clock"];
    const CASES: u64 = if cfg!(miri) { 2 } else { 300 };
    let f = fixture();
    let groups = [&f.a, &f.x, &f.y, &f.b, f.tree.root()];
    for case in 1..=CASES {
        let rng = &mut Rng::with_seed(case);
        let counters = 1 + rng.usize(..2);
        let mut requests = Vec::new();
        for _ in 0..2 + rng.usize(..8) {
            let (group, list) = (rng.usize(..groups.len() + 1), LISTS[rng.usize(..LISTS.len())]);
            requests.push(match groups.get(group) {
                Some(group) => Request::group(group, one(list)),
                None => Request::everywhere(one(list)),
            });
        }
        let asked = format!("case {case}, {counters} counters: {requests:?}");
        let session = open(&f, counters, requests);
        let rhythm: Vec<_> = (0..1 + rng.usize(..6)).map(|_| rng.usize(..5)).collect();
        for _ in 0..60 {
            for &visit in &rhythm {
                groups[visit].run(|| work(CYCLES, 1));
            }
        }
        switch::park();
        for (index, counts) in session.counts().iter().enumerate() {
            let fits = counters == 2 || counts.events().events().len() == 1;
            if fits && counts.enabled_ns() > 0 {
                let state = counts.state();
                assert_eq!(*state, RequestState::Counting, "{index} of {asked}; {rhythm:?}");
            }
        }
    }
}

/// An observer that panics at a switch.
struct Fragile;

impl switch::Observer for Fragile {
    fn switched(&mut self, _: Option<&Group>, _: Option<&Group>, _: u64) {
        panic!("as the test wants, in a switch");
    }
}

/// An observer that panics while its thread is panicking ends nothing.
#[test]
fn an_observers_second_panic_ends_nothing() {
    let f = fixture();
    let inner = f.b.clone();
    let worker = std::thread::spawn(move || {
        let me = std::thread::current().id();
        let observation = std::cell::OnceCell::new();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            f.a.run(|| {
                observation.get_or_init(|| {
                    switch::observe(move |_| {
                        (std::thread::current().id() == me).then(|| Box::new(Fragile) as Box<_>)
                    })
                });
                panic!("as the test wants, in a group");
            });
        }));
        assert!(result.is_err());
        assert_eq!(switch::current(), None);
        inner.run(|| assert_eq!(switch::current().as_ref(), Some(&inner)));
        observation.get().expect("made above").panicked()
    });
    assert!(worker.join().expect("no second panic") > 0);
}

/// The values of a request are from one moment while threads switch.
#[test]
fn a_requests_values_are_of_one_moment_stress() {
    const READS: usize = if cfg!(miri) { 20 } else { 20_000 };
    let f = fixture();
    let alike = one("{cycles,cycles,cycles,cycles,cycles,cycles,cycles,cycles}");
    let requests = [&f.b, f.tree.root()].map(|group| Request::group(group, alike.clone()));
    let session = open(&f, 16, requests.into());
    let done = AtomicBool::new(false);
    // The value that the last read found, and whether a later one found another.
    let (mut last, mut met) = (None, cfg!(miri));
    let torn = std::thread::scope(|scope| {
        let _stopping = StopOnDrop(&done);
        for _ in 0..3 {
            scope.spawn(|| {
                // Relaxed: they only stop some time later.
                while !done.load(Ordering::Relaxed) {
                    f.b.run(|| work(CYCLES, 1));
                }
            });
        }
        let begun = Instant::now();
        for read in 0.. {
            if read >= READS && (met || begun.elapsed() > Duration::from_secs(60)) {
                break;
            }
            let torn = |counts: &&RequestCounts| {
                let values = counts.values();
                values.iter().any(|value| *value != values[0])
                    || counts.running_ns() != counts.enabled_ns()
            };
            let counts = session.counts();
            let found = counts.iter().find(torn).cloned();
            if found.is_some() {
                return found;
            }
            let now = counts[0].values()[0];
            met |= last.replace(now).is_some_and(|last| last != now);
        }
        None
    });
    assert!(torn.is_none(), "{torn:?}");
    assert!(met, "no thread switched meanwhile");
}

/// A thread-local value that works and switches when it is dropped.
struct Late {
    group: Group,
    _kept: switch::Entered,
}

impl Drop for Late {
    fn drop(&mut self) {
        work(CYCLES, 10);
        self.group.run(|| work(CYCLES, 100));
        switch::park();
    }
}

#[test]
fn thread_locals_that_end_may_switch_and_leave() {
    thread_local!(static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) });
    const THREADS: u64 = 20;
    let f = fixture();
    let requests = vec![Request::group(&f.b, one("cycles")), Request::group(&f.a, one("cycles"))];
    let session = open(&f, 4, requests);
    for thread in 0..THREADS {
        let (a, b) = (f.a.clone(), f.b.clone());
        let end = move || {
            // Thread-local values are dropped in an order that depends on their first use.
            if thread % 2 == 0 {
                LATE.with(|_| ());
            }
            b.run(|| work(CYCLES, 1));
            LATE.set(Some(Late { _kept: a.enter(), group: b }));
            work(CYCLES, 1000);
        };
        std::thread::spawn(end).join().expect("no panic");
    }
    let values = session.counts().iter().map(|counts| counts.values()[0]).collect::<Vec<_>>();
    let [in_b, in_a] = values[..] else { panic!("{values:?}") };
    // Every thread's visit counts. Work at its end counts too, unless the switch's own
    // thread-local values are gone by then.
    assert!(
        (THREADS..=101 * THREADS).contains(&in_b) && (in_b - THREADS).is_multiple_of(100),
        "{in_b}"
    );
    assert!((1000 * THREADS..=1010 * THREADS).contains(&in_a), "{in_a}");
    assert!(session.counts().iter().all(|counts| *counts.state() == RequestState::Counting));
}

/// An observer that ends a session in the middle of a switch.
struct Ender(Option<Session>);

impl switch::Observer for Ender {
    fn switched(&mut self, _: Option<&Group>, _: Option<&Group>, _: u64) {
        drop(self.0.take());
    }
}

/// A session may be opened and dropped in the middle of a switch.
#[test]
fn sessions_open_and_end_inside_a_switch() {
    let f = fixture();
    let me = std::thread::current().id();
    let (tree, b) = (f.tree.clone(), f.b.clone());
    let observation = switch::observe(move |_| {
        (std::thread::current().id() == me).then(|| {
            let requests = [Request::group(&b, one("cycles"))];
            let session = Session::builder().open_with(&tree, requests, || Counters::new(1));
            Box::new(Ender(Some(session))) as Box<_>
        })
    });
    let session = open(&f, 1, vec![Request::group(&f.b, one("cycles"))]);
    for _ in 0..10 {
        f.b.run(|| work(CYCLES, 1));
    }
    assert_eq!(session.counts()[0].values(), [10]);
    assert_eq!(observation.panicked(), 0);
}
