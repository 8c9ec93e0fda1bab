//! A library that runs sequences, to be loaded late and unloaded early.
//!
//! Not a program to run: `tests/unload.rs` builds and loads it.
#![expect(unsafe_code, reason = "C functions, found by name")]

use std::sync::OnceLock;

use submeter_sys::memory::Reservation;
use submeter_sys::{Rseq, STRIDE_SHIFT};

static ROWS: OnceLock<Option<(Rseq, Reservation)>> = OnceLock::new();

fn rows() -> Option<&'static (Rseq, Reservation)> {
    let make = || {
        let rseq = Rseq::get()?;
        let rows = Reservation::new((rseq.cpus() as usize) << STRIDE_SHIFT).ok()?;
        Some((rseq, rows))
    };
    ROWS.get_or_init(make).as_ref()
}

/// Adds 1 on the running CPU. Returns 1 if that was done, 0 if not, -1 where there are no sequences.
// SAFETY: no other symbol begins with `submeter_unloadable_`.
#[unsafe(no_mangle)]
pub extern "C" fn submeter_unloadable_add() -> i32 {
    let Some((rseq, rows)) = rows() else { return -1 };
    let adopted = rseq.cpu().is_some() || rseq.adopt_thread();
    // SAFETY: word 0 of rows `0..cpus` is reserved for good, and only sequences write it.
    i32::from(adopted && unsafe { rseq.increment(rows.base().as_ptr().cast()) })
}
