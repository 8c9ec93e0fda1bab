//! Which group is charged, and how much.

use std::sync::Barrier;
use std::thread;

use metrics::{counter, gauge, histogram, with_local_recorder};
use submeter::{Schema, Tree};
use submeter_metrics::{Recorder, Slot, Slots};

use super::{counted, declared, level, named, recorder};

/// Each tenant's work is charged to it, and everything else to the named group.
#[test]
fn work_is_charged_to_its_tenant_or_the_default() {
    let (tree, recorder) = recorder(Slots::new());
    let [acme, beta] = ["/acme/web", "/beta"].map(|path| tree.get_or_create(path).expect("room"));
    let work = || with_local_recorder(&recorder, || counter!("queries").increment(3));
    for _ in 0..10 {
        acme.run(work);
    }
    beta.run(work);
    beta.run(|| acme.run(work));
    work();
    let queries = |path| counted(&recorder, &tree.get(path).expect("made above"), "queries");
    assert_eq!(["/acme/web", "/acme", "/beta", "/"].map(queries), [33, 33, 3, 39]);
}

#[test]
fn a_kept_handle_charges_the_current_group() {
    let (tree, recorder) = recorder(Slots::new());
    let acme = tree.create("/acme").expect("room");
    let (hits, open) = with_local_recorder(&recorder, || (counter!("hits"), gauge!("open")));
    acme.run(|| {
        hits.increment(1);
        open.increment(2.5);
    });
    thread::scope(|scope| {
        scope.spawn(|| hits.increment(10));
        scope.spawn(|| acme.run(|| open.decrement(0.5)));
    });
    open.set(7.0);
    assert_eq!(
        (counted(&recorder, &acme, "hits"), counted(&recorder, tree.root(), "hits")),
        (1, 11)
    );
    assert_eq!(
        (level(&recorder, &acme, "open"), level(&recorder, tree.root(), "open")),
        (2.0, 9.0)
    );
}

/// A group of another tree is not one of this tree, even if they share the schema.
#[test]
fn groups_of_another_tree_are_not_charged() {
    let mut schema = Schema::builder();
    let slots = Slots::new().declare(&mut schema);
    let schema = schema.build().expect("valid");
    let [tree, other] = [(); 2].map(|()| Tree::new(schema.clone()).expect("room"));
    let recorder = Recorder::new(tree.root(), slots);
    let stranger = other.create("/stranger").expect("room");
    stranger.run(|| with_local_recorder(&recorder, || counter!("hits").increment(5)));
    assert_eq!(counted(&recorder, tree.root(), "hits"), 5);
    assert_eq!(counted(&recorder, &stranger, "hits"), 0);
}

/// A metric that finds no slot is counted for its tenant, and takes no other's place.
#[test]
fn a_metric_without_a_slot_is_still_counted() {
    let (tree, recorder) = recorder(Slots::new().counters(1).gauges(0).histograms(1));
    let acme = tree.create("/acme").expect("room");
    acme.run(|| {
        with_local_recorder(&recorder, || {
            histogram!("first").record(1.0);
            for user in 0..1000 {
                counter!("requests", "user" => user.to_string()).increment(2);
            }
            gauge!("queue").set(4.0);
            histogram!("late").record_many(1.0, 3);
        });
    });
    assert_eq!(recorder.named().len(), 2);
    assert_eq!(counted(&recorder, &acme, "requests"), 2);
    assert_eq!(declared(&tree, "/acme", "metrics_unplaced_increments"), 2 * 999);
    assert_eq!(declared(&tree, "/acme", "metrics_unplaced_updates"), 999 + 1 + 3);
}

/// The same labels in another order are the same metric; another value makes another one.
#[test]
fn the_order_of_labels_does_not_matter() {
    let (tree, recorder) = recorder(Slots::new());
    with_local_recorder(&recorder, || {
        counter!("hits", "a" => "1", "b" => "2").increment(1);
        counter!("hits", "b" => "2", "a" => "1").increment(10);
        counter!("hits", "b" => "2", "a" => "2").increment(100);
    });
    let sums = recorder.named().into_iter().map(|metric| match metric.slot {
        Slot::Counter(counter) => tree.root().sum(counter),
        other => panic!("{other:?}"),
    });
    assert_eq!(sums.collect::<Vec<_>>(), [11, 100]);
}

#[test]
fn values_beyond_a_word_are_left_out_and_counted() {
    let (tree, recorder) = recorder(Slots::new());
    with_local_recorder(&recorder, || {
        let (level, size) = (gauge!("level"), histogram!("size"));
        level.set(12.5);
        size.record(0.25);
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
            level.set(value);
            level.increment(value);
            size.record(value);
        }
        size.record(-1.0);
    });
    assert_eq!(level(&recorder, tree.root(), "level"), 12.5);
    assert_eq!(declared(&tree, "/", "metrics_unfit_values"), 4 * 3 + 1);
    let Slot::Histogram(size) = named(&recorder, "size").slot else { panic!("no histogram") };
    let seen = tree.root().sum_histogram(size);
    assert_eq!((seen.count(), seen.sum()), (1, 250_000));
}

#[test]
fn an_absolute_value_adds_only_what_is_new() {
    let (tree, recorder) = recorder(Slots::new());
    let acme = tree.create("/acme").expect("room");
    with_local_recorder(&recorder, || {
        counter!("total").absolute(40);
        counter!("total").absolute(30);
        acme.run(|| counter!("total").absolute(42));
    });
    assert_eq!(counted(&recorder, &acme, "total"), 2);
    assert_eq!(counted(&recorder, tree.root(), "total"), 42);
}

#[test]
fn threads_at_a_first_use_share_a_slot_stress() {
    const THREADS: u64 = 8;
    const NAMES: u64 = if cfg!(miri) { 3 } else { 40 };
    let (tree, recorder) = recorder(Slots::new());
    let barrier = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let group = tree.create(&format!("/t{thread}")).expect("room");
            let (recorder, barrier) = (&recorder, &barrier);
            scope.spawn(move || {
                for name in 0..NAMES {
                    barrier.wait();
                    let add = || counter!(format!("n{name}")).increment(thread + 1);
                    group.run(|| with_local_recorder(recorder, add));
                }
            });
        }
    });
    assert_eq!(recorder.named().len() as u64, NAMES);
    for name in 0..NAMES {
        let name = format!("n{name}");
        for thread in 0..THREADS {
            let group = tree.get(&format!("/t{thread}")).expect("made above");
            assert_eq!(counted(&recorder, &group, &name), thread + 1);
        }
        assert_eq!(counted(&recorder, tree.root(), &name), THREADS * (THREADS + 1) / 2);
    }
}
