//! Every interleaving, within loom's memory model: `RUSTFLAGS="--cfg loom" cargo test --release`.
//!
//! Models of mistakes pass only while loom finds the mistake, each by its own message.

use std::ptr::NonNull;
use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;

use super::{Index, Table};
use crate::models::{Note, witness};
use crate::rcuref::{RcuArc, pin};

/// The object of a lookup: a word of memory that is made and freed.
///
/// Relaxed throughout: only the code under test may order its accesses.
struct Object(AtomicU32);

const MADE: u32 = 1;
const FREED: u32 = 2;

impl Object {
    fn make(&self) {
        self.0.store(MADE, Ordering::Relaxed);
    }

    fn free(&self) {
        self.0.store(FREED, Ordering::Relaxed);
    }

    /// Reads the object as a reader does under a guard.
    fn read(&self) {
        match self.0.load(Ordering::Relaxed) {
            MADE => {}
            FREED => panic!("freed under a reader"),
            _ => panic!("found half made"),
        }
    }
}

/// An index and the objects that may be in it. Objects are named by their places in `objects`,
/// which are also their hashes.
struct Model {
    index: Index<Object>,
    objects: Vec<Object>,
    /// Whether readers let others run between making their guards and the lookup. Loom does not try
    /// that by itself: it compares only the last access to a word, and a writer reads a place
    /// before it changes it.
    lingering: bool,
}

/// The capacity of the smallest table: with one more object it is replaced.
const FULL: usize = 3;

impl Model {
    fn new(lingering: bool) -> Arc<Model> {
        let objects = (0..=FULL).map(|_| Object(AtomicU32::new(0))).collect();
        Arc::new(Model { index: Index::new(), objects, lingering })
    }

    /// Makes a model whose index holds all but the last object.
    fn full(lingering: bool) -> Arc<Model> {
        let model = Model::new(lingering);
        (0..FULL).for_each(|object| model.insert(object));
        model
    }

    fn pointer(&self, object: usize) -> NonNull<Object> {
        NonNull::from(&self.objects[object])
    }

    fn insert(&self, object: usize) {
        let wanted = self.pointer(object);
        self.objects[object].make();
        assert!(self.index.insert(object, wanted, &pin(), |found| found == wanted).is_none());
    }

    /// Removes an object, and frees it when no reader can have it.
    fn remove(self: &Arc<Model>, object: usize) {
        let guard = pin();
        let wanted = self.pointer(object);
        assert!(self.index.remove(object, &guard, |found| found == wanted).is_some());
        let model = Arc::clone(self);
        guard.defer(move || model.objects[object].free());
    }

    /// Looks for the object and reads it. Returns whether it was found.
    fn find(&self, object: usize) -> bool {
        let guard = pin();
        if self.lingering {
            thread::yield_now();
        }
        let wanted = self.pointer(object);
        let found = self.index.find(object, &guard, |found| found == wanted).is_some();
        if found {
            self.objects[object].read();
        }
        found
    }

    /// Accesses the table, for the mistakes.
    fn with_table(&self, with: impl FnOnce(&Table<Object>)) {
        let guard = pin();
        with(self.index.table.peek(&guard).expect("it holds objects").value());
    }
}

/// Explores with readers that linger, and with readers that do not.
fn explore(model: impl Fn(bool) + Clone + Sync + Send + 'static) {
    for lingering in [false, true] {
        let model = model.clone();
        crate::models::explore(move || model(lingering));
    }
}

/// Runs a reader concurrently with a writer.
fn beside(model: &Arc<Model>, read: impl FnOnce(&Model) + 'static, write: impl FnOnce()) {
    let done = Note::default();
    let reader = thread::spawn({
        let (model, done) = (Arc::clone(model), done.clone());
        move || {
            let before = done.is_taken();
            read(&model);
            witness("a write that ends while a reader looks", !before && done.is_taken());
            witness("a reader that ends first", !done.is_taken());
        }
    });
    write();
    done.take();
    reader.join().unwrap();
}

#[test]
fn loom_index_1_the_found_is_seen_as_put_in() {
    explore(|lingering| {
        let model = Model::new(lingering);
        model.insert(0);
        let read = |model: &Model| {
            let found = model.find(1);
            witness("one that is found", found);
            witness("one that is not", !found);
        };
        beside(&model, read, || model.insert(1));
    });
}

