//! Observers: which switches they see, and that a misbehaving one does not harm the others.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use submeter::switch::{self, Observation, Observer};
use submeter::{Counter, Group, Nanoseconds, Schema, Tree};

/// What observers saw. One list suffices, because the threads here run one after another.
type Seen = Arc<Mutex<Vec<String>>>;

struct Recorder {
    seen: Seen,
    last_ns: u64,
}

fn path(group: Option<&Group>) -> &str {
    group.map_or("-", Group::path)
}

impl Recorder {
    fn tell(&mut self, what: String, now_ns: u64) {
        assert!(now_ns >= self.last_ns, "{now_ns} after {}", self.last_ns);
        self.last_ns = now_ns;
        self.seen.lock().expect("no panic").push(what);
    }
}

impl Observer for Recorder {
    fn switched(&mut self, last: Option<&Group>, next: Option<&Group>, now_ns: u64) {
        self.tell(format!("{} > {}", path(last), path(next)), now_ns);
    }

    fn parked(&mut self, group: Option<&Group>, now_ns: u64) {
        self.tell(format!("parked {}", path(group)), now_ns);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.seen.lock().expect("no panic").push("dropped".to_owned());
    }
}

/// Observes only the calling thread: all tests share one registry, and other threads run other
/// tests.
fn observe_here(seen: &Seen) -> Observation {
    let (seen, me) = (Arc::clone(seen), std::thread::current().id());
    switch::observe(move |now_ns| {
        let mine = std::thread::current().id() == me;
        mine.then(|| Box::new(Recorder { seen: Arc::clone(&seen), last_ns: now_ns }) as Box<_>)
    })
}

fn take(seen: &Seen) -> Vec<String> {
    std::mem::take(&mut seen.lock().expect("no panic"))
}

struct Fixture {
    tree: Tree,
    cpu: Counter<Nanoseconds>,
    a: Group,
    b: Group,
}

fn fixture() -> Fixture {
    let mut schema = Schema::builder();
    let cpu = schema.cpu_time("cpu", "CPU time");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let group = |path| tree.get_or_create(path).expect("created");
    let (a, b) = (group("/a"), group("/b"));
    Fixture { tree, cpu, a, b }
}

#[test]
fn each_switch_to_another_group_is_told_once() {
    let (f, seen) = (fixture(), Seen::default());
    let observation = observe_here(&seen);
    f.a.run(|| f.a.run(|| f.b.run(switch::park)));
    switch::park();
    let all = ["- > /a", "/a > /b", "parked /b", "/b > /a", "/a > -", "parked -"];
    assert_eq!(take(&seen), all);
    drop(observation);
    assert!(take(&seen).is_empty(), "an observer ends on its own thread");
    f.a.run(|| ());
    f.b.run(|| ());
    assert_eq!(take(&seen), ["dropped"]);
}

/// An observer gets the time if it wants it; its factory always does.
#[test]
fn observers_are_told_the_time_they_want() {
    struct Timeless(Arc<Mutex<Vec<u64>>>);
    impl Observer for Timeless {
        fn switched(&mut self, _: Option<&Group>, _: Option<&Group>, now_ns: u64) {
            self.0.lock().expect("no panic").push(now_ns);
        }

        fn wants_time(&self) -> bool {
            false
        }
    }
    let (f, told, made) = (fixture(), Arc::default(), Arc::new(Mutex::new(Vec::new())));
    let (timeless, times, me) = (Arc::clone(&told), Arc::clone(&made), std::thread::current().id());
    let _observation = switch::observe(move |now_ns| {
        let mine = std::thread::current().id() == me;
        mine.then(|| times.lock().expect("no panic").push(now_ns));
        mine.then(|| Box::new(Timeless(Arc::clone(&timeless))) as Box<_>)
    });
    let wait = || {
        std::thread::sleep(Duration::from_millis(10));
        false
    };
    let switches = || {
        (0..1_000).for_each(|_| f.a.run(|| ()));
        std::mem::take(&mut *told.lock().expect("no panic"))
    };
    // Sessions of other tests follow this thread as well, as long as they last.
    let is_unread = || (0..6_000).any(|_| switches().contains(&0) || wait());
    assert!(is_unread(), "the clock is read for nobody");
    let seen = Seen::default();
    let beside = observe_here(&seen);
    assert!(switches().iter().all(|&now_ns| now_ns > 0), "it is read once for all");
    drop(beside);
    assert!(is_unread(), "the clock is still read for nobody");
    assert!(made.lock().expect("no panic").iter().all(|&now_ns| now_ns > 0));
}

