//! No statistics at all: the distribution that remains comes from the machine.

use std::io;

use submeter_percpu::Area;

use super::{Design, Shape};

/// A design that counts nothing. With `BARRIER`, a flush is only the barrier of submeter's flush,
/// which interrupts every CPU that runs a thread of this process; without, it does nothing.
pub(in crate::bench::rstat) struct Control<const BARRIER: bool>(Option<Area>);

impl<const BARRIER: bool> Design for Control<BARRIER> {
    type Slot = ();

    fn mark_bytes(_shape: &Shape) -> f64 {
        0.0
    }

    fn new(_shape: &Shape) -> io::Result<Self> {
        BARRIER.then(|| Area::new(|_| 0)).transpose().map(Control)
    }

    fn register(&self) -> io::Result<()> {
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
