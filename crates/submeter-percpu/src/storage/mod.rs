//! Storage: words of which every CPU has its own copy.
//!
//! An [`Area`] reserves one range of addresses and cuts it into rows, one a CPU; a word lies at the
//! same offset in each. Pages take memory when they are first written, so that what is idle costs
//! nothing per CPU, and neither do CPUs that could exist but do not.
//!
//! Trade-offs: reading a word means visiting every row. An area takes address space (1 GiB a row),
//! which `ulimit -v` and strict overcommit may refuse.

use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use submeter_sys::{CpuHint, Rseq, Rung, membarrier};

mod alloc;
mod block;
#[expect(unsafe_code, reason = "addresses of rows")]
pub(crate) mod raw;
mod simulated;
mod trim;
mod within;
mod word;

use alloc::Allocator;
use raw::{Rows, Shape};

pub use block::Block;
pub(crate) use block::Owned;
pub use raw::LINE_WORDS;
pub use word::Word;

/// Reserves per-CPU words and hands them out. Cloning is a pointer copy; the reservation goes with
/// the last [`Block`] and the last clone.
#[derive(Clone, Debug)]
pub struct Area {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    rows: Rows,
    rseq: Option<Rseq>,
    hint: Option<CpuHint>,
    allocator: Mutex<Allocator>,
    /// One more than the last line handed out: what a scan must cover. Only grows.
    lines_end: AtomicUsize,
    /// Whether any locked row was ever written: until then readers skip them all.
    locked_used: AtomicBool,
}

/// A row and a line of it, as [`Area::take_marked`] finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marked {
    /// The data row.
    pub row: u32,
    /// The line, from the start of the area.
    pub line: u32,
}

/// The most locked rows: beyond this many CPUs two share one. DataDog's accumulator stops at the same number.
const LOCKED_ROWS_MAX: usize = 64;

impl Area {
    /// Reserves an area with extra rows for its owner's own use: as many as `shared` makes of the
    /// number of data rows.
    ///
    /// # Errors
    /// When the kernel refuses the address space.
    pub fn new(shared: impl FnOnce(usize) -> usize) -> io::Result<Area> {
        let probe = submeter_sys::probe();
        Area::on(probe.rseq(), probe.cpu_hint(), shared)
    }

    /// As [`new`](Area::new), on a rung no better than `rung`: for tests, and for `submeter doctor`, which measures each.
    ///
    /// # Errors
    /// When the kernel refuses the address space.
    pub fn with_rung(rung: Rung, shared: impl FnOnce(usize) -> usize) -> io::Result<Area> {
        let probe = submeter_sys::probe();
        match rung {
            Rung::LibcRseq | Rung::OwnRseq => Area::new(shared),
            Rung::LockedByCpu => Area::on(None, probe.cpu_hint(), shared),
            Rung::LockedByThread => Area::on(None, None, shared),
        }
    }

    fn on(
        rseq: Option<Rseq>,
        hint: Option<CpuHint>,
        shared: impl FnOnce(usize) -> usize,
    ) -> io::Result<Area> {
        let parallel = || std::thread::available_parallelism().map_or(1, usize::from);
        let cpus = submeter_sys::probe().cpus.unwrap_or_else(parallel);
        let fast = rseq.map_or(0, |rseq| rseq.cpus() as usize);
        let locked = cpus.clamp(1, LOCKED_ROWS_MAX);
        let shape = Shape { cpus: fast, locked, shared: shared(fast + locked) };
        Area::shaped(rseq, hint, shape)
    }

    fn shaped(rseq: Option<Rseq>, hint: Option<CpuHint>, shape: Shape) -> io::Result<Area> {
        Ok(Area {
            inner: Arc::new(Inner {
                rows: Rows::new(shape)?,
                rseq,
                hint,
                allocator: Mutex::default(),
                lines_end: AtomicUsize::new(0),
                locked_used: AtomicBool::new(false),
            }),
        })
    }

