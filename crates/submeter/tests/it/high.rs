//! Usage above which callers are asked to pause.

use std::time::Duration;

use submeter::export::Export;
use submeter::{Bytes, Count, Quota, Schema, Tree};

fn tree() -> (Tree, [Quota<Bytes>; 2]) {
    let mut schema = Schema::builder();
    schema.counter::<Count>("requests", "Requests");
    let quotas = ["disk", "memory"].map(|name| schema.quota::<Bytes>(name, "Held"));
    (Tree::new(schema.build().expect("valid")).expect("room"), quotas)
}

/// A caller pauses for the group that is farthest above its own `high`.
#[test]
fn a_pause_is_for_the_farthest_above_high() {
    let (tree, [disk, memory]) = tree();
    let [a, b, c] = ["/a", "/a/b", "/a/c"].map(|path| tree.get_or_create(path).expect("room"));
    a.set_high(memory, Some(1000));
    b.set_high(memory, Some(1000));
    assert_eq!(b.pause(memory), None);
    let held = [&b, &c].map(|group| group.try_charge(memory, 1050).expect("high refuses nothing"));

    let [short, long] = [Duration::from_millis(160), Duration::from_secs(2)];
    assert_eq!((b.pause(memory), c.pause(memory)), (Some(long), Some(long)), "/a is at 2100");
    a.set_high(memory, Some(2100));
    assert_eq!((b.pause(memory), c.pause(memory)), (Some(short), None), "/a/b is at 1050");
    assert_eq!((b.pause(disk), tree.root().pause(memory)), (None, None));
    let paused = |quota| [tree.root(), &a, &b, &c].map(|group| group.usage(quota).counts.paused);
    assert_eq!((paused(memory), paused(disk)), ([0, 2, 2, 0], [0; 4]));
    assert_eq!(b.usage(memory).high, Some(1000));

    a.set_high(memory, Some(2000));
    b.set_high(memory, Some(500));
    assert_eq!((b.pause(memory), c.pause(memory)), (Some(long), Some(short)), "both are above");

    a.set_high(memory, None);
    b.set_high(memory, None);
    assert_eq!((b.pause(memory), b.usage(memory).high), (None, None));
    drop(held);
}

#[test]
fn stock_that_nobody_holds_makes_nobody_pause() {
    let (tree, [_, memory]) = tree();
    let group = tree.create("/a").expect("room");
    group.set_high(memory, Some(2 << 20));
    let held = [0; 2].map(|_| group.try_charge(memory, 1 << 20).expect("no limit"));
    assert_eq!(group.usage(memory).current, 2 << 20);
    assert_eq!((group.pause(memory), group.usage(memory).counts.paused), (None, 0));
    drop(held);
}

#[test]
fn pauses_are_exported_for_each_group() {
    let (tree, [_, memory]) = tree();
    let group = tree.create("/a").expect("room");
    group.set_high(memory, Some(100));
    let held = group.try_charge(memory, 150).expect("no limit");
    assert!(group.pause(memory).is_some() && group.pause(memory).is_some());
    let mut text = String::new();
    Export::new("").write(&tree, &mut text).expect("a string");
    assert!(text.contains("memory_paused_total{group=\"/a\"} 2\n"), "{text}");
    assert!(text.contains("disk_paused_total{group=\"/a\"} 0\n"), "{text}");
    assert!(text.contains("memory_refused_total{group=\"/a\"} 0\n"), "{text}");
    drop(held);
}
