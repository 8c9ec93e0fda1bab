//! Every interleaving of threads that enter and leave with one that joins the line.

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::{Line, Slots};
use crate::models::{Note, either_first, explore_all, witness};
use crate::sync::atomic::{AtomicU32, Ordering};

/// The way in which a thread that finds no place joins the line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Joins {
    /// According to the protocol.
    Closing,
    /// Looks for a place before the way is closed, but not after it.
    LookingFirst,
}

struct Model {
    slots: Slots,
    /// Number of waiters.
    line: Mutex<Waiting>,
    inside: AtomicU32,
}

#[derive(Default)]
struct Waiting {
    wait: u32,
    admitted: u32,
}

impl Line for Waiting {
    fn is_ready(&self) -> bool {
        self.wait > 0
    }

    fn admit(&mut self) {
        self.wait -= 1;
        self.admitted += 1;
    }

    fn is_needed(&self) -> bool {
        self.wait > 0
    }
}

impl Model {
    fn new(places: u32) -> Arc<Model> {
        let line = Mutex::new(Waiting::default());
        Arc::new(Model { slots: Slots::new(places), line, inside: AtomicU32::new(0) })
    }

    /// Enters or waits. Returns whether it is inside.
    fn enter(&self, joins: Joins) -> bool {
        if self.slots.try_enter() {
            return true;
        }
        let mut line = self.line.lock().unwrap();
        let (before, looked) = (line.admitted, self.slots.used());
        line.wait += 1;
        self.slots.close();
        // With the mistake, the state from before the way was closed decides.
        if joins == Joins::Closing || looked.0 < looked.1 {
            self.slots.serve(&mut *line);
        }
        line.admitted > before
    }

    /// Enters if there is a place, as where waiting is not allowed. Returns whether it is inside.
    fn enter_at_once(&self, joins: Joins) -> bool {
        if self.slots.try_enter() {
            return true;
        }
        let mut line = self.line.lock().unwrap();
        let looked = self.slots.used();
        let closed = self.slots.close();
        let (inside, most) = if joins == Joins::Closing { closed } else { looked };
        line.wait += u32::from(inside < most);
        let has_joined = line.wait > 0;
        self.slots.serve(&mut *line);
        assert_eq!(line.wait, 0, "it waits where nobody may");
        has_joined
    }

    /// Does work that only one thread may do at a time.
    fn work(&self) {
        // Relaxed, both: the slots must order these accesses.
        let inside = self.inside.load(Ordering::Relaxed);
        assert_eq!(inside, 0, "two are in one place");
        self.inside.store(1, Ordering::Relaxed);
        self.inside.store(0, Ordering::Relaxed);
    }

    /// Leaves. Returns whether no lock was needed.
    fn leave(&self) -> bool {
        let left = self.slots.try_leave();
        if !left {
            let mut line = self.line.lock().unwrap();
            self.slots.leave();
            self.slots.serve(&mut *line);
        }
        left
    }

    /// Leaves every place that was handed out, until none is taken.
    fn must_come_to_an_end(&self) {
        while self.slots.used().0 > 0 {
            self.leave();
        }
        let line = self.line.lock().unwrap();
        assert_eq!(line.wait, 0, "a waiter beside a free place");
        drop(line);
        assert!(self.slots.try_enter(), "the way is open behind the last");
    }
}

fn one_leaves_and_one_joins(joins: Joins) {
    let model = Model::new(1);
    assert!(model.slots.try_enter());
    let other = Arc::clone(&model);
    let other = thread::spawn(move || {
        other.work();
        other.leave()
    });
    let entered = model.enter(joins);
    if entered {
        model.work();
    }
    let open = other.join().unwrap();
    let (inside, _) = model.slots.used();
    // Before the checks that may fail.
    witness("a leave by the lock", !open);
    witness("a leave that its follower sees", open && entered);
    witness("a place that is handed over", !entered && inside == 1);
    model.must_come_to_an_end();
}

#[test]
fn loom_slots_1_nobody_waits_beside_a_free_place() {
    explore_all(|| one_leaves_and_one_joins(Joins::Closing));
}

/// Finds a thread that joins and looks before the way is closed.
#[test]
#[should_panic(expected = "a waiter beside a free place")]
fn loom_slots_1_finds_a_look_before_the_closing() {
    explore_all(|| one_leaves_and_one_joins(Joins::LookingFirst));
}

/// A place holds one thread at a time while two come and go.
#[test]
fn loom_slots_2_a_place_is_for_one_at_once() {
    crate::models::explore(|| {
        let (model, waits) = (Model::new(1), Note::default());
        let threads = [0; 2].map(|_| {
            let (model, waits) = (Arc::clone(&model), waits.clone());
            thread::spawn(move || {
                if model.enter(Joins::Closing) {
                    model.work();
                    model.leave();
                } else {
                    waits.take();
                }
            })
        });
        if model.slots.try_enter() {
            model.work();
            model.leave();
        }
        threads.map(|thread| thread.join().unwrap());
        witness("two that waited at once", waits.count() == 2);
        witness("nobody that waited", waits.count() == 0);
        model.must_come_to_an_end();
    });
}

/// A place added by a raised limit goes to a waiter, even while it joins.
#[test]
fn loom_slots_3_an_added_place_is_for_who_waits() {
    explore_all(|| {
        let model = Model::new(0);
        let other = Arc::clone(&model);
        let raises = thread::spawn(move || {
            let mut line = other.line.lock().unwrap();
            other.slots.set_limit(1);
            other.slots.serve(&mut *line);
            line.admitted
        });
        let entered = model.enter(Joins::Closing);
        let admitted = raises.join().unwrap();
        witness("a place that one finds who comes later", entered);
        witness("a place that one is handed who waits", !entered && admitted == 1);
        assert_eq!(model.slots.used().0, 1);
        model.must_come_to_an_end();
    });
}

fn one_leaves_and_comes_again(joins: Joins) {
    let model = Model::new(1);
    assert!(model.slots.try_enter());
    let other = Arc::clone(&model);
    let other = thread::spawn(move || {
        other.leave();
        other.slots.try_enter()
    });
    either_first();
    let entered = model.enter_at_once(joins);
    let again = other.join().unwrap();
    witness("one that is refused", !entered);
    witness("one that is before the other", entered && !again);
    model.must_come_to_an_end();
}

#[test]
fn loom_slots_4_a_promised_place_is_had() {
    explore_all(|| one_leaves_and_comes_again(Joins::Closing));
}

/// Finds a newcomer that looks before the way is closed.
#[test]
#[should_panic(expected = "it waits where nobody may")]
fn loom_slots_4_fails_if_one_looks_too_early() {
    explore_all(|| one_leaves_and_comes_again(Joins::LookingFirst));
}
