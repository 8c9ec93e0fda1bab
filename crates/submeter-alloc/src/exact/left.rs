//! What ended groups leave to those above them: blocks that count for the limits of the living.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Weak};

use submeter_percpu::process_lock::ProcessMutex;

use super::owners;

/// How many ended groups each reader looks at again. The cost of a look stays the same however many
/// there are, except for a reader about to be refused.
pub(super) const LOOKS: usize = 64;

/// What a group was left by ended groups below it.
pub(super) struct Left {
    /// Who is left what this group leaves.
    above: Option<Arc<Left>>,
    /// Whether there is anything, so that a reader of nothing takes no lock.
    any: AtomicBool,
    /// `None` once the group has ended itself.
    ended: ProcessMutex<Option<Ended>>,
}

#[derive(Default)]
struct Ended {
    numbers: Vec<Number>,
    /// The sum of what they have, as last seen.
    bytes: u64,
    /// The one to look at next.
    next: usize,
}

/// The number of an ended group.
struct Number {
    number: u32,
    /// Gone once the number is free: it may be another group's then.
    taken: Weak<AtomicBool>,
    /// What its blocks took when last seen.
    bytes: u64,
}

impl Number {
    fn is_taken(&self) -> bool {
        self.taken.strong_count() != 0
    }

    /// Returns a lower bound of what its blocks take, or `None` if none is left.
    fn look(&self) -> Option<u64> {
        let bytes = owners::sum_at_least(self.number).max(0).unsigned_abs();
        // The bound may be 0 while a block moves.
        let is_empty = bytes == 0 && owners::sum(self.number) == 0;
        // Acquire: only a number that is still taken was the same group's during the sum.
        fence(Ordering::Acquire);
        (self.is_taken() && !is_empty).then_some(bytes)
    }
}

impl Ended {
    fn append(&mut self, mut left: Ended) {
        if self.numbers.len() + left.numbers.len() > self.numbers.capacity() {
            // Nobody looks at those of a group without a limit. At least half of the room is free
            // afterwards, so that this is rare.
            self.numbers.retain(Number::is_taken);
            self.bytes = self.numbers.iter().map(|number| number.bytes).sum();
            self.numbers.reserve(left.numbers.len().max(self.numbers.len()));
        }
        self.numbers.append(&mut left.numbers);
        self.bytes += left.bytes;
    }

    fn look(&mut self) {
        for _ in 0..LOOKS.min(self.numbers.len()) {
            if self.next >= self.numbers.len() {
                self.next = 0;
            }
            self.look_at_next();
        }
    }

    /// Looks until the sum is within `room`, or until what this call saw is not. At most a round:
    /// from the first one on, because a removed one's place goes to the last.
    fn look_for(&mut self, room: u64) {
        self.next = 0;
        let mut seen = 0;
        while self.next < self.numbers.len() && self.bytes > room && seen <= room {
            seen += self.look_at_next();
        }
    }

    /// Returns what the blocks of the next one take, if there is one.
    fn look_at_next(&mut self) -> u64 {
        let Some(number) = self.numbers.get_mut(self.next) else { return 0 };
        let seen = number.look();
        let before = mem::replace(&mut number.bytes, seen.unwrap_or(0));
        self.bytes = self.bytes - before + number.bytes;
        match seen {
            Some(_) => self.next += 1,
            None => _ = self.numbers.swap_remove(self.next),
        }
        seen.unwrap_or(0)
    }
}

impl Left {
    pub(super) fn below(above: Option<Arc<Left>>) -> Left {
        let ended = ProcessMutex::new(Some(Ended::default()));
        Left { above, any: AtomicBool::new(false), ended }
    }

    /// Leaves the blocks of a group that ends, and what it was left itself, to the nearest group
    /// above it that has not ended. `taken` lives for as long as the number is not free.
    ///
    /// In a forked child they are left to nobody if another thread was here at the fork.
    pub(super) fn end(&self, number: u32, taken: &Arc<AtomicBool>) {
        let left = self.ended.lock_unless_abandoned().and_then(|mut ended| ended.take());
        let mut left = left.unwrap_or_default();
        let bytes = owners::sum(number).max(0).unsigned_abs();
        if bytes != 0 {
            left.bytes += bytes;
            left.numbers.push(Number { number, taken: Arc::downgrade(taken), bytes });
        }
        let mut heir = self.above.as_deref();
        while let Some(next) = heir.filter(|_| !left.numbers.is_empty()) {
            let Some(mut ended) = next.ended.lock_unless_abandoned() else { return };
            if let Some(ended) = ended.as_mut() {
                ended.append(mem::take(&mut left));
                // Relaxed: it says nothing about other words. Who waited for a group's end sees it.
                next.any.store(true, Ordering::Relaxed);
            }
            heir = next.above.as_deref();
        }
    }

    /// Returns what the group was left: a lower bound for the ended groups that this call looks at,
    /// and what an earlier call saw for the others, if there are more than [`LOOKS`]. It is more
    /// than `room` only if what this call saw is. Without a room nothing depends on it.
    pub(super) fn bytes(&self, room: Option<u64>) -> u64 {
        // Relaxed, here and below: as in `end`.
        if !self.any.load(Ordering::Relaxed) {
            return 0;
        }
        let Some(mut ended) = self.ended.lock_unless_abandoned() else { return 0 };
        let Some(ended) = ended.as_mut() else { return 0 };
        ended.look();
        if let Some(room) = room.filter(|&room| ended.bytes > room) {
            ended.look_for(room);
        }
        // Relaxed: as above.
        self.any.store(!ended.numbers.is_empty(), Ordering::Relaxed);
        ended.bytes
    }
}
