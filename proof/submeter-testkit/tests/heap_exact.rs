//! Blocks know their owners at every size and alignment, even if a signal handler allocates and
//! switches in the middle of an allocation. A forked child keeps books of its own, which include
//! the blocks that it inherits, although threads of the parent that do not exist in the child were
//! in the middle of allocating or flushing.
#![cfg(not(miri))]
#![expect(unsafe_code, reason = "sets an alarm in a child")]

use std::alloc::{Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use submeter_alloc::exact::Exact;

#[path = "common/anywhere.rs"]
#[expect(unsafe_code, reason = "is an allocator")]
mod anywhere;
#[path = "common/before_main.rs"]
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "is called by the C library")]
mod before_main;
#[path = "common/beside.rs"]
mod beside;
#[path = "common/block.rs"]
#[expect(unsafe_code, reason = "asks for alignments")]
mod block;
#[path = "../../../crates/submeter-alloc/tests/common/books.rs"]
mod books;
#[path = "common/fork.rs"]
#[expect(unsafe_code, reason = "forks")]
#[expect(dead_code, reason = "each uses one of its two functions")]
mod fork;
#[path = "common/handler.rs"]
#[expect(unsafe_code, reason = "handles signals")]
mod handler;
#[path = "../../../crates/submeter-percpu/tests/it/met.rs"]
mod met;
#[path = "../../../crates/submeter-percpu/tests/it/witness.rs"]
#[expect(dead_code, reason = "shared with tests that Miri runs")]
mod witness;

use anywhere::Anywhere;
use beside::beside;
use books::{Books, books};
use fork::found_in_a_fork;
use met::until_met;

#[global_allocator]
static HEAP: Exact<System> = Exact::new(System);

/// A second allocator, which a handler may call.
static ANYWHERE: Exact<Anywhere> = Exact::new(Anywhere);

/// Allocates there, or frees the block of the last call.
fn anywhere() {
    anywhere::anywhere(&ANYWHERE, Layout::new::<u64>());
}

#[test]
fn each_size_and_alignment_has_owner_and_bytes() {
    let (books, _alone) = books();
    let [a, b] = ["/sizes/a", "/sizes/b"].map(|path| books.tree.get_or_create(path).expect("room"));
    let sizes =
        (1..=130).chain((7..=24).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]));
    for size in sizes {
        for align in [1, 8, 16, 32, 64, 4096, 2 << 20] {
            if align > 4096 && size % 7 != 0 {
                continue;
            }
            let layout = Layout::from_size_align(size, align).expect("valid");
            block::lives(&HEAP, layout, [&a, &b], |bytes| {
                // It keeps its owner.
                assert_eq!((books.of(&a), books.of(&b)), (bytes as i64, 0), "{layout:?}");
            });
        }
    }
}

/// A block allocated before `main` belongs to no group, even if a group frees it.
#[cfg(target_os = "linux")]
#[test]
fn a_block_from_before_main_is_nobodys() {
    let (books, _alone) = books();
    let group = books.tree.get_or_create("/before").expect("room");
    group.run(|| drop(before_main::block()));
    assert_eq!(books.of(&group), 0);
    books.must_balance();
}

/// A block of any size that the system grants is counted to the byte.
#[test]
fn random_sizes_and_alignments_are_exact() {
    let (books, _alone) = books();
    let group = books.tree.get_or_create("/random").expect("room");
    block::random_lives(&HEAP, &group, 3_000, |layout, bytes| {
        assert_eq!(books.of(&group), bytes as i64, "{layout:?}");
    });
}

