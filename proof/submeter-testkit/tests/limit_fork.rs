//! Limits work in a forked child, whatever stock was moving in its parent and whatever waited
//! there.
#![cfg(not(miri))]

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use submeter::{Bytes, Quota, Schema, Tree};
use submeter_percpu::{Area, LimitNode, LimitTurn, LimitedCounter};
use submeter_sys::{Backend, probe};

#[path = "common/fork.rs"]
#[expect(unsafe_code, reason = "forks")]
mod fork;
#[path = "../../../crates/submeter-percpu/tests/it/met.rs"]
mod met;
#[path = "common/stop.rs"]
mod stop;
#[path = "../../../crates/submeter-percpu/tests/it/witness.rs"]
#[expect(dead_code, reason = "shared with tests that Miri runs")]
mod witness;

use met::until_met;
use stop::StopOnDrop;

const THREADS: i64 = 2;
/// A time that only threads which do not run exceed.
const SOON: Duration = Duration::from_secs(10);
/// The maximum that is added or given back at once.
const MOST: i64 = 40;

struct Shared {
    counter: LimitedCounter,
    /// Many times what may be in stock, so that the counter moves both ways near it.
    limit: i64,
    /// Raised after a grant, and lowered before it is given back. It is less than what is charged
    /// by at most `MOST` per thread, and never more.
    noted: AtomicI64,
    /// How often a thread has emptied it.
    rounds: AtomicU32,
}

impl Shared {
    /// Fills and empties it repeatedly.
    fn move_stock(&self, mut going: impl FnMut() -> bool) {
        let (mut own, mut random) = (0, fastrand::Rng::with_seed(7));
        while going() {
            let n = random.i64(1..=MOST);
            if self.counter.try_add(n).is_ok() {
                own += n;
                // SeqCst, here and below: the other half of a fork sees them in this order.
                self.noted.fetch_add(n, Ordering::SeqCst);
                continue;
            }
            while own > self.limit / 8 {
                let n = own.min(MOST);
                own -= n;
                self.noted.fetch_sub(n, Ordering::SeqCst);
                self.counter.try_add(-n).expect("never refused");
            }
            // Relaxed: see `wait`.
            self.rounds.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until some stock has moved.
    fn wait(&self) {
        // Relaxed, both: a hint to fork at a different moment than the last time.
        let before = self.rounds.load(Ordering::Relaxed);
        let began = Instant::now();
        while self.rounds.load(Ordering::Relaxed) == before {
            assert!(began.elapsed() < SOON, "no stock moves");
            std::thread::yield_now();
        }
    }

    /// Fills it in the child, where only this thread is left. Returns whether the fork came amid a
    /// charge.
    fn must_work(&self) -> bool {
        let (counter, limit) = (&self.counter, self.limit);
        let before = counter.sum();
        let noted = self.noted.load(Ordering::SeqCst);
        let mut granted = 0;
        for n in [MOST, 1] {
            while granted <= limit && counter.try_add(n).is_ok() {
                granted += n;
            }
        }
        let read = counter.read();
        let left = limit - granted;
        assert_eq!((read.low(), read.high(), counter.sum()), (limit, limit, limit), "to the unit");
        // What the parent's threads held, had in flight, or had in a move of stock.
        let most = noted + THREADS * MOST + counter.slack() as i64;
        assert!((noted..=most).contains(&left), "{noted} noted, {left} left");
        assert_eq!(before, left, "the sum counted what was reserved, and no stock");
        counter.try_add(-granted).expect("never refused");
        assert_eq!(counter.sum(), left);
        left > noted
    }
}

/// A limited counter is exact in a child forked while stock moves.
#[test]
fn a_child_forked_as_stock_moves_is_exact_stress() {
    for backend in [probe().backend, Backend::LockedByCpu, Backend::LockedByThread] {
        let area = Area::with_backend(backend, |_| 0).expect("address space");
        let counter = LimitedCounter::with_batch(&area, 16, 0).expect("room");
        let limit = 40 * counter.slack() as i64;
        counter.set_limit(limit);
        let shared = Shared { counter, limit, noted: AtomicI64::new(0), rounds: AtomicU32::new(0) };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Also if a child failed: the other threads would continue, and the scope would not
            // end.
            let _stop = StopOnDrop(&stop);
            for _ in 0..THREADS {
                // Relaxed: only ends the loop.
                scope.spawn(|| shared.move_stock(|| !stop.load(Ordering::Relaxed)));
            }
            until_met(100, || {
                shared.wait();
                let met = fork::found_in_a_fork(|| Some(shared.must_work()));
                met.unwrap_or_else(|| panic!("{backend:?}: the child failed"))
            });
        });
    }
}

