//! The allocator that knows each block's owner, and the map of owners.
//!
//! # Where the owner lies
//! Beside the heap: one byte for each 16 bytes of address space, in leaves that are made where a
//! block with an owner lies. Each block starts at a granule of 16 bytes that it does not share, so
//! the map bytes of its first granules are its own for as long as it lives: one byte for a block of
//! at most 16 bytes, two for all others. Nothing is added to a block, and no power of two is pushed
//! into the next size class. An owner that one byte cannot name is stored behind the block instead.
//! A block without an owner has zeroes in the map. An owned block leaves zeroes there when it is
//! freed, so a block without an owner writes nothing.
#![allow(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout};
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

const REGIONS: usize = 1 << (ADDRESS_BITS - REGION_BITS);

/// A larger size is not a valid layout once it is aligned to a granule.
pub(crate) const SIZE_MAX: usize = isize::MAX as usize - (GRANULE - 1);

/// Stands for an owner stored behind the block.
const BEHIND: u32 = u8::MAX as u32;

const _: () = assert!(OWNERS_MAX <= u16::MAX as usize + 1);

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
/// owner.
#[inline(always)]
fn entry(block: *mut u8) -> Option<NonNull<u8>> {
    let address = block.addr();
    // A leaf that was used for this address before is visible because of the ordering with which
    // the inner allocator passes a block from thread to thread.
    let leaf = LEAVES.get(address >> REGION_BITS)?.get()?;
    let granule = (address >> GRANULE_BITS) & (GRANULES - 1);
    // SAFETY: 1. `granule` is below the granules of a region, which is the length of the leaf less
    // one.
    Some(unsafe { leaf.cast::<u8>().add(granule) })
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

/// Reads a block's owner, or [`BEHIND`] if a narrow block has its owner behind it.
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
    /// Makes the leaf for a block's region, and returns the block's entry, or `None` if memory is
    /// short.
    #[cold]
    #[inline(never)]
    fn grow(block: *mut u8) -> Option<NonNull<u8>> {
        LEAVES.get(block.addr() >> REGION_BITS)?.make()?;
        entry(block)
    }

    /// # Safety
    /// 1. The layout is not of size 0.
    #[inline(always)]
    unsafe fn bare(&self, layout: Layout, zeroed: bool) -> *mut u8 {
        // SAFETY: 1. The caller's promise.
        unsafe { if zeroed { self.inner.alloc_zeroed(layout) } else { self.inner.alloc(layout) } }
    }

    /// Allocates for the group that the thread works for.
    ///
    /// # Safety
    /// 1. The layout is not of size 0.
    #[inline(always)]
    unsafe fn make(&self, layout: Layout, zeroed: bool) -> *mut u8 {
        const LEAST: usize = GRANULE + 1;
        let size = layout.size();
        // One comparison for sizes that are neither narrow nor too large.
        if size.wrapping_sub(LEAST) > SIZE_MAX - LEAST {
            // SAFETY: 1. The caller's promise.
            return unsafe { self.make_narrow(layout, zeroed) };
        }
        // SAFETY: 1. The size is not 0, and is what `fit` would request; the block is new.
        unsafe { self.note(self.bare(fit_size(layout, size), zeroed), size) }
    }

    /// Allocates a narrow block; returns null if the size is too large.
    ///
    /// # Safety
    /// 1. The layout is not of size 0.
    #[inline(never)]
    unsafe fn make_narrow(&self, layout: Layout, zeroed: bool) -> *mut u8 {
        if !is_narrow(layout.size()) {
            return null_mut();
        }
        let owner = books::current();
        if owner >= BEHIND {
            // SAFETY: 1. The caller's promise.
            return unsafe { self.make_behind(layout, owner, zeroed) };
        }
        // SAFETY: 1. `fit` makes no size of 0, and the block is new.
        unsafe { self.note(self.bare(fit(layout), zeroed), layout.size()) }
    }

    /// Records a new block's owner, counts the block and returns it.
    ///
    /// # Safety
    /// 1. `block` is null, or one of `inner`, made with what `fit` requests for a block of `size`,
    ///    and not returned to anyone yet.
    #[inline(always)]
    unsafe fn note(&self, block: *mut u8, size: usize) -> *mut u8 {
        // Read after the allocation, so that no register has to be saved for it.
        let owner = match books::keeps() {
            _ if block.is_null() => return block,
            Some(0) => return block,
            Some(owner) if !is_narrow(size) || owner < BEHIND => owner,
            // SAFETY: 1. The caller's promise.
            _ => return unsafe { self.note_slowly(block, size) },
        };
        let Some(at) = entry(block) else {
            // SAFETY: 1. As above.
            return unsafe { self.note_slowly(block, size) };
        };
        // SAFETY: 1 and 2. The caller's promise.
        unsafe { write(at, size, owner) };
        if books::gain(size) { post(block) } else { block }
    }

    /// The same as `note`, in the middle of a switch or where the map has to grow.
    ///
    /// # Safety
    /// 1. The block is as in `note`, and not null.
    #[cold]
    #[inline(never)]
    unsafe fn note_slowly(&self, block: *mut u8, size: usize) -> *mut u8 {
        let owner = books::current();
        // The last condition: something in between has changed the owner, so the block gets none.
        if owner == 0 || (is_narrow(size) && owner >= BEHIND) {
            return block;
        }
        // SAFETY: 1 and 2. The caller's promise.
        unsafe { self.give(block, size, owner) }
    }

    /// Records the owner of a new block, counts the block, and returns it. Without memory for the
    /// map the block gets no owner.
    ///
    /// # Safety
    /// 1. `block` is one of `inner`, made with what `fit` requests for a block of `size`, and
    ///    `owner` is not one that would be stored behind it. 2. Nothing else uses the block yet.
    #[inline(never)]
    unsafe fn give(&self, block: *mut u8, size: usize, owner: u32) -> *mut u8 {
        if let Some(at) = entry(block).or_else(|| Self::grow(block)) {
            // SAFETY: 1 and 2. The caller's promises.
            unsafe { write(at, size, owner) };
            books::count(owner, size as i64);
        }
        block
    }

    /// Allocates a narrow block for an owner that one byte cannot name.
    ///
    /// # Safety
    /// 1. The layout is not of size 0.
    #[cold]
    unsafe fn make_behind(&self, layout: Layout, owner: u32, zeroed: bool) -> *mut u8 {
        // SAFETY: 1. `fit_behind` makes no size of 0.
        let block = unsafe { self.bare(fit_behind(layout), zeroed) };
        if block.is_null() {
            return block;
        }
        let Some(at) = entry(block).or_else(|| Self::grow(block)) else {
            // Its size could not be found again. SAFETY: 1. From above, with this layout, and not
            // passed on. 2. As above.
            return unsafe {
                self.inner.dealloc(block, fit_behind(layout));
                self.bare(fit(layout), zeroed)
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

    /// Frees a narrow block with its owner behind it.
    ///
    /// # Safety
    /// 1. The block is in use, with this layout, and `at` is its entry, which says so.
    #[cold]
    #[inline(never)]
    unsafe fn free_behind(&self, block: *mut u8, at: NonNull<u8>, layout: Layout) {
        // SAFETY: 1. The caller's promise: it was made by `make_behind`, with what that asks for.
        unsafe {
            let owner = owner_behind(block);
            write(at, layout.size(), 0);
            books::count(owner, -(layout.size() as i64));
            self.inner.dealloc(block, fit_behind(layout));
        }
    }

    /// Frees a block of a group other than the one the thread works for.
    ///
    /// # Safety
    /// 1. The block is in use, with this layout, and its entry was cleared.
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
                self.make_behind(new, owner, false)
            } else {
                let made = self.bare(fit(new), false);
                if made.is_null() { made } else { self.give(made, new.size(), owner) }
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

/// Posts what the thread keeps, and returns the block, so that callers can end in one call.
#[cold]
#[inline(never)]
fn post(block: *mut u8) -> *mut u8 {
    books::posted();
    block
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
        unsafe { self.make(layout, false) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: 1. The caller's promise. The bytes behind a block are not part of it.
        unsafe { self.make(layout, true) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(at) = entry(block) {
            let size = layout.size();
            // SAFETY: 1 and 2. The caller's promise: the block is in use, with this layout.
            let owner = unsafe { read(at, size) };
            if is_narrow(size) && owner == BEHIND {
                // SAFETY: 1. As above, and its entry says so.
                return unsafe { self.free_behind(block, at, layout) };
            }
            if owner != 0 {
                // SAFETY: 1 and 2. As above. Done before its memory can belong to another block.
                unsafe { write(at, size, 0) };
                if !books::keeps_of(owner) {
                    // SAFETY: 1. As above.
                    return unsafe { self.free_of_another(block, layout, owner) };
                }
                if books::lose(size) {
                    // SAFETY: 1. As above.
                    return unsafe { self.free_and_post(block, layout) };
                }
            }
        }
        // SAFETY: 1. It was made with `fit` of the same layout.
        unsafe { self.inner.dealloc(block, fit(layout)) }
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
        let Some(at) = at.filter(|_| owner != 0) else {
            // SAFETY: 1. It was made with `fit` of the same layout, which makes no size of 0.
            return unsafe { self.inner.realloc(block, fit(layout), fit(new).size()) };
        };
        // SAFETY: 1 and 2. As above. Done before its memory can belong to another block: if the
        // block moves, the old memory may have another owner before `inner` returns.
        unsafe { write(at, layout.size(), 0) };
        // SAFETY: 1. As above.
        let moved = unsafe { self.inner.realloc(block, fit(layout), fit(new).size()) };
        if moved.is_null() {
            // SAFETY: 1 and 2. The block is unchanged.
            unsafe { write(at, layout.size(), owner) };
            return moved;
        }
        // SAFETY: 1. From above; an owner that would be stored behind it was excluded. 2. It was
        // not returned yet.
        unsafe { self.give(moved, size, owner) };
        // Not earlier: the number of a group that has ended can pass to another group once it has
        // no block.
        books::count(owner, -(layout.size() as i64));
        moved
    }
}
