//! Compares the estimates with a ledger that knows each block.

use std::alloc::System;
use std::hint::black_box;
use std::thread;

use submeter_alloc::exact::Exact;
use submeter_alloc::sampled::Heap;
use submeter_alloc::{Sampled, StartError};

#[path = "common/lists.rs"]
mod lists;
#[path = "common/operations.rs"]
mod operations;
#[path = "common/samples.rs"]
mod samples;
#[path = "common/storm.rs"]
mod storm;
#[path = "../../submeter-percpu/tests/it/witness.rs"]
mod witness;

use operations::operations;
use samples::samples;
use storm::{Block, ChangeOne, storm};

#[global_allocator]
static HEAP: Sampled<System> = Sampled::new(System);

fn block(size: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(size))
}

/// Gives a block this capacity, or none.
fn resize(block: &mut Vec<u8>, size: usize) {
    if size > block.capacity() {
        block.reserve_exact(size);
    } else {
        block.shrink_to(size);
    }
    assert_eq!(block.capacity(), size);
}

/// A process has one heap, for the linked allocator.
#[test]
fn a_process_has_one_heap_as_linked() {
    let (samples, _alone) = samples();
    let error = Heap::start(&samples.tree, samples.live).expect_err("the second");
    assert!(matches!(error, StartError::Twice), "{error}");
    assert!(Sampled::<System>::is_linked());
    assert!(!Exact::<System>::is_linked());
}

/// Large blocks are known to the byte, wherever they are freed.
#[test]
fn large_blocks_are_known_to_the_byte() {
    let (samples, _alone) = samples();
    let [a, b] =
        ["/large/a", "/large/b"].map(|path| samples.tree.get_or_create(path).expect("room"));
    let [mine, there, outside] = a.run(|| [8 << 10, 100_000, 3 << 20].map(block));
    assert_eq!(samples.of(&a), (8 << 10) + 100_000 + (3 << 20));
    a.run(|| drop(mine));
    assert_eq!(samples.of(&a), 100_000 + (3 << 20));
    b.run(|| thread::scope(|scope| _ = scope.spawn(move || drop(there)).join()));
    assert_eq!(samples.of(&a), 3 << 20);
    let mut outside = outside;
    // Its owner stays the same when another group changes its size.
    b.run(|| resize(&mut outside, 9 << 20));
    assert_eq!((samples.of(&a), samples.of(&b)), (9 << 20, 0));
    resize(&mut outside, 10_000);
    assert_eq!(samples.of(&a), 10_000);
    drop(outside);
    assert_eq!((samples.of(&a), samples.of(&b), samples.count(&a)), (0, 0, 0));
    samples.must_balance();
}

#[test]
fn a_block_is_known_as_long_as_it_is_large() {
    let (samples, _alone) = samples();
    let a = samples.tree.get_or_create("/crosses").expect("room");
    let blocks = if cfg!(miri) { 80 } else { 200 };
    let mut all: Vec<Vec<u8>> = (0..blocks).map(|_| a.run(|| block(8_000))).collect();
    a.run(|| all.iter_mut().for_each(|block| resize(block, 9_000)));
    assert_eq!((samples.of(&a), samples.count(&a)), (blocks * 9_000, 0));
    all.iter_mut().for_each(|block| resize(block, 5_000));
    samples.must_be_near(&a, blocks * 5_000);
    assert!((1..100).contains(&samples.count(&a)), "about one in thirteen");
    all.clear();
    assert_eq!((samples.of(&a), samples.count(&a)), (0, 0));
}

/// Estimates of small blocks of every size are close, and end when the blocks are freed.
#[test]
fn small_blocks_are_near_and_gone_when_they_are() {
    const BYTES: usize = if cfg!(miri) { 100_000 } else { 20_000_000 };
    let (samples, _alone) = samples();
    let a = samples.tree.get_or_create("/small").expect("room");
    for size in [1, 16, 24, 100, 1_000, 4_097, 8_191] {
        if size < 100 && cfg!(miri) {
            continue;
        }
        let blocks = BYTES / size.max(16);
        let all: Vec<Vec<u8>> = a.run(|| {
            let mut all = Vec::with_capacity(blocks);
            all.extend((0..blocks).map(|_| block(size)));
            all
        });
        let list = blocks * size_of::<Vec<u8>>();
        samples.must_be_near(&a, (blocks * size + list) as i64);
        drop(all);
        assert_eq!((samples.of(&a), samples.count(&a)), (0, 0), "{size}");
    }
}

#[test]
fn a_block_that_grows_is_shared_by_its_askers() {
    let (samples, _alone) = samples();
    let [a, b] =
        ["/grown/a", "/grown/b"].map(|path| samples.tree.get_or_create(path).expect("room"));
    let blocks = if cfg!(miri) { 20 } else { 20_000 };
    let mut all: Vec<Vec<u8>> = (0..blocks).map(|_| a.run(|| block(500))).collect();
    b.run(|| all.iter_mut().for_each(|block| resize(block, 1_500)));
    // To first order: a sample of the 500 also covers the 1,000, and stands for a whole interval.
    samples.must_be_near(&a, blocks * 500);
    samples.must_be_near(&b, blocks * 1_000);
    b.run(|| all.iter_mut().for_each(|block| resize(block, 100)));
    let both = samples.tree.get("/grown").expect("made");
    samples.must_be_near(&both, blocks * 100);
    drop(all);
    assert_eq!((samples.of(&both), samples.count(&both)), (0, 0));
}

