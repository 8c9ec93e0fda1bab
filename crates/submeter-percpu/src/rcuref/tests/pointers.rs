//! The pointer interface: when objects are freed, and what outlives what.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::rcuref::{RcuArc, RcuBorrow, RcuRef, RcuSlot, pin};
use crate::stop::StopOnDrop;
use crate::witness::Witness;

/// Capacities shrink under Miri.
const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };

/// Counts itself among the living.
struct Alive {
    living: Arc<AtomicUsize>,
    intact: bool,
}

impl Alive {
    fn new(living: &Arc<AtomicUsize>) -> RcuArc<Alive> {
        // Relaxed: a statistic; the tests poll it.
        living.fetch_add(1, Ordering::Relaxed);
        RcuArc::new(Alive { living: living.clone(), intact: true })
    }

    fn look(&self) {
        assert!(self.intact, "looked at after its drop");
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        assert!(self.intact, "dropped twice");
        self.intact = false;
        // Relaxed: a statistic.
        self.living.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Advances the epochs until `left` objects are alive; other tests' guards may delay it.
fn wait_for(living: &AtomicUsize, left: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    // Relaxed: a statistic.
    while living.load(Ordering::Relaxed) != left {
        assert!(Instant::now() < deadline, "still not freed, or too many were");
        pin().flush();
        thread::yield_now();
    }
}

#[test]
fn rcuarc_frees_after_last_reference_and_guard() {
    let living = Arc::new(AtomicUsize::new(0));
    let arc = Alive::new(&living);
    let guard = pin();
    let borrow = RcuArc::borrow(&arc, &guard);
    let second = arc.clone();
    assert_eq!(RcuArc::references(&arc), 2);
    drop(arc);
    RcuArc::release(second, &guard);
    assert!(borrow.try_get().is_none(), "dead for good");
    for _ in 0..10 {
        thread::scope(|scope| drop(scope.spawn(|| pin().flush())));
        guard.flush();
    }
    // Relaxed: a statistic.
    assert_eq!(living.load(Ordering::Relaxed), 1, "a guard that saw it is still held");
    borrow.look();
    drop(guard);
    wait_for(&living, 0);
}

#[test]
fn rcuarc_tells_objects_apart() {
    let (one, other) = (RcuArc::new(5), RcuArc::new(5));
    assert!(RcuArc::ptr_eq(&one, &one.clone()) && !RcuArc::ptr_eq(&one, &other));
    assert_eq!(format!("{one:?}"), "5");
    let guard = pin();
    let borrow = RcuArc::borrow(&one, &guard);
    assert!(borrow.try_get().is_some_and(|got| RcuArc::ptr_eq(&got, &one)));
    let slot = RcuSlot::new(other);
    assert_eq!(format!("{borrow:?}, {slot:?}, {guard:?}"), "5, RcuSlot(Some(5)), Guard { .. }");
}

#[test]
fn rcuarc_holds_what_needs_no_space() {
    let arc = RcuArc::new(());
    let (other, guard) = (arc.clone(), pin());
    RcuArc::release(arc, &guard);
    assert_eq!(*RcuArc::borrow(&other, &guard), ());
}

#[test]
fn rcuarc_chain_is_dropped_without_recursion() {
    struct Link(Option<RcuArc<Link>>);
    let living = Arc::new(AtomicUsize::new(0));
    struct Last(RcuArc<Link>, RcuArc<Alive>);
    let mut chain = RcuArc::new(Link(None));
    for _ in 0..ROUNDS {
        chain = RcuArc::new(Link(Some(chain)));
    }
    assert!(chain.0.is_some());
    let last = RcuArc::new(Last(chain, Alive::new(&living)));
    assert!(last.0.0.is_some());
    last.1.look();
    drop(last);
    wait_for(&living, 0);
}

#[test]
fn rcuslot_exchanges_its_contents() {
    let living = Arc::new(AtomicUsize::new(0));
    let slot = RcuSlot::default();
    let guard = pin();
    assert!(slot.take().is_none() && slot.load(&guard).is_none() && slot.peek(&guard).is_none());
    assert!(slot.is_empty());
    let first = Alive::new(&living);
    assert!(slot.replace(first.clone()).is_none());
    assert!(!slot.is_empty());
    assert!(slot.load(&guard).is_some_and(|loaded| RcuArc::ptr_eq(&loaded, &first)));
    let back = slot.swap(Some(Alive::new(&living))).expect("filled above");
    assert!(RcuArc::ptr_eq(&back, &first));
    assert_eq!(RcuArc::references(&first), 2);
    slot.peek(&guard).expect("filled above").look();
    drop((guard, back, first, slot));
    wait_for(&living, 0);
}

#[test]
fn rcuslot_stress_frees_every_version_once() {
    let living = Arc::new(AtomicUsize::new(0));
    let slot = RcuSlot::new(Alive::new(&living));
    let (stop, witness) = (AtomicBool::new(false), Witness::new());
    thread::scope(|scope| {
        let _stopping = StopOnDrop(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                let mut looks = 0;
                // Relaxed: only the flag itself matters.
                while !stop.load(Ordering::Relaxed) {
                    let guard = pin();
                    let seen = slot.peek(&guard);
                    looks += 1;
                    if looks % 16 == 0 {
                        // Where both share a CPU, only now does the other one come.
                        thread::yield_now();
                    }
                    let kept = slot.load(&guard);
                    // A version went while this thread looked at it.
                    let both = seen.zip(kept.as_ref());
                    witness.met(both.is_some_and(|(seen, kept)| !std::ptr::eq(&*seen, &**kept)));
                    let twice = seen.and_then(RcuBorrow::try_get);
                    [&kept, &twice].into_iter().flatten().for_each(|one| one.look());
                    seen.iter().for_each(|one| one.look());
                    kept.into_iter().for_each(|one| RcuArc::release(one, &guard));
                }
            });
        }
        for round in (0..).take_while(|&n| witness.goes_on(n, ROUNDS as u64)) {
            let old = if round % 8 == 0 { slot.take() } else { slot.replace(Alive::new(&living)) };
            old.iter().for_each(|one| one.look());
        }
    });
    witness.assert_met();
    drop(slot);
    wait_for(&living, 0);
}

