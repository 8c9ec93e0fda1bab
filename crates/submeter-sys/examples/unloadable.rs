//! A library that runs sequences, to be loaded late and unloaded early.
//!
//! Not a program to run: `tests/worlds/unload.rs` builds and loads it.
#![expect(unsafe_code, reason = "C functions, found by name")]

use std::sync::OnceLock;

use submeter_sys::memory::Reservation;
use submeter_sys::rseq::Exit;
use submeter_sys::{CpuRows, Rseq, STRIDE};

static ROWS: OnceLock<Option<(Rseq, Reservation)>> = OnceLock::new();

fn rows() -> Option<&'static (Rseq, Reservation)> {
    let make = || {
        let rseq = Rseq::get()?;
        let rows = Reservation::new(rseq.cpus() as usize * STRIDE).ok()?;
        Some((rseq, rows))
    };
    ROWS.get_or_init(make).as_ref()
}

/// Adds 1 on the running CPU. Returns 1 if that was done, 0 if not, -1 if there are no sequences.
// SAFETY: 1. No other symbol begins with `submeter_unloadable_`: only this file defines such names.
#[unsafe(no_mangle)]
pub extern "C" fn submeter_unloadable_add() -> i32 {
    let Some((rseq, rows)) = rows() else { return if inert_sequences_refuse() { -1 } else { 0 } };
    let adopted = rseq.row().is_some() || rseq.adopt_thread();
    // SAFETY: 1. Word 0 of rows `0..cpus` is reserved permanently: `ROWS` keeps it. 2. Only
    // sequences write it.
    i32::from(adopted && unsafe { rseq.add(rows.base().as_ptr().cast(), 1) })
}

/// Where there are no sequences, inert ones stand in: they add nothing, and need no area to say so.
fn inert_sequences_refuse() -> bool {
    let (inert, mut word, none) = (Rseq::inert(), 0_i64, 0_u32);
    inert.rest();
    let (at, marks) = (&raw mut word, [0_u64; 1]);
    // SAFETY: 1. Words `0..0` of the rows need not exist: inert sequences have no rows.
    let done = unsafe {
        [
            inert.add(at, 2),
            inert.add_packed(at, 2),
            inert.add_within(at, 2, 7),
            inert.add_carry(at, 2).exit() != Some(Exit::Outside),
            inert.add_marked(at, 2, marks.as_ptr(), 0).exit() != Some(Exit::Outside),
            inert.gated().add_while::<1>(at, &raw const none),
            inert.gated().add_value_while(at, &raw const none, 2),
            inert.gated().add_capped(at, &raw const none, 2, 9),
            CpuRows::inert().add_marked_within::<0>(0, 2, 7),
        ]
    };
    !done.contains(&true) && word == 0 && inert.row().is_none()
}
