//! Comparison with std's map, with as many collisions as possible.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;

use super::{Index, IndexPlace, PLACES_KEPT, PLACES_MIN};
use crate::rcuref::pin;
use crate::stop::StopOnDrop;
use crate::witness::Witness;

/// More than one table's worth.
const OBJECTS: usize = if cfg!(miri) { 12 } else { 400 };
/// The number of random operations on each.
const OPS_EACH: usize = if cfg!(miri) { 1 } else { 4 };

#[derive(Clone, Copy, Debug)]
enum Op {
    Insert(usize),
    Remove(usize),
    Take,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        200 => (0..OBJECTS).prop_map(Op::Insert),
        150 => (0..OBJECTS).prop_map(Op::Remove),
        1 => Just(Op::Take),
    ]
}

/// Objects and their hashes, of which few differ.
struct Objects(Vec<usize>);

impl Objects {
    fn pointer(&self, object: usize) -> NonNull<usize> {
        NonNull::from(&self.0[object])
    }
}

fn places(index: &Index<usize>) -> usize {
    index.table.peek(&pin()).map_or(0, |table| table.places.len())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 64 },
        ..ProptestConfig::default()
    })]

    #[test]
    fn it_agrees_with_a_map_whatever_collides(
        hashes in prop::collection::vec(
            prop_oneof![0..4_usize, any::<usize>(), Just(usize::MAX)], OBJECTS
        ),
        ops in prop::collection::vec(op(), 0..OPS_EACH * OBJECTS),
    ) {
        let objects = Objects(hashes);
        let (index, guard) = (Index::new(), pin());
        let mut naive: HashMap<usize, NonNull<usize>> = HashMap::new();
        for op in ops {
            match op {
                Op::Insert(object) => {
                    let (hash, pointer) = (objects.0[object], objects.pointer(object));
                    let replaced = index.insert(hash, pointer, &guard, |found| found == pointer);
                    prop_assert_eq!(replaced, naive.insert(object, pointer));
                }
                Op::Remove(object) => {
                    let (hash, pointer) = (objects.0[object], objects.pointer(object));
                    let removed = index.remove(hash, &guard, |found| found == pointer);
                    prop_assert_eq!(removed, naive.remove(&object));
                }
                Op::Take => {
                    let mut taken = index.take(&guard);
                    let mut expected: Vec<_> = naive.drain().map(|(_, pointer)| pointer).collect();
                    taken.sort();
                    expected.sort();
                    prop_assert_eq!(taken, expected);
                }
            }
            prop_assert_eq!(index.len(&guard), naive.len());
            let most = (8 * naive.len() + 8).max(PLACES_KEPT);
            prop_assert!(places(&index) <= most, "{} for {}", places(&index), naive.len());
        }
        for object in 0..OBJECTS {
            let (hash, pointer) = (objects.0[object], objects.pointer(object));
            let found = index.find(hash, &guard, |found| found == pointer);
            prop_assert_eq!(found, naive.get(&object).copied());
        }
        let mut all: Vec<_> = index.iter(&guard).collect();
        let mut expected: Vec<_> = naive.into_values().collect();
        all.sort();
        expected.sort();
        prop_assert_eq!(all, expected);
    }
}

#[test]
fn no_hash_is_that_of_a_place_never_used() {
    let (index, guard) = (Index::new(), pin());
    // Alone, and with the bit that marks a place as used.
    let objects = Objects(vec![0, 1 << (usize::BITS - 1)]);
    for object in [0, 1] {
        let pointer = objects.pointer(object);
        let is = |found| found == pointer;
        assert!(index.insert(objects.0[object], pointer, &guard, is).is_none());
        assert_eq!(index.find(objects.0[object], &guard, is), Some(pointer));
    }
}

