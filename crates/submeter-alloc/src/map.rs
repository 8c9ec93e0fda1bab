//! Maps from addresses to what is known of the blocks there, in parts that are created where blocks
//! lie.

use std::mem;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use submeter_sys::memory::Reservation;

/// Bits of an address that Linux gives a program which does not ask for more.
pub(crate) const ADDRESS_BITS: u32 = match () {
    () if cfg!(miri) || usize::BITS == 32 => 32,
    () if cfg!(target_arch = "aarch64") => 48,
    () => 47,
};

/// No page is smaller.
const PAGE: usize = 4096;

/// A part of a map: a zeroed `T`, once made. It is never freed.
pub(crate) struct Leaf<T>(AtomicPtr<T>);

impl<T> Leaf<T> {
    pub(crate) const fn new() -> Leaf<T> {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= PAGE) };
        Leaf(AtomicPtr::new(null_mut()))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Option<NonNull<T>> {
        // Acquire: pairs with the AcqRel in `make`, so the leaf is seen zeroed.
        NonNull::new(self.0.load(Ordering::Acquire))
    }

    /// Makes it, unless another thread does. Returns `None` if memory is short.
    ///
    /// It comes from the kernel. The allocator that is being called may be dropped, and is in the
    /// middle of a call. The C library's may be locked by the thread itself, where this is a signal
    /// handler that interrupted it.
    pub(crate) fn make(&self) -> Option<NonNull<T>> {
        if let Some(made) = Reservation::within_malloc(size_of::<T>()) {
            let new = made.base().cast().as_ptr();
            // AcqRel: other threads see this leaf zeroed, and this thread sees theirs zeroed.
            let put = self.0.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
            if put.is_ok() {
                mem::forget(made);
            }
        }
        self.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A leaf is a mapping of its own, and zero. What `calloc` returns lies behind its header.
    #[test]
    fn a_leaf_comes_from_the_kernel() {
        static LEAF: Leaf<[u8; 1 << 20]> = Leaf::new();
        assert!(LEAF.get().is_none());
        let made = LEAF.make().expect("memory");
        assert!(made.addr().get().is_multiple_of(PAGE), "{made:?}");
        assert_eq!((LEAF.get(), LEAF.make()), (Some(made), Some(made)), "once");
    }
}