const LONGEST: usize = 20_000;

/// Bytes that differ from place to place.
static BYTES: [u8; LONGEST] = {
    let mut bytes = [0; LONGEST];
    let mut at = 0;
    while at < LONGEST {
        bytes[at] = (at % 251) as u8;
        at += 1;
    }
    bytes
};

#[test]
fn bytes_stay_the_same_wherever_a_block_goes() {
    let (samples, _alone) = samples();
    let a = samples.tree.get_or_create("/bytes").expect("room");
    let mut random = fastrand::Rng::with_seed(7);
    let _entered = a.enter();
    let rounds = if cfg!(miri) { 1 } else { 3_000 };
    for round in 0..rounds {
        let mut bytes: Vec<u8> = Vec::new();
        for step in 0..6 {
            let len = 1 + random.usize(..if step % 2 == 0 { LONGEST } else { 6_000 });
            let kept = bytes.len().min(len);
            bytes.truncate(len);
            bytes.shrink_to_fit();
            bytes.reserve_exact(len - kept);
            bytes.extend_from_slice(&BYTES[kept..len]);
            assert!(bytes == BYTES[..len], "round {round}, {len} bytes");
        }
        assert!(vec![0_u8; 1 + round].iter().all(|byte| *byte == 0));
    }
}

/// Memory that outlives its tenant belongs to the parent until it is freed.
#[test]
fn memory_that_outlives_its_tenant_goes_up() {
    let (samples, _alone) = samples();
    let top = samples.tree.get_or_create("/outlives").expect("room");
    let below = samples.tree.create("/outlives/tenant").expect("new");
    let blocks = if cfg!(miri) { 200 } else { 1_000 };
    let small: Vec<Vec<u8>> = below.run(|| (0..blocks).map(|_| block(6_000)).collect());
    let large = below.run(|| block(50_000));
    let (bytes, count) = (samples.of(&below), samples.count(&below));
    assert!(bytes > 50_000 && count > 0);
    below.kill().expect("no children");
    drop(below);
    assert_eq!((samples.of(&top), samples.count(&top)), (bytes, count));
    drop(small);
    drop(large);
    assert_eq!((samples.of(&top), samples.count(&top)), (0, 0));
    samples.must_balance();
}

#[test]
fn what_is_nobodys_is_not_counted() {
    let (samples, _alone) = samples();
    let before = samples.tree.root().sum(samples.live.bytes);
    let blocks = if cfg!(miri) { 200 } else { 1_000 };
    let all: Vec<Vec<u8>> = (0..blocks).map(|n| block(100 * (n % 200))).collect();
    samples.heap.flush();
    assert_eq!(samples.tree.root().sum(samples.live.bytes), before);
    let a = samples.tree.get_or_create("/else").expect("room");
    a.run(|| drop(all));
    assert_eq!(samples.of(&a), 0);
    assert_eq!(samples.tree.root().sum(samples.live.lacking), 0);
}

#[test]
fn numbers_come_back_once_samples_are_gone() {
    let (samples, _alone) = samples();
    let many = samples.tree.create("/many").expect("new");
    let mut numbers = Vec::new();
    for _ in 0..3 {
        for tenant in 0..if cfg!(miri) { 3 } else { 50 } {
            let group = samples.tree.create(&format!("/many/t{tenant}")).expect("new");
            let blocks = group.run(|| [block(5_000), block(9_000), block(70_000)]);
            group.kill().expect("no children");
            drop(group);
            drop(blocks);
        }
        samples.heap.flush();
        numbers.push(samples.heap.numbers());
    }
    assert_eq!(numbers[2], numbers[1], "no more than in the round before: {numbers:?}");
    assert_eq!((samples.of(&many), samples.count(&many)), (0, 0));
}

const HELD: usize = 2_000;

/// Allocates, grows, shrinks or frees.
fn change_one(own: &mut Vec<Block>, at: usize, random: &mut fastrand::Rng) {
    match random.u32(..8) {
        0..4 if own.len() < HELD => {
            let size = 1 + (random.usize(..1 << 15) >> random.u32(..12));
            own.push((block(size), at));
        }
        4..6 if !own.is_empty() => {
            let any = random.usize(..own.len());
            let (block, _) = &mut own[any];
            let half = block.capacity().div_ceil(2);
            resize(block, half + random.usize(..1_000));
        }
        _ => drop(own.pop()),
    }
}

#[test]
fn frees_by_other_threads_leave_nothing_stress() {
    let (samples, _alone) = samples();
    let top = samples.tree.get_or_create("/storm").expect("room");
    let change = (HELD, change_one as ChangeOne);
    let (blocks, _) = storm(&samples.tree, || samples.heap.flush(), change, operations(400));
    // Everything left belongs to the groups, and all of it is taken off again.
    let truth: i64 = blocks.iter().map(|(block, _)| block.capacity() as i64).sum();
    samples.must_be_near(&top, truth);
    samples.must_balance();
    drop(blocks);
    assert_eq!((samples.of(&top), samples.count(&top)), (0, 0));
    samples.must_balance();
}
