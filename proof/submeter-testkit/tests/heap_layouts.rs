//! What an allocator that knows owners requests from the underlying one, and where it writes.
#![cfg(not(miri))]
#![expect(unsafe_code, reason = "calls allocators with layouts of its own")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use submeter::Group;
use submeter_alloc::exact::Exact;

#[path = "../../../crates/submeter-alloc/tests/common/books.rs"]
mod books;

use books::{Books, books};

#[global_allocator]
static HEAP: Exact<System> = Exact::new(System);

/// The first groups of the process, whose numbers one byte can name.
fn first(books: &Books) -> [Group; 2] {
    ["/first/a", "/first/b"].map(|path| {
        let group = books.tree.get_or_create(path).expect("room");
        group.run(|| ());
        group
    })
}

/// An allocator that takes each block back only with its own layout, and refuses requests for a
/// block that is too small or insufficiently aligned for the map.
struct Strict;

static STRICT: Exact<Strict> = Exact::new(Strict);

/// The total amount that it hands out.
const GIVEN_MAX: usize = 1 << 20;

/// The content after each block.
const FENCE: u8 = 0xA5;
const FENCE_BYTES: usize = 16;

fn with_fence(layout: Layout) -> Layout {
    Layout::from_size_align(layout.size() + FENCE_BYTES, layout.align()).expect("it is small")
}

/// The blocks in use: two while one is being replaced. An array, because a list would itself
/// allocate.
static KNOWN: Mutex<[Option<(usize, Layout)>; 2]> = Mutex::new([None; 2]);

/// Replaces one entry by another.
fn known(from: Option<(usize, Layout)>, to: Option<(usize, Layout)>) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = known.iter_mut().find(|entry| **entry == from);
    *entry.expect("a block goes back with the layout that it came with") = to;
}

// SAFETY: 1. All is passed on to the system's allocator. 2. What panics is a test that has failed.
unsafe impl GlobalAlloc for Strict {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        assert!(layout.size() >= 16 && layout.align() >= 16, "{layout:?}");
        if layout.size() > GIVEN_MAX {
            return std::ptr::null_mut();
        }
        // SAFETY: 1. The caller's promise. 2. The block is larger by what is written behind it.
        let block = unsafe {
            let block = System.alloc(with_fence(layout));
            block.add(layout.size()).write_bytes(FENCE, FENCE_BYTES);
            block
        };
        known(None, Some((block.addr(), layout)));
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        known(Some((block.addr(), layout)), None);
        // SAFETY: 1. The caller's promise, which was looked at. 2. As above.
        unsafe {
            let fence = std::slice::from_raw_parts(block.add(layout.size()), FENCE_BYTES);
            assert_eq!(fence, [FENCE; FENCE_BYTES], "nobody wrote behind {layout:?}");
            System.dealloc(block, with_fence(layout));
        }
    }
}

/// A block goes back with the requested layout, and stays the same if it cannot grow.
#[test]
fn a_block_goes_back_as_it_was_asked_for() {
    const GROUPS: usize = 300;
    let (books, _alone) = books();
    // The owner of the last one has a number that a byte cannot hold.
    let [low, _] = first(books);
    let groups: Vec<Group> = (0..GROUPS)
        .map(|at| books.tree.get_or_create(&format!("/strict/{at}")).expect("room"))
        .collect();
    groups.iter().for_each(|group| group.run(|| ()));
    let sizes = [1, 8, 15, 16, 17, 18, 32, 33, 1_000];
    for group in [&low, &groups[GROUPS - 1]] {
        for (size, new) in sizes.iter().flat_map(|&size| sizes.map(|new| (size, new))) {
            let [layout, other] = [size, new].map(|size| Layout::from_size_align(size, 1));
            let [layout, other] = [layout, other].map(|layout| layout.expect("valid"));
            // SAFETY: 1. No size is 0, and each block is freed once, with the layout that it has.
            unsafe {
                let block = group.run(|| STRICT.alloc(layout));
                block.write_bytes(9, size);
                assert!(STRICT.realloc(block, layout, 2 * GIVEN_MAX).is_null());
                assert_eq!(books.of(group), size as i64, "it is where and whose it was");
                let block = STRICT.realloc(block, layout, new);
                assert!((0..size.min(new)).all(|at| block.add(at).read() == 9));
                assert_eq!(books.of(group), new as i64, "{size} to {new}");
                STRICT.dealloc(block, other);
            }
            assert_eq!(books.of(group), 0, "{size} to {new}");
        }
    }
    assert_eq!(*KNOWN.lock().unwrap_or_else(PoisonError::into_inner), [None; 2]);
    for group in &groups {
        group.kill().expect("no children");
    }
}

/// An allocator whose blocks of 16 bytes are adjacent, the last one first.
struct SideBySide;

#[repr(align(32))]
struct Pair([AtomicU64; 4]);

static PAIR: Pair = Pair([const { AtomicU64::new(0) }; 4]);
static SIDE_BY_SIDE: Exact<SideBySide> = Exact::new(SideBySide);

// SAFETY: 1. Each of the two blocks is given once, and is as large and aligned as the one layout
// that the test asks for.
unsafe impl GlobalAlloc for SideBySide {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        static GIVEN: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the test's one thread.
        let given = GIVEN.fetch_add(1, Ordering::Relaxed) as usize;
        PAIR.0[2 - 2 * given..].as_ptr().cast_mut().cast()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[test]
fn a_block_of_16_bytes_keeps_neighbours_owners() {
    let (books, _alone) = books();
    let [a, b] = first(books);
    let layout = Layout::from_size_align(16, 16).expect("valid");
    // SAFETY: 1. The size is not 0, and each block is freed once, as it came.
    unsafe {
        let last = a.run(|| SIDE_BY_SIDE.alloc(layout));
        let first = b.run(|| SIDE_BY_SIDE.alloc(layout));
        assert_eq!((books.of(&a), books.of(&b)), (16, 16));
        SIDE_BY_SIDE.dealloc(first, layout);
        assert_eq!((books.of(&a), books.of(&b)), (16, 0));
        SIDE_BY_SIDE.dealloc(last, layout);
    }
    assert_eq!((books.of(&a), books.of(&b)), (0, 0));
    books.must_balance();
}
