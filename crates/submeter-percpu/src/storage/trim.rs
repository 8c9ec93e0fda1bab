//! Memory of words that nobody has any more goes back to the system, a page at a time.

use std::ops::Range;

use submeter_sys::memory::page_size;

use super::Area;
use super::raw::LINE_WORDS;

impl Area {
    /// Gives back the memory of pages in which no block has a line, and returns how many bytes of a row that is: a
    /// row has as much memory there as was ever written.
    ///
    /// Costs a look at everything that is free, and a system call for each run of pages and row. Blocks may be
    /// taken and dropped meanwhile. Words reused later cost a page fault again, so ask seldom; or
    /// ask [`trim_when_due`](Area::trim_when_due). Single [words](Area::word) keep their memory.
    pub fn trim(&self) -> usize {
        self.trim_with(|_| ())
    }

    fn trim_with(&self, mut also: impl FnMut(Range<usize>)) -> usize {
        const LINE: usize = LINE_WORDS * 8;
        let inner = &self.inner;
        // Taken out, so that the lock is not held during system calls: whoever creates a group waits for it.
        let free = inner.allocator.lock().take_free_pages(page_size() / LINE);
        let mut given = 0;
        for lines in &free.pages {
            // An error (a kernel that does not know the advice) leaves memory committed, and nothing wrong.
            if inner.rows.discard(lines.clone()).is_ok() {
                given += lines.len() * LINE;
            }
            also(lines.clone());
        }
        // The lock also tells the next owner of a line that it is zero.
        inner.allocator.lock().return_free_pages(free);
        given
    }

    /// As [`trim`](Area::trim), if a quarter of all there ever was is free, and half of that was freed since the last
    /// time, and at least 256 KiB a row: what comes and goes keeps its memory. Otherwise costs a lock. Calls `also` with each range of lines that nobody has, nor gets before it
    /// returns: to [discard](super::OwnedRows::discard) what the owner remembers of them.
    pub fn trim_when_due(&self, also: impl FnMut(Range<usize>)) -> usize {
        let due = self.inner.allocator.lock().wants_trim();
        if due { self.trim_with(also) } else { 0 }
    }
}