/// Guards dropped in any order are reported as they take effect.
#[test]
fn guards_are_told_as_they_take_effect() {
    let (f, seen) = (fixture(), Seen::default());
    let _observation = observe_here(&seen);
    let outer = f.a.enter();
    let inner = f.b.enter();
    drop(outer);
    drop(inner);
    assert_eq!(take(&seen), ["- > /a", "/a > /b", "/b > -"]);
}

/// Leaving for the same group is no switch, in any order of guards.
#[test]
fn leaving_for_the_same_group_is_no_switch() {
    let (f, seen) = (fixture(), Seen::default());
    let _observation = observe_here(&seen);
    let outer = f.a.enter();
    let middle = f.b.enter();
    let inner = f.a.enter();
    drop(middle);
    assert_eq!(take(&seen), ["- > /a", "/a > /b", "/b > /a"]);
    drop(inner);
    assert_eq!(switch::current().as_ref(), Some(&f.a));
    assert!(take(&seen).is_empty(), "it is the outer guard's group too");
    drop(outer);
    assert_eq!((take(&seen), switch::current()), (vec!["/a > -".to_owned()], None));
    // The same holds for a guard that entered the group of its predecessor.
    let outer = f.a.enter();
    let mut inner = f.b.enter();
    inner.switch_to(&f.a);
    drop(inner);
    drop(outer);
    assert_eq!(take(&seen), ["- > /a", "/a > /b", "/b > /a", "/a > -"]);
}

#[test]
fn a_thread_that_ends_in_a_group_leaves_it() {
    let (f, seen) = (fixture(), Seen::default());
    let seen_there = Arc::clone(&seen);
    let a = f.a.clone();
    let observation = std::thread::spawn(move || {
        let observation = observe_here(&seen_there);
        std::mem::forget(a.enter());
        observation
    });
    let observation = observation.join().expect("no panic");
    assert_eq!(take(&seen), ["- > /a", "/a > -", "parked -", "dropped"]);
    drop(observation);
}

/// An observer that panics at a switch to `/b`, and when it is dropped.
struct Fragile;

impl Observer for Fragile {
    fn switched(&mut self, _: Option<&Group>, next: Option<&Group>, _: u64) {
        assert_ne!(path(next), "/b", "as the test wants");
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        panic!("as the test wants");
    }
}

/// An observer that panics does no harm and is not called again.
#[test]
fn a_panicking_observer_is_not_called_again() {
    let (f, seen) = (fixture(), Seen::default());
    let me = std::thread::current().id();
    let fragile = switch::observe(move |_| {
        (std::thread::current().id() == me).then(|| Box::new(Fragile) as Box<_>)
    });
    let broken = switch::observe(move |_| {
        assert_ne!(std::thread::current().id(), me, "as the test wants");
        None
    });
    let _observation = observe_here(&seen);
    f.a.run(|| f.b.run(|| assert_eq!(switch::current().as_ref(), Some(&f.b))));
    f.b.run(|| ());
    assert_eq!(switch::current(), None);
    let all = ["- > /a", "/a > /b", "/b > /a", "/a > -", "- > /b", "/b > -"];
    assert_eq!(take(&seen), all, "others go on");
    // The observer panicked in the call and in the drop, the factory once, at the first switch.
    assert_eq!((fragile.panicked(), broken.panicked()), (2, 1));
    assert!(f.tree.root().sum(f.cpu) > 0);
}

/// An observer that calls back into the switch and keeps a guard.
struct Meddler {
    group: Group,
    kept: RefCell<Vec<switch::Entered>>,
    calls: Arc<AtomicUsize>,
}

