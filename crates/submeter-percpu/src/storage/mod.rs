//! Storage: words of which every CPU has its own copy.
//!
//! An [`Area`] reserves one range of addresses and cuts it into rows, one per CPU; a word lies at
//! the same offset in each. Pages take memory when they are first written, so idle words cost
//! nothing per CPU, and neither do CPUs that could exist but do not.
//!
//! Trade-offs: reading a word means visiting every row. An area takes address space (1 GiB per
//! row), which `ulimit -v` may refuse. Only lines that were handed out may be accessed, so locked
//! memory, core dumps and strict overcommit count only these.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use once_cell::race::OnceBox;
use submeter_sys::memory::page_size;
use submeter_sys::{Backend, ResolvedHint, RowHint, Rseq, barrier};

mod alloc;
mod block;
pub(crate) mod layout;
pub(crate) mod mapping;
#[expect(unsafe_code, reason = "addresses of rows")]
pub(crate) mod raw;
mod reads;

use alloc::Allocator;
use raw::Rows;
use reads::Tallies;

use crate::dirty::{DirtyBits, MarkedRows, bits_of};
use crate::process_lock::ProcessMutex;

pub use block::{Block, BlockRef};
pub(crate) use block::{BlockWord, Words};
pub use layout::LINE_WORDS;
pub use raw::{DataRows, OwnedLines, OwnedRows};

/// A reservation of per-CPU words, handed out in [`Block`]s. Cloning is a pointer copy; the
/// reservation is released with the last block and the last clone.
#[derive(Clone, Debug)]
pub struct Area {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    rows: Rows,
    hint: ResolvedHint,
    /// See [`Area::beside`].
    beside: Option<Rseq>,
    /// The tallies of the data rows.
    tallies: Tallies,
    allocator: ProcessMutex<Allocator>,
    /// Whether a trim may be due: most flushes need no lock to learn that none is. Written with
    /// `allocator` locked.
    trim_due: AtomicBool,
    /// One more than the last line handed out: a scan must cover all lines before it. It only
    /// grows.
    lines_end: AtomicUsize,
    /// Whether any locked row was ever written: until then readers skip them.
    locked_used: AtomicBool,
    /// The part of the data rows that flushes visit.
    marked_rows: MarkedRows,
}

/// The lines that [`Area::find_dirty`] scans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lines {
    /// All lines, for callers that handle everything found: a later `All` does not find it again.
    All,
    /// All lines, for callers that leave some.
    Some,
    /// A range, without a look at any other line.
    Range(Range<usize>),
}

/// Up to 64 dirty lines of a row, as [`Area::find_dirty`] finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyLines {
    /// The row, from the first data row on.
    pub row: u32,
    /// The group of 64 lines: those from `64 * word` on.
    pub word: u32,
    /// The lines: bit `b` for line `64 * word + b`.
    pub bits: u64,
}

impl DirtyLines {
    /// Returns the lines, from the start of the area.
    pub fn lines(self) -> impl Iterator<Item = usize> {
        bits_of(self.word as usize, self.bits)
    }

    /// Returns the bits of those lines that are in a range.
    #[must_use]
    pub fn among(self, range: &Range<usize>) -> u64 {
        let first = self.word as usize * 64;
        let [from, to] = [range.start, range.end].map(|line| line.saturating_sub(first).min(64));
        let below = |line: usize| (1_u128 << line).wrapping_sub(1) as u64;
        self.bits & below(to) & !below(from)
    }
}

impl Area {
    /// Reserves an area with shared rows for its owner's use: as many as `shared` returns for the
    /// number of data rows.
    ///
    /// # Errors
    /// When the kernel refuses the address space.
    pub fn new(shared: impl FnOnce(usize) -> usize) -> io::Result<Area> {
        let probe = submeter_sys::probe();
        Area::on(probe.rseq(), probe.row_hint(), |data| (shared(data), 0)).map(|(area, _)| area)
    }

