//! Adds by locked instruction, spread over rows so that CPUs rarely meet.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use submeter_sys::CpuHint;

/// Chooses the row for the calling thread, below `rows`. Never a system call.
#[inline]
pub(crate) fn row(hint: Option<CpuHint>, rows: usize) -> usize {
    let number = match hint.and_then(CpuHint::cpu) {
        Some(cpu) => cpu as usize,
        None => thread_number() as usize,
    };
    // Not the remainder alone: a division costs as much as the add that follows.
    if number < rows { number } else { number % rows }
}

thread_local! {
    /// `u32::MAX` until it is first needed.
    static NUMBER: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// Changes the calling thread's number.
pub(crate) fn set_thread_number(number: u32) {
    // An ending thread keeps the row that it falls back to.
    let _ = NUMBER.try_with(|own| own.set(number & (u32::MAX >> 1)));
}

/// Returns a number for the calling thread, in the order of first use.
///
/// Out of line: in a library, the address of a thread-local is the result of a call to the compiler
/// (the linker removes it later), for which each caller in line would save its registers even on
/// the way that has the CPU's number.
#[inline(never)]
fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NUMBER
        .try_with(|number| {
            if number.get() == u32::MAX {
                // Relaxed: any spread will do.
                number.set(NEXT.fetch_add(1, Ordering::Relaxed) & (u32::MAX >> 1));
            }
            number.get()
        })
        // The thread is ending: any row is right, only not the fastest.
        .unwrap_or(0)
}
