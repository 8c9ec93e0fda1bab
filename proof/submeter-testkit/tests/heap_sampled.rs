//! Blocks of every size and alignment are usable wherever they are, and a signal handler that
//! allocates in the middle of the sampler does no harm. A forked child estimates for itself,
//! although threads of its parent that do not exist in the child were in the middle of sampling.
#![cfg(not(miri))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashSet;
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use submeter_alloc::Sampled;

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
#[path = "common/fork.rs"]
#[expect(unsafe_code, reason = "forks")]
mod fork;
#[path = "common/handler.rs"]
#[expect(unsafe_code, reason = "handles signals")]
mod handler;
#[path = "../../../crates/submeter-percpu/tests/it/met.rs"]
mod met;
#[path = "../../../crates/submeter-alloc/tests/common/samples.rs"]
mod samples;
#[path = "../../../crates/submeter-percpu/tests/it/witness.rs"]
#[expect(dead_code, reason = "shared with tests that Miri runs")]
mod witness;

use anywhere::Anywhere;
use beside::beside;
use fork::{found_in_a_fork, in_a_fork};
use met::until_met;
use samples::{Samples, samples};

#[global_allocator]
static HEAP: Sampled<System> = Sampled::new(System);

/// A second allocator, which a handler may call; it has the same slots and words.
static ANYWHERE: Sampled<Anywhere> = Sampled::new(Anywhere);

/// Allocates there, or frees the block of the last call.
fn anywhere() {
    anywhere::anywhere(&ANYWHERE, Layout::new::<[u64; 16]>());
}

/// Every size and alignment is a block, wherever it goes.
#[test]
fn each_size_and_alignment_is_a_block_anywhere() {
    let (samples, _alone) = samples();
    let [a, b] =
        ["/sizes/a", "/sizes/b"].map(|path| samples.tree.get_or_create(path).expect("room"));
    let sizes =
        (1..=40).chain((6..=24).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]));
    for size in sizes {
        for align in [1, 8, 16, 64, 4096, 8192, 2 << 20] {
            // Often enough that some of each are sampled.
            let times = if size < 8192 && align <= 8192 { 300 } else { 1 };
            let layout = Layout::from_size_align(size, align).expect("valid");
            for _ in 0..times {
                block::lives(&HEAP, layout, [&a, &b], |_| ());
            }
            assert_eq!((samples.of(&a), samples.of(&b)), (0, 0), "{layout:?}");
            assert_eq!((samples.count(&a), samples.count(&b)), (0, 0), "{layout:?}");
        }
    }
}

/// A block allocated before `main` belongs to no group, even if a group frees it.
#[cfg(target_os = "linux")]
#[test]
fn a_block_from_before_main_is_nobodys() {
    let (samples, _alone) = samples();
    let group = samples.tree.get_or_create("/before").expect("room");
    group.run(|| drop(before_main::block()));
    assert_eq!(samples.of(&group), 0);
    samples.must_balance();
}

/// A block of any size that the system grants is a block; a large one is known to the byte.
#[test]
fn random_sizes_and_alignments_are_blocks() {
    const KNOWN: usize = 8 << 10;
    let (samples, _alone) = samples();
    let group = samples.tree.get_or_create("/random").expect("room");
    block::random_lives(&HEAP, &group, 3_000, |layout, bytes| {
        if bytes == 0 || (bytes >= KNOWN && layout.size() >= KNOWN) {
            assert_eq!(samples.of(&group), bytes as i64, "{layout:?}");
        }
    });
}

/// A handler that allocates in the middle does no harm.
#[test]
fn a_handler_in_the_middle_spoils_nothing_stress() {
    /// Frequent enough to interrupt every instruction of a sample.
    const PERIOD_NS: i64 = 20_000;
    const HANDLED_MIN: u64 = 5_000;
    let (samples, _alone) = samples();
    let [a, b] =
        ["/handled/a", "/handled/b"].map(|path| samples.tree.get_or_create(path).expect("room"));
    let handled = Arc::new(AtomicU64::new(0));
    handler::on_signal({
        let (b, handled) = (b.clone(), Arc::clone(&handled));
        move || {
            let entered = b.enter();
            anywhere();
            drop(entered);
            // Relaxed: read when the timer is gone.
            handled.fetch_add(1, Ordering::Relaxed);
        }
    });
    // The first switch of a thread, and of a group, allocates, which a handler must not do.
    a.run(|| b.run(|| (anywhere(), anywhere())));
    let deadline = Instant::now() + Duration::from_secs(60);
    let timer = handler::Timer::on_this_thread(PERIOD_NS).expect("a timer");
    let mut kept = Vec::new();
    // Relaxed: only ends the loop.
    while handled.load(Ordering::Relaxed) < HANDLED_MIN && Instant::now() < deadline {
        // Large enough for about one sample in ten.
        a.run(|| (0..500).for_each(|_| drop(black_box(Vec::<u8>::with_capacity(6_000)))));
        if kept.len() < 10_000 {
            kept.push(a.run(|| black_box(Vec::<u8>::with_capacity(3_000))));
        }
    }
    drop(timer);
    let handled = handled.load(Ordering::Relaxed);
    if handled % 2 == 1 {
        anywhere();
    }
    assert!(handled >= HANDLED_MIN, "{handled} signals");
    samples.must_be_near(&a, 3_000 * kept.len() as i64);
    drop(kept);
    assert_eq!((samples.of(&a), samples.of(&b)), (0, 0));
    assert_eq!((samples.count(&a), samples.count(&b)), (0, 0));
}

