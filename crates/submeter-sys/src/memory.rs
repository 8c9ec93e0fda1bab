//! Reserved address space whose pages appear when they are first touched.

use std::io;
use std::ptr::NonNull;

/// Holds a range of zeroed, private, anonymous address space. Reserving costs one system call and no memory;
/// a page costs memory from its first write on. Not for small things: use the allocator.
#[derive(Debug)]
pub struct Reservation {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a `Reservation` is only an address and a length; whoever dereferences the address (through
// the raw pointer that `base` returns) answers for synchronisation.
unsafe impl Send for Reservation {}
// SAFETY: as for `Send`: no method reads or writes the memory behind a shared reference.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `len` bytes, page-aligned.
    ///
    /// # Errors
    /// `ENOMEM` where the address space is limited (`ulimit -v`) or overcommit is off
    /// (`vm.overcommit_memory=2`); `EINVAL` when `len` is 0.
    pub fn new(len: usize) -> io::Result<Reservation> {
        // Miri knows neither the flag nor the advice below; it has no lazy memory anyway.
        let lazy = if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };
        // SAFETY: 1. A new private anonymous mapping at an address of the kernel's choice aliases
        // nothing. 2. No file is involved.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | lazy,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // Huge pages would commit 2 MiB for one touched word. The advice may be refused (kernel
        // without THP): then there is nothing to prevent.
        if !cfg!(miri) {
            // SAFETY: the range is the mapping just made; the advice changes no contents.
            unsafe { libc::madvise(address, len, libc::MADV_NOHUGEPAGE) };
        }
        Ok(Reservation { base, len })
    }

    /// Gives the memory of whole pages back to the system; they read as zero then, and take memory again when
    /// they are next written. Costs a system call, and a page fault for each page that is used again.
    ///
    /// # Errors
    /// `EINVAL` when `offset` is not page-aligned or the range is not inside.
    ///
    /// # Safety
    /// Nobody accesses the range meanwhile other than atomically, or relies on what it holds: to other threads this is
    /// as if each word were set to zero at some moment.
    pub unsafe fn discard(&self, offset: usize, len: usize) -> io::Result<()> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        if !inside || !offset.is_multiple_of(page_size()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if cfg!(miri) || len == 0 {
            return Ok(());
        }
        // SAFETY: 1. The range lies inside the mapping, checked above, whose length `new` was given; the kernel
        // rounds the end up to a page, and the mapping ends with one. 2. The mapping is private and anonymous,
        // so that what is dropped reads as zero. 3. The caller answers for who else is there.
        let result = unsafe {
            libc::madvise(self.base.as_ptr().add(offset).cast(), len, libc::MADV_DONTNEED)
        };
        if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
    // SAFETY: takes a number and touches nothing.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // Known to every libc; were it not, the largest page of any Linux is a multiple of the true one.
    usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(1 << 16)
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: 1. The range is exactly the mapping that `new` made, unmapped once, here.
        // 2. Whoever took raw pointers from `base` promised not to outlive `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn what_is_discarded_reads_as_zero_and_the_rest_stays() {
        let page = page_size();
        let reservation = Reservation::new(4 * page).expect("address space");
        let word = |at: usize| {
            assert!(at + 8 <= reservation.len());
            // SAFETY: aligned, inside, and accessed atomically only.
            unsafe { AtomicU64::from_ptr(reservation.base().add(at).cast().as_ptr()) }
        };
        (0..4).for_each(|n| word(n * page).store(7, Ordering::Relaxed));
        // SAFETY: accessed atomically only, here and nowhere else.
        unsafe { reservation.discard(page, 2 * page) }.expect("inside");
        let left = [0, 1, 2, 3].map(|n| word(n * page).load(Ordering::Relaxed));
        assert_eq!(left, [7, 0, 0, 7]);
        for (offset, len) in [(page, 4 * page), (8, page), (usize::MAX & !(page - 1), page)] {
            // SAFETY: as above; refused in any case.
            let error = unsafe { reservation.discard(offset, len) }.expect_err("not inside");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        assert_eq!(word(0).load(Ordering::Relaxed), 7);
    }
}
