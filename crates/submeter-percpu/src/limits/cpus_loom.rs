//! The CPUs of the models of limits: `RUSTFLAGS="--cfg loom" cargo test --release`.
//!
//! A sequence is a critical section of its CPU: it happens whole or not at all. Everything else is
//! the real code. Models of mistakes pass only while loom finds them.

use std::cell::Cell;

use loom::sync::{Arc, Mutex};

use super::stock::Stock;
use crate::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

loom::thread_local! {
    /// The CPU on which the calling thread runs.
    pub(super) static CPU: Cell<usize> = Cell::new(0);
}

/// The events of stock since the model's own part began.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) opened: u32,
    pub(super) called_off: u32,
    pub(super) closed: u32,
    /// Number of charges from stock; `put` is that of releases into it.
    pub(super) taken: u32,
    pub(super) put: u32,
    pub(super) refilled: u32,
    /// Number of waiters for a barrier; `waiting_max` is its maximum.
    waiting: u32,
    pub(super) waiting_max: u32,
}

// Not loom's: loom runs all threads of a model on one.
std::thread_local! {
    static SEEN: Cell<Seen> = Cell::default();
}

pub(super) fn forget() {
    SEEN.set(Seen::default());
}

pub(super) fn seen() -> Seen {
    SEEN.get()
}

pub(super) fn note(change: impl FnOnce(&mut Seen)) {
    let mut seen = SEEN.get();
    change(&mut seen);
    SEEN.set(seen);
}

/// The mistake of a model.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mistake {
    None,
    /// A fold sums words from which a sequence may still take.
    NoBarrier,
    /// The gate is read before the sequence begins.
    GateOutside,
    /// The word is read before the sequence begins.
    WordOutside,
    /// A fold gives back the amounts that the words held before the barrier.
    SummedEarly,
}

/// The CPUs, each of which runs one sequence at a time, on any word.
pub(super) type Sections = Arc<[Mutex<()>; 2]>;

pub(super) fn sections() -> Sections {
    Arc::new([Mutex::new(()), Mutex::new(())])
}

pub(super) struct Cpus {
    sections: Sections,
    words: [AtomicI64; 2],
    gate: AtomicBool,
    early: AtomicI64,
    mistake: Mistake,
    now: AtomicU32,
    /// The time that passes between two readings of the clock.
    tick: u32,
}

impl Cpus {
    pub(super) fn new(sections: &Sections, mistake: Mistake, tick: u32) -> Cpus {
        Cpus {
            sections: Arc::clone(sections),
            words: [AtomicI64::new(0), AtomicI64::new(0)],
            gate: AtomicBool::new(false),
            early: AtomicI64::new(0),
            mistake,
            now: AtomicU32::new(0),
            tick,
        }
    }

    fn load(&self) -> i64 {
        // Acquire: as in the real one.
        self.words.iter().map(|word| word.load(Ordering::Acquire)).sum()
    }
}

impl Stock for Cpus {
    fn add(&self, n: i64, cap: u64) -> bool {
        // Relaxed, both: the sequence's plain load.
        let before = self.gate.load(Ordering::Relaxed);
        let cpu = CPU.with(Cell::get);
        let word = &self.words[cpu];
        // Relaxed, here and below: plain accesses by the only CPU that writes the word.
        let load = || word.load(Ordering::Relaxed);
        let looked = (self.mistake == Mistake::WordOutside).then(load);
        let _section = self.sections[cpu].lock().unwrap();
        let outside = self.mistake == Mistake::GateOutside;
        let open = if outside { before } else { self.gate.load(Ordering::Relaxed) };
        let done = open && looked.unwrap_or_else(load).wrapping_add(n).cast_unsigned() <= cap;
        if done {
            word.store(load() + n, Ordering::Relaxed);
            note(|seen| *(if n < 0 { &mut seen.taken } else { &mut seen.put }) += 1);
        }
        done
    }

    fn add_again(&self, n: i64, cap: u64) -> bool {
        let done = self.add(n, cap);
        if done && n > 0 {
            // Every attempt of a charge or a release but the first.
            note(|seen| (seen.put, seen.refilled) = (seen.put - 1, seen.refilled + 1));
        }
        done
    }

    fn open(&self) {
        note(|seen| seen.opened += 1);
        self.gate.store(true, Ordering::Release);
    }

    fn close(&self) {
        note(|seen| seen.closed += 1);
        // Relaxed: the barrier orders it.
        self.gate.store(false, Ordering::Relaxed);
        if self.mistake == Mistake::SummedEarly {
            self.early.store(self.load(), Ordering::Relaxed);
        }
    }

    fn barrier(&self) {
        note(|seen| {
            seen.waiting += 1;
            seen.waiting_max = seen.waiting_max.max(seen.waiting);
        });
        if self.mistake != Mistake::NoBarrier {
            self.sections.iter().for_each(|section| drop(section.lock().unwrap()));
        }
        note(|seen| seen.waiting -= 1);
    }

    fn sum(&self) -> i64 {
        let early = self.mistake == Mistake::SummedEarly && !self.gate.load(Ordering::Relaxed);
        if early { self.early.load(Ordering::Relaxed) } else { self.load() }
    }

    fn now_ms(&self) -> u32 {
        self.now.fetch_add(self.tick, Ordering::Relaxed)
    }
}
