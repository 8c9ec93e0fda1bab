//! Bound metrics update the same words as their group, without the lookup.

use submeter::{Buckets, Bytes, Count, Nanoseconds, Schema, Tree};

const ADDS: u64 = if cfg!(miri) { 300 } else { 100_000 };

/// A handle updates the same word as its group, and nothing else.
#[test]
fn a_handle_updates_only_its_word_stress() {
    let mut schema = Schema::builder();
    let before = schema.counter::<Count>("before", "A neighbour");
    let requests = schema.counter::<Count>("requests", "Requests");
    let latency = schema.histogram::<Nanoseconds>("latency", "A neighbour", Buckets::LATENCY_NS);
    let queued = schema.gauge::<Bytes>("queued", "Bytes queued");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let web = tree.get_or_create("/acme/web").expect("room");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let (requests, queued) = (web.handle(requests), web.handle(queued));
                for n in 0..ADDS {
                    requests.add(2);
                    // Cross the same batch boundary in both directions.
                    queued.adjust(if n % 2 == 0 { -(1 << 17) } else { 1 << 17 });
                }
            });
        }
        web.add(requests, 5);
    });
    assert_eq!(tree.root().sum(requests), 4 * 2 * ADDS + 5);
    assert_eq!(tree.root().sum(queued), 0);
    assert_eq!((tree.root().sum(before), tree.root().sum_histogram(latency).count()), (0, 0));
    assert_eq!(web.handle(requests).group(), &web);
}

/// The error bound of a read covers updates through a bound metric before any flush.
#[test]
fn a_read_knows_what_a_meter_has_carried() {
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests", "Requests");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let web = tree.get_or_create("/acme/web").expect("room");
    let meter = web.handle(requests);
    for total in 1..=5_000u64 {
        meter.add(1);
        let read = tree.root().read(requests);
        assert!(read.value + read.max_error >= total, "{read:?} for {total}");
    }
    tree.flush();
    let read = tree.root().read(requests);
    assert_eq!((read.value, read.max_error), (5_000, 0));
}

#[test]
#[should_panic(expected = "schema of another tree")]
fn a_meter_of_another_schema_is_refused() {
    let mut other = Schema::builder();
    let foreign = other.counter::<Count>("requests", "Requests");
    let mut schema = Schema::builder();
    schema.counter::<Count>("requests", "Requests");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let _ = tree.root().handle(foreign);
}
