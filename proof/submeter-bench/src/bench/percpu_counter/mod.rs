//! The `percpu_counter` table: the three tests with which the lock was taken out of Linux's
//! counter.
//!
//! 1. Every CPU adds the number of pages in 32 MiB and subtracts it again, with and without the
//!    mapping that the kernel would count this way. A loop is both operations.
//! 2. One CPU adds and subtracts, below the batch (the fast path) and by a whole batch (the slow
//!    path, on which each add reaches the shared total). A loop is both operations.
//! 3. One CPU sums while the others do the loop of test 2. A loop is a sum.
//!
//! The remaining rows show how the cost of reading grows with the number of CPUs, on simulated
//! ones: there a loop is a read, a sum or a comparison.

mod designs;
mod document;
mod lock;
mod scaling;

use std::io;

use submeter_sys::cpu::affinity;

use super::runner::Plan;

/// The table's name.
const TABLE: &str = "percpu_counter";

/// Returns the table's plan.
///
/// # Errors
/// When the CPUs of this process cannot be determined, or there is no address space for per-CPU
/// words.
pub(crate) fn plan() -> io::Result<Plan> {
    let cpus = affinity()?;
    let mut notes = vec![
        "lock_fold takes a spin lock, lock_fold_mutex parking_lot's mutex; neither is charged for finding a slot \
         and keeping others out of it"
            .to_owned(),
    ];
    let mut groups = document::groups(&cpus, &mut notes)?;
    groups.extend(scaling::groups(cpus[0], &mut notes));
    Ok(Plan { notes, ..Plan::new(TABLE, groups) })
}

#[cfg(test)]
mod tests;