/// A handler that allocates and switches leaves the books exact.
#[test]
fn an_allocating_handler_is_exact_stress() {
    /// Frequent enough to interrupt every instruction of a count.
    const PERIOD_NS: i64 = 20_000;
    const HANDLED_MIN: u64 = 5_000;
    let (books, _alone) = books();
    let [a, b] =
        ["/handled/a", "/handled/b"].map(|path| books.tree.get_or_create(path).expect("room"));
    let handled = Arc::new(AtomicU64::new(0));
    handler::on_signal({
        let (b, handled) = (b.clone(), Arc::clone(&handled));
        move || {
            // One handler allocates, in the group that it interrupts if that is in the middle of a
            // switch, and the next one frees.
            let entered = b.enter();
            anywhere();
            drop(entered);
            // Relaxed: read when the timer is gone.
            handled.fetch_add(1, Ordering::Relaxed);
        }
    });
    // The first switch of a thread, and of a group, allocates, which a handler must not do; so does
    // the first block in a region.
    a.run(|| b.run(|| (anywhere(), anywhere())));
    let before = books.of(&a);
    let deadline = Instant::now() + Duration::from_secs(60);
    let timer = handler::Timer::on_this_thread(PERIOD_NS).expect("a timer");
    let mut kept = Vec::with_capacity(1 << 20);
    let block = || black_box(Vec::<u8>::with_capacity(24));
    // Relaxed: only ends the loop.
    while handled.load(Ordering::Relaxed) < HANDLED_MIN && Instant::now() < deadline {
        // Few enough bytes that the thread keeps them for a long time, and is interrupted while it
        // does.
        a.run(|| (0..500).for_each(|_| drop(block())));
        // The thread posts what it keeps at each switch.
        for _ in 0..500 {
            let posted = a.run(block);
            a.run(|| drop(posted));
        }
        kept.push(a.run(|| black_box(Box::new(7_u8))));
    }
    drop(timer);
    let handled = handled.load(Ordering::Relaxed);
    if handled % 2 == 1 {
        anywhere();
    }
    assert!(handled >= HANDLED_MIN, "{handled} signals");
    assert_eq!((books.of(&a) - before, books.of(&b)), (kept.len() as i64, 0));
    drop(kept);
    assert_eq!((books.of(&a) - before, books.of(&b)), (0, 0));
}

/// A forked child keeps books of its own while others allocate.
#[test]
fn a_forked_child_keeps_books_of_its_own() {
    let (books, _alone) = books();
    let Books { tree, live, heap } = books;
    let [own, others] = ["/own", "/others"].map(|path| tree.create(path).expect("new"));
    let held = own.run(|| vec![0_u8; 5_000]);
    let allocates = || drop(others.run(|| black_box(vec![0_u8; 100])));
    beside(&[&allocates, &allocates], |amid| {
        until_met(50, || {
            let mut entered = Some(own.enter());
            let mut before = Some(black_box(vec![0_u8; 1_000]));
            let met = found_in_a_fork(|| {
                let amid = amid();
                let more = black_box(vec![0_u8; 50]);
                drop(before.take());
                drop(entered.take());
                let new = tree.create("/new").expect("new");
                let there = new.run(|| black_box(vec![0_u8; 7]));
                heap.flush();
                assert_eq!((own.sum(live.bytes), new.sum(live.bytes)), (5_050, 7));
                drop((more, there));
                heap.flush();
                assert_eq!((own.sum(live.bytes), new.sum(live.bytes)), (5_000, 0));
                Some(amid)
            });
            drop(before);
            drop(entered);
            heap.flush();
            assert_eq!(own.sum(live.bytes), 5_000);
            met.expect("the child")
        });
    });
    drop(held);
    assert_eq!((books.of(&own), books.of(&others)), (0, 0));
    books.must_balance();
}

/// A forked child ends a flush that a thread of its parent was in, and continues.
#[test]
fn a_forked_child_ends_its_parents_flush() {
    // A child waits for a quarter of a second before it gives up what a thread has left.
    const FORKS: u32 = 4;
    let (books, _alone) = books();
    let Books { tree, heap, .. } = books;
    let own = tree.create("/forks").expect("new");
    own.run(|| ());
    let flushes = || heap.flush();
    let numbers = || {
        let group = tree.get_or_create("/forks/new").expect("room");
        group.run(|| ());
        group.kill().expect("no children");
    };
    beside(&[&flushes, &numbers], |amid| {
        until_met(FORKS, || {
            let met = found_in_a_fork(|| {
                let amid = amid();
                // SAFETY: asks for a signal that ends a child that hangs.
                unsafe { libc::alarm(10) };
                let block = own.run(|| black_box(vec![0_u8; 100]));
                heap.flush();
                drop(block);
                heap.flush();
                Some(amid)
            });
            met.expect("the child")
        });
    });
    books.must_balance();
}
