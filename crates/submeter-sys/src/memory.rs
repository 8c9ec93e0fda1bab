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

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: 1. The range is exactly the mapping that `new` made, unmapped once, here.
        // 2. Whoever took raw pointers from `base` promised not to outlive `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
