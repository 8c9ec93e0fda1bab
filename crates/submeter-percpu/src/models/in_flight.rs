//! Adds in flight: what a reader can state about a word while an add has crossed a boundary in it
//! and has not posted its overflow.
//!
//! There is one word with a batch of 2, one number for the overflows (`pending`), and a total that
//! a flush brings up to date. Adds are locked ones; a sequence is such an add that nothing on its
//! CPU interrupts. The guard is the real one.

use loom::sync::Arc;
use loom::thread;

use super::{explore_briefly, witness};
use crate::overflow::{InFlight, batch_overflow, in_flight};
use crate::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// One less than the batch.
const MASK: u64 = 1;

/// The time at which an add that crosses starts counting as in flight.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    BeforeTheAdd,
    AfterTheAdd,
    Never,
}

/// The word that a reader loads first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    InFlight,
    Pending,
}

struct Shared {
    word: AtomicI64,
    pending: AtomicI64,
    total: AtomicI64,
    in_flight: AtomicU64,
    /// The amount added by adds that have returned.
    returned: AtomicI64,
}

impl Shared {
    /// Makes a word one below its boundary.
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            word: AtomicI64::new(1),
            pending: AtomicI64::new(0),
            total: AtomicI64::new(0),
            in_flight: AtomicU64::new(0),
            returned: AtomicI64::new(1),
        })
    }

    fn add(&self, count: Count) {
        // SeqCst: as in the real ones.
        let order = Ordering::SeqCst;
        let before = self.word.load(order);
        let inside = batch_overflow(before, 1, MASK) == 0
            && self.word.compare_exchange(before, before + 1, order, order).is_ok();
        if !inside {
            let early = count == Count::BeforeTheAdd;
            let mut guard = early.then(|| InFlight::new(&self.in_flight));
            let before = self.word.fetch_add(1, order);
            if count == Count::AfterTheAdd {
                guard = Some(InFlight::new(&self.in_flight));
            }
            let overflow = batch_overflow(before, 1, MASK);
            if overflow != 0 {
                self.pending.fetch_add(overflow, order);
            }
            drop(guard);
        }
        self.returned.fetch_add(1, order);
    }

    fn flush(&self) {
        // SeqCst: as in the real ones.
        let order = Ordering::SeqCst;
        let noted = self.pending.load(order);
        witness("a flush that resets an overflow", noted != 0);
        self.total.store(self.word.load(order), order);
        self.pending.fetch_sub(noted, order);
    }

    fn read(&self, first: First) {
        // SeqCst: as in the real ones.
        let order = Ordering::SeqCst;
        let before = self.returned.load(order);
        let early = (first == First::InFlight).then(|| in_flight(&self.in_flight));
        let pending = self.pending.load(order);
        let in_flight = early.unwrap_or_else(|| crate::overflow::in_flight(&self.in_flight));
        witness("a read beside an overflow in flight", in_flight != 0);
        let total = self.total.load(order);
        let bound = pending + (1 + in_flight.cast_signed()) * MASK.cast_signed();
        assert!(total + bound >= before, "less than had returned");
    }
}

/// Two adds, of which one crosses, a reader, and optionally a flush.
fn a_read_among_adds(count: Count, first: First, flushes: bool) {
    let shared = Shared::new();
    let adds = [(); 2].map(|()| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.add(count))
    });
    let flush = flushes.then(|| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.flush())
    });
    shared.read(first);
    adds.into_iter().chain(flush).for_each(|thread| thread.join().expect("no panic"));
    shared.read(first);
    assert_eq!(in_flight(&shared.in_flight), 0);
}

/// A bound covers the adds that returned while overflows are in flight.
#[test]
fn loom_a_bound_covers_overflows_in_flight() {
    explore_briefly(2, || a_read_among_adds(Count::BeforeTheAdd, First::InFlight, false));
    explore_briefly(2, || a_read_among_adds(Count::BeforeTheAdd, First::InFlight, true));
}

#[test]
#[should_panic(expected = "less than had returned")]
fn loom_without_the_count_a_bound_is_too_narrow() {
    explore_briefly(2, || a_read_among_adds(Count::Never, First::InFlight, false));
}

#[test]
#[should_panic(expected = "less than had returned")]
fn loom_counting_after_the_add_is_too_late() {
    explore_briefly(2, || a_read_among_adds(Count::AfterTheAdd, First::InFlight, false));
}

/// Finds a reader that loads the count last, which misses an add that ended.
#[test]
#[should_panic(expected = "less than had returned")]
fn loom_a_count_loaded_last_misses_an_add() {
    explore_briefly(2, || a_read_among_adds(Count::BeforeTheAdd, First::Pending, false));
}