#[test]
fn a_wait_of_the_parent_stalls_nobody_in_a_child() {
    let root = LimitNode::root(Area::common().expect("an area"));
    root.set_limit(100);
    root.try_charge(60).expect("room");
    let (mut turn, mut context) = (LimitTurn::default(), Context::from_waker(Waker::noop()));
    assert!(root.poll_charge(&mut turn, 50, &mut context).is_pending());
    let stalls = || {
        let before = root.pressure().some.total;
        std::thread::sleep(Duration::from_micros(100));
        root.pressure().some.total > before
    };
    let passed = fork::in_a_fork(|| {
        let before = stalls();
        // A wait of the child's own stalls it, and ends.
        let late = root.charge_blocking(50, Duration::from_millis(1)).is_err();
        !before && late && !stalls() && !root.pressure().some.total.is_zero()
    });
    assert!(passed, "the child");
    assert!(stalls(), "the parent still waits");
    root.end_turn(&mut turn, 50);
    assert!(!stalls());
}

/// A schema with one quota, limited to 100 at the root.
fn limited() -> (Tree, Quota<Bytes>) {
    let mut schema = Schema::builder();
    let memory = schema.quota::<Bytes>("memory", "Held");
    let tree = Tree::new(schema.build().expect("valid")).expect("room");
    tree.root().set_limit(memory, Some(100));
    (tree, memory)
}

#[test]
fn callbacks_free_in_a_child_what_it_inherited() {
    let (tree, memory) = limited();
    let cache = tree.create("/cache").expect("room");
    let mut held = cache.try_charge(memory, 100).expect("it fits");
    let registered = cache.on_reclaim(memory, move |wanted| drop(held.split(wanted)));
    let passed = fork::in_a_fork(|| {
        let more = tree.root().charge_reclaiming(memory, 30).is_ok();
        more && cache.usage(memory).current == 70 && cache.usage(memory).counts.reclaimed == 30
    });
    assert!(passed, "the child");
    assert_eq!(cache.usage(memory).current, 100, "the parent's");
    drop(registered);
}

/// A callback that was running at a fork is skipped in the child.
#[test]
fn a_child_passes_over_a_callback_under_way() {
    let (tree, memory) = limited();
    let [slow, cache] = ["/slow", "/cache"].map(|path| tree.create(path).expect("room"));
    let _slow_held = slow.try_charge(memory, 60).expect("it fits");
    let mut held = cache.try_charge(memory, 40).expect("it fits");
    let (goes_on, blocks) = mpsc::channel::<()>();
    let (tells, called) = mpsc::channel();
    let registered = [
        slow.on_reclaim(memory, move |_| {
            _ = tells.send(());
            _ = blocks.recv();
        }),
        cache.on_reclaim(memory, move |wanted| drop(held.split(wanted))),
    ];
    std::thread::scope(|scope| {
        // Dropped before the thread is joined, even if something fails here.
        let goes_on = goes_on;
        let charge = scope.spawn(|| drop(tree.root().charge_reclaiming(memory, 10)));
        called.recv().expect("it is called");
        let passed = fork::in_a_fork(|| {
            let start = Instant::now();
            let more = tree.root().charge_reclaiming(memory, 20).is_ok();
            let too_much = tree.root().charge_reclaiming(memory, 60).is_err();
            more && too_much && cache.usage(memory).current == 20 && start.elapsed() < SOON
        });
        drop(goes_on);
        assert!(passed, "the child");
        charge.join().expect("no panic");
    });
    drop(registered);
}
