//! The allocator that knows each block's owner, and the map of owners.
//!
//! # Where the owner lies
//! Beside the heap: one byte for each 16 bytes of address space, in leaves that are made where a
//! block with an owner lies. Each block starts at a granule of 16 bytes that it does not share, so
//! the map bytes of its first granules are its own for as long as it lives: one byte for a block of
//! at most 16 bytes, two for all others. Nothing is added to a block, and no power of two is pushed
//! into the next size class. An owner that one byte cannot name is stored behind the block instead.
//!
//! The bytes stay as they are when the block is freed, and are compared when the next is allocated
//! there. If that has the same owner nothing is written, so the lines of the map are shared by a
//! thread that allocates and one that frees. A block without an owner has zeroes in the map.
#![allow(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::ptr::{NonNull, null_mut};

use super::books;
use super::owners::OWNERS_MAX;
use crate::map::{ADDRESS_BITS, Leaf};

/// The bytes that one byte of the map stands for; also every block's alignment and minimum size.
const GRANULE: usize = 16;
const GRANULE_BITS: u32 = GRANULE.trailing_zeros();

/// The address space of one leaf.
const REGION_BITS: u32 = if cfg!(miri) { 20 } else { 30 };

/// A byte for each granule, and one more: a block that begins in the last granule has two bytes.
const LEAF: usize = GRANULES + 1;

const GRANULES: usize = 1 << (REGION_BITS - GRANULE_BITS);

const _: () = assert!(GRANULES - 1 + size_of::<u16>() <= LEAF);

/// One more than there are: for a power of two the compiler would look at the bits of an address
/// instead of comparing its region, which takes two more instructions.
const REGIONS: usize = (1 << (ADDRESS_BITS - REGION_BITS)) + 1;

/// A larger size is not a valid layout once it is aligned to a granule.
pub(crate) const SIZE_MAX: usize = isize::MAX as usize - (GRANULE - 1);

/// Larger sizes are rare. A comparison with a smaller number takes one instruction.
const USUAL: usize = 1 << 30;

const _: () = assert!(USUAL <= SIZE_MAX);

/// Stands for an owner stored behind the block.
const BEHIND: u32 = u8::MAX as u32;

const _: () = assert!(OWNERS_MAX <= u16::MAX as usize);

static LEAVES: [Leaf<[u8; LEAF]>; REGIONS] = [const { Leaf::new() }; REGIONS];

/// An allocator that knows which group each block was allocated in. See the
/// [module](crate::exact).
///
/// # Examples
/// ```
/// use std::alloc::System;
/// use submeter_alloc::Exact;
///
/// #[global_allocator]
/// static HEAP: Exact<System> = Exact::new(System);
///
/// assert!(Exact::<System>::is_linked());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Exact<A> {
    inner: A,
}

/// Returns whether a block requested with this size has its owner in one byte.
#[inline(always)]
fn is_narrow(size: usize) -> bool {
    size <= GRANULE
}

/// Returns the layout that is requested from the inner allocator.
#[inline(always)]
pub(crate) fn fit(layout: Layout) -> Layout {
    fit_size(layout, layout.size().max(GRANULE))
}

/// Returns the layout requested for a narrow block with its owner behind it.
fn fit_behind(layout: Layout) -> Layout {
    fit_size(layout, GRANULE + size_of::<u16>())
}

#[inline(always)]
fn fit_size(layout: Layout, size: usize) -> Layout {
    // SAFETY: 1. The larger of two powers of two is one. 2. Rounded up to that, the size is at most
    // the layout's own, which is valid, or at most 32 or the alignment, which are always valid.
    unsafe { Layout::from_size_align_unchecked(size, layout.align().max(GRANULE)) }
}

/// Returns the map entry with a block's owner. `None` if its region has no leaf: the block has no
/// owner. Also `None` for null, which an allocation would otherwise have to test for.
#[inline(always)]
fn entry(block: *mut u8) -> Option<NonNull<u8>> {
    let before = before(block);
    if usize::BITS == 32 && block.is_null() {
        // There the last region ends where addresses do.
        return None;
    }
    // A leaf that was used for this address before is visible because of the ordering with which
    // the inner allocator passes a block from thread to thread.
    let leaf = LEAVES.get(before >> REGION_BITS)?.get()?;
    let granule = (before >> GRANULE_BITS) & (GRANULES - 1);
    // SAFETY: 1. `granule` is below the granules of a region, which is the length of the leaf less
    // one.
    Some(unsafe { leaf.cast::<u8>().add(granule) })
}

