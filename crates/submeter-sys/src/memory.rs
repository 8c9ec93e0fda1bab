//! Reserved address space whose pages appear when they are first touched.

use std::io;
use std::ptr::NonNull;

use crate::os;

/// A range of zeroed, private, anonymous address space. Reserving costs one system call and no
/// memory; a page costs memory from its first write on. Not for small things: use the allocator.
///
/// On Windows all of it counts as committed from the start, and nothing is given back before the
/// drop. Rows are smaller there for that reason: [`STRIDE_SHIFT`](crate::STRIDE_SHIFT).
#[derive(Debug)]
pub struct Reservation {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: 1. A `Reservation` is an address and a length, of no thread. 2. Access is synchronised:
// by the code that dereferences what `base` returns, which is unsafe.
unsafe impl Send for Reservation {}
// SAFETY: 1. No method reads or writes the memory behind a shared reference. 2. As for `Send`.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `len` bytes, page-aligned.
    ///
    /// # Errors
    /// `ENOMEM` where the address space is limited (`ulimit -v`) or overcommit is off
    /// (`vm.overcommit_memory=2`); `EINVAL` when `len` is 0.
    pub fn new(len: usize) -> io::Result<Reservation> {
        let base = os::memory::map(len)?;
        Ok(Reservation { base, len })
    }

    /// Gives the memory of whole pages back to the system; they read as zero then, and take memory
    /// again when they are next written. Costs a system call, and a page fault for each page that
    /// is used again.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when `offset` is not page-aligned or the range is not
    /// inside, [`io::ErrorKind::Unsupported`] on Windows: the range then holds what it held.
    ///
    /// # Safety
    /// During the call, the range is accessed only atomically, and no code relies on what it holds:
    /// to other threads this is as if each word were set to zero at some moment.
    pub unsafe fn discard(&self, offset: usize, len: usize) -> io::Result<()> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        if !inside || !offset.is_multiple_of(page_size()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if len == 0 {
            return Ok(());
        }
        // SAFETY: 1. The range lies inside the mapping: checked above. 2. It begins and ends with a
        // page: the begin is checked above, and the system rounds the end up, as the mapping's is.
        // 3. No code relies on what it holds: the caller's promise.
        unsafe { os::memory::discard(self.base.add(offset), len) }
    }

    /// Returns the first address.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// Returns the size of a page: what takes memory, or none, as a whole.
#[must_use]
pub fn page_size() -> usize {
    os::memory::page_size()
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: 1. The range is exactly what `map` gave: `new` keeps it. 2. It is given back
        // once: here. 3. It is not used after: users of `base` promise not to outlive `self`.
        unsafe { os::memory::unmap(self.base, self.len) };
    }
}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn what_is_discarded_reads_as_zero_and_the_rest_stays() {
        let page = page_size();
        let reservation = Reservation::new(4 * page).expect("address space");
        let word = |at: usize| {
            assert!(at + 8 <= reservation.len());
            // SAFETY: 1. Aligned and inside: asserted above. 2. Accessed atomically only: this
            // closure is the only access.
            unsafe { AtomicU64::from_ptr(reservation.base().add(at).cast().as_ptr()) }
        };
        (0..4).for_each(|n| word(n * page).store(7, Ordering::Relaxed));
        // SAFETY: 1. No other code accesses the range: the test's own.
        unsafe { reservation.discard(page, 2 * page) }.expect("inside");
        let left = [0, 1, 2, 3].map(|n| word(n * page).load(Ordering::Relaxed));
        assert_eq!(left, [7, 0, 0, 7]);
        for (offset, len) in [(page, 4 * page), (8, page), (usize::MAX & !(page - 1), page)] {
            // SAFETY: 1. As above.
            let error = unsafe { reservation.discard(offset, len) }.expect_err("not inside");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        assert_eq!(word(0).load(Ordering::Relaxed), 7);
    }
}