    /// Reserves an area like [`new`](Area::new), with rows for one exclusive owner: `rows` returns
    /// the number of shared and of owned rows for the number of data rows.
    ///
    /// # Errors
    /// When the kernel refuses the address space.
    pub fn with_owner(rows: impl FnOnce(usize) -> (usize, usize)) -> io::Result<(Area, OwnedRows)> {
        let probe = submeter_sys::probe();
        Area::on(probe.rseq(), probe.row_hint(), rows)
    }

    /// Reserves an area like [`new`](Area::new), on a backend no better than `backend`: for tests
    /// and measurements.
    ///
    /// # Errors
    /// When the kernel refuses the address space.
    pub fn with_backend(backend: Backend, shared: impl FnOnce(usize) -> usize) -> io::Result<Area> {
        let probe = submeter_sys::probe();
        match backend {
            Backend::LibcRseq | Backend::OwnRseq => return Area::new(shared),
            Backend::LockedByCpu => Area::on(None, probe.row_hint(), |data| (shared(data), 0)),
            Backend::LockedByThread => {
                Area::on(None, RowHint::of_thread(), |data| (shared(data), 0))
            }
        }
        .map(|(area, _)| area)
    }

    fn on(
        rseq: Option<Rseq>,
        hint: RowHint,
        rows: impl FnOnce(usize) -> (usize, usize),
    ) -> io::Result<(Area, OwnedRows)> {
        let fast = rseq.map_or(0, |rseq| rseq.cpus() as usize);
        let locked = submeter_sys::locked_rows();
        let (shared, owned) = rows(fast + locked);
        let (rows, owned) = Rows::new(rseq, locked, shared, owned)?;
        Ok((Area::over(rows, hint, rseq), owned))
    }

    fn over(rows: Rows, hint: RowHint, beside: Option<Rseq>) -> Area {
        let allocator = ProcessMutex::new(Allocator::new(page_size() / LINE_BYTES));
        // Where there are no rows of CPUs, locked rows are always in use.
        let locked_used = AtomicBool::new(rows.cpus() == 0);
        let lines_end = AtomicUsize::new(0);
        let data = rows.data_rows();
        let (tallies, marked_rows) = (Tallies::new(data), MarkedRows::new(data));
        let inner = Arc::new(Inner {
            rows,
            hint: hint.resolved(),
            beside,
            tallies,
            allocator,
            trim_due: AtomicBool::new(false),
            lines_end,
            locked_used,
            marked_rows,
        });
        Area { inner }
    }