/// Returns the address of the byte before a block, by which the map is indexed. Blocks are aligned
/// to a granule, so each still has a granule of its own; for null, it lies beyond the last region.
#[inline(always)]
fn before(block: *mut u8) -> usize {
    block.addr().wrapping_sub(1)
}

/// The same as [`entry`], and makes the leaf. Returns `None` for null, and if memory is short.
#[inline(never)]
fn entry_or_grow(block: *mut u8) -> Option<NonNull<u8>> {
    entry(block).or_else(|| {
        LEAVES.get(before(block) >> REGION_BITS)?.make()?;
        entry(block)
    })
}

/// Writes a block's owner, 0 for none.
///
/// # Safety
/// 1. `at` is the entry of a block of `size` bytes, made with `fit` of its layout. 2. Only the
///    caller uses that block.
#[inline(always)]
unsafe fn write(at: NonNull<u8>, size: usize, owner: u32) {
    // SAFETY: 1 and 2. The bytes belong to this block alone: every block starts at a granule, since
    // `fit` aligns it, so no other block has one of the granules that it covers: one for a narrow
    // block, two or more for a block of more than 16 bytes. (The second of a block at the end of
    // its region is the leaf's last byte, which stands for nothing else.)
    unsafe {
        if is_narrow(size) {
            at.write(owner as u8);
        } else {
            at.cast::<u16>().write_unaligned(owner as u16);
        }
    }
}

/// Reads a block's owner, or [`BEHIND`] if a narrow block has its owner behind it. For a new block
/// it is what earlier blocks left.
///
/// # Safety
/// As for [`write`].
#[inline(always)]
unsafe fn read(at: NonNull<u8>, size: usize) -> u32 {
    // SAFETY: 1 and 2. As in `write`. A leaf made after the block has zeroes there.
    unsafe {
        if is_narrow(size) { at.read().into() } else { at.cast::<u16>().read_unaligned().into() }
    }
}

/// Records that a new block has no owner.
///
/// # Safety
/// 1. `block` is null, or one of `size` bytes, made with `fit` of its layout. 2. Only the caller
///    uses it.
#[inline(never)]
pub(crate) unsafe fn disown(block: *mut u8, size: usize) {
    if let Some(at) = entry(block) {
        // SAFETY: 1 and 2. The caller's promises.
        unsafe {
            // What is not written takes no memory for the map.
            if read(at, size) != 0 {
                write(at, size, 0);
            }
        }
    }
}

impl<A> Exact<A> {
    /// Tracks the owners of the blocks of `inner`.
    pub const fn new(inner: A) -> Exact<A> {
        Exact { inner }
    }

    /// Returns the inner allocator, for example to read its statistics.
    pub const fn inner(&self) -> &A {
        &self.inner
    }

    /// Returns whether the global allocator of this program is one of these.
    #[must_use]
    pub fn is_linked() -> bool {
        books::is_linked()
    }
}

impl<A: GlobalAlloc> Exact<A> {
    /// # Safety
    /// 1. The layout is not of size 0.
    #[inline(always)]
    unsafe fn bare<const ZEROED: bool>(&self, layout: Layout) -> *mut u8 {
        // SAFETY: 1. The caller's promise.
        unsafe { if ZEROED { self.inner.alloc_zeroed(layout) } else { self.inner.alloc(layout) } }
    }

    /// Allocates for the group that the thread works for. The rarer cases are functions of their
    /// own: in one with this, each block would pay for the stack frame that they need.
    ///
    /// # Safety
    /// 1. The layout is not of size 0.
    #[inline(always)]
    unsafe fn make<const ZEROED: bool>(&self, layout: Layout) -> *mut u8 {
        const LEAST: usize = GRANULE + 1;
        let size = layout.size();
        if layout.align() > GRANULE {
            // SAFETY: 1. The caller's promise.
            return unsafe { self.make_unusual::<ZEROED>(layout) };
        }
        // One comparison for sizes that are neither narrow nor unusual.
        if size.wrapping_sub(LEAST) > USUAL - LEAST {
            // SAFETY: 1. The caller's promise.
            return unsafe { self.make_narrow::<ZEROED>(size) };
        }
        // SAFETY: 1. 16 is a power of two, and a size up to `USUAL` can be rounded up to it. 2. It
        // is not 0, and is what `fit` would request; the block is new.
        unsafe {
            let usual = Layout::from_size_align_unchecked(size, GRANULE);
            Self::note(self.bare::<ZEROED>(usual), size)
        }
    }