/// Objects that come and go leave places behind, which are reused or swept out.
#[test]
fn a_table_does_not_grow_by_what_comes_and_goes() {
    let (index, guard) = (Index::new(), pin());
    let objects = Objects((0..OBJECTS).map(|object| object.wrapping_mul(0x9E37_79B9)).collect());
    for round in 0..4 * OBJECTS {
        let object = round % OBJECTS;
        let pointer = objects.pointer(object);
        let is = |found| found == pointer;
        assert!(index.insert(objects.0[object], pointer, &guard, is).is_none());
        assert!(index.remove(objects.0[object], &guard, is).is_some());
        assert_eq!(places(&index), PLACES_MIN);
    }
}

/// A table is three quarters full before it grows, and less than an eighth before it shrinks.
#[test]
fn a_table_has_the_size_of_what_is_in_it() {
    let (index, guard) = (Index::new(), pin());
    let objects = Objects((0..OBJECTS).map(|object| object.wrapping_mul(0x9E37_79B9)).collect());
    let is = |pointer| move |found| found == pointer;
    for object in 0..OBJECTS {
        let (pointer, before) = (objects.pointer(object), places(&index));
        assert!(index.insert(objects.0[object], pointer, &guard, is(pointer)).is_none());
        assert_eq!(places(&index) > before, object == before / 4 * 3, "{object} in {before}");
    }
    for object in 1..OBJECTS {
        let (pointer, before) = (objects.pointer(object), places(&index));
        assert!(index.remove(objects.0[object], &guard, is(pointer)).is_some());
        let is_due = before > PLACES_KEPT && OBJECTS - object < before / 8;
        assert_eq!(places(&index) < before, is_due, "{} in {before}", OBJECTS - object);
    }
    assert!(places(&index) <= PLACES_KEPT, "{} for one object", places(&index));
}

/// A search for what is missing ends at a place that was never used.
#[test]
fn a_quarter_of_a_table_is_never_used() {
    let (index, guard) = (Index::new(), pin());
    let objects = Objects((0..OBJECTS).map(|object| object.wrapping_mul(0x9E37_79B9)).collect());
    for object in 0..OBJECTS {
        let pointer = objects.pointer(object);
        assert!(
            index.insert(objects.0[object], pointer, &guard, |found| found == pointer).is_none()
        );
        // Relaxed: one thread.
        let is_unused = |place: &&IndexPlace<usize>| place.hash.load(Ordering::Relaxed) == 0;
        let table = index.table.peek(&guard).expect("it has an object");
        let unused = table.places.iter().filter(is_unused).count();
        assert!(unused >= table.places.len() / 4, "{unused} of {}", table.places.len());
    }
}

/// An object that stays is never missed while others come and go.
#[test]
fn a_staying_object_is_never_missed_stress() {
    const STAYS: usize = 7;
    let objects: Vec<usize> = (0..OBJECTS).map(|n| n % 32).collect();
    let index = Index::new();
    let find = |object: usize| {
        let wanted = NonNull::from(&objects[object]);
        index.find(objects[object], &pin(), |found| found == wanted).is_some()
    };
    let insert = |object: usize| {
        let wanted = NonNull::from(&objects[object]);
        assert!(index.insert(objects[object], wanted, &pin(), |found| found == wanted).is_none());
    };
    insert(STAYS);
    let (stop, witness) = (AtomicBool::new(false), Witness::new());
    let changes = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let _stopping = StopOnDrop(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                // Relaxed: a flag, and a sign that others came or went since the last check.
                while !stop.load(Ordering::Relaxed) {
                    assert!(find(STAYS));
                    let before = std::mem::replace(&mut last, changes.load(Ordering::Relaxed));
                    witness.met(before != 0 && before != last);
                }
            });
        }
        let rounds = if cfg!(miri) { 2 } else { 10 };
        for _ in (0..).take_while(|&n| witness.goes_on(n, rounds)) {
            // Relaxed: as above.
            changes.fetch_add(1, Ordering::Relaxed);
            (0..OBJECTS).filter(|&object| object != STAYS).for_each(insert);
            for object in (0..OBJECTS).filter(|&object| object != STAYS) {
                let wanted = NonNull::from(&objects[object]);
                let removed = index.remove(objects[object], &pin(), |found| found == wanted);
                assert_eq!(removed, Some(wanted));
            }
        }
    });
    witness.assert_met();
}