/// Blocks that are too much aligned for a slot are known, as they come, go and change.
#[test]
#[expect(unsafe_code, reason = "calls an allocator")]
fn aligned_blocks_are_known_to_the_byte() {
    let (samples, _alone) = samples();
    let a = samples.tree.create("/aligned").expect("new");
    for (size, align) in [(4_096, 8_192), (4_096, 16_384), (100, 1 << 20)] {
        let [layout, larger, more] = [size, 2 * size, 9_000]
            .map(|size| Layout::from_size_align(size, align).expect("valid"));
        // SAFETY: the sizes are not 0, and each block is used with the layout that it has.
        unsafe {
            let mut blocks: Vec<_> = (0..300)
                .map(|n| {
                    a.run(
                        || if n % 2 == 0 { HEAP.alloc(layout) } else { HEAP.alloc_zeroed(layout) },
                    )
                })
                .collect();
            assert_eq!((samples.of(&a), samples.count(&a)), (300 * size as i64, 0));
            for (from, to) in [(layout, larger), (larger, more), (more, layout)] {
                blocks.iter_mut().for_each(|block| *block = HEAP.realloc(*block, from, to.size()));
                assert!(blocks.iter().all(|block| block.addr().is_multiple_of(align)));
                assert_eq!((samples.of(&a), samples.count(&a)), (300 * to.size() as i64, 0));
            }
            blocks.into_iter().for_each(|block| HEAP.dealloc(block, layout));
        }
        assert_eq!(samples.of(&a), 0);
    }
    assert_eq!(samples.tree.root().sum(samples.live.lacking), 0);
}

/// A forked child estimates for itself while others are sampled.
#[test]
fn a_forked_child_estimates_for_itself() {
    let (samples, _alone) = samples();
    let Samples { tree, live, heap } = samples;
    let [own, others] = ["/own", "/others"].map(|path| tree.create(path).expect("new"));
    let held = own.run(|| vec![0_u8; 50_000]);
    let allocates = || drop(others.run(|| black_box(vec![0_u8; 5_000])));
    beside(&[&allocates, &allocates], |amid| {
        until_met(50, || {
            let mut entered = Some(own.enter());
            let mut before = Some(black_box(vec![0_u8; 10_000]));
            let met = found_in_a_fork(|| {
                let amid = amid();
                let more = black_box(vec![0_u8; 9_000]);
                drop(before.take());
                drop(entered.take());
                let new = tree.create("/new").expect("new");
                let there = new.run(|| black_box(vec![[0_u8; 9_000]; 1]));
                let small: Vec<Vec<u8>> = new.run(|| {
                    let mut all = Vec::with_capacity(1_000);
                    all.extend((0..1_000).map(|_| black_box(Vec::with_capacity(5_000))));
                    all
                });
                heap.flush();
                // The child's small blocks may be sampled: none is held except those that the tree
                // knows about.
                assert!(own.sum(live.bytes) >= 59_000 && new.sum(live.samples) > 0);
                drop((more, there, small));
                heap.flush();
                assert_eq!((new.sum(live.bytes), new.sum(live.samples)), (0, 0));
                Some(amid)
            });
            drop(before);
            drop(entered);
            heap.flush();
            let own = own.sum(live.bytes);
            assert!(own >= 50_000, "{own} bytes");
            met.expect("the child")
        });
    });
    drop(held);
    assert_eq!(samples.of(&others), 0);
    samples.must_balance();
}

/// Children of one parent have different samples: their errors must not add up.
#[test]
fn forked_children_draw_places_of_their_own() {
    const CHILDREN: usize = 8;
    let (samples, _alone) = samples();
    let group = samples.tree.create("/workers").expect("new");
    let first_sample = |blocks: &mut Vec<Vec<u8>>| {
        let before = samples.count(&group);
        let is_new = |_: &usize| {
            blocks.push(group.run(|| black_box(Vec::with_capacity(500))));
            samples.count(&group) != before
        };
        (0..10_000).find(is_new).expect("one in 131 blocks")
    };
    let mut blocks = Vec::with_capacity(20_000);
    // The parent has drawn before.
    first_sample(&mut blocks);
    let firsts: HashSet<[u8; 8]> = (0..CHILDREN)
        .map(|_| {
            let (mut here, mut there) = UnixStream::pair().expect("descriptors");
            let passed = in_a_fork(|| {
                let first = first_sample(&mut blocks) as u64;
                there.write_all(&first.to_ne_bytes()).is_ok()
            });
            assert!(passed);
            let mut first = [0; 8];
            here.read_exact(&mut first).expect("written");
            first
        })
        .collect();
    assert!(firsts.len() >= CHILDREN / 2, "{firsts:?}");
}