impl Observer for Meddler {
    fn switched(&mut self, _: Option<&Group>, next: Option<&Group>, _: u64) {
        // Relaxed: used only by this thread.
        self.calls.fetch_add(1, Ordering::Relaxed);
        assert_eq!(switch::current(), None);
        self.group.run(|| next.map(|next| next.run(switch::park)));
        self.kept
            .borrow_mut()
            .extend([Some(&self.group), next].into_iter().flatten().map(Group::enter));
        drop((self.group.clone(), self.group.children()));
    }
}

#[test]
fn an_observer_that_calls_back_changes_no_group() {
    let f = fixture();
    let (group, me) = (f.b.clone(), std::thread::current().id());
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let observation = switch::observe(move |_| {
        let (group, kept) = (group.clone(), RefCell::default());
        let meddler = Meddler { group, kept, calls: Arc::clone(&seen) };
        (std::thread::current().id() == me).then(|| Box::new(meddler) as Box<_>)
    });
    f.a.run(|| {
        assert_eq!(switch::current().as_ref(), Some(&f.a));
        f.tree.root().run(|| assert_eq!(switch::current().as_ref(), Some(f.tree.root())));
        assert_eq!(switch::current().as_ref(), Some(&f.a));
    });
    assert_eq!(observation.panicked(), 0);
    // Relaxed: used only by this thread.
    assert!(calls.load(Ordering::Relaxed) >= 4);
    drop(observation);
    f.b.run(|| assert_eq!(switch::current().as_ref(), Some(&f.b)));
}

#[test]
fn observers_come_and_go_while_threads_switch() {
    let f = fixture();
    let living = Arc::new(AtomicUsize::new(0));
    struct Living(Arc<AtomicUsize>);
    impl Observer for Living {
        fn switched(&mut self, _: Option<&Group>, _: Option<&Group>, _: u64) {}
    }
    impl Drop for Living {
        fn drop(&mut self) {
            // Relaxed: read after the threads were joined.
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    f.a.run(|| f.b.run(|| ()));
                }
            });
        }
        for _ in 0..200 {
            let living = Arc::clone(&living);
            let observation = switch::observe(move |_| {
                // Relaxed: as above.
                living.fetch_add(1, Ordering::Relaxed);
                Some(Box::new(Living(Arc::clone(&living))))
            });
            std::thread::yield_now();
            drop(observation);
        }
    });
    // Threads of other tests may still have observers: they drop them at their next switch or when
    // they end.
    f.a.run(|| ());
    // Relaxed: as above.
    let left = living.load(Ordering::Relaxed);
    assert!(left < 64, "{left} of 200 for each thread are left");
}

/// A value that panics when dropped, for a factory to capture.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("as the test wants");
    }
}

/// A factory that panics when dropped harms no thread that switches.
#[test]
fn a_panicking_factory_harms_no_switch() {
    /// Leaves the calling thread as the only holder of a factory with a bomb, then calls `end`.
    fn hold(f: &Fixture, end: impl FnOnce(&Fixture)) {
        let bomb = Bomb;
        let observation = switch::observe(move |_| {
            let _ = &bomb;
            Some(Box::new(Ignorant))
        });
        f.a.run(|| ());
        drop(observation);
        end(f);
    }
    struct Ignorant;
    impl Observer for Ignorant {
        fn switched(&mut self, _: Option<&Group>, _: Option<&Group>, _: u64) {}
    }
    let f = fixture();
    std::thread::scope(|scope| {
        let switches = || {
            hold(&f, |f| f.b.run(|| assert_eq!(switch::current().as_ref(), Some(&f.b))));
            assert_eq!(switch::current(), None);
            f.a.run(|| assert_eq!(switch::current().as_ref(), Some(&f.a)));
        };
        let switches = scope.spawn(switches);
        // A panic in the destructor of a thread-local value would end the process.
        let ends = scope.spawn(|| hold(&f, |_| ()));
        switches.join().expect("no panic out of a switch");
        ends.join().expect("no panic out of a thread's end");
    });
}
