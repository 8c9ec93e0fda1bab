//! A word that only one thread and the signal handlers that interrupt it change.

use std::sync::atomic::AtomicI64;

/// Subtracts from a word that no other thread changes, and returns whether it is negative then.
///
/// A signal handler on the same thread runs before or after the subtraction, and may subtract as
/// well: nothing is lost. The answer is the subtraction's own.
#[inline(always)]
pub fn take_from_own(word: &AtomicI64, n: i64) -> bool {
    imp::take(word, n)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod imp {
    #![allow(unsafe_code, reason = "a subtraction in one instruction, without a lock")]

    use std::arch::asm;
    use std::sync::atomic::AtomicI64;

    #[inline(always)]
    pub(super) fn take(word: &AtomicI64, n: i64) -> bool {
        // An interrupt comes between two instructions, and restores the flags. A load and a
        // comparison instead of the jump take a third of a nanosecond more, and would see what a
        // handler did in between. SAFETY: 1. The word exists and may change: it is atomic. 2.
        // Without `lock` this is not atomic with respect to other threads, which would lose what
        // they subtract; but they only read.
        unsafe {
            asm!(
                "sub qword ptr [{}], {}",
                "js {}",
                in(reg) word.as_ptr(),
                in(reg) n,
                label { return true },
                options(nostack),
            );
        }
        false
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod imp {
    use std::sync::atomic::{AtomicI64, Ordering};

    #[inline(always)]
    pub(super) fn take(word: &AtomicI64, n: i64) -> bool {
        // Relaxed: this thread's. Only x86 has a cheaper subtraction from memory.
        word.fetch_sub(n, Ordering::Relaxed).wrapping_sub(n) < 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_and_wraps_around() {
        let word = AtomicI64::new(40);
        assert!(!take_from_own(&word, 40), "nothing is left, and nothing is missing");
        assert!(take_from_own(&word, 1));
        assert!(!take_from_own(&word, -2));
        assert_eq!(word.into_inner(), 1);
        assert!(!take_from_own(&AtomicI64::new(i64::MIN), 1));
    }
}