    /// Allocates a narrow block, or a large one, of at most a granule's alignment.
    ///
    /// # Safety
    /// 1. The size is not 0, and that of a valid layout.
    #[inline(never)]
    unsafe fn make_narrow<const ZEROED: bool>(&self, size: usize) -> *mut u8 {
        if !is_narrow(size) || books::current() >= BEHIND {
            // SAFETY: 1. The caller's promise: any size of a valid layout can have this alignment.
            // 2. It is not 0.
            return unsafe {
                self.make_unusual::<ZEROED>(Layout::from_size_align_unchecked(size, 1))
            };
        }
        // SAFETY: 1. 16 is a power of two. 2. It is not 0, and is what `fit` would request; the
        // block is new.
        unsafe {
            let narrow = Layout::from_size_align_unchecked(GRANULE, GRANULE);
            Self::note(self.bare::<ZEROED>(narrow), size)
        }
    }

    /// Allocates a block of any size and alignment; returns null if the size is too large.
    ///
    /// # Safety
    /// 1. The layout is not of size 0.
    #[cold]
    #[inline(never)]
    unsafe fn make_unusual<const ZEROED: bool>(&self, layout: Layout) -> *mut u8 {
        let (size, owner) = (layout.size(), books::current());
        if size > SIZE_MAX {
            return null_mut();
        }
        // SAFETY: 1. The caller's promise. 2. `fit` makes no size of 0, and the block is new.
        unsafe {
            if is_narrow(size) && owner >= BEHIND {
                self.make_behind::<ZEROED>(layout, owner)
            } else {
                Self::note(self.bare::<ZEROED>(fit(layout)), size)
            }
        }
    }

    /// Records a new block's owner, counts the block and returns it.
    ///
    /// # Safety
    /// 1. `block` is null, or one of `inner`, made with what `fit` requests for a block of `size`,
    ///    and not returned to anyone yet.
    #[inline(always)]
    unsafe fn note(block: *mut u8, size: usize) -> *mut u8 {
        // Read after the allocation, so that no register has to be saved for it.
        let owner = books::keeps();
        let Some(at) = entry(block) else {
            // SAFETY: 1. The caller's promise.
            return if owner == 0 { block } else { unsafe { note_slowly(block, size) } };
        };
        if owner >= if is_narrow(size) { BEHIND } else { books::SWITCHES } {
            // SAFETY: 1. The caller's promise.
            return unsafe { note_slowly(block, size) };
        }
        // SAFETY: 1 and 2. The caller's promise.
        unsafe {
            if read(at, size) != owner {
                return change(block, at, size, owner);
            }
        }
        if owner == 0 {
            return block;
        }
        if books::gain(size) { post(block) } else { block }
    }

    /// Allocates a narrow block for an owner that one byte cannot name.
    ///
    /// # Safety
    /// 1. The layout is not of size 0.
    #[cold]
    unsafe fn make_behind<const ZEROED: bool>(&self, layout: Layout, owner: u32) -> *mut u8 {
        // SAFETY: 1. `fit_behind` makes no size of 0.
        let block = unsafe { self.bare::<ZEROED>(fit_behind(layout)) };
        if block.is_null() {
            return block;
        }
        let Some(at) = entry_or_grow(block) else {
            // Its size could not be found again. SAFETY: 1. From above, with this layout, and not
            // passed on. 2. As above. 3. The other block is new, and so requested.
            return unsafe {
                self.inner.dealloc(block, fit_behind(layout));
                let block = self.bare::<ZEROED>(fit(layout));
                disown(block, layout.size());
                block
            };
        };
        // SAFETY: 1. The entry of the block from above, which nothing else uses yet. 2. The bytes
        // behind it were requested, and are initialised here before anything reads them.
        unsafe {
            write(at, layout.size(), BEHIND);
            block.add(GRANULE).cast::<u16>().write_unaligned(owner as u16);
        }
        books::count(owner, layout.size() as i64);
        block
    }

