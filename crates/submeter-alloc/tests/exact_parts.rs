//! Tests each part of the books by a case that needs it.

use std::alloc::System;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use submeter::{Group, Schema, Tree, switch};
use submeter_alloc::exact::{self, Exact};

#[path = "common/books.rs"]
mod books;
#[path = "../../submeter-percpu/tests/it/witness.rs"]
mod witness;

use books::{Books, books};
use witness::Witness;

#[global_allocator]
static HEAP: Exact<System> = Exact::new(System);

/// Enters a group and works there, beside a thread that reports what the books have of the group:
/// what other threads have posted, without an allocation by the asking thread.
fn watched(books: &Books, group: &Group, work: impl FnOnce(&dyn Fn() -> u64)) {
    const ASKED: u64 = u64::MAX;
    const OVER: u64 = u64::MAX - 1;
    books.heap.set_limit(group, Some(0)).expect("a number");
    let word = AtomicU64::new(0);
    // Relaxed, all: one word, each of whose values is waited for. The books provide their own
    // ordering.
    let ask = || {
        word.store(ASKED, Ordering::Relaxed);
        loop {
            match word.load(Ordering::Relaxed) {
                ASKED => thread::yield_now(),
                answer => break answer,
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                match word.load(Ordering::Relaxed) {
                    ASKED => {
                        let held = exact::admit(group).map_or_else(|over| over.bytes, |()| 0);
                        word.store(held, Ordering::Relaxed);
                    }
                    OVER => break,
                    _ => thread::yield_now(),
                }
            }
        });
        let done = catch_unwind(AssertUnwindSafe(|| group.run(|| work(&ask))));
        word.store(OVER, Ordering::Relaxed);
        done.unwrap_or_else(|panic| resume_unwind(panic));
    });
    assert_eq!(books.of(group), 0);
}

#[test]
fn a_thread_keeps_64_kib_to_itself_and_no_more() {
    const KEPT_MAX: usize = 64 << 10;
    let (books, _alone) = books();
    let a = books.tree.get_or_create("/keeps").expect("room");
    watched(books, &a, |booked| {
        let kept = Vec::<u8>::with_capacity(KEPT_MAX);
        assert_eq!(booked(), 0);
        let one = Vec::<u8>::with_capacity(1);
        assert_eq!(booked(), KEPT_MAX as u64 + 1);
        drop(kept);
        assert_eq!(booked(), KEPT_MAX as u64 + 1);
        drop(one);
        assert_eq!(booked(), 0);
    });
}

#[test]
fn a_thread_that_parks_in_its_group_has_posted() {
    let (books, _alone) = books();
    let a = books.tree.get_or_create("/parks").expect("room");
    watched(books, &a, |booked| {
        let block = vec![0_u8; 5_000];
        assert_eq!(booked(), 0);
        switch::park();
        assert_eq!(booked(), 5_000);
        drop(block);
    });
}

#[test]
fn blocks_in_groups_of_another_tree_are_nobodys() {
    let (books, _alone) = books();
    let other = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
    let (a, there) = (books.tree.create("/mine").expect("new"), other.create("/there"));
    let there = there.expect("new");
    a.run(|| ());
    let (before, numbers) = (books.heap.balance(), books.heap.numbers());
    let block = there.run(|| vec![0_u8; 5_000]);
    assert_eq!((books.heap.balance(), books.heap.numbers()), (before, numbers));
    let mut entered = a.enter();
    entered.switch_to(&there);
    let more = vec![0_u8; 5_000];
    drop(entered);
    assert_eq!((books.of(&a), books.heap.balance()), (0, before));
    drop((block, more));
}

/// What a flush keeps of other groups does not belong to the group that asks for it.
#[test]
fn a_flush_in_a_group_is_not_charged_to_it() {
    const GROUPS: usize = if cfg!(miri) { 20 } else { 500 };
    let (books, _alone) = books();
    let asks = books.tree.create("/asks").expect("new");
    let many = books.tree.create("/asked").expect("new");
    let groups: Vec<_> = (0..GROUPS)
        .map(|n| many.create_child(&format!("g{n}")).expect("new"))
        .inspect(|group| group.run(|| ()))
        .collect();
    asks.run(|| {
        books.heap.flush();
        let _ = books.heap.balance();
    });
    assert_eq!(books.of(&asks), 0);
    drop(groups);
    // Each look of another test at the books would look at them, too.
    many.kill_subtree().expect("alive");
}

#[test]
fn a_group_numbered_beside_others_has_its_number() {
    const GROUPS: usize = if cfg!(miri) { 2 } else { 300 };
    let (books, _alone) = books();
    let groups: Vec<Group> = (0..4 * GROUPS)
        .map(|at| books.tree.get_or_create(&format!("/beside/{at}")).expect("room"))
        .collect();
    let (start, over) = (Barrier::new(4), AtomicBool::new(false));
    let blocks: Vec<Vec<Vec<u8>>> = thread::scope(|scope| {
        let (start, over) = (&start, &over);
        // A thread that locks the numbers repeatedly. Relaxed, here and below: it ends the loop.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = books.heap.numbers();
            }
        });
        let threads: Vec<_> = groups
            .chunks(GROUPS)
            .map(|groups| {
                scope.spawn(move || {
                    start.wait();
                    groups.iter().map(|group| group.run(|| vec![0_u8; 100])).collect()
                })
            })
            .collect();
        let blocks = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        over.store(true, Ordering::Relaxed);
        blocks
    });
    books.heap.flush();
    let missing = groups.iter().filter(|group| group.sum(books.live.bytes) != 100).count();
    assert_eq!(missing, 0, "groups that have no number");
    drop(blocks);
    books.must_balance();
    for group in &groups {
        group.kill().expect("no children");
    }
}

#[test]
fn a_resized_block_is_in_every_look_stress() {
    const LOOKS: u64 = if cfg!(miri) { 3 } else { 50_000 };
    let (books, _alone) = books();
    let a = books.tree.get_or_create("/looked").expect("room");
    let mut block = a.run(|| Vec::<u8>::with_capacity(1_000));
    let (over, resized) = (AtomicBool::new(false), AtomicU64::new(0));
    let amid = Witness::new();
    thread::scope(|scope| {
        // Relaxed, here and below: it ends the loop, and numbers it.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                block.reserve_exact(2_000);
                block.shrink_to(1_000);
                resized.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Fewer where tests before have left many numbers, at each of which a look looks.
        let end = Instant::now() + Duration::from_secs(1);
        let goes_on = |look: &u64| *look < LOOKS && Instant::now() < end || amid.goes_on(*look, 3);
        let look = |_| {
            let before = resized.load(Ordering::Relaxed);
            let booked = books.heap.balance().booked_bytes;
            amid.met(resized.load(Ordering::Relaxed) != before);
            booked
        };
        let least = (0..).take_while(goes_on).map(look).min();
        over.store(true, Ordering::Relaxed);
        amid.assert_met();
        assert!(least >= Some(1_000), "{least:?}");
    });
    drop(block);
    assert_eq!(books.of(&a), 0);
}
