//! A word that only one thread and the signal handlers that interrupt it change.

use std::sync::atomic::AtomicI64;

/// Adds to a word that no other thread changes, and returns its value afterwards.
///
/// A signal handler on the same thread runs before or after the addition, and may add as well:
/// nothing is lost. The result may include a handler's part.
#[inline(always)]
pub fn add_to_own(word: &AtomicI64, n: i64) -> i64 {
    imp::add(word, n)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod imp {
    #![allow(unsafe_code, reason = "an addition in one instruction, without a lock")]

    use std::arch::asm;
    use std::sync::atomic::{AtomicI64, Ordering};

    #[inline(always)]
    pub(super) fn add(word: &AtomicI64, n: i64) -> i64 {
        let mut at = word.as_ptr();
        // An interrupt comes between two instructions. `xadd` would also return the sum, but takes
        // half a nanosecond more. SAFETY: 1. The word exists and may change: it is atomic. 2.
        // Without `lock` this is not atomic with respect to other threads, which would lose what
        // they add; but they only read.
        unsafe { asm!("add qword ptr [{}], {}", inout(reg) at, in(reg) n, options(nostack)) };
        // Addressed through the same register as the write, so that processors can predict the
        // loaded value. SAFETY: 1. The same word: the instruction does not change the register.
        let word = unsafe { AtomicI64::from_ptr(at) };
        // Relaxed: this thread's.
        word.load(Ordering::Relaxed)
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod imp {
    use std::sync::atomic::{AtomicI64, Ordering};

    #[inline(always)]
    pub(super) fn add(word: &AtomicI64, n: i64) -> i64 {
        // Relaxed: this thread's. Only x86 has a cheaper addition to memory.
        word.fetch_add(n, Ordering::Relaxed).wrapping_add(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_wraps_around_and_is_returned() {
        let word = AtomicI64::new(40);
        assert_eq!([add_to_own(&word, 2), add_to_own(&word, -50)], [42, -8]);
        assert_eq!(add_to_own(&AtomicI64::new(i64::MAX), 1), i64::MIN);
        assert_eq!(word.into_inner(), -8);
    }
}
