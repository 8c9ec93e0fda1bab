//! The allocator that is on no rung until one is chosen.
#![allow(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;

use super::{Rung, chosen};
use crate::exact::{Exact, SIZE_MAX, disown, fit};
use crate::sampled::Sampled;

/// An allocator that becomes a [`Sampled`] or an [`Exact`] when one of their `Heap`s is started,
/// and passes blocks through until then: for programs that are told at start-up what to track.
///
/// Blocks allocated before then have no owner. Each block takes at least 16 bytes, as with `Exact`.
/// On top of the rung's own cost, a block costs a load, a comparison and a call; before one is
/// chosen, an allocation costs two loads and comparisons. A program that always uses the same
/// allocator should use that one directly.
///
/// # Examples
/// ```
/// use std::alloc::System;
/// use submeter::{Schema, Tree};
/// use submeter_alloc::{Chosen, exact, sampled};
///
/// #[global_allocator]
/// static HEAP: Chosen<System> = Chosen::new(System);
///
/// enum Heap {
///     Sampled(sampled::Heap),
///     Exact(exact::Heap),
/// }
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let heap = match std::env::args().nth(1).as_deref() {
///     Some("exact") => Heap::Exact(exact::Heap::start(&tree, tree.declare()?)?),
///     _ => Heap::Sampled(sampled::Heap::start(&tree, tree.declare()?)?),
/// };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Chosen<A> {
    inner: A,
}

impl<A> Chosen<A> {
    /// Passes blocks to `inner`, as every rung does.
    pub const fn new(inner: A) -> Chosen<A> {
        Chosen { inner }
    }

    /// Returns the inner allocator, for example to read its statistics.
    pub const fn inner(&self) -> &A {
        &self.inner
    }

    #[inline(always)]
    fn below(&self) -> Fitting<'_, A> {
        Fitting(&self.inner)
    }
}

/// Calls a rung. Never inlined: in one function with the others, each call would set up the stack
/// frame that the largest of them needs.
///
/// # Safety
/// 1. As for the method.
#[inline(never)]
unsafe fn alloc(rung: impl GlobalAlloc, layout: Layout) -> *mut u8 {
    // SAFETY: 1. The caller's promise.
    unsafe { rung.alloc(layout) }
}

/// The same as [`alloc`].
///
/// # Safety
/// 1. As for the method.
#[inline(never)]
unsafe fn dealloc(rung: impl GlobalAlloc, block: *mut u8, layout: Layout) {
    // SAFETY: 1. The caller's promise.
    unsafe { rung.dealloc(block, layout) }
}

/// The same as [`alloc`].
///
/// # Safety
/// 1. As for the method.
#[inline(never)]
unsafe fn alloc_zeroed(rung: impl GlobalAlloc, layout: Layout) -> *mut u8 {
    // SAFETY: 1. The caller's promise.
    unsafe { rung.alloc_zeroed(layout) }
}

/// The same as [`alloc`].
///
/// # Safety
/// 1. As for the method.
#[inline(never)]
unsafe fn realloc(rung: impl GlobalAlloc, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
    // SAFETY: 1. The caller's promise.
    unsafe { rung.realloc(block, layout, size) }
}

/// Returns a new block that no rung made. If a rung was chosen meanwhile, a block of another thread
/// may have had an owner there and left it in the map. That thread had seen the choice, so this one
/// sees it now.
///
/// # Safety
/// 1. The block is null, or was made with `fit` for this size. 2. Only the caller uses it.
#[inline(always)]
unsafe fn unowned(block: *mut u8, size: usize) -> *mut u8 {
    if chosen() == Some(Rung::Exact) {
        // SAFETY: 1 and 2. The caller's promises.
        unsafe { disown(block, size) };
    }
    block
}

