//! Areas of as many rows as a test or a bench asks for, on whatever machine.

use std::io;

use super::raw::Shape;
use super::{Area, OwnedRows};
use crate::backend::emulated;

impl Area {
    /// Reserves an area that behaves as on a machine of `cpus` CPUs without sequences: for tests and
    /// benches of what depends on the number of CPUs. Takes address space for each, as a real one does;
    /// memory for what is written.
    ///
    /// Each thread counts in a row of its own until it says where with [`simulate_cpu`](Area::simulate_cpu).
    /// What it costs that many real CPUs to share a line, no simulation shows.
    ///
    /// # Examples
    /// ```
    /// use submeter_percpu::{Area, PercpuCounter};
    ///
    /// let counter = PercpuCounter::with_batch(&Area::simulated(64)?, 32)?;
    /// for cpu in 0..64 {
    ///     Area::simulate_cpu(cpu);
    ///     counter.add(31);
    /// }
    /// assert_eq!((counter.read().low(), counter.sum()), (0, 64 * 31));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the kernel refuses the address space.
    ///
    /// # Panics
    /// When `cpus` is 0.
    pub fn simulated(cpus: usize) -> io::Result<Area> {
        Area::simulated_with_owner(cpus, |_| (0, 0)).map(|(area, _)| area)
    }

    /// As [`simulated`](Area::simulated), with rows for one owner as in [`with_owner`](Area::with_owner).
    ///
    /// # Errors
    /// When the kernel refuses the address space.
    ///
    /// # Panics
    /// When `cpus` is 0.
    pub fn simulated_with_owner(
        cpus: usize,
        rows: impl FnOnce(usize) -> (usize, usize),
    ) -> io::Result<(Area, OwnedRows)> {
        assert!(cpus > 0, "a machine has a CPU");
        let (shared, owned) = rows(cpus);
        // Not capped as the locked rows of real areas are: a row for each CPU is what is simulated.
        Area::shaped(None, None, Shape { cpus: 0, locked: cpus, shared, owned })
    }

    /// Lets the calling thread add in the row of `cpu` (modulo their number) from now on, in simulated areas and
    /// in those of [`Rung::LockedByThread`](submeter_sys::Rung::LockedByThread). Costs a store to a thread-local.
    pub fn simulate_cpu(cpu: u32) {
        emulated::set_thread_number(cpu);
    }

    /// Returns for how many CPUs there are rows.
    #[inline]
    pub(crate) fn cpus(&self) -> usize {
        let shape = self.inner.rows.shape();
        shape.cpus.max(shape.locked)
    }

    #[inline]
    pub(crate) fn locked_rows(&self) -> usize {
        self.inner.rows.shape().locked
    }
}
