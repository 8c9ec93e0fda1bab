//! A word that one thread changes, and the signal handlers that interrupt it.

use std::sync::atomic::AtomicI64;

/// Adds to a word that no other thread changes, and returns what is there afterwards.
///
/// A signal handler of the same thread comes before the addition or after it, and may add as well:
/// nothing is lost. What is returned may have a handler's part in it.
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
        // An interrupt comes between two instructions. `xadd` would return the sum as well, and
        // takes half a nanosecond more.
        // SAFETY: 1. The word is there, and may change: it is atomic. 2. Without a lock this is not
        // atomic for other threads, which would lose what they add; they only read.
        unsafe { asm!("add qword ptr [{}], {}", inout(reg) at, in(reg) n, options(nostack)) };
        // By the register that it was written by, as processors then know what they will read.
        // SAFETY: 1. The same word: the instruction leaves the register alone.
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
        // Relaxed: this thread's. No processor but x86 has an addition to memory that is cheaper.
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
