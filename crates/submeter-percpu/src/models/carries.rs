//! Carries on their way: what a reader can say of a word while somebody has crossed a boundary in it and has not told.
//!
//! One word with a batch of 2, one number for what was carried (`drift`), a total that a flush brings up to
//! date. Adds are locked ones; a sequence is such an add that nothing of its CPU comes between. Announcing is the real one.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use loom::thread;

use super::explore;
use crate::carry::{Announced, announced, carry};

/// One less than the batch.
const MASK: u64 = 1;

/// When an add that crosses is announced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Announce {
    BeforeTheAdd,
    AfterTheAdd,
    Never,
}

/// What a reader loads first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Announced,
    Drift,
}

struct Shared {
    word: AtomicI64,
    drift: AtomicI64,
    total: AtomicI64,
    announced: AtomicU64,
    /// What adds that returned have added.
    returned: AtomicI64,
}

impl Shared {
    /// A word one below its boundary.
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            word: AtomicI64::new(1),
            drift: AtomicI64::new(0),
            total: AtomicI64::new(0),
            announced: AtomicU64::new(0),
            returned: AtomicI64::new(1),
        })
    }

    fn add(&self, announce: Announce) {
        // SeqCst: as the real ones.
        let order = Ordering::SeqCst;
        let before = self.word.load(order);
        let inside = carry(before, 1, MASK) == 0
            && self.word.compare_exchange(before, before + 1, order, order).is_ok();
        if !inside {
            let early = announce == Announce::BeforeTheAdd;
            let mut announced = early.then(|| Announced::new(&self.announced));
            let before = self.word.fetch_add(1, order);
            if announce == Announce::AfterTheAdd {
                announced = Some(Announced::new(&self.announced));
            }
            let carried = carry(before, 1, MASK);
            if carried != 0 {
                self.drift.fetch_add(carried, order);
            }
            drop(announced);
        }
        self.returned.fetch_add(1, order);
    }

    fn flush(&self) {
        // SeqCst: as the real ones.
        let order = Ordering::SeqCst;
        let noted = self.drift.load(order);
        self.total.store(self.word.load(order), order);
        self.drift.fetch_sub(noted, order);
    }

    fn read(&self, first: First) {
        // SeqCst: as the real ones.
        let order = Ordering::SeqCst;
        let before = self.returned.load(order);
        let early = (first == First::Announced).then(|| announced(&self.announced));
        let drift = self.drift.load(order);
        let announced = early.unwrap_or_else(|| announced(&self.announced));
        let total = self.total.load(order);
        let bound = drift + (1 + announced.cast_signed()) * MASK.cast_signed();
        assert!(total + bound >= before, "less than had returned");
    }
}

/// Two adds, of which one crosses, a reader, and a flush where there is to be one.
fn a_read_among_adds(announce: Announce, first: First, flushes: bool) {
    let shared = Shared::new();
    let adds = [(); 2].map(|()| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.add(announce))
    });
    let flush = flushes.then(|| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.flush())
    });
    shared.read(first);
    adds.into_iter().chain(flush).for_each(|thread| thread.join().expect("no panic"));
    shared.read(first);
    assert_eq!(announced(&shared.announced), 0);
}

#[test]
fn loom_a_bound_covers_what_returned_while_carries_are_on_their_way() {
    explore(|| a_read_among_adds(Announce::BeforeTheAdd, First::Announced, false));
    explore(|| a_read_among_adds(Announce::BeforeTheAdd, First::Announced, true));
}

#[test]
#[should_panic(expected = "less than had returned")]
fn loom_without_announcing_a_bound_is_too_narrow() {
    explore(|| a_read_among_adds(Announce::Never, First::Announced, false));
}

#[test]
#[should_panic(expected = "less than had returned")]
fn loom_announcing_after_the_add_is_too_late() {
    explore(|| a_read_among_adds(Announce::AfterTheAdd, First::Announced, false));
}

#[test]
#[should_panic(expected = "less than had returned")]
fn loom_a_reader_that_asks_who_is_announced_last_misses_one_that_ended() {
    explore(|| a_read_among_adds(Announce::BeforeTheAdd, First::Drift, false));
}
