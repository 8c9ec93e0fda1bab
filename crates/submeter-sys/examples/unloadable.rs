//! A library that runs sequences, to be loaded late and unloaded early.
//!
//! Not a program to run: `tests/worlds/unload.rs` builds and loads it.
#![expect(unsafe_code, reason = "C functions, found by name")]

use std::sync::OnceLock;

use submeter_sys::memory::Reservation;
use submeter_sys::{Rseq, STRIDE};

static ROWS: OnceLock<Option<(Rseq, Reservation)>> = OnceLock::new();

fn rows() -> Option<&'static (Rseq, Reservation)> {
    let make = || {
        let rseq = Rseq::get()?;
        let rows = Reservation::new(rseq.cpus() as usize * STRIDE).ok()?;
        Some((rseq, rows))
    };
    ROWS.get_or_init(make).as_ref()
}

/// Adds 1 on the running CPU. Returns 1 if that was done, 0 if not, -1 where there are no
/// sequences.
// SAFETY: 1. No other symbol begins with `submeter_unloadable_`: this file is the only one that
// makes such names.
#[unsafe(no_mangle)]
pub extern "C" fn submeter_unloadable_add() -> i32 {
    let Some((rseq, rows)) = rows() else { return -1 };
    let adopted = rseq.row().is_some() || rseq.adopt_thread();
    // SAFETY: 1. Word 0 of rows `0..cpus` is reserved for good: `ROWS` keeps it. 2. Only sequences
    // write it.
    i32::from(adopted && unsafe { rseq.increment(rows.base().as_ptr().cast()) })
}
