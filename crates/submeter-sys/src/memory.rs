//! Reserved address space whose pages appear when they are first touched.

use std::error::Error;
use std::fmt;
use std::io;
use std::ptr::NonNull;

use crate::os;

/// A range of zeroed, private, anonymous address space. Reserving costs one system call and no
/// memory; a page takes memory from its first write on. Not for small objects: use the allocator.
///
/// Any part of it that is not accessible yet ([`closed`](Reservation::closed)) is exempt from
/// operations on the whole process: `mlockall` commits only open parts, a core dump holds only
/// those, and strict overcommit and `RLIMIT_DATA` count only those. In a range reserved after
/// `mlockall(MCL_FUTURE)`, even open pages take memory, and are locked, only from their first write
/// on. Limits that count every address still do: `RLIMIT_AS`, and `RLIMIT_MEMLOCK` after
/// `mlockall(MCL_FUTURE)`.
///
/// On Windows all of it counts as committed from the start, and nothing is given back before the
/// drop. That is why rows are smaller there: [`STRIDE`](crate::STRIDE).
#[derive(Debug)]
pub struct Reservation {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: 1. A `Reservation` is an address and a length, tied to no thread. 2. Access is
// synchronised by the code that dereferences what `base` returns, which is unsafe.
unsafe impl Send for Reservation {}
// SAFETY: 1. No method reads or writes the memory behind a shared reference. 2. As for `Send`.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `len` bytes, page-aligned, and opens all of them.
    ///
    /// # Errors
    /// The same as [`closed`](Reservation::closed) and [`open`](Reservation::open).
    pub fn new(len: usize) -> io::Result<Reservation> {
        let reservation = Reservation::closed(len)?;
        reservation.open(0, len)?;
        Ok(reservation)
    }

    /// Reserves `len` bytes, page-aligned, that no thread may access before they are
    /// [opened](Reservation::open). Where there are no such mappings (Windows), they are open.
    ///
    /// # Errors
    /// The system's error, with the remedy if a limit is the cause: `ENOMEM` where address space is
    /// limited (`ulimit -v`), `EAGAIN` where locked memory is (`ulimit -l`, and the process called
    /// `mlockall(MCL_FUTURE)`), `EINVAL` when `len` is 0.
    pub fn closed(len: usize) -> io::Result<Reservation> {
        let base = os::memory::map(len).map_err(|cause| NoAddresses { len, cause })?;
        Ok(Reservation { base, len })
    }

    /// Reserves `len` bytes and opens all of them, for an allocator in the middle of a call. It
    /// neither allocates nor takes a lock of the program, so it may run wherever the system may be
    /// called. Returns `None` where [`new`](Reservation::new) fails: an error with the cause would
    /// allocate.
    #[must_use]
    pub fn within_malloc(len: usize) -> Option<Reservation> {
        let reservation = Reservation { base: os::memory::map(len).ok()?, len };
        // SAFETY: 1. The range is the whole mapping, which begins with a page.
        unsafe { os::memory::open(reservation.base, len) }.ok()?;
        Some(reservation)
    }

    /// Makes the pages of a range readable and writable; those that are open stay open. Costs a
    /// system call, and if the process has locked all its memory since (`mlockall(MCL_CURRENT)`),
    /// the memory of the range.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when the range is not inside; otherwise the system's error,
    /// with the remedy: `ENOMEM` if memory is counted before it is used (`vm.overcommit_memory=2`,
    /// `RLIMIT_DATA`), or if the process has as many mappings as allowed (`vm.max_map_count`).
    pub fn open(&self, offset: usize, len: usize) -> io::Result<()> {
        let end = offset.checked_add(len).filter(|&end| end <= self.len);
        let end = end.ok_or(io::ErrorKind::InvalidInput)?;
        let first = offset / page_size() * page_size();
        if first == end {
            return Ok(());
        }
        // SAFETY: 1. The range lies inside the mapping: checked above. 2. It begins with a page:
        // rounded above. The system rounds its end up, as it did for the mapping.
        let opened = unsafe { os::memory::open(self.base.add(first), end - first) };
        opened.map_err(|cause| NoMemory { len: end - first, cause }.into())
    }

