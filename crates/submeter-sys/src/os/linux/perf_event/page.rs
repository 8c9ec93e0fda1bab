//! The page of an event, by which the kernel informs user mode without a call.
//!
//! The kernel writes it whenever it puts the event on a CPU or takes it off, which for a thread's
//! event is each time that the thread is switched in or out. It does so on the thread's own CPU
//! while the thread is interrupted. The thread therefore needs no barrier, only loads in program
//! order, and what it loaded belongs to one moment if the sequence number is the same before and
//! after.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use super::{Event, pmc};
use crate::clock::{self, Source};
use crate::fork;
use crate::perf_event::{Config, SOFTWARE_DUMMY, TYPE_SOFTWARE};

/// A mapped page. Keeps its event open without a descriptor.
///
/// A fork does not copy it: the child has a hole there, so the owner of a `Page` checks
/// [`fork::generation`] before each read.
#[derive(Debug)]
pub(crate) struct Page {
    base: NonNull<u8>,
    len: usize,
}

impl Page {
    /// Opens a counter that counts nothing, for the sake of its page.
    ///
    /// # Errors
    /// The same as [`Event::open`]; `EPERM` when the memory that users may lock for such pages is
    /// used up.
    pub(crate) fn open() -> io::Result<Page> {
        // The descriptor is closed at once; the mapping keeps the event open.
        Page::of(&Event::open(&Config::new(TYPE_SOFTWARE, SOFTWARE_DUMMY), None)?)
    }

    /// Maps the page of `event`.
    ///
    /// # Errors
    /// The same as [`Page::open`].
    pub(super) fn of(event: &Event) -> io::Result<Page> {
        let len = crate::memory::page_size();
        // SAFETY: 1. The mapping aliases nothing of ours: it is new, at an address of the kernel's
        // choice, and only read.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                event.file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Page { base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?, len })
    }

    /// Returns the word with the number that changes at each switch. It may be loaded while the
    /// page lives.
    ///
    /// Its other half is the index of a hardware counter, always 0 for an event that needs none.
    pub(crate) fn word(&self) -> NonNull<AtomicU64> {
        // SAFETY: 1. The offset is inside the page: `lock`, a u32, is at byte 8, followed by
        // `index` (linux/perf_event.h).
        unsafe { self.base.add(8) }.cast()
    }

    /// Returns the words needed to read the event's counter.
    ///
    /// # Safety
    /// Called in the process that mapped the page.
    unsafe fn words(&self) -> &Words {
        // SAFETY: 1. The words are inside the page and aligned: they are its first. 2. The page
        // lives as long as `self`: its drop unmaps it. 3. It is mapped here: the caller's promise.
        unsafe { self.base.cast().as_ref() }
    }

    /// Forgets the page without unmapping it: for a forked child, where it was never mapped and
    /// something else may be.
    pub(crate) fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: 1. The range is exactly the mapping that `of` made, unmapped once: here. 2.
        // Nothing loads from it any longer: this is its only owner.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A page, and the process that mapped it: it is unmapped only there.
#[derive(Debug)]
struct Owned {
    /// `None` only while it is dropped.
    page: Option<Page>,
    generation: u32,
}

impl Owned {
    fn new(map: impl FnOnce() -> io::Result<Page>) -> io::Result<Owned> {
        // A fork from now on must be noticed.
        fork::watch();
        let generation = fork::generation();
        Ok(Owned { page: Some(map()?), generation })
    }

    /// Returns the page, unless this is a forked child, which has a hole there.
    #[inline(always)]
    fn get(&self) -> Option<&Page> {
        self.page.as_ref().filter(|_| fork::is(self.generation))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(page) = self.page.take().filter(|_| !fork::is(self.generation)) {
            page.forget();
        }
    }
}

/// Tells by one load whether the thread that created it was switched out since the last call.
///
/// Meant for values that change only then, such as the number of context switches: they need not be
/// read again as long as the answer is no. Costs a page for each, and the kernel some work at each
/// switch.
#[derive(Debug)]
pub struct Switches {
    page: Owned,
    seen: Option<u64>,
}

impl Switches {
    /// Starts to watch the calling thread.
    ///
    /// # Errors
    /// The same as [`Event::open`]; `EPERM` when the memory that users may lock for such pages is
    /// used up; [`io::ErrorKind::Unsupported`] if [`clock::choice`] found that pages do not show
    /// switches, or was told not to use them.
    pub fn watch() -> io::Result<Switches> {
        if clock::choice().source != Source::PerfPage {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Switches { page: Owned::new(Page::open)?, seen: None })
    }

