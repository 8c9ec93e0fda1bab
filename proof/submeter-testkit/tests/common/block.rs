//! The life of a block of one size and alignment.

use std::alloc::{GlobalAlloc, Layout};

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
