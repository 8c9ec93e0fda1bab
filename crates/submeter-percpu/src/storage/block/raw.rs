//! The parts of a block: the pointer to its words, and the owner that keeps them.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use submeter_sys::CpuRows;

use crate::backend::locked::{LockedHere, LockedRows};
use crate::storage::Area;
use crate::storage::layout::{LINE_WORDS, MARKS_AT, WORDS};
use crate::storage::raw::CpuWord;

/// Some words of an [`Area`], for adding to. Cloning is a pointer copy; the words are zeroed and
/// reused when the last clone is dropped.
///
/// An add costs about as much as a plain one. For a single number use a
/// [`PercpuCounter`](crate::PercpuCounter), which also has a bound on reads.
///
/// # Examples
/// ```
/// use submeter_percpu::Area;
///
/// let block = Area::common()?.block(2)?;
/// block.add(1, 5);
/// assert_eq!((block.sum(0), block.sum(1)), (0, 5));
/// # Ok::<(), std::io::Error>(())
/// ```
#[repr(C)]
pub struct Block<T = ()> {
    rows: BlockRows,
    /// Invariant: the same as in `block_ref`.
    first: u32,
    /// Number of words for sequences: all or none, so that one comparison decides both whether the
    /// word exists and whether sequences reach it.
    ///
    /// Invariant: 0, or the same as in `block_ref`.
    cpu_words: u32,
    block_ref: BlockRef<T>,
}

// Every group has one.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Block>() == 32);

/// The fields that an add needs, without following a pointer.
///
/// Invariant: `cpu` if the block has words for sequences, else `locked`; both belong to the area
/// that `block_ref` keeps.
#[derive(Clone, Copy)]
union BlockRows {
    cpu: CpuRows,
    locked: LockedRows,
}

impl Block {
    /// Makes a block of `words` words from `first` on.
    ///
    /// # Panics
    /// When a row has no such words.
    pub(in crate::storage) fn new(area: Area, first: usize, words: usize, lines: usize) -> Block {
        assert!(first <= WORDS && words <= WORDS - first, "no such words");
        assert!(area.inner.rows.is_open(first + words), "words are opened before they are used");
        let [first, words, lines] = [first as u32, words as u32, lines as u32];
        let (rows, cpu_words) = match area.inner.rows.cpu_rows() {
            Some(cpu) => (BlockRows { cpu }, words),
            None => {
                let locked = area.inner.rows.locked_by(area.inner.hint.hint(), words);
                (BlockRows { locked }, 0)
            }
        };
        let block_ref = BlockRef::new(Words { area, first, words, lines }, ());
        Block { rows, first, cpu_words, block_ref }
    }

    /// Attaches a value, which is kept with the words in one allocation.
    ///
    /// # Panics
    /// When the block was cloned.
    #[must_use]
    pub fn with<T>(self, value: T) -> Block<T> {
        let Block { rows, first, cpu_words, block_ref } = self;
        let block_ref = BlockRef::new(block_ref.into_words(), value);
        Block { rows, first, cpu_words, block_ref }
    }
}

impl<T> Block<T> {
    /// Returns only the words, for callers that know how to reach them.
    ///
    /// # Panics
    /// When the block was cloned.
    pub(crate) fn into_words(self) -> Words {
        self.block_ref.into_words()
    }

    /// Returns only the area, for callers that know how to reach their single word, and give it
    /// back by [`Words::regain`].
    ///
    /// # Panics
    /// When the block was cloned, or is not a single word that shares its line.
    pub(crate) fn into_area(self) -> Area {
        let words = ManuallyDrop::new(self.into_words());
        assert!((words.words, words.lines) == (1, 0), "a single word");
        // SAFETY: 1. The area is moved out once: `words` is neither used afterwards nor dropped.
        unsafe { std::ptr::read(&raw const words.area) }
    }

    /// Returns the reference that keeps its words and value. Clone it to keep them for longer than
    /// the block.
    #[inline]
    #[must_use]
    pub fn block_ref(&self) -> &BlockRef<T> {
        &self.block_ref
    }