    /// Returns the area that counters use by default, reserved on first use.
    ///
    /// # Errors
    /// When the kernel refuses the address space. The next call tries again.
    pub fn common() -> io::Result<&'static Area> {
        // Without a lock, which a fork could leave locked in the child. If two threads come first
        // at the same time, each reserves an area, and one drops its own, or finds no room beside
        // the other's.
        static COMMON: OnceBox<Area> = OnceBox::new();
        let made = COMMON.get_or_try_init(|| Area::new(|_| 0).map(Box::new));
        made.or_else(|error| COMMON.get().ok_or(error))
    }

    /// Takes a block of `words` words, all zero, which starts at a new line. Occasionally it makes
    /// more of each row accessible: a system call or two for each.
    ///
    /// # Errors
    /// `OutOfMemory` when the rows are full, or when the system refuses to make more of them
    /// accessible, with the reason.
    ///
    /// # Panics
    /// When `words` is 0.
    pub fn block(&self, words: usize) -> io::Result<Block> {
        assert!(words > 0, "a block has a word");
        let lines = words.div_ceil(LINE_WORDS);
        let mut allocator = self.inner.allocator.lock();
        let first = allocator.take_lines(lines).ok_or(io::ErrorKind::OutOfMemory)?;
        if let Err(error) = self.inner.rows.open(first + lines) {
            allocator.give_lines(first, lines);
            return Err(error);
        }
        self.publish_end(&allocator);
        Ok(Block::new(self.clone(), first * LINE_WORDS, words, lines))
    }

    /// Takes a block of one word, which shares its line with others.
    ///
    /// # Errors
    /// `OutOfMemory` when the rows are full.
    pub fn word(&self) -> io::Result<Block> {
        self.words(1)
    }

    /// Takes a block of a few words, fewer than a line has, which share their line with others.
    pub(crate) fn words(&self, words: usize) -> io::Result<Block> {
        debug_assert!(words < LINE_WORDS);
        let mut allocator = self.inner.allocator.lock();
        let first = allocator.take_words(words).ok_or(io::ErrorKind::OutOfMemory)?;
        if let Err(error) = self.inner.rows.open(first / LINE_WORDS + 1) {
            allocator.give_words(first, words);
            return Err(error);
        }
        self.publish_end(&allocator);
        Ok(Block::new(self.clone(), first, words, 0))
    }

    /// Publishes the end of the lines handed out. The allocator is locked.
    fn publish_end(&self, allocator: &Allocator) {
        // Release: pairs with the Acquire in `lines_end`, so that a reader that learned of a line
        // in the new range looks there: its load is ordered after the line was handed out. It does
        // not exceed the open lines: lines beyond them were not handed out.
        let end = allocator.end().min(self.inner.rows.open_lines());
        self.inner.lines_end.store(end, Ordering::Release);
    }

    fn lines_end(&self) -> usize {
        // Acquire: pairs with the Release in `publish_end`.
        self.inner.lines_end.load(Ordering::Acquire)
    }

    /// Returns the number of data rows: those of CPUs, then locked ones.
    #[must_use]
    pub fn data_rows(&self) -> usize {
        self.inner.rows.data_rows()
    }

    /// Returns the data rows that may have a dirty line, or had one. Costs a fence and a load for
    /// each 64 rows.
    ///
    /// # Ordering
    /// SeqCst: includes the row of every line to which [`Block::add_dirty`] added before.
    pub fn marked_rows(&self) -> impl Iterator<Item = usize> + Clone {
        self.inner.marked_rows.rows()
    }

    /// Returns the data rows that may hold anything but zero.
    #[inline]
    #[must_use]
    pub fn rows_in_use(&self) -> Range<usize> {
        let rows = &self.inner.rows;
        // SeqCst: pairs with the store before a locked add; an add that returned is not skipped.
        let locked = self.inner.locked_used.load(Ordering::SeqCst);
        0..if locked { rows.data_rows() } else { rows.cpus() }
    }

    /// Returns the sequences, where this area uses them.
    #[must_use]
    pub fn rseq(&self) -> Option<Rseq> {
        self.inner.rows.rseq()
    }

    /// Finds dirty lines: calls `found` with those of `lines` that have a dirty bit, row by row.
    /// The bits stay as they are until they are [taken](Area::take_dirty).
    ///
    /// Costs a load for each of the [marked rows](Area::marked_rows), one for each 4,096 lines of a
    /// row that has dirty ones, and one for each 64 lines near a dirty one; with [`Lines::Range`] a
    /// load for each 64 lines.
    ///
    /// # Panics
    /// When there are no such lines, and some row was ever marked.
    pub fn find_dirty(&self, lines: &Lines, mut found: impl FnMut(DirtyLines)) {
        let end = self.lines_end();
        for row in self.marked_rows() {
            let bits = self.inner.dirty_bits(row);
            let found = |word: usize, bits| {
                found(DirtyLines { row: row as u32, word: word as u32, bits });
            };
            match lines {
                Lines::All => bits.find(end, found),
                Lines::Some => bits.find_some(end, found),
                Lines::Range(range) => bits.find_range(range.clone(), found),
            }
        }
    }

    /// Takes dirty bits that were found. The lines count as unread until they are
    /// [released](Area::release_dirty). Costs a locked instruction for each 64.
    ///
    /// # Panics
    /// When there are no such lines.
    pub fn take_dirty(&self, found: &mut [DirtyLines]) {
        for lines in found {
            let bits = self.inner.dirty_bits(lines.row as usize);
            lines.bits = bits.take_bits(lines.word as usize, lines.bits);
        }
    }

    /// Stops counting lines that were taken: call it once their contents are where readers find
    /// them.
    ///
    /// # Ordering
    /// A reader whose [`dirty_lines`](Area::dirty_lines) does not count them sees all stores before
    /// this call.
    pub fn release_dirty(&self, marked: &[DirtyLines]) {
        for marked in marked {
            self.inner.dirty_bits(marked.row as usize).release(marked.bits.count_ones());
        }
    }

    /// Undoes taking: marks the lines dirty again.
    pub fn restore_dirty(&self, marked: &[DirtyLines]) {
        for at in marked {
            let marks = self.inner.dirty_bits(at.row as usize);
            at.lines().for_each(|line| marks.mark(line));
        }
        // After they were marked again, so that there is no moment at which too few lines count.
        self.release_dirty(marked);
    }

    /// Waits until every sequence that saw a dirty bit before it was taken has committed or will
    /// restart. Costs the same as [`barrier::wait`].
    ///
    /// # Panics
    /// When the kernel refuses a barrier that it granted at start-up: continuing would silently
    /// lose updates.
    pub fn barrier(&self) {
        if self.rseq().is_some() {
            barrier::wait().expect("the start-up probe found it to work");
        }
    }

    /// Does the same as [`barrier`](Area::barrier), for callers that can undo what they began.
    ///
    /// # Errors
    /// When the kernel refuses a barrier that it granted at start-up; [`io::ErrorKind::TimedOut`]
    /// when a CPU could not be visited in time: see [`barrier::try_wait`].
    pub fn try_barrier(&self) -> io::Result<()> {
        if self.rseq().is_some() { barrier::try_wait() } else { Ok(()) }
    }

    /// Returns the minimum time between two optional barriers of a flusher: on average they then
    /// interrupt an updater no more often than the scheduler's tick does.
    #[must_use]
    pub fn barrier_spacing(&self) -> Duration {
        submeter_sys::probe().barrier.spacing()
    }
}

