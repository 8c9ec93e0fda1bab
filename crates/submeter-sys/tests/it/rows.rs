//! Rows of words for tests, as the storage above this crate lays them out.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering};

use submeter_sys::memory::Reservation;
use submeter_sys::{Rseq, STRIDE};

/// One page of words for each CPU.
pub(crate) struct Rows {
    reservation: Reservation,
    pub(crate) rseq: Rseq,
}

impl Rows {
    /// Returns rows that the calling thread may add to. If there are no sequences, prints why and
    /// returns `None`.
    pub(crate) fn new() -> Option<Rows> {
        let Some(rseq) = Rseq::get() else {
            eprintln!("skipped: no sequences here: {}", submeter_sys::probe().reason);
            return None;
        };
        let reservation = Reservation::new(rseq.cpus() as usize * STRIDE).expect("reserves");
        let rows = Rows { reservation, rseq };
        rows.adopt_thread();
        Some(rows)
    }

    /// Enables the calling thread to run sequences: not every libc registers threads, and an
    /// unregistered thread adds nothing, so it could lose nothing.
    pub(crate) fn adopt_thread(&self) {
        assert!(self.rseq.adopt_thread(), "a thread that cannot run sequences");
    }

    /// Returns the start of row 0.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.reservation.base()
    }

    /// Returns the address of word `index` in row 0.
    pub(crate) fn word(&self, index: usize) -> *mut i64 {
        assert!(index < 512);
        self.base().as_ptr().cast::<i64>().wrapping_add(index)
    }

    /// Returns word `index` in the row of `cpu`.
    pub(crate) fn row(&self, cpu: u32, index: usize) -> &AtomicI64 {
        let word = self.word(index).wrapping_byte_add(cpu as usize * STRIDE);
        // SAFETY: 1. Row `cpu` of word `index` lies inside the reservation: `self` keeps it.
        unsafe { AtomicI64::from_ptr(word) }
    }

    /// Returns the sum of word `index` over all rows.
    pub(crate) fn sum(&self, index: usize) -> i64 {
        // Relaxed: callers joined the writers or issued a barrier.
        (0..self.rseq.cpus()).map(|cpu| self.row(cpu, index).load(Ordering::Relaxed)).sum()
    }
}