    /// Returns whether there may have been a switch since the last call; true for the first call.
    ///
    /// A later read is not older than the answer: a switch between the two is reported the next
    /// time.
    #[inline]
    pub fn happened(&mut self) -> bool {
        // SAFETY: 1. The page is mapped: `get` has compared the generation.
        let now = self.page.get().map(|page| unsafe { load(page.word()) });
        // Without a page, in a forked child, there is no way to know.
        let happened = now.is_none() || now != self.seen;
        self.seen = now;
        happened
    }
}

/// Reads an event's counter by an instruction, as long as the event has one and user mode may read
/// it.
///
/// Costs some tens of nanoseconds where a system call costs hundreds, and a page.
#[derive(Debug)]
pub struct FastRead {
    page: Owned,
}

impl FastRead {
    /// Maps the page of `event`, which is of the calling thread.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if there is no such instruction, or if the machine's CPUs
    /// differ: one with fewer counters than another traps when it is asked for a counter that only
    /// the other has. `EPERM` when the memory that users may lock for such pages is used up.
    pub fn of(event: &Event) -> io::Result<FastRead> {
        // The kernel creates it if some cores are of a different kind.
        const OTHER_CORES: &str = "/sys/bus/event_source/devices/cpu_atom";
        if !pmc::READABLE || std::path::Path::new(OTHER_CORES).exists() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(FastRead { page: Owned::new(|| Page::of(event))? })
    }

    /// Returns the count. `None` if only a system call can tell: the event has no counter now, user
    /// mode may not read it, or the thread was interrupted each time.
    #[inline]
    #[must_use]
    pub fn read(&self) -> Option<u64> {
        // SAFETY: 1. The page is mapped: `get` has compared the generation.
        let words = unsafe { self.page.get()?.words() };
        // SAFETY: 1. User mode may read that counter: `count` reads the one that the page names,
        // after the page has allowed it. 2. The CPUs are of one kind: `of` refuses others.
        count(words, |index| unsafe { pmc::read(index) })
    }
}

/// The first words of a page: version, `lock` and `index`, `offset`, the times for which the event
/// was enabled and on a CPU, what user mode may do, and in the lowest 16 bits of the last word the
/// width of counters.
type Words = [AtomicU64; 7];

/// Number of tries while the kernel writes. A thread that is interrupted each time is better off
/// with a system call.
const ATTEMPTS: usize = 4;

/// Follows the protocol of a page. `counter` reads one of the CPU's counters.
///
/// For little-endian machines, like the instruction that makes it worthwhile.
#[inline]
fn count(words: &Words, counter: impl Fn(u32) -> u64) -> Option<u64> {
    // Relaxed, each load: the kernel wrote it on this CPU while this thread was interrupted; see
    // the module.
    let word = |at: usize| words[at].load(Ordering::Relaxed);
    for _ in 0..ATTEMPTS {
        let before = word(1);
        let index = (before >> 32) as u32;
        let (may, width) = (word(5) >> 2 & 1 == 1, word(6) as u16);
        if index == 0 || !may || !(1..=64).contains(&width) {
            return None;
        }
        let offset = word(2);
        // SeqCst, here and below: for the compiler only, so that no load moves across the
        // counter's.
        compiler_fence(Ordering::SeqCst);
        let raw = counter(index - 1);
        compiler_fence(Ordering::SeqCst);
        // An odd number: the kernel was in the middle of writing.
        if word(1) == before && before & 1 == 0 {
            return Some(offset.wrapping_add(extend(raw, width)));
        }
    }
    None
}

/// Extends a narrower counter to 64 bits. The kernel starts it below zero, so that it overflows at
/// the end.
fn extend(raw: u64, width: u16) -> u64 {
    let unused = 64 - u32::from(width);
    ((raw << unused) as i64 >> unused) as u64
}

/// Loads a page's word.
///
/// # Safety
/// `word` is [`Page::word`] of a live page, in the process that opened it.
#[inline(always)]
pub(crate) unsafe fn load(word: NonNull<AtomicU64>) -> u64 {
    // The kernel writes the halves separately, and a mixture of old and new differs from the old
    // value, which is all that matters. SAFETY: 1. The word is in a page that is mapped: the
    // caller's promise.
    let word = unsafe { word.as_ref() };
    // Relaxed: the kernel wrote it on this thread's way back to user mode, before this instruction.
    word.load(Ordering::Relaxed)
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
