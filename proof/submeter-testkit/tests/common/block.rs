//! The life of a block.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;

use submeter::Group;

/// Allocates a block for `a`, grows it for `b`, shrinks it for no group, and frees it for `b`.
/// Calls `held` with its size at each step, and then with 0.
pub(crate) fn lives(
    heap: &impl GlobalAlloc,
    layout: Layout,
    [a, b]: [&Group; 2],
    held: impl Fn(usize),
) {
    let (size, align) = (layout.size(), layout.align());
    let sized = |size| Layout::from_size_align(size, align).expect("valid");
    let (larger, smaller) = (sized(2 * size + 1), sized(size.div_ceil(2)));
    let is_block = |block: *mut u8| !block.is_null() && block.addr().is_multiple_of(align);
    // SAFETY: 1. No size is 0. 2. The block has the given layout each time, and what is read of it
    // was written.
    unsafe {
        let ends = |block: *mut u8, size: usize| (block.read(), block.add(size - 1).read());
        let block = a.run(|| heap.alloc_zeroed(layout));
        assert!(is_block(block), "{layout:?}");
        assert_eq!(ends(block, size), (0, 0), "{layout:?}");
        block.write_bytes(7, size);
        held(size);
        let block = b.run(|| heap.realloc(block, layout, larger.size()));
        assert!(is_block(block), "{layout:?}");
        assert_eq!(ends(block, size), (7, 7), "{layout:?}");
        block.write_bytes(7, larger.size());
        held(larger.size());
        let block = heap.realloc(block, larger, smaller.size());
        assert!(is_block(block), "{layout:?}");
        assert_eq!(ends(block, smaller.size()), (7, 7), "{layout:?}");
        held(smaller.size());
        b.run(|| heap.dealloc(block, smaller));
    }
    held(0);
}

/// The life of blocks of random sizes up to 2^40 and alignments up to 2 MiB, which are never
/// written to. The system may refuse them. Calls `held` with a block's layout and size at each
/// step, and then with 0.
pub(crate) fn random_lives(
    heap: &impl GlobalAlloc,
    group: &Group,
    blocks: usize,
    held: impl Fn(Layout, usize),
) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut size = |from: u32| (random.u64(..) >> random.u32(from..64)) as usize;
    let mut largest = 0;
    for _ in 0..blocks {
        let (now, then, align) = (size(24) + 1, size(24) + 1, 1 << (size(59) % 22));
        let layout = Layout::from_size_align(now, align).expect("valid");
        // SAFETY: 1. No size is 0. 2. The block is freed once, with the layout that it has then.
        unsafe {
            let block = group.run(|| heap.alloc(layout));
            if block.is_null() {
                held(layout, 0);
                continue;
            }
            largest = largest.max(now);
            assert!(block.addr().is_multiple_of(align), "{layout:?}");
            held(layout, now);
            // Larger alignments are resized by a copy, which would take the memory.
            let moved = if align <= 16 { heap.realloc(block, layout, then) } else { null_mut() };
            let is_moved = !moved.is_null();
            let (block, now) = if is_moved { (moved, then) } else { (block, now) };
            held(layout, now);
            heap.dealloc(block, Layout::from_size_align(now, align).expect("valid"));
        }
        held(layout, 0);
    }
    assert!(largest > 1 << 28, "the largest had {largest} bytes");
}
