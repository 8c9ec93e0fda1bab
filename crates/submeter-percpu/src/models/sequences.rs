//! Marks as sequences use them: tested in the section that counts.
//!
//! A sequence is modelled as a critical section of its CPU: it happens whole or not at all. An
//! interruption before the commit makes a sequence restart, as if it had not begun. So an update
//! that is interrupted by a handler on the same CPU is two threads that share the CPU's sections,
//! and loom also tries things that no handler could do. The barrier waits for the section under
//! way. The marks are the real ones.

use loom::sync::Arc;
use loom::thread;

use super::cpu::{Cpu, Flusher, Mistake};
use super::{explore, witness};

/// An update, its handler's update, and a concurrent flush; then a flush that must find the rest,
/// and one more update that the last flush must find.
fn updates_and_a_remote_flush(mistake: Mistake) {
    let cpu = Cpu::with(mistake);
    let both = [(); 2].map(|()| {
        let cpu = Arc::clone(&cpu);
        thread::spawn(move || cpu.update(0))
    });
    let mut flusher = Flusher::default();
    cpu.flush(&mut flusher);
    witness("a flush that finds one of two updates", flusher.total == 1);
    both.into_iter().for_each(|update| update.join().expect("no panic"));
    cpu.flush(&mut flusher);
    assert_eq!(flusher.total, 2, "a returned update was not found");
    cpu.update(0);
    cpu.flush(&mut flusher);
    assert_eq!(flusher.total, 3, "an update after both was not found");
}

#[test]
fn loom_rstat_4_and_5_nothing_is_stuck_or_lost() {
    explore(|| updates_and_a_remote_flush(Mistake::None));
}

/// Finds that a flush without the barrier loses an update.
///
/// The section has seen the mark but not committed when the flush reads.
#[test]
#[should_panic(expected = "a returned update was not found")]
fn loom_rstat_4_finds_a_flush_without_a_barrier() {
    explore(|| updates_and_a_remote_flush(Mistake::FlushesWithoutBarrier));
}

/// Finds that a test before the section loses an update.
///
/// The flush comes between the test and the section, where no barrier waits.
#[test]
#[should_panic(expected = "a returned update was not found")]
fn loom_rstat_5_finds_a_look_before_the_section() {
    explore(|| updates_and_a_remote_flush(Mistake::LooksBeforeTheSection));
}
