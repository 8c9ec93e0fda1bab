//! Delays inside the sequences, for tests. Compiled only with `--cfg submeter_inject`; no release
//! has it.
//!
//! Each sequence has four numbered points. While a point's delay is not zero, every sequence that
//! passes it records that and counts down before it continues, so that a test can migrate,
//! interrupt or restart the thread *there*. The delay is a number of rounds, never a condition, so
//! a test that dies leaves no thread waiting.

use std::sync::atomic::{AtomicU32, Ordering};

/// The points, in the order in which a sequence passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// After `rseq_cs` was stored, before the CPU number is read.
    AfterArming = 0,
    /// After the CPU number was read, before it is checked.
    AfterCpu = 1,
    /// After the check, before the word's address is computed.
    AfterCheck = 2,
    /// After everything but the committing store.
    BeforeCommit = 3,
}

impl Point {
    /// Every point.
    pub const ALL: [Point; 4] =
        [Point::AfterArming, Point::AfterCpu, Point::AfterCheck, Point::BeforeCommit];
}

/// Delays every later pass of `point` by `rounds` rounds (about a CPU cycle each); 0 ends the
/// delay.
pub fn delay(point: Point, rounds: u32) {
    // Relaxed: a sequence may see it late; tests wait for `entered`.
    TABLE.rounds[point as usize].store(rounds, Ordering::Relaxed);
}

/// Returns whether a sequence has reached `point`, with a delay there, since this was last called.
#[must_use]
pub fn entered(point: Point) -> bool {
    // Relaxed: the test only asks whether it happened, and makes a system call next.
    TABLE.entered[point as usize].swap(0, Ordering::Relaxed) != 0
}

/// The sequences address it as u32 words: the rounds of each point, then the entry marks.
#[repr(C)]
pub(crate) struct Table {
    rounds: [AtomicU32; 4],
    entered: [AtomicU32; 4],
}

pub(crate) static TABLE: Table =
    Table { rounds: [const { AtomicU32::new(0) }; 4], entered: [const { AtomicU32::new(0) }; 4] };
