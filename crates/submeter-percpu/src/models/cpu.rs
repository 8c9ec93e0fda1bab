//! A CPU with marks, and its flusher: the subject of the models in `sequences` and `kept`.
//!
//! A line has one word here, whose index is also its place.

use loom::sync::{Arc, Mutex};

use crate::dirty::{DirtyBits, KeptView, Unread};
use crate::pending::Numbers;
use crate::sync::atomic::{AtomicI64, AtomicU64, Ordering};

pub(super) const LINES: usize = 3;

/// The mistake in a model.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mistake {
    None,
    /// A flush reads the lines whose marks it took without a barrier.
    FlushesWithoutBarrier,
    /// An update tests the mark before the section that counts.
    LooksBeforeTheSection,
    /// The flush lets readers compare before the totals are stored.
    EndsBeforeTheTotals,
    /// The flush records the contents of a line before it tells readers.
    NotesBeforeItBegins,
    /// The reader counts marks before it checks whether a flush is running.
    CountsOutside,
}

/// One CPU's words and their marks, a total and the data that readers compare.
pub(super) struct Cpu {
    mistake: Mistake,
    pub(super) section: Mutex<()>,
    pub(super) words: [AtomicI64; LINES],
    pub(super) lines: [AtomicU64; 1],
    pub(super) summary: [AtomicU64; 1],
    pub(super) linking: AtomicU64,
    pub(super) tally: AtomicU64,
    /// The contents that the flusher read last, for readers.
    pub(super) last: [AtomicI64; LINES],
    pub(super) kept: KeptView,
    pub(super) total: AtomicI64,
    /// The amount added by updates that have returned.
    pub(super) returned: AtomicI64,
}

/// The contents that the flusher read last, and the lines that it keeps.
#[derive(Clone, Copy, Default)]
pub(super) struct Flusher {
    pub(super) last: [i64; LINES],
    pub(super) kept: u64,
    pub(super) total: i64,
}

impl Cpu {
    pub(super) fn new() -> Arc<Cpu> {
        Cpu::with(Mistake::None)
    }

    pub(super) fn with(mistake: Mistake) -> Arc<Cpu> {
        Arc::new(Cpu {
            mistake,
            section: Mutex::new(()),
            words: [(); LINES].map(|()| AtomicI64::new(0)),
            lines: [AtomicU64::new(0)],
            summary: [AtomicU64::new(0)],
            linking: AtomicU64::new(0),
            tally: AtomicU64::new(0),
            last: [(); LINES].map(|()| AtomicI64::new(0)),
            kept: KeptView::new(1),
            total: AtomicI64::new(0),
            returned: AtomicI64::new(0),
        })
    }

    /// Makes the same as [`new`](Self::new), with line 0 marked and kept.
    pub(super) fn keeping() -> Arc<Cpu> {
        let cpu = Cpu::new();
        cpu.row().mark(0);
        cpu.kept.put(0, 0, 0, 1);
        cpu.kept.end(1);
        cpu
    }

    pub(super) fn unread(&self) -> Unread {
        self.kept.unread(|| self.row().count(), |_, line| self.is_same(line))
    }

    pub(super) fn is_exact(&self, found: &Unread) -> bool {
        found.lines == 0 && self.kept.holds(found)
    }

    pub(super) fn row(&self) -> DirtyBits<'_> {
        let Cpu { lines, summary, linking, tally, .. } = self;
        DirtyBits { lines, summary, linking, tally }
    }

    /// Adds 1 to a line. Each mark that is taken makes at most one attempt fail.
    pub(super) fn update(&self, line: usize) {
        self.change(line, 1);
    }

    pub(super) fn change(&self, line: usize, n: i64) {
        while !self.try_add(line, n) {
            self.row().mark(line);
        }
        // SeqCst: the caller returns; a thread that sees this must find the add.
        self.returned.fetch_add(n, Ordering::SeqCst);
    }

    pub(super) fn try_add(&self, line: usize, n: i64) -> bool {
        // Relaxed: the sequence's plain load.
        let is_marked = || self.lines[0].load(Ordering::Relaxed) >> line & 1 == 1;
        let early = (self.mistake == Mistake::LooksBeforeTheSection).then(is_marked);
        let _section = self.section.lock().expect("no panic inside");
        let marked = early.unwrap_or_else(is_marked);
        if marked {
            let word = &self.words[line];
            // Relaxed, both: plain, by the only CPU that writes it.
            word.store(word.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        }
        marked
    }

    pub(super) fn barrier(&self) {
        drop(self.section.lock().expect("no panic inside"));
    }

    /// Returns whether a line is unchanged since it was last read, for readers.
    pub(super) fn is_same(&self, line: usize) -> bool {
        // SeqCst and Relaxed: as in the real ones.
        self.words[line].load(Ordering::SeqCst) == self.last[line].load(Ordering::Relaxed)
    }

    /// Reads `lines`; returns the amount by which they changed.
    pub(super) fn read(&self, flusher: &mut Flusher, lines: u64) -> i64 {
        let mut found = 0;
        for line in (0..LINES).filter(|line| lines >> line & 1 == 1) {
            // SeqCst: as in the real one.
            let now = self.words[line].load(Ordering::SeqCst);
            found += now - flusher.last[line];
            flusher.last[line] = now;
        }
        flusher.total += found;
        found
    }

    /// Flushes everything: takes lines that are not kept, behind a barrier, and reads those that
    /// are.
    pub(super) fn flush(&self, flusher: &mut Flusher) {
        let mut taken = 0;
        self.row().find(64, |_, bits| taken |= bits & !flusher.kept);
        taken = self.row().take_bits(0, taken);
        if taken != 0 && self.mistake != Mistake::FlushesWithoutBarrier {
            self.barrier();
        }
        self.read(flusher, taken | flusher.kept);
        self.row().release(taken.count_ones());
    }

    /// Flushes everything, keeps every mark that it finds, and does not look for marks if no more
    /// count than it keeps. `REMEMBER`: it remembers which those are. Returns whether it looked.
    pub(super) fn flush_and_keep<const REMEMBER: bool>(&self, flusher: &mut Flusher) -> bool {
        // Like a thread that asks for a flush: anything that its update saw of a mark comes before
        // the count.
        _ = Numbers::default().ask();
        let mut found = 0;
        let looks = self.row().count() != u64::from(flusher.kept.count_ones());
        if looks {
            self.row().find(64, |_, bits| found |= bits);
        }
        self.read(flusher, found | flusher.kept);
        if REMEMBER {
            flusher.kept |= found;
        }
        looks
    }

    /// Takes the mark of a kept line, which is then no longer kept.
    pub(super) fn let_go<const BARRIER: bool, const AGAIN: bool>(&self, flusher: &mut Flusher) {
        flusher.kept = 0;
        let taken = self.row().take_bits(0, 1);
        if !AGAIN {
            self.read(flusher, taken);
        }
        if BARRIER {
            self.barrier();
        }
        if AGAIN {
            self.read(flusher, taken);
        }
        self.row().release(taken.count_ones());
    }
}