const LINE_BYTES: usize = LINE_WORDS * 8;

/// Returning memory of words that no block has to the system, a page at a time.
impl Area {
    /// Gives back the memory of pages in which no block has a line but one had since the last time,
    /// with their neighbours. Returns how many bytes of a row that is: a row has only as much
    /// memory there as was ever written. Rows whose pages begin elsewhere keep up to one page of a
    /// run of such pages.
    ///
    /// Costs a scan of everything that is free, and a system call for each run of pages and each
    /// row. Blocks may be taken and dropped concurrently. Words reused later cost a page fault
    /// again, so call it seldom, or call [`trim_when_due`](Area::trim_when_due). Single
    /// [words](Area::word) keep their memory. It does nothing while another thread is trimming.
    pub fn trim(&self) -> usize {
        self.trim_with(|_| true)
    }

    fn trim_with(&self, mut also: impl FnMut(Range<usize>) -> bool) -> usize {
        let inner = &self.inner;
        // Taken out, so that the lock is not held during system calls: creating a group needs it.
        let Some(mut free) = inner.allocator.lock().take_free_pages() else { return 0 };
        let mut given = 0;
        free.pages.retain(|lines| {
            // An error (memory that is locked, a kernel that does not know the advice) leaves it
            // committed, which is harmless. It still counts as given back until it has been in use
            // again: otherwise the system would be asked at each flush, and refuse each time, row
            // by row.
            if inner.rows.discard(lines.clone()).is_ok() {
                given += lines.len() * LINE_BYTES;
            }
            also(lines.clone())
        });
        // The lock also tells the next owner of a line that it is zero.
        let mut allocator = inner.allocator.lock();
        allocator.return_free_pages(free);
        inner.note_due(&allocator);
        given
    }

    /// Does the same as [`trim`](Area::trim) if a quarter of all words ever handed out is free, and
    /// pages of at least an eighth of that, and of 256 KiB per row, have memory to give back:
    /// blocks that come and go keep theirs. Otherwise it costs a load. Calls `also` with each range
    /// of lines that no block has, nor gets before `also` returns, to [discard](OwnedRows::discard)
    /// the owner's data about them. Where `also` returns false, the work remains for a later call.
    pub fn trim_when_due(&self, also: impl FnMut(Range<usize>) -> bool) -> usize {
        let inner = &self.inner;
        // Relaxed: a hint, which the lock confirms; a later call finds what this one misses.
        let due = inner.trim_due.load(Ordering::Relaxed) && inner.note_due(&inner.allocator.lock());
        if due { self.trim_with(also) } else { 0 }
    }
}