// SAFETY: 1. Every block is one of `inner`, made with `fit` of its layout and freed with the same,
// whether a rung was chosen or not; or a rung made it differently, and that same rung frees it,
// because no other is ever chosen. 2. Nothing unwinds, and nothing re-enters: as for the rungs.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Chosen<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let below = self.below();
        // SAFETY: 1. The caller's promise is for the same method.
        unsafe {
            match chosen() {
                None => unowned(below.alloc(layout), layout.size()),
                Some(Rung::Sampled) => alloc(Sampled::new(below), layout),
                Some(Rung::Exact) => alloc(Exact::new(below), layout),
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let below = self.below();
        // SAFETY: 1. The caller's promise is for the same method.
        unsafe {
            match chosen() {
                None => below.dealloc(block, layout),
                Some(Rung::Sampled) => dealloc(Sampled::new(below), block, layout),
                Some(Rung::Exact) => dealloc(Exact::new(below), block, layout),
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let below = self.below();
        // SAFETY: 1. The caller's promise is for the same method.
        unsafe {
            match chosen() {
                None => unowned(below.alloc_zeroed(layout), layout.size()),
                Some(Rung::Sampled) => alloc_zeroed(Sampled::new(below), layout),
                Some(Rung::Exact) => alloc_zeroed(Exact::new(below), layout),
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let below = self.below();
        // SAFETY: 1. The caller's promise is for the same method.
        unsafe {
            match chosen() {
                None => unowned(below.realloc(block, layout, size), size),
                Some(Rung::Sampled) => realloc(Sampled::new(below), block, layout, size),
                Some(Rung::Exact) => realloc(Exact::new(below), block, layout, size),
            }
        }
    }
}

/// The inner allocator, asked for each block as [`Exact`] asks, so that any rung can free it.
struct Fitting<'a, A>(&'a A);

// SAFETY: 1. Every block is one of the inner allocator, made with `fit` of its layout, which is at
// least as large and as aligned, is valid for sizes up to `SIZE_MAX`, and is freed with the
// same. 2. Nothing unwinds, and nothing re-enters.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Fitting<'_, A> {
    #[inline(always)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > SIZE_MAX {
            return null_mut();
        }
        // SAFETY: 1. `fit` makes no size of 0.
        unsafe { self.0.alloc(fit(layout)) }
    }

    #[inline(always)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: 1. The caller's promise: the block was made with `fit` of the same layout.
        unsafe { self.0.dealloc(block, fit(layout)) }
    }

    #[inline(always)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() > SIZE_MAX {
            return null_mut();
        }
        // SAFETY: 1. As in `alloc`.
        unsafe { self.0.alloc_zeroed(fit(layout)) }
    }

    #[inline(always)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size > SIZE_MAX {
            return null_mut();
        }
        // SAFETY: 1. The caller's promise: the new size is not too large for the alignment. As in
        // `dealloc`.
        unsafe {
            let new = Layout::from_size_align_unchecked(size, layout.align());
            self.0.realloc(block, fit(layout), fit(new).size())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;
    use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};

    use super::super::CHOSEN;
    use super::*;
    use crate::exact::{books, owners};

    /// An allocator that takes a block back only with the layout it was requested with.
    struct Strict;

    /// Size and alignment of the only block.
    static ASKED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

    fn asked(layout: Layout) {
        assert!(layout.size() >= 16 && layout.align() >= 16, "{layout:?}");
        // Relaxed, here and below: the test's one thread.
        ASKED[0].store(layout.size(), Ordering::Relaxed);
        ASKED[1].store(layout.align(), Ordering::Relaxed);
    }

    fn must_be_as_asked(layout: Layout) {
        let asked = [0, 1].map(|at| ASKED[at].load(Ordering::Relaxed));
        assert_eq!(asked, [layout.size(), layout.align()]);
    }

    // SAFETY: 1. Every call is passed to the system's allocator. 2. It only panics when a test
    // fails.
    unsafe impl GlobalAlloc for Strict {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            asked(layout);
            // SAFETY: 1. The caller's promise.
            unsafe { System.alloc(layout) }
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            asked(layout);
            // SAFETY: 1. The caller's promise.
            unsafe { System.alloc_zeroed(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            must_be_as_asked(layout);
            // SAFETY: 1. The caller's promise, which was checked.
            unsafe { System.dealloc(block, layout) }
        }

        unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            must_be_as_asked(layout);
            // SAFETY: 1. The caller's promise, which was checked.
            unsafe {
                asked(Layout::from_size_align_unchecked(size, layout.align()));
                System.realloc(block, layout, size)
            }
        }
    }

    /// Held by the test that chooses: the process has one choice.
    static CHOOSES: Mutex<()> = Mutex::new(());

    /// Relaxed: only the thread that holds `CHOOSES` has a `Chosen`.
    fn on(rung: Option<Rung>) {
        CHOSEN.store(rung.map_or(0, |rung| rung as u8), Ordering::Relaxed);
        assert_eq!(chosen(), rung);
    }

    /// A block is freed with the layout it was requested with, whatever was chosen since.
    #[test]
    fn a_block_goes_back_as_it_was_asked_for() {
        static HEAP: Chosen<Strict> = Chosen::new(Strict);
        let _chooses = CHOOSES.lock().unwrap_or_else(PoisonError::into_inner);
        let layouts = [(1, 1), (15, 8), (16, 16), (17, 1), (100, 64), (9_000, 8), (70_000, 4_096)];
        let rungs = [None, Some(Rung::Sampled), Some(Rung::Exact)];
        let choices = rungs.map(|to| [(None, to), (to, to)]);
        for (from, to) in choices.into_iter().flatten() {
            for (size, align) in layouts {
                let layout = Layout::from_size_align(size, align).expect("valid");
                let other = Layout::from_size_align(size + 3, align).expect("valid");
                // SAFETY: 1. No size is 0, and each block is freed once, with its layout.
                unsafe {
                    on(from);
                    let block = HEAP.alloc(layout);
                    block.write_bytes(7, size);
                    on(to);
                    let block = HEAP.realloc(block, layout, size + 3);
                    assert_eq!([0, size - 1].map(|at| block.add(at).read()), [7; 2]);
                    HEAP.dealloc(block, other);
                    on(from);
                    let block = HEAP.alloc_zeroed(layout);
                    assert_eq!([0, size - 1].map(|at| block.add(at).read()), [0; 2]);
                    on(to);
                    HEAP.dealloc(block, layout);
                }
            }
            let huge = Layout::from_size_align(isize::MAX as usize, 1).expect("valid");
            // SAFETY: 1. The size is not 0.
            unsafe {
                assert!(HEAP.alloc(huge).is_null() && HEAP.alloc_zeroed(huge).is_null());
                let block = HEAP.alloc(layout_of(8));
                assert!(HEAP.realloc(block, layout_of(8), huge.size()).is_null());
                HEAP.dealloc(block, layout_of(8));
            }
        }
        on(None);
    }

    fn layout_of(size: usize) -> Layout {
        Layout::from_size_align(size, 1).expect("valid")
    }

    #[repr(align(16))]
    struct Place([AtomicU8; 64]);

    static PLACES: [Place; 2] = [const { Place([const { AtomicU8::new(0) }; 64]) }; 2];

    /// An allocator of one block at a time, which is in the first place until it is resized.
    struct Twice;

    // SAFETY: 1. The test has one block, of at most 64 bytes, aligned to at most 16. 2. It reads
    // nothing of it. 3. Nothing unwinds.
    unsafe impl GlobalAlloc for Twice {
        unsafe fn alloc(&self, _: Layout) -> *mut u8 {
            PLACES[0].0.as_ptr().cast_mut().cast()
        }

        unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}

        unsafe fn realloc(&self, _: *mut u8, _: Layout, _: usize) -> *mut u8 {
            PLACES[1].0.as_ptr().cast_mut().cast()
        }
    }

    const OWNER: u32 = 60_000;

    /// Makes the choice, and leaves the traces of an owner's block in both places.
    fn choose_and_leave() {
        on(Some(Rung::Exact));
        books::works_for(OWNER);
        let heap = Exact::new(Twice);
        // SAFETY: 1. No size is 0, and the block is freed once, with its layout.
        unsafe {
            let block = heap.alloc(layout_of(64));
            let block = heap.realloc(block, layout_of(64), 63);
            heap.dealloc(block, layout_of(63));
        }
        books::works_for(0);
    }

    /// The same, each of whose calls is interrupted by that.
    struct Interrupted;

    // SAFETY: 1 to 3. As for `Twice`: what interrupts a call has freed its block.
    unsafe impl GlobalAlloc for Interrupted {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            choose_and_leave();
            // SAFETY: 1. The caller's promise.
            unsafe { Twice.alloc(layout) }
        }

        unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}

        unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            choose_and_leave();
            // SAFETY: 1. The caller's promise.
            unsafe { Twice.realloc(block, layout, size) }
        }
    }

    /// A block without an owner is nobody's, even if another's was there when it was being made,
    /// on a thread that had not seen the choice.
    #[test]
    fn a_block_made_amid_the_choice_is_nobodys() {
        let _chooses = CHOOSES.lock().unwrap_or_else(PoisonError::into_inner);
        owners::make(OWNER).expect("memory");
        let heap = Chosen::new(Interrupted);
        for (before, resized) in [(None, false), (Some(Rung::Exact), false), (None, true)] {
            // SAFETY: 1. No size is 0, and each block is freed once, with its layout.
            unsafe {
                on(before);
                let block = heap.alloc(layout_of(64));
                if resized {
                    on(before);
                    let block = heap.realloc(block, layout_of(64), 63);
                    heap.dealloc(block, layout_of(63));
                    // The choice was seen before this one.
                    let block = heap.realloc(heap.alloc(layout_of(64)), layout_of(64), 63);
                    heap.dealloc(block, layout_of(63));
                } else {
                    heap.dealloc(block, layout_of(64));
                }
            }
            assert_eq!(owners::sum(OWNER), 0, "{before:?}, {resized}");
        }
        on(None);
    }
}
