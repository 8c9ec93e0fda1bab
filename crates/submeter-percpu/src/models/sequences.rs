//! Marks as sequences use them: tested in the section that counts.
//!
//! A sequence is modelled as a critical section of its CPU: it happens whole or not at all. An
//! interruption before the commit makes a sequence restart, as if it had not begun. So an update
//! that is interrupted by a handler on the same CPU is two threads that share the CPU's sections,
//! and loom also tries things that no handler could do. The barrier waits for the section under
//! way. The marks are the real ones.

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::{explore, witness};
use crate::dirty::DirtyBits;
use crate::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// One CPU's word and its marks.
///
/// `BARRIER`: a flush issues it between taking marks and reading words. `INSIDE`: the mark is
/// tested in the section that counts. Without either, an update gets lost.
struct Cpu<const BARRIER: bool, const INSIDE: bool> {
    section: Mutex<()>,
    word: AtomicI64,
    lines: [AtomicU64; 1],
    summary: [AtomicU64; 1],
    linking: AtomicU64,
    tally: AtomicU64,
}

/// Each flush makes at most one attempt fail.
const ATTEMPTS: usize = 3;

impl<const BARRIER: bool, const INSIDE: bool> Cpu<BARRIER, INSIDE> {
    fn new() -> Arc<Self> {
        Arc::new(Cpu {
            section: Mutex::new(()),
            word: AtomicI64::new(0),
            lines: [AtomicU64::new(0)],
            summary: [AtomicU64::new(0)],
            linking: AtomicU64::new(0),
            tally: AtomicU64::new(0),
        })
    }

    fn row(&self) -> DirtyBits<'_> {
        let Cpu { lines, summary, linking, tally, .. } = self;
        DirtyBits { lines, summary, linking, tally }
    }

    fn is_dirty(&self) -> bool {
        // Relaxed: the sequence's plain load.
        self.lines[0].load(Ordering::Relaxed) & 1 == 1
    }

    fn update(&self) {
        for _ in 0..ATTEMPTS {
            if self.try_add() {
                return;
            }
            // Outside any section, like the real one: a handler may come between its steps.
            self.row().mark(0);
        }
        panic!("more attempts than flushes");
    }

    fn try_add(&self) -> bool {
        let before = self.is_dirty();
        let _section = self.section.lock().expect("no panic inside");
        let marked = if INSIDE { self.is_dirty() } else { before };
        if marked {
            // Relaxed, both: plain, by the only CPU that writes it.
            self.word.store(self.word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        marked
    }

    /// Returns the count since `last`.
    fn flush(&self, last: &mut i64) -> i64 {
        let mut marked = false;
        self.row().take_lines(64, |_| marked = true);
        if !marked {
            return 0;
        }
        if BARRIER {
            drop(self.section.lock().expect("no panic inside"));
        }
        // SeqCst: as in the real one.
        let now = self.word.load(Ordering::SeqCst);
        let found = now - *last;
        *last = now;
        found
    }
}

/// An update, its handler's update, and a concurrent flush; then a flush that must find the rest,
/// and one more update that the last flush must find.
fn updates_and_a_remote_flush<const BARRIER: bool, const INSIDE: bool>() {
    let cpu = Cpu::<BARRIER, INSIDE>::new();
    let both = [(); 2].map(|()| {
        let cpu = Arc::clone(&cpu);
        thread::spawn(move || cpu.update())
    });
    let (mut last, mut total) = (0, 0);
    total += cpu.flush(&mut last);
    witness("a flush that finds one of two updates", total == 1);
    both.into_iter().for_each(|update| update.join().expect("no panic"));
    total += cpu.flush(&mut last);
    assert_eq!(total, 2, "a returned update was not found");
    cpu.update();
    assert_eq!(cpu.flush(&mut last), 1, "an update after both was not found");
}

#[test]
fn loom_rstat_4_and_5_nothing_is_stuck_or_lost() {
    explore(updates_and_a_remote_flush::<true, true>);
}

/// Finds that a flush without the barrier loses an update.
///
/// The section has seen the mark but not committed when the flush reads.
#[test]
#[should_panic(expected = "a returned update was not found")]
fn loom_rstat_4_finds_a_flush_without_a_barrier() {
    explore(updates_and_a_remote_flush::<false, true>);
}

/// Finds that a test before the section loses an update.
///
/// The flush comes between the test and the section, where no barrier waits.
#[test]
#[should_panic(expected = "a returned update was not found")]
fn loom_rstat_5_finds_a_look_before_the_section() {
    explore(updates_and_a_remote_flush::<true, false>);
}
