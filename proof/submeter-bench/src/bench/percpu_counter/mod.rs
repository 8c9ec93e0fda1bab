//! The `percpu_counter` table: the three tests with which Linux's counter was taken off its lock.
//!
//! 1. Every CPU adds 32 MiB in pages and takes them away again, with and without the mapping that
//!    the kernel counts so. A loop is both.
//! 2. One CPU adds and takes away, below the batch (the fast path) and by a whole batch (the slow
//!    path, on which each add reaches what CPUs share). A loop is both.
//! 3. One CPU sums while the others do the loop of test 2. A loop is a sum.
//!
//! Then what reading costs with the number of CPUs, on simulated ones: here a loop is a read, a sum
//! or a comparison.

mod designs;
mod document;
mod lock;
mod scaling;
mod verdict;

use std::io;

use submeter_sys::cpu::affinity;

use super::runner::Plan;

pub(crate) use verdict::conclusion;

/// What the table is called.
const TABLE: &str = "percpu_counter";

/// Says what to measure.
///
/// # Errors
/// When the CPUs of this process cannot be asked for, or there is no address space for per-CPU
/// words.
pub(crate) fn plan() -> io::Result<Plan> {
    let cpus = affinity()?;
    let mut notes = vec![
        "lock_fold takes a spin lock, lock_fold_mutex parking_lot's; what a program pays to find a slot \
         and to keep others out of it is not charged to either"
            .to_owned(),
    ];
    let mut groups = document::groups(&cpus, &mut notes)?;
    groups.extend(scaling::groups(cpus[0], &mut notes));
    Ok(Plan {
        table: TABLE,
        groups,
        mixed: false,
        rounds_max: usize::MAX,
        notes,
        absent: Vec::new(),
    })
}

#[cfg(test)]
mod tests;
