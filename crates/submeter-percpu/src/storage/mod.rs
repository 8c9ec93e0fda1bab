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
mod kept;
#[expect(unsafe_code, reason = "addresses of rows")]
pub(crate) mod raw;
mod simulated;
mod trim;
mod within;
mod word;

use alloc::Allocator;
use raw::{Rows, Shape};

use crate::carry::announced;

pub use block::Block;
pub(crate) use block::Owned;
pub use kept::Kept;
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

/// Up to 64 marked lines of a row, as [`Area::take_marked`] finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marked {
    /// The row, from the first data row on.
    pub row: u32,
    /// Which 64 lines: those from `64 * word` on.
    pub word: u32,
    /// The lines: bit `b` for line `64 * word + b`.
    pub bits: u64,
}

impl Marked {
    /// Returns the lines, from the start of the area.
    pub fn lines(self) -> impl Iterator<Item = usize> {
        let first = self.word as usize * 64;
        (0..64).filter(move |bit| self.bits >> bit & 1 == 1).map(move |bit| first + bit)
    }
}

/// The rows of an [`Area`] that one owner has to itself: plain words, for what it remembers of others'.
/// They are not zeroed with their block: whoever remembers also forgets.
#[derive(Debug)]
pub struct OwnedRows(raw::OwnedRows);

impl OwnedRows {
    /// Returns a line of an owned row.
    ///
    /// # Panics
    /// When there is no such row or line.
    #[inline]
    #[must_use]
    pub fn line(&mut self, row: usize, line: usize) -> &mut [i64; LINE_WORDS] {
        self.0.line(row, line)
    }

    /// Gives back the memory of whole pages of these lines, which are zero then; other lines stay as they are. For
    /// lines that are of no use any more; costs a system call for each row.
    ///
    /// # Errors
    /// What the kernel says; memory stays committed then, and nothing is wrong.
    ///
    /// # Panics
    /// When there are no such lines.
    pub fn discard(&mut self, lines: std::ops::Range<usize>) -> io::Result<()> {
        self.0.discard(lines)
    }
}

/// The data rows of an [`Area`], to be loaded line by line.
#[derive(Clone, Copy, Debug)]
pub struct DataRows<'a>(raw::DataRows<'a>);