    /// Returns a word for sequences; `None` where there are no sequences, or no such word: in the
    /// latter case the caller's next step panics. Panicking here would put a call into the hot
    /// path, for which each caller would first save registers.
    #[inline(always)]
    pub(crate) fn cpu_word(&self, word: usize) -> Option<CpuWord<'_>> {
        if word >= self.cpu_words as usize {
            return None;
        }
        // SAFETY: 1. There is a word for sequences, so `rows` are the `cpu_rows` of
        // `area.inner.rows` in `new`. 2. `new` checked that the block's words are open, and they
        // stay open; this word was checked to be one of them. 3. The result borrows `self`, whose
        // `block_ref` keeps the area, which keeps its rows.
        Some(unsafe { CpuWord::new(&self.rows.cpu, self.first + word as u32) })
    }

    /// Returns a word of the calling thread's locked row, with the row. `None` where there are
    /// sequences, no such word, or a row that takes longer to find.
    #[inline(always)]
    pub(super) fn locked_here(&self, word: usize) -> Option<LockedHere<'_>> {
        if self.cpu_words != 0 {
            return None;
        }
        // SAFETY: 1. There is no word for sequences, so `rows` are `locked`: its invariant.
        let rows = unsafe { &self.rows.locked };
        if word >= rows.words as usize {
            return None;
        }
        // SAFETY: 1. `rows` are the `locked_by` of `area.inner.rows` in `new`. 2 and 3 as in
        // `cpu_word`.
        unsafe { rows.here(self.first + word as u32) }
    }

    /// Adds `n` to a word by a sequence, unless that leaves the batch `mask + 1`, and only while
    /// the word's line is dirty. Returns whether it was done: never without sequences, nor where
    /// there is no such word. [`add_dirty_otherwise`](Block::add_dirty_otherwise) does the rest.
    ///
    /// The sequence finds the word itself, since a group's words are looked up for one add: this
    /// takes some ten instructions fewer than `cpu_word`, most of them in callers that run out of
    /// registers.
    #[inline(always)]
    #[must_use]
    pub fn add_dirty_within(&self, word: usize, n: i64, mask: u64) -> bool {
        // Compared in the width that they have in memory.
        let Some(word) = u32::try_from(word).ok().filter(|&word| word < self.cpu_words) else {
            return false;
        };
        // SAFETY: 1 to 3 as in `cpu_word`: the word is valid in `rows.rseq().cpus()` rows. 4. So
        // are the marks: `MARKS_AT` is where each row has a bit for each line that is open. 5. Rust
        // code only loads words of these rows, except for `Rows::zero`, whose callers exclude
        // sequences.
        unsafe { self.rows.cpu.add_marked_within::<MARKS_AT>(self.first + word, n, mask) }
    }
}

/// One word of a [`Block`], found once, with the reference that keeps it: for users of a single
/// word.
///
/// An add through it makes no check and follows no pointer. It is larger than an index, so it is
/// not for users of many words.
pub(crate) struct BlockWord {
    /// Inert where there are no sequences: an add runs the same code up to the refusal, without a
    /// separate check.
    ///
    /// Invariant: it belongs to the rows of the area that `block_ref` keeps; copies leave only by
    /// [`cpu_word`](BlockWord::cpu_word), which binds them to `self`.
    fast: CpuWord<'static>,
    /// Its index in the block.
    index: u32,
    block_ref: BlockRef,
}

impl BlockWord {
    /// # Panics
    /// When there is no such word.
    pub(crate) fn new(block: &Block, index: usize) -> BlockWord {
        let block_ref = block.block_ref.clone();
        let words = block_ref.words();
        assert!(index < words.len(), "no such word");
        let fast = words.area.inner.rows.cpu_word_or_inert(words.first() + index);
        // SAFETY: 1. The rows live for as long as the area, which `block_ref` keeps for as long as
        // `self` exists; nothing uses the copy for longer: the invariant of `fast`.
        let fast = unsafe { fast.unbound() };
        BlockWord { fast, index: index as u32, block_ref }
    }

    #[inline(always)]
    pub(super) fn cpu_word(&self) -> CpuWord<'_> {
        self.fast.split()
    }

    #[inline(always)]
    pub(super) fn words(&self) -> &Words {
        self.block_ref.words()
    }

    /// Returns its index in the block.
    #[inline(always)]
    pub(super) fn index(&self) -> usize {
        self.index as usize
    }
}

