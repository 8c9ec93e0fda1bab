//! Counts that threads keep themselves, charged by the switch.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use submeter::switch::{self, THREAD_COUNTS, ThreadMeter};
use submeter::{Bytes, Count, Counter, Schema, SchemaError, Tree};

thread_local! {
    static COUNTS: Cell<[u64; THREAD_COUNTS]> = const { Cell::new([0; THREAD_COUNTS]) };
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

struct Known;

impl ThreadMeter for Known {
    fn counts(&self) -> [u64; THREAD_COUNTS] {
        assert!(!PANICS.get(), "on purpose");
        COUNTS.get()
    }
}

struct Other;

impl ThreadMeter for Other {
    fn counts(&self) -> [u64; THREAD_COUNTS] {
        [0; THREAD_COUNTS]
    }
}

fn gain(place: usize, n: u64) {
    let mut counts = COUNTS.get();
    counts[place] = counts[place].wrapping_add(n);
    COUNTS.set(counts);
}

fn tree() -> (Tree, Counter<Bytes>, Counter<Count>) {
    let mut schema = Schema::builder();
    let bytes = schema.thread_count("bytes", "Bytes of something", &Known, 1);
    let blocks = schema.section("apart", |apart| apart.thread_count("blocks", "", &Known, 3));
    (Tree::new(schema.build().expect("valid")).expect("address space"), bytes, blocks)
}

/// A switch charges the group that the thread leaves for what the counts gained in it.
#[test]
fn a_switch_charges_the_group_that_is_left() {
    let (tree, bytes, blocks) = tree();
    let (a, b) = (tree.create("/a").expect("new"), tree.create("/b").expect("new"));
    COUNTS.set([u64::MAX - 5; THREAD_COUNTS]);
    gain(1, 3);
    a.run(|| {
        gain(1, 5);
        b.run(|| gain(3, 9));
        a.run(|| gain(1, 2));
    });
    gain(3, 1);
    assert_eq!((a.sum(bytes), a.sum(blocks)), (7, 0));
    assert_eq!((b.sum(bytes), b.sum(blocks)), (0, 9));
}

/// A schema has one kind of meter, and one counter for each of its counts.
#[test]
fn a_schema_has_one_kind_of_meter() {
    let refused = |second: fn(&mut submeter::SchemaBuilder)| {
        let mut schema = Schema::builder();
        schema.thread_count::<Bytes, _>("first", "", &Known, 0);
        second(&mut schema);
        schema.build().map(|_| ())
    };
    let second = || Err(SchemaError::ThreadCount("second".to_owned()));
    assert_eq!(refused(|s| _ = s.thread_count::<Bytes, _>("second", "", &Known, 1)), Ok(()));
    assert_eq!(refused(|s| _ = s.thread_count::<Bytes, _>("second", "", &Known, 0)), second());
    assert_eq!(refused(|s| _ = s.thread_count::<Bytes, _>("second", "", &Known, 4)), second());
    let other = refused(|s| _ = s.thread_count::<Bytes, _>("second", "", &Other, 1));
    assert_eq!(other, second());
    let error = other.expect_err("another meter").to_string();
    assert!(
        error.contains("\"second\" cannot be a thread count") && error.contains("0 to 3"),
        "{error}"
    );
}

/// A meter that panics leaves the thread where it was, and the next switch charges everything.
#[test]
fn a_panicking_meter_loses_nothing() {
    let (tree, bytes, _) = tree();
    let (a, b) = (tree.create("/a").expect("new"), tree.create("/b").expect("new"));
    let outer = a.enter();
    gain(1, 4);
    PANICS.set(true);
    let entered = catch_unwind(AssertUnwindSafe(|| b.enter()));
    PANICS.set(false);
    assert!(entered.is_err());
    assert_eq!(switch::current().as_ref(), Some(&a));
    drop(outer);
    assert_eq!((a.sum(bytes), b.sum(bytes)), (4, 0));
}
