//! Choosing at run time what a program's allocator knows.

mod raw;

use std::sync::atomic::{AtomicU8, Ordering};

use crate::exact::books;
use crate::live::StartError;
use crate::sampled;

pub use raw::Chosen;

/// Who holds memory, by samples or to the byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    Sampled = 1,
    Exact = 2,
}

/// The rung of a [`Chosen`]; 0 before one is chosen.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// Returns the rung that was chosen, which never changes again. A thread that has not seen the
/// choice has no block that a rung made: it could only have got one from a thread that had seen it.
#[inline(always)]
fn chosen() -> Option<Rung> {
    const SAMPLED: u8 = Rung::Sampled as u8;
    const EXACT: u8 = Rung::Exact as u8;
    // Relaxed: one word, whose values every thread sees in order.
    match CHOSEN.load(Ordering::Relaxed) {
        SAMPLED => Some(Rung::Sampled),
        EXACT => Some(Rung::Exact),
        _ => None,
    }
}

impl Rung {
    /// Chooses this rung if none was chosen yet.
    ///
    /// # Errors
    /// When the program's allocator is not on this rung now: it is on one chosen earlier, or on
    /// none. An allocator that leaves no choice, such as [`Exact`](crate::Exact), is on its own
    /// rung.
    pub(crate) fn choose(self) -> Result<(), StartError> {
        // Relaxed: as above. If another rung was chosen, the load below finds it.
        let _ = CHOSEN.compare_exchange(0, self as u8, Ordering::Relaxed, Ordering::Relaxed);
        match chosen() {
            _ if self.is_linked() => Ok(()),
            // The thread that chose it may not have started its heap yet.
            Some(other) if other != self && other.is_linked() => Err(StartError::Twice),
            _ => Err(StartError::NotLinked),
        }
    }

    fn is_linked(self) -> bool {
        match self {
            Rung::Sampled => sampled::is_linked(),
            Rung::Exact => books::is_linked(),
        }
    }
}