// Not derived: that would require `T: Clone`.
impl<T> Clone for Block<T> {
    fn clone(&self) -> Block<T> {
        let &Block { rows, first, cpu_words, ref block_ref } = self;
        Block { rows, first, cpu_words, block_ref: block_ref.clone() }
    }
}

impl<T> fmt::Debug for Block<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.block_ref.fmt(f)
    }
}

/// A reference to the words of a [`Block`] and to its attached value. It keeps both, and cannot
/// add. It is the size of a pointer, and cloning is a pointer copy.
///
/// # Examples
/// ```
/// use submeter_percpu::Area;
///
/// let block = Area::common()?.block(2)?.with("of a tenant");
/// let kept = block.block_ref().clone();
/// drop(block);
/// assert_eq!(*kept, "of a tenant", "and its words are not reused yet");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct BlockRef<T = ()>(
    /// One allocation for both: every group has one.
    Arc<(Words, T)>,
);

impl<T> BlockRef<T> {
    fn new(words: Words, value: T) -> BlockRef<T> {
        BlockRef(Arc::new((words, value)))
    }

    fn into_words(self) -> Words {
        Arc::into_inner(self.0).expect("a block that was not cloned").0
    }

    #[inline(always)]
    pub(super) fn words(&self) -> &Words {
        &self.0.0
    }

    /// Returns the first word's index in a row.
    #[inline]
    #[must_use]
    pub fn first_word(&self) -> usize {
        self.words().first()
    }

    /// Returns the first line's index in a row.
    #[must_use]
    pub fn first_line(&self) -> usize {
        self.first_word() / LINE_WORDS
    }
}

impl<T> Deref for BlockRef<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0.1
    }
}

impl<T> Clone for BlockRef<T> {
    fn clone(&self) -> BlockRef<T> {
        BlockRef(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for BlockRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words().fmt(f)
    }
}

/// Words that are given back on drop. Its numbers have 32 bits, which suffice for the words of a
/// row: every group has two of these.
pub(crate) struct Words {
    area: Area,
    /// The first word, from the start of a row.
    first: u32,
    words: u32,
    /// The number of lines to give back; 0 for words that share theirs.
    lines: u32,
}

impl Words {
    pub(super) fn area(&self) -> &Area {
        &self.area
    }

    /// Undoes [`Block::into_area`] for the word at this address in row 0, so that it is given back.
    ///
    /// # Safety
    /// The word belongs to a block that was turned into this area, and is regained once.
    pub(crate) unsafe fn regain(area: Area, address: *const i64) -> Words {
        let first = area.inner.rows.index(address) as u32;
        Words { area, first, words: 1, lines: 0 }
    }

    /// Does the same as [`Block::add_dirty_within`].
    pub(super) fn add_dirty_within(&self, word: usize, n: i64, mask: u64) -> bool {
        assert!(word < self.len(), "no such word");
        let Some(rows) = self.area.inner.rows.cpu_rows() else { return false };
        // SAFETY: 1. The rows are the area's, which `self` keeps. 2. `Block::new` checked that the
        // words are open, and they stay open; this word is one of them. 3. As 4 and 5 there.
        unsafe { rows.add_marked_within::<MARKS_AT>(self.first + word as u32, n, mask) }
    }

    #[inline]
    pub(super) fn first(&self) -> usize {
        self.first as usize
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.words as usize
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        let inner = &*self.area.inner;
        // The last `Block` is gone, so no thread can add any longer. The adds of other threads
        // happened before their clones were dropped, which the reference count orders before this.
        let (first, words) = (self.first(), self.len());
        inner.rows.zero(first..first + words);
        // In a forked child they may stay in use.
        let Some(mut allocator) = inner.allocator.lock_unless_abandoned() else { return };
        if self.lines == 0 {
            allocator.give_words(first, words);
        } else {
            allocator.give_lines(first / LINE_WORDS, self.lines as usize);
            inner.note_due(&allocator);
        }
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({}+{})", self.first, self.words)
    }
}
