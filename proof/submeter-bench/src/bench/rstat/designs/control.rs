//! No statistics at all: what is left of a distribution is the machine's.

use std::io;

use submeter_percpu::Area;

use super::{Design, Shape};

/// Counts nothing. With `BARRIER`, a flush is the barrier that one of submeter's has, where it has
/// one, and which interrupts every CPU that runs a thread of this process; without, it is nothing.
pub(in crate::bench::rstat) struct Control<const BARRIER: bool>(Option<Area>);

impl<const BARRIER: bool> Design for Control<BARRIER> {
    type Seat = ();

    fn mark_bytes(_shape: &Shape) -> f64 {
        0.0
    }

    fn new(_shape: &Shape) -> io::Result<Self> {
        BARRIER.then(|| Area::new(|_| 0)).transpose().map(Control)
    }

    fn sit(&self) -> io::Result<()> {
        Ok(())
    }

    #[inline]
    fn update(&self, (): (), group: u32, metric: usize, n: i64) {
        std::hint::black_box((group, metric, n));
    }

    fn flush(&self, _root: u32, _holds_ns: &mut Vec<u64>) -> u64 {
        if let Some(area) = &self.0 {
            area.barrier();
        }
        0
    }

    fn settle(&self) {}

    fn total(&self, _group: u32, _metric: usize) -> i64 {
        0
    }
}
