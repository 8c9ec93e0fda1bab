//! Free numbers for code that must not wait: an allocator, a signal handler.
//!
//! The list is a stack of numbers, each of which has a link provided by its owner. A thread that
//! stops in the middle of a call, or that does not exist in a forked child, blocks no other thread;
//! at worst the child lacks the number that the thread was about to take.

#[cfg(all(test, loom))]
mod loom_models;

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::model_const_fn;

/// The end of the stack: as a link, it means that nothing follows.
const END: u32 = u32::MAX;

/// A lock-free stack of free numbers.
///
/// It has no memory but its head: each number that is put on it comes with a word of its owner's.
/// The word links the number to the next one while it is on the stack, and belongs to the owner
/// again once the number is taken.
///
/// # Examples
/// ```
/// use std::sync::atomic::AtomicU32;
/// use submeter_percpu::free_list::FreeList;
///
/// static FREE: FreeList = FreeList::new();
/// static LINKS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];
///
/// FREE.put(0, &LINKS[0]);
/// FREE.put(1, &LINKS[1]);
/// let link = |number| &LINKS[number as usize];
/// assert_eq!([(); 3].map(|()| FREE.take(link)), [Some(1), Some(0), None]);
/// ```
#[derive(Debug)]
pub struct FreeList {
    /// The first number and, above it, the number of puts so far: a number that was taken and put
    /// back in the meantime is not mistaken for one that never left. The count wraps around after
    /// 2^32 puts, all of which would have to happen during one call of `take`.
    head: AtomicU64,
}

impl FreeList {
    model_const_fn! {
        /// Creates an empty list.
        #[must_use]
        pub fn new() -> FreeList {
            FreeList { head: AtomicU64::new(END as u64) }
        }
    }

    /// Puts a number on the stack. Its word may change until the number is taken.
    ///
    /// The caller owns the number, and gives it up. The largest `u32` is not a number: it is the
    /// end.
    pub fn put(&self, number: u32, link: &AtomicU32) {
        self.put_and_count(number, link, 1);
    }

    /// Puts a number, and counts the put by `step`: 1, except in the model that shows why puts are
    /// counted.
    fn put_and_count(&self, number: u32, link: &AtomicU32, step: u64) {
        // Relaxed: only this word is compared.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // Relaxed: the exchange below publishes it.
            link.store(head as u32, Ordering::Relaxed);
            let puts = (head >> 32).wrapping_add(step);
            let next = puts << 32 | u64::from(number);
            // Release: pairs with the Acquire in `take`, for the link and everything that the last
            // owner did with the number's resource.
            match self.head.compare_exchange_weak(head, next, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes the number that was put last, if there is one. `link` returns the word of a number
    /// that is or was on the stack.
    pub fn take<'a>(&self, link: impl Fn(u32) -> &'a AtomicU32) -> Option<u32> {
        // Acquire, here and below: pairs with the Release of `put`.
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let number = head as u32;
            if number == END {
                return None;
            }
            // Relaxed: published by the exchange that put it there. If another thread has taken the
            // number in the meantime, this may be anything, and the exchange fails: the number of
            // puts, or the head, has changed.
            let next = link(number).load(Ordering::Relaxed);
            let next = head & !u64::from(u32::MAX) | u64::from(next);
            // Acquire: as above. An exchange continues the release sequence of the `put` before it.
            match self.head.compare_exchange_weak(head, next, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => return Some(number),
                Err(now) => head = now,
            }
        }
    }
}

impl Default for FreeList {
    fn default() -> FreeList {
        FreeList::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;
    use crate::witness::Witness;

    #[test]
    fn the_last_is_taken_first_and_each_once() {
        let links: [AtomicU32; 3] = std::array::from_fn(|_| AtomicU32::new(7));
        let link = |number: u32| &links[number as usize];
        let free = FreeList::default();
        assert_eq!(free.take(link), None);
        for number in [2, 0, 1] {
            free.put(number, link(number));
        }
        assert_eq!([(); 4].map(|()| free.take(link)), [Some(1), Some(0), Some(2), None]);
    }

    #[test]
    fn no_number_is_two_threads_stress() {
        const THREADS: usize = 4;
        const ROUNDS: u64 = if cfg!(miri) { 100 } else { 200_000 };
        const NUMBERS: usize = 3;
        let links: [AtomicU32; NUMBERS] = std::array::from_fn(|_| AtomicU32::new(0));
        let held: [AtomicU32; NUMBERS] = std::array::from_fn(|_| AtomicU32::new(0));
        let link = |number: u32| &links[number as usize];
        let free = FreeList::new();
        (0..NUMBERS as u32).for_each(|number| free.put(number, link(number)));
        let (begin, witness) = (Barrier::new(THREADS), Witness::new());
        let owners: [AtomicUsize; NUMBERS] = std::array::from_fn(|_| AtomicUsize::new(0));
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (begin, witness, owners) = (&begin, &witness, &owners);
                let (free, held, link) = (&free, &held, &link);
                scope.spawn(move || {
                    begin.wait();
                    let mut had = [false; NUMBERS];
                    for _ in (0..).take_while(|&n| witness.goes_on(n, ROUNDS)) {
                        let Some(number) = free.take(link) else { continue };
                        // Another thread had it since this one did. Relaxed: only its owner
                        // accesses it.
                        let last = owners[number as usize].swap(thread, Ordering::Relaxed);
                        witness.met(had[number as usize] && last != thread);
                        had[number as usize] = true;
                        // Relaxed: the list orders the owners of the number.
                        let others = held[number as usize].fetch_add(1, Ordering::Relaxed);
                        assert_eq!(others, 0, "{number} was taken twice");
                        // The link belongs to the number's owner.
                        link(number).store(number, Ordering::Relaxed);
                        held[number as usize].fetch_sub(1, Ordering::Relaxed);
                        free.put(number, link(number));
                    }
                });
            }
        });
        witness.assert_met();
        let mut left: Vec<u32> = std::iter::from_fn(|| free.take(link)).collect();
        left.sort_unstable();
        assert_eq!(left, [0, 1, 2]);
    }
}