impl DataRows<'_> {
    /// Loads a line of a data row.
    ///
    /// # Panics
    /// When there is no such row or line.
    #[inline(always)]
    #[must_use]
    pub fn load_line(self, row: usize, line: usize) -> [i64; LINE_WORDS] {
        // SeqCst: a flush's "then look": after it took the marks. Plain loads on x86-64.
        self.0.load_line(row, line, Ordering::SeqCst)
    }
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
        Area::on(probe.rseq(), probe.cpu_hint(), |data| (shared(data), 0)).map(|(area, _)| area)
    }

    /// As [`new`](Area::new), with rows for one owner alone: `rows` makes the number of shared and of owned
    /// rows from the number of data rows.
    ///
    /// # Errors
    /// When the kernel refuses the address space.
    pub fn with_owner(rows: impl FnOnce(usize) -> (usize, usize)) -> io::Result<(Area, OwnedRows)> {
        let probe = submeter_sys::probe();
        Area::on(probe.rseq(), probe.cpu_hint(), rows)
    }

    /// As [`new`](Area::new), on a rung no better than `rung`: for tests, and for `submeter doctor`, which measures each.
    ///
    /// # Errors
    /// When the kernel refuses the address space.
    pub fn with_rung(rung: Rung, shared: impl FnOnce(usize) -> usize) -> io::Result<Area> {
        let probe = submeter_sys::probe();
        match rung {
            Rung::LibcRseq | Rung::OwnRseq => return Area::new(shared),
            Rung::LockedByCpu => Area::on(None, probe.cpu_hint(), |data| (shared(data), 0)),
            Rung::LockedByThread => Area::on(None, None, |data| (shared(data), 0)),
        }
        .map(|(area, _)| area)
    }

    fn on(
        rseq: Option<Rseq>,
        hint: Option<CpuHint>,
        rows: impl FnOnce(usize) -> (usize, usize),
    ) -> io::Result<(Area, OwnedRows)> {
        let parallel = || std::thread::available_parallelism().map_or(1, usize::from);
        let cpus = submeter_sys::probe().cpus.unwrap_or_else(parallel);
        let fast = rseq.map_or(0, |rseq| rseq.cpus() as usize);
        let locked = cpus.clamp(1, LOCKED_ROWS_MAX);
        let (shared, owned) = rows(fast + locked);
        Area::shaped(rseq, hint, Shape { cpus: fast, locked, shared, owned })
    }

    fn shaped(
        rseq: Option<Rseq>,
        hint: Option<CpuHint>,
        shape: Shape,
    ) -> io::Result<(Area, OwnedRows)> {
        let (rows, owned) = Rows::new(shape)?;
        let area = Area {
            inner: Arc::new(Inner {
                rows,
                rseq,
                hint,
                allocator: Mutex::default(),
                lines_end: AtomicUsize::new(0),
                locked_used: AtomicBool::new(false),
            }),
        };
        Ok((area, OwnedRows(owned)))
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
    #[inline]
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

    /// Takes every mark of the data rows: appends the lines that were added to since they were last
    /// taken. They count as unread until they are [released](Area::release_marked).
    pub fn take_marked(&self, out: &mut Vec<Marked>) {
        let end = self.lines_end();
        for row in self.rows_in_use() {
            self.take_marks_of(row, end, out);
        }
    }

    /// As [`take_marked`](Area::take_marked), but only the lines that `which` returns: it is shown the
    /// first of 64 lines and a bit for each marked one.
    pub fn take_marked_some(
        &self,
        out: &mut Vec<Marked>,
        mut which: impl FnMut(usize, u64) -> u64,
    ) {
        let end = self.lines_end();
        for row in self.rows_in_use() {
            self.take_some_marks_of(row, end, out, &mut which);
        }
    }

    /// As [`take_marked`](Area::take_marked), but only of `count` lines from `first` on, and without a look at any other.
    ///
    /// # Panics
    /// When there are no such lines.
    pub fn take_marked_lines(&self, first: usize, count: usize, out: &mut Vec<Marked>) {
        for row in self.rows_in_use() {
            self.take_line_marks_of(row, first, count, out);
        }
    }

    /// Counts lines that were taken as read: call it once what they held is where readers find it.
    ///
    /// # Ordering
    /// A reader whose [`marked_lines`](Area::marked_lines) does not count them finds what was stored before.
    pub fn release_marked(&self, marked: &[Marked]) {
        for marked in marked {
            self.inner.rows.marks(marked.row as usize).release(marked.bits.count_ones());
        }
    }

    /// Undoes taking: marks the lines again.
    pub fn restore_marked(&self, marked: &[Marked]) {
        for at in marked {
            let marks = self.inner.rows.marks(at.row as usize);
            at.lines().for_each(|line| marks.mark(line));
        }
        // After they were marked again: at no moment do they count too little.
        self.release_marked(marked);
    }

    /// Marks a line of a shared row, unless it is marked. The owner decides what that means.
    ///
    /// # Panics
    /// When there is no such row or line.
    pub fn mark_shared(&self, row: usize, line: usize) {
        let marks = self.shared_marks(row);
        if !marks.is_marked(line) {
            marks.mark(line);
        }
    }

    /// Takes every mark of a shared row, as [`take_marked`](Area::take_marked) does of data rows.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn take_shared(&self, row: usize, out: &mut Vec<Marked>) {
        self.take_marks_of(self.shared_row(row), self.lines_end(), out);
    }

    /// Takes some marks of a shared row, as [`take_marked_some`](Area::take_marked_some) does.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn take_shared_some(
        &self,
        row: usize,
        out: &mut Vec<Marked>,
        which: impl FnMut(usize, u64) -> u64,
    ) {
        self.take_some_marks_of(self.shared_row(row), self.lines_end(), out, which);
    }

    /// Takes marks of a shared row, as [`take_marked_lines`](Area::take_marked_lines) does.
    ///
    /// # Panics
    /// When there is no such row, or there are no such lines.
    pub fn take_shared_lines(&self, row: usize, first: usize, count: usize, out: &mut Vec<Marked>) {
        self.take_line_marks_of(self.shared_row(row), first, count, out);
    }

    fn take_line_marks_of(&self, row: usize, first: usize, count: usize, out: &mut Vec<Marked>) {
        let marks = self.inner.rows.marks(row);
        for word in first / 64..(first + count).div_ceil(64) {
            // Those of the 64 lines that are in the range.
            let from = first.saturating_sub(word * 64);
            let to = (first + count - word * 64).min(64);
            let bits = marks.take_bits(word, u64::MAX << from & u64::MAX >> (64 - to));
            if bits != 0 {
                out.push(Marked { row: row as u32, word: word as u32, bits });
            }
        }
    }

    /// Returns how many lines of each data row in use hold something that readers do not find yet, at most.
    ///
    /// # Ordering
    /// A reader that iterates over this and then loads what flushes store finds in it every update that
    /// returned before, but for those of the lines counted.
    pub fn marked_lines(&self) -> impl Iterator<Item = u64> {
        self.rows_in_use().map(|row| self.inner.rows.marks(row).count())
    }

    /// Returns how many adds may have reached a word while nobody was told of what they carried, those included that turn out to
    /// cross nothing. For each, less than a batch of what returned may be in none of the carries, beside what each word keeps
    /// below its boundary; an add under way may count or not, each for itself. In a forked child, adds of threads that did
    /// not come along count for ever, and so do those that a handler left by a long jump.
    ///
    /// # Ordering
    /// Call it before what was carried is loaded: of an add that it does not count, either the carry is found, or
    /// everything that came upon it in the same word had not returned.
    #[must_use]
    pub fn announced(&self) -> u64 {
        self.rows_in_use().map(|row| announced(self.inner.rows.announced(row))).sum()
    }

    /// Returns whether any line may be marked. Visits rows, not lines.
    #[must_use]
    pub fn any_marked(&self) -> bool {
        self.marked_lines().any(|lines| lines != 0)
    }

    /// Waits until every sequence that saw a mark before it was taken has committed or will start again.
    ///
    /// # Panics
    /// When the kernel refuses a barrier that it granted at start-up: nothing would be exact any more, and
    /// going on would lose updates in silence.
    pub fn barrier(&self) {
        self.try_barrier().expect("membarrier was registered at start-up");
    }

    /// As [`barrier`](Area::barrier), for who can undo what it began.
    ///
    /// # Errors
    /// When the kernel refuses a barrier that it granted at start-up.
    pub fn try_barrier(&self) -> io::Result<()> {
        if self.inner.rseq.is_some() { membarrier::rseq_barrier() } else { Ok(()) }
    }

    /// Returns the data rows, for many loads.
    #[must_use]
    pub fn data(&self) -> DataRows<'_> {
        DataRows(self.inner.rows.data())
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

    /// Returns a word of one of the shared rows.
    ///
    /// # Panics
    /// When there is no such row or word.
    #[inline]
    #[must_use]
    pub fn shared(&self, row: usize, word: usize) -> &std::sync::atomic::AtomicI64 {
        self.inner.rows.shared(row, word)
    }

    /// Returns the lines of one of the shared rows.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline]
    #[must_use]
    pub fn shared_lines(&self, row: usize) -> &[[std::sync::atomic::AtomicI64; LINE_WORDS]] {
        self.inner.rows.shared_lines(row)
    }

    fn take_marks_of(&self, row: usize, end: usize, out: &mut Vec<Marked>) {
        self.inner.rows.marks(row).take(end, |word, bits| {
            out.push(Marked { row: row as u32, word: word as u32, bits });
        });
    }

    fn take_some_marks_of(
        &self,
        row: usize,
        end: usize,
        out: &mut Vec<Marked>,
        mut which: impl FnMut(usize, u64) -> u64,
    ) {
        let found = |word, bits| out.push(Marked { row: row as u32, word: word as u32, bits });
        self.inner.rows.marks(row).take_some(end, |word, bits| which(word * 64, bits), found);
    }

    /// The number of a shared row among all.
    fn shared_row(&self, row: usize) -> usize {
        let shape = self.inner.rows.shape();
        assert!(row < shape.shared, "no such row");
        shape.data() + row
    }

    fn shared_marks(&self, row: usize) -> crate::marks::MarkRow<'_> {
        self.inner.rows.marks(self.shared_row(row))
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