    /// Frees a block with this owner, or without one.
    ///
    /// # Safety
    /// 1. The block is in use, with this layout, and its owner is not behind it.
    #[inline(always)]
    unsafe fn free(&self, block: *mut u8, layout: Layout, owner: u32) {
        if owner != 0 {
            if !books::keeps_of(owner) {
                // SAFETY: 1. The caller's promise.
                return unsafe { self.free_of_another(block, layout, owner) };
            }
            if books::lose(layout.size()) {
                // SAFETY: 1. As above.
                return unsafe { self.free_and_post(block, layout) };
            }
        }
        // SAFETY: 1. The caller's promise: it was made with `fit` of the same layout.
        unsafe { self.inner.dealloc(block, fit(layout)) }
    }

    /// Frees a narrow block. A function of its own: in one, the compiler lets all others jump over
    /// this.
    ///
    /// # Safety
    /// 1. The block is in use, with this layout, which is narrow; `at` is its entry.
    #[inline(never)]
    unsafe fn free_narrow(&self, block: *mut u8, at: NonNull<u8>, layout: Layout) {
        // SAFETY: 1 and 2. The caller's promise.
        unsafe {
            match read(at, GRANULE) {
                BEHIND => self.free_behind(block, layout),
                owner => self.free(block, layout, owner),
            }
        }
    }

    /// Frees a narrow block with its owner behind it.
    ///
    /// # Safety
    /// 1. The block is in use, with this layout, and its entry says so.
    #[cold]
    #[inline(never)]
    unsafe fn free_behind(&self, block: *mut u8, layout: Layout) {
        // SAFETY: 1. The caller's promise: it was made by `make_behind`, with what that asks for.
        unsafe {
            books::count(owner_behind(block), -(layout.size() as i64));
            self.inner.dealloc(block, fit_behind(layout));
        }
    }

    /// Frees a block of a group other than the one the thread works for.
    ///
    /// # Safety
    /// 1. The block is in use, with this layout, and its owner is not behind it.
    #[inline(never)]
    unsafe fn free_of_another(&self, block: *mut u8, layout: Layout, owner: u32) {
        books::count(owner, -(layout.size() as i64));
        // SAFETY: 1. The caller's promise: it was made with `fit` of the same layout.
        unsafe { self.inner.dealloc(block, fit(layout)) }
    }

    /// Frees a block and posts what the thread keeps.
    ///
    /// # Safety
    /// 1. As for `free_of_another`.
    #[cold]
    #[inline(never)]
    unsafe fn free_and_post(&self, block: *mut u8, layout: Layout) {
        books::posted();
        // SAFETY: 1. As in `free_of_another`.
        unsafe { self.inner.dealloc(block, fit(layout)) }
    }

    /// Resizes a block whose owner is stored behind it before or after.
    ///
    /// # Safety
    /// 1. The block is in use, with this layout; the new size is not 0. 2. `owner` is its own.
    #[cold]
    unsafe fn replace(&self, block: *mut u8, old: Layout, new: Layout, owner: u32) -> *mut u8 {
        // SAFETY: 1. The size is not 0; `fit` makes none.
        let made = unsafe {
            if is_narrow(new.size()) && owner >= BEHIND {
                self.make_behind::<false>(new, owner)
            } else {
                give(self.bare::<false>(fit(new)), new.size(), owner)
            }
        };
        if !made.is_null() {
            let kept = old.size().min(new.size());
            // SAFETY: 1. Two blocks in use, each with that many bytes. 2. The old one is ours to
            // free.
            unsafe {
                block.copy_to_nonoverlapping(made, kept);
                self.dealloc(block, old);
            }
        }
        made
    }
}

/// The same as `note`, in the middle of a switch or where the map has to grow.
///
/// # Safety
/// 1. As for `note`.
#[cold]
#[inline(never)]
unsafe fn note_slowly(block: *mut u8, size: usize) -> *mut u8 {
    let owner = books::current();
    // SAFETY: 1 and 2. The caller's promise.
    unsafe {
        if owner == 0 || (is_narrow(size) && owner >= BEHIND) {
            // The latter if something in between has changed the owner.
            disown(block, size);
            return block;
        }
        black_box(give(block, size, owner))
    }
}