/// Finds that a relaxed store of an object publishes nothing.
#[test]
#[should_panic(expected = "found half made")]
fn loom_index_1_finds_a_relaxed_store() {
    explore(|lingering| {
        let model = Model::new(lingering);
        model.insert(0);
        let read = |model: &Model| _ = model.find(1);
        beside(&model, read, || {
            model.objects[1].make();
            let pointer = model.pointer(1).as_ptr();
            model.with_table(|table| {
                let place = &table.places[1];
                // Relaxed: the mistake.
                place.object.store(pointer, Ordering::Relaxed);
                // Relaxed: as in `Table::add`.
                place.hash.store(super::used(1), Ordering::Relaxed);
            });
        });
    });
}

/// A value that stays is found while the table is replaced.
#[test]
fn loom_index_2_a_new_table_has_what_stays() {
    explore(|lingering| {
        let model = Model::full(lingering);
        beside(&model, |model| assert!(model.find(0), "missed"), || model.insert(FULL));
        assert!((0..=FULL).all(|object| model.find(object)));
    });
}

/// Finds that a table is filled before it is published.
#[test]
#[should_panic(expected = "missed")]
fn loom_index_2_finds_a_table_published_unfilled() {
    explore(|lingering| {
        let model = Model::full(lingering);
        beside(
            &model,
            |model| assert!(model.find(0), "missed"),
            || {
                let guard = pin();
                let larger = RcuArc::new(Table::with_room(FULL + 1));
                let old = model.index.table.replace(larger.clone()).expect("it was full");
                for place in &old.places {
                    if let Some(object) = place.object() {
                        // Relaxed: with the lock held.
                        larger.add(place.hash.load(Ordering::Relaxed), object);
                    }
                }
                RcuArc::release(old, &guard);
            },
        );
    });
}

/// A removed object stays in memory for readers that found it.
#[test]
fn loom_index_3_finders_keep_what_is_removed() {
    explore(|lingering| {
        let model = Model::full(lingering);
        let read = |model: &Model| {
            let found = model.find(0);
            witness("one that is found", found);
            witness("one that is not", !found);
        };
        beside(&model, read, || model.remove(0));
    });
}

#[test]
#[should_panic(expected = "freed under a reader")]
fn loom_index_3_finds_a_free_under_a_reader() {
    explore(|lingering| {
        let model = Model::full(lingering);
        let removed = model.pointer(0);
        beside(
            &model,
            |model| _ = model.find(0),
            || {
                model.index.remove(0, &pin(), |found| found == removed);
                model.objects[0].free();
            },
        );
    });
}

/// A reader of a replaced table keeps objects that are removed later.
#[test]
fn loom_index_4_readers_of_an_old_table_keep_it() {
    explore(|lingering| {
        let model = Model::full(lingering);
        beside(
            &model,
            |model| _ = model.find(0),
            || {
                model.insert(FULL);
                model.remove(0);
            },
        );
    });
}

/// Removes an object with `by`. A thread that knows of the removal does not find the object.
fn knows_of_a_removal(by: impl Fn(&Arc<Model>) + Clone + Sync + Send + 'static) {
    explore(move |lingering| {
        let model = Model::full(lingering);
        let removed = Arc::new(AtomicBool::new(false));
        let read = {
            let removed = Arc::clone(&removed);
            move |model: &Model| {
                // Acquire: pairs with the Release below, like a kill's return.
                let knows = removed.load(Ordering::Acquire);
                witness("a reader that knows of the removal", knows);
                if knows {
                    assert!(!model.find(0), "risen from the dead");
                }
            }
        };
        beside(&model, read, || {
            by(&model);
            // Release: pairs with the Acquire above.
            removed.store(true, Ordering::Release);
        });
    });
}

/// A thread that knows of a removal does not find the removed object.
#[test]
fn loom_index_5_a_known_removal_is_final() {
    knows_of_a_removal(|model| model.remove(0));
    knows_of_a_removal(|model| {
        model.insert(FULL);
        model.remove(0);
    });
    knows_of_a_removal(|model| {
        model.remove(0);
        model.insert(FULL);
    });
}

/// Finds that a copy made before a removal brings the object back.
#[test]
#[should_panic(expected = "risen from the dead")]
fn loom_index_5_finds_a_copy_that_revives() {
    knows_of_a_removal(|model| {
        let guard = pin();
        let copy = Table::with_room(FULL + 1);
        model.index.fill(&copy, &guard);
        let wanted = model.pointer(0);
        assert!(model.index.remove(0, &guard, |found| found == wanted).is_some());
        model.index.publish(copy, &guard);
    });
}