    /// Gives the memory of whole pages back to the system. They then read as zero, and take memory
    /// again when next written. Costs a system call, and a page fault for each page that is used
    /// again.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when `offset` is not page-aligned or the range is not
    /// inside, [`io::ErrorKind::Unsupported`] on Windows: the range is then unchanged.
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
        // page: the start is checked above, and the system rounds the end up, as for the mapping.
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

/// Why addresses cannot be reserved, and what helps.
#[derive(Debug)]
struct NoAddresses {
    len: usize,
    cause: io::Error,
}

/// Why addresses cannot be opened, and what helps.
#[derive(Debug)]
struct NoMemory {
    len: usize,
    cause: io::Error,
}

impl fmt::Display for NoAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoAddresses { len, cause } = self;
        write!(f, "cannot reserve {} MiB of address space: {cause}", len.div_ceil(1 << 20))?;
        f.write_str(match cause.kind() {
            // `EAGAIN`.
            io::ErrorKind::WouldBlock => {
                ": mlockall(MCL_FUTURE) counts it as locked: raise RLIMIT_MEMLOCK (ulimit -l), or \
                 reserve before mlockall"
            }
            io::ErrorKind::OutOfMemory => {
                ": raise RLIMIT_AS (ulimit -v), which counts address space that takes no memory"
            }
            _ => "",
        })
    }
}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoMemory { len, cause } = self;
        write!(f, "cannot make {} KiB accessible: {cause}", len.div_ceil(1 << 10))?;
        f.write_str(match cause.kind() {
            io::ErrorKind::OutOfMemory => {
                ": raise RLIMIT_DATA (ulimit -d) or vm.max_map_count, or set vm.overcommit_memory \
                 to 0, whichever is at its limit"
            }
            _ => "",
        })
    }
}

impl Error for NoAddresses {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

impl Error for NoMemory {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

impl From<NoAddresses> for io::Error {
    fn from(error: NoAddresses) -> io::Error {
        io::Error::new(error.cause.kind(), error)
    }
}

impl From<NoMemory> for io::Error {
    fn from(error: NoMemory) -> io::Error {
        io::Error::new(error.cause.kind(), error)
    }
}

/// Returns the size of a page: the unit that takes memory, or none, as a whole.
#[must_use]
pub fn page_size() -> usize {
    os::memory::page_size()
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: 1. The range is exactly what `map` returned: `new` keeps it. 2. It is unmapped
        // once: here. 3. It is not used afterwards: users of `base` promise not to outlive `self`.
        unsafe { os::memory::unmap(self.base, self.len) };
    }
}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn the_discarded_is_zero_and_the_rest_stays() {
        let page = page_size();
        let reservation = Reservation::new(4 * page).expect("address space");
        let word = |at: usize| {
            assert!(at + 8 <= reservation.len());
            // SAFETY: 1. Aligned and inside: asserted above. 2. Only accessed atomically: this
            // closure is the only access.
            unsafe { AtomicU64::from_ptr(reservation.base().add(at).cast().as_ptr()) }
        };
        (0..4).for_each(|n| word(n * page).store(7, Ordering::Relaxed));
        // SAFETY: 1. No other code accesses the range: it belongs to the test.
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

    /// Opened memory can be written, and is unchanged when it is opened again.
    #[test]
    fn opening_twice_keeps_what_was_written() {
        let page = page_size();
        let reservation = Reservation::closed(4 * page).expect("address space");
        reservation.open(2 * page, page).expect("memory");
        // SAFETY: 1. Aligned and inside: the third page's first word. 2. Only accessed atomically:
        // this is the only access.
        let word = unsafe { AtomicU64::from_ptr(reservation.base().add(2 * page).cast().as_ptr()) };
        word.store(7, Ordering::Relaxed);
        // Whole pages: from the last byte of the second page to the first of the fourth.
        reservation.open(2 * page - 1, page + 2).expect("memory");
        assert_eq!(word.load(Ordering::Relaxed), 7);
        reservation.open(page, 0).expect("nothing to do");
        for (offset, len) in [(0, 4 * page + 1), (4 * page, 1), (usize::MAX, 2)] {
            let error = reservation.open(offset, len).expect_err("not inside");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_refusal_names_the_request_and_the_remedy() {
        let error = Reservation::closed(usize::MAX / 2).expect_err("more than there is");
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory, "{error}");
        let text = error.to_string();
        assert!(text.contains("MiB") && text.contains("RLIMIT_AS"), "{text}");
        assert!(error.get_ref().and_then(Error::source).is_some(), "{error:?}");
    }
}
