//! The CPUs of models of limits: `RUSTFLAGS="--cfg loom" cargo test --release`.
//!
//! A sequence is a critical section of its CPU: whole or not at all. Everything else is the real
//! code. Models of mistakes pass only while loom finds them.

use std::cell::Cell;

use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use loom::sync::{Arc, Mutex};

use super::stock::Stock;

loom::thread_local! {
    /// The CPU that the calling thread runs on.
    pub(super) static CPU: Cell<usize> = Cell::new(0);
}

/// What a model leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mistake {
    None,
    /// A fold sums words that a sequence may still take from.
    NoBarrier,
    /// The gate is looked at before the sequence begins.
    GateOutside,
    /// So is the word.
    WordOutside,
    /// A fold gives back what the words held before the barrier.
    SummedEarly,
}

/// The CPUs, each of which runs one sequence at a time, on whatever word.
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
    /// How much time goes by between two looks at the clock.
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
        // Acquire: as the real one.
        self.words.iter().map(|word| word.load(Ordering::Acquire)).sum()
    }
}

impl Stock for Cpus {
    fn add(&self, n: i64, cap: u64) -> bool {
        // Relaxed, both: a plain load of the sequence.
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
        }
        done
    }

    fn add_again(&self, n: i64, cap: u64) -> bool {
        self.add(n, cap)
    }

    fn open(&self) {
        self.gate.store(true, Ordering::Release);
    }

    fn close(&self) {
        // Relaxed: the barrier orders it.
        self.gate.store(false, Ordering::Relaxed);
        if self.mistake == Mistake::SummedEarly {
            self.early.store(self.load(), Ordering::Relaxed);
        }
    }

    fn barrier(&self) {
        if self.mistake != Mistake::NoBarrier {
            self.sections.iter().for_each(|section| drop(section.lock().unwrap()));
        }
    }

    fn sum(&self) -> i64 {
        let early = self.mistake == Mistake::SummedEarly && !self.gate.load(Ordering::Relaxed);
        if early { self.early.load(Ordering::Relaxed) } else { self.load() }
    }

    fn now_ms(&self) -> u32 {
        self.now.fetch_add(self.tick, Ordering::Relaxed)
    }
}