    /// Returns the area that counters use unless told otherwise, reserved on first use.
    ///
    /// # Errors
    /// When the kernel refused the address space, the first time.
    pub fn common() -> io::Result<&'static Area> {
        static COMMON: OnceLock<Result<Area, io::ErrorKind>> = OnceLock::new();
        let area = COMMON.get_or_init(|| Area::new(|_| 0).map_err(|error| error.kind()));
        area.as_ref().map_err(|&kind| kind.into())
    }

    /// Takes a block of `words` words, all zero, that starts a line of its own.
    ///
    /// # Errors
    /// `OutOfMemory` when the rows are full.
    ///
    /// # Panics
    /// When `words` is 0.
    pub fn block(&self, words: usize) -> io::Result<Block> {
        assert!(words > 0, "a block has a word");
        let lines = words.div_ceil(LINE_WORDS);
        let mut allocator = self.inner.allocator.lock();
        let first = allocator.take_lines(lines).ok_or(io::ErrorKind::OutOfMemory)?;
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
        self.publish_end(&allocator);
        Ok(Block::new(self.clone(), first, words, 0))
    }

    /// Called with the allocator locked.
    fn publish_end(&self, allocator: &Allocator) {
        // Release: pairs with the Acquire in `lines_end`; whoever was handed a line in the new range
        // made a reader look there, so the reader's load is ordered after this.
        self.inner.lines_end.store(allocator.end(), Ordering::Release);
    }

    fn lines_end(&self) -> usize {
        // Acquire: see `publish_end`.
        self.inner.lines_end.load(Ordering::Acquire)
    }

    /// Returns how many data rows there are: those of CPUs, then locked ones.
    #[must_use]
    pub fn data_rows(&self) -> usize {
        self.inner.rows.shape().data()
    }

    /// Returns the data rows that may hold anything but zero.
    #[must_use]
    pub fn rows_in_use(&self) -> std::ops::Range<usize> {
        let shape = self.inner.rows.shape();
        // SeqCst: pairs with the store before a locked add; an add that returned is not skipped.
        let locked = self.inner.locked_used.load(Ordering::SeqCst);
        0..if locked { shape.data() } else { shape.cpus }
    }

    /// Returns the sequences, where this area uses them.
    #[must_use]
    pub fn rseq(&self) -> Option<Rseq> {
        self.inner.rseq
    }

    /// Takes every mark: appends the lines that were added to since they were last taken.
    pub fn take_marked(&self, out: &mut Vec<Marked>) {
        let end = self.lines_end();
        for row in self.rows_in_use() {
            self.inner.rows.marks(row).take(end, |line| {
                out.push(Marked { row: row as u32, line: line as u32 });
            });
        }
    }

    /// Returns whether any line may be marked. Visits rows, not lines.
    #[must_use]
    pub fn any_marked(&self) -> bool {
        let end = self.lines_end();
        self.rows_in_use().any(|row| self.inner.rows.marks(row).any(end))
    }

    /// Waits until every sequence that saw a mark before it was taken has committed or will start again.
    ///
    /// # Panics
    /// When the kernel refuses a barrier that it granted at start-up: nothing would be exact any more, and
    /// going on would lose updates in silence.
    pub fn barrier(&self) {
        if self.inner.rseq.is_some() {
            membarrier::rseq_barrier().expect("membarrier was registered at start-up");
        }
    }

    /// Loads a word of a data row.
    ///
    /// # Panics
    /// When there is no such row or word.
    #[inline]
    #[must_use]
    pub fn load(&self, row: usize, word: usize) -> i64 {
        // SeqCst: a flush's "then look": after it took the marks. A plain load on x86-64.
        self.inner.rows.load(row, word, Ordering::SeqCst)
    }

    /// Loads a line of a data row.
    ///
    /// # Panics
    /// When there is no such row or line.
    #[inline]
    #[must_use]
    pub fn load_line(&self, row: usize, line: usize) -> [i64; LINE_WORDS] {
        // SeqCst: as in `load`.
        std::array::from_fn(|n| self.inner.rows.line(row, line)[n].load(Ordering::SeqCst))
    }

    /// Returns a word of one of the owner's rows.
    ///
    /// # Panics
    /// When there is no such row or word.
    #[inline]
    #[must_use]
    pub fn shared(&self, row: usize, word: usize) -> &std::sync::atomic::AtomicI64 {
        self.inner.rows.shared(row, word)
    }

    /// Returns a line of one of the owner's rows.
    ///
    /// # Panics
    /// When there is no such row or line.
    #[inline]
    #[must_use]
    pub fn shared_line(
        &self,
        row: usize,
        line: usize,
    ) -> &[std::sync::atomic::AtomicI64; LINE_WORDS] {
        let shape = self.inner.rows.shape();
        assert!(row < shape.shared, "no such row");
        self.inner.rows.line(shape.data() + row, line)
    }
}

impl Inner {
    /// Called before a locked add.
    #[inline]
    fn use_locked(&self) {
        // Relaxed: a hint that spares the store; the thread that stores orders its own add.
        if !self.locked_used.load(Ordering::Relaxed) {
            // SeqCst: before the add; pairs with the load in `rows_in_use`.
            self.locked_used.store(true, Ordering::SeqCst);
        }
    }
}