/// Areas of as many rows as a test or a benchmark needs, on any machine.
impl Area {
    /// Reserves an area that behaves as on a machine of `cpus` CPUs without sequences: for tests
    /// and benchmarks of behaviour that depends on the number of CPUs. Like a real area, it takes
    /// address space for each CPU, but memory only for what is written.
    ///
    /// Outside its rows, a counter has the same words as with that many CPUs, so a read costs the
    /// same. Each thread counts in a row of its own until it chooses one with
    /// [`simulate_cpu`](Area::simulate_cpu). No simulation shows what it costs real CPUs to share a
    /// line.
    ///
    /// # Examples
    /// ```
    /// use submeter_percpu::{Area, PercpuCounter};
    ///
    /// let counter = PercpuCounter::with_batch(&Area::simulated(64)?, 32)?;
    /// for cpu in 0..64 {
    ///     Area::simulate_cpu(cpu);
    ///     counter.add(31);
    /// }
    /// assert_eq!((counter.read().low(), counter.sum()), (0, 64 * 31));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the kernel refuses the address space.
    ///
    /// # Panics
    /// When `cpus` is 0.
    pub fn simulated(cpus: usize) -> io::Result<Area> {
        Area::simulated_with_owner(cpus, |_| (0, 0)).map(|(area, _)| area)
    }

    /// Reserves an area like [`simulated`](Area::simulated), with rows for one owner as in
    /// [`with_owner`](Area::with_owner).
    ///
    /// # Errors
    /// When the kernel refuses the address space.
    ///
    /// # Panics
    /// When `cpus` is 0.
    pub fn simulated_with_owner(
        cpus: usize,
        rows: impl FnOnce(usize) -> (usize, usize),
    ) -> io::Result<(Area, OwnedRows)> {
        assert!(cpus > 0, "a machine has a CPU");
        let (shared, owned) = rows(cpus);
        // Not capped like the locked rows of real areas: the simulation has a row for each CPU.
        let (rows, owned) = Rows::new(None, cpus, shared, owned)?;
        // At most as many as the address space allows.
        let simulated = |rseq: Rseq| rseq.with_rows(rseq.cpus().max(cpus as u32));
        let beside = submeter_sys::probe().rseq().map(simulated);
        Ok((Area::over(rows, RowHint::of_thread(), beside), owned))
    }

    /// Lets the calling thread add in the row of `cpu` (modulo their number) from now on, in
    /// simulated areas and in those of [`Backend::LockedByThread`]. Costs a store to a
    /// thread-local.
    pub fn simulate_cpu(cpu: u32) {
        submeter_sys::set_thread_number(cpu);
    }

    /// Returns the sequences for the words that a counter has for each CPU outside the rows. A
    /// simulated area has those too, and a thread adds to its real CPU's word there: the words that
    /// a read visits are simulated, but not which thread writes them.
    pub(crate) fn beside(&self) -> Option<Rseq> {
        self.inner.beside
    }
}

impl Inner {
    /// Returns whether a trim is due, and notes it. The allocator is locked.
    fn note_due(&self, allocator: &Allocator) -> bool {
        let due = allocator.wants_trim();
        // Relaxed: see `trim_when_due`.
        self.trim_due.store(due, Ordering::Relaxed);
        due
    }

    /// Returns the dirty bits of a row, by its number among all rows.
    #[inline]
    fn dirty_bits(&self, row: usize) -> DirtyBits<'_> {
        self.rows.dirty_bits(row, self.tallies.dirty_of(row))
    }

    /// Marks a line of a data row.
    #[inline]
    fn mark(&self, row: usize, line: usize) {
        self.marked_rows.note(row, self.tallies.marked_rows_of(row));
        self.dirty_bits(row).mark(line);
    }

    /// Records that locked rows are in use. Called before a locked add.
    #[inline]
    fn use_locked(&self) {
        // Relaxed: a hint that saves the store; the thread that stores orders its own add.
        if !self.locked_used.load(Ordering::Relaxed) {
            // SeqCst: before the add; pairs with the load in `rows_in_use`.
            self.locked_used.store(true, Ordering::SeqCst);
        }
    }
}