#[test]
fn rcuslot_taken_and_alone_has_no_loader_stress() {
    let witness = Witness::new();
    for n in (0..).take_while(|&n| witness.goes_on(n, ROUNDS as u64 / 20)) {
        let slot = RcuSlot::new(RcuArc::new(AtomicBool::new(false)));
        let begun = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // Relaxed: only the time of the start matters.
                begun.store(true, Ordering::Relaxed);
                let kept = slot.load(&pin());
                if n % 2 == 1 {
                    // Where both share a CPU, only now does the other one come.
                    thread::yield_now();
                }
                // Relaxed: the taker's conclusion alone orders this.
                assert!(kept.is_none_or(|kept| !kept.load(Ordering::Relaxed)), "closed in use");
            });
            // Relaxed: as above.
            while !begun.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            let taken = slot.take().expect("filled above");
            let alone = RcuArc::references(&taken) == 1;
            witness.met(!alone);
            if alone {
                // Relaxed: as above.
                taken.store(true, Ordering::Relaxed);
            }
        });
    }
    witness.assert_met();
}

#[test]
fn defer_runs_after_the_guards_that_exist() {
    let freed = Arc::new(AtomicUsize::new(1));
    let count = RcuRef::new();
    {
        let guard = pin();
        assert!(count.put(&guard));
        let note = freed.clone();
        // Relaxed: a statistic, polled.
        guard.defer(move || note.store(0, Ordering::Relaxed));
        guard.flush();
        assert_eq!(freed.load(Ordering::Relaxed), 1);
    }
    wait_for(&freed, 0);
}

#[test]
fn rcuarc_dropped_by_a_dying_threads_locals() {
    thread_local! {
        static KEPT: std::cell::RefCell<Option<RcuArc<Alive>>> = const { std::cell::RefCell::new(None) };
    }
    let living = Arc::new(AtomicUsize::new(0));
    let arc = Alive::new(&living);
    thread::spawn(move || KEPT.set(Some(arc))).join().expect("dropped after the epoch's own local");
    wait_for(&living, 0);
}