/// Records a new block's owner in the place of an earlier block's, counts the block, and returns
/// it.
///
/// # Safety
/// 1. `at` is the entry of this block of `size` bytes. 2. Nothing else uses the block yet. 3. The
///    owner is the one that the thread keeps bytes of, and would not be stored behind it.
#[inline(never)]
unsafe fn change(block: *mut u8, at: NonNull<u8>, size: usize, owner: u32) -> *mut u8 {
    // SAFETY: 1 and 2. The caller's promises.
    unsafe { write(at, size, owner) };
    black_box(if owner != 0 && books::gain(size) { post(block) } else { block })
}

/// Records the owner of a new block, counts the block, and returns it. Without memory for the map
/// the block gets no owner.
///
/// # Safety
/// 1. `block` is null, or one made with what `fit` requests for a block of `size`, and `owner` is
///    neither 0 nor one that would be stored behind it. 2. Nothing else uses the block yet.
#[inline(never)]
unsafe fn give(block: *mut u8, size: usize, owner: u32) -> *mut u8 {
    if let Some(at) = entry_or_grow(block) {
        // SAFETY: 1 and 2. The caller's promises.
        unsafe { write(at, size, owner) };
        books::count(owner, size as i64);
    }
    block
}

/// Posts what the thread keeps, and returns the block, so that callers can end in one call.
///
/// This, and the other two whose result passes `black_box`: a compiler that sees that it is the
/// argument keeps that for itself, and then each block pays for a place to keep it.
#[cold]
#[inline(never)]
fn post(block: *mut u8) -> *mut u8 {
    books::posted();
    black_box(block)
}

/// # Safety
/// 1. The block is in use by the caller, and was made by `make_behind`.
unsafe fn owner_behind(block: *mut u8) -> u32 {
    // SAFETY: 1. It has two more bytes, which were written when it was made.
    unsafe { block.add(GRANULE).cast::<u16>().read_unaligned().into() }
}

// SAFETY: 1. Every block is one of `inner`, which is an allocator, made with `fit` of its layout,
// or `fit_behind` if its entry says so, and is freed with the same. It is at least as large and as
// aligned as requested. 2. Nothing unwinds: `books` adds to words, and wraps around.
// 3. Nothing re-enters: `books` neither allocates nor frees, and leaves come from the kernel.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Exact<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: 1. The caller's promise.
        unsafe { self.make::<false>(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: 1. The caller's promise. The bytes behind a block are not part of it.
        unsafe { self.make::<true>(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(at) = entry(block) else {
            // SAFETY: 1. It was made with `fit` of the same layout.
            return unsafe { self.inner.dealloc(block, fit(layout)) };
        };
        // SAFETY: 1 and 2. The caller's promise: the block is in use, with this layout.
        unsafe {
            if is_narrow(layout.size()) {
                self.free_narrow(block, at, layout);
            } else {
                self.free(block, layout, read(at, layout.size()));
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(new) = Layout::from_size_align(size, layout.align()) else { return null_mut() };
        if size > SIZE_MAX {
            return null_mut();
        }
        let at = entry(block);
        // SAFETY: 1 and 2. The caller's promise: the block is in use, with this layout.
        let owner = at.map_or(0, |at| unsafe { read(at, layout.size()) });
        let was_behind = is_narrow(layout.size()) && owner == BEHIND;
        if was_behind || (is_narrow(size) && owner >= BEHIND) {
            // SAFETY: 1. As above. 2. The owner is this block's.
            return unsafe {
                let owner = if was_behind { owner_behind(block) } else { owner };
                self.replace(block, layout, new, owner)
            };
        }
        // SAFETY: 1. It was made with `fit` of the same layout, which makes no size of 0.
        let moved = unsafe { self.inner.realloc(block, fit(layout), fit(new).size()) };
        if moved.is_null() {
            return moved;
        }
        if owner == 0 {
            // SAFETY: 1. From above. 2. It was not returned yet.
            unsafe { disown(moved, size) };
            return moved;
        }
        // SAFETY: 1. From above; an owner that would be stored behind it was excluded. 2. It was
        // not returned yet.
        unsafe { give(moved, size, owner) };
        // Not earlier: the number of a group that has ended can pass to another group once it has
        // no block.
        books::count(owner, -(layout.size() as i64));
        moved
    }
}
