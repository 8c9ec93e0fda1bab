//! A list of updated nodes instead of marks, as in Linux's rstat since its updaters take no lock.
//!
//! A node that points at itself is off the list. An updater counts, checks whether its CPU's node
//! is on the list, and if not elects itself by exchanging the self-pointer for the end of a list;
//! the winner pushes the node onto its CPU's stack. The flusher, on any CPU, takes the stack, makes
//! each node point at itself again, and reads the count.
//!
//! Two mistakes were made with it, and both pass every test but these. An exchange without the lock
//! prefix is atomic to its own CPU, interrupts included, but two accesses to any other: a load and
//! a store, and it stores even if the comparison failed. If the flusher makes the node point at
//! itself between the two, the store puts the old pointer back, and the node is on no list while it
//! claims to be: everything counted there from then on is lost. And without a full barrier on
//! either side, "count, then load the node" and "reset the node, then read the count" may each miss
//! the other.
//!
//! Marks have neither problem: setting a bit reads nothing that could be put back, and a sequence
//! tests the bit in the same section that counts. `sequences.rs` has that model.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicI64, AtomicUsize, Ordering, fence};
use loom::thread;

use super::{explore, witness};

/// The node points at itself.
const OFF: usize = usize::MAX;
/// The end of a list, and of an empty stack.
const END: usize = 0;
/// The only node.
const NODE: usize = 1;

/// One CPU's count, node and stack.
///
/// `LOCKED`: the exchange is one step to every CPU. `FENCED`: both sides have their full barrier.
struct Percpu<const LOCKED: bool, const FENCED: bool> {
    /// Written only by its own CPU.
    count: AtomicI64,
    /// `OFF`, or its successor on the list.
    link: AtomicUsize,
    head: AtomicUsize,
}

/// The point at which a handler interrupts an update to make one of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interrupted {
    Nowhere,
    /// Between the load of the node and the election.
    BeforeElection,
    /// Between the election and the push.
    AfterElection,
}

impl<const LOCKED: bool, const FENCED: bool> Percpu<LOCKED, FENCED> {
    fn new() -> Arc<Self> {
        Arc::new(Percpu {
            count: AtomicI64::new(0),
            link: AtomicUsize::new(OFF),
            head: AtomicUsize::new(END),
        })
    }

    fn full_barrier() {
        if FENCED {
            // SeqCst: between the store and the load of both sides; pairs with itself.
            fence(Ordering::SeqCst);
        }
    }

    fn update(&self, interrupted: Interrupted) {
        // Relaxed, both: one instruction of the only CPU that writes it.
        self.count.store(self.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Self::full_barrier();
        // Relaxed: ordered by the barrier, where there is one.
        if self.link.load(Ordering::Relaxed) != OFF {
            return;
        }
        if interrupted == Interrupted::BeforeElection {
            self.update(Interrupted::Nowhere);
        }
        if !self.elect() {
            return;
        }
        if interrupted == Interrupted::AfterElection {
            self.update(Interrupted::Nowhere);
        }
        self.push();
    }

    /// Lets one of the update and its handlers win.
    fn elect(&self) -> bool {
        if LOCKED {
            // SeqCst: whatever the ordering, the lock prefix is what matters.
            return self
                .link
                .compare_exchange(OFF, END, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok();
        }
        // Relaxed, both: what the instruction does without the prefix. It always stores.
        let seen = self.link.load(Ordering::Relaxed);
        self.link.store(if seen == OFF { END } else { seen }, Ordering::Relaxed);
        seen == OFF
    }

    fn push(&self) {
        // Relaxed: only this CPU pushes, and no handler pushes between here and the exchange below.
        let mut first = self.head.load(Ordering::Relaxed);
        loop {
            // Relaxed: published by the exchange.
            self.link.store(first, Ordering::Relaxed);
            // SeqCst: publishes the link; pairs with the swap in `flush`.
            let pushed =
                self.head.compare_exchange(first, NODE, Ordering::SeqCst, Ordering::SeqCst);
            let Err(now) = pushed else { return };
            first = now;
        }
    }

    /// Takes the stack and returns the count since `last`.
    fn flush(&self, last: &mut i64) -> i64 {
        // SeqCst: pairs with the exchange in `push`.
        let mut node = self.head.swap(END, Ordering::SeqCst);
        let mut found = 0;
        while node == NODE {
            // Relaxed, both: the stack now belongs to the flusher; the barrier orders the reset.
            node = self.link.load(Ordering::Relaxed);
            self.link.store(OFF, Ordering::Relaxed);
            Self::full_barrier();
            // Relaxed: ordered by the barrier, where there is one.
            let now = self.count.load(Ordering::Relaxed);
            found += now - *last;
            *last = now;
        }
        found
    }
}

/// Two updates, the first of which is interrupted by a third, while a flush runs; then a flush that
/// must find the rest, and one more update that the last flush must find.
fn updates_and_a_remote_flush<const LOCKED: bool, const FENCED: bool>(interrupted: Interrupted) {
    let cpu = Percpu::<LOCKED, FENCED>::new();
    let updater = {
        let cpu = Arc::clone(&cpu);
        thread::spawn(move || {
            cpu.update(interrupted);
            cpu.update(Interrupted::Nowhere);
        })
    };
    let (mut last, mut total) = (0, 0);
    total += cpu.flush(&mut last);
    updater.join().expect("no panic");
    let rest = cpu.flush(&mut last);
    witness("a flush that finds some of the updates", total != 0 && rest != 0);
    total += rest;
    // Relaxed: the other thread was joined.
    assert_eq!(cpu.link.load(Ordering::Relaxed), OFF, "the node is stuck");
    // Relaxed: as above.
    assert_eq!(total, cpu.count.load(Ordering::Relaxed), "a returned update was not found");
    cpu.update(Interrupted::Nowhere);
    assert_eq!(cpu.flush(&mut last), 1, "an update after both was not found");
}

/// A linked node is never stuck with a locked exchange.
#[test]
fn loom_rstat_4_and_5_a_locked_exchange_suffices() {
    use Interrupted::{AfterElection, BeforeElection, Nowhere};
    for interrupted in [Nowhere, BeforeElection, AfterElection] {
        explore(move || updates_and_a_remote_flush::<true, true>(interrupted));
    }
}

/// Finds that an exchange without the lock prefix leaves the node stuck.
///
/// This was the mistake in Linux's first version that handlers may use.
#[test]
#[should_panic(expected = "the node is stuck")]
fn loom_rstat_5_finds_a_stuck_node() {
    explore(|| updates_and_a_remote_flush::<false, true>(Interrupted::BeforeElection));
}

/// An exchange without the lock prefix fails only with a handler.
///
/// This is why that mistake is so hard to hit: without a handler in between, it does no harm.
#[test]
fn loom_rstat_5_only_a_handler_breaks_it() {
    for interrupted in [Interrupted::Nowhere, Interrupted::AfterElection] {
        explore(move || updates_and_a_remote_flush::<false, true>(interrupted));
    }
}

/// Finds that a linked node without barriers loses the wakeup.
///
/// It is the store-buffering litmus test: a store and a load on both sides, in opposite order,
/// without barriers.
#[test]
#[should_panic(expected = "a returned update was not found")]
fn loom_rstat_4_finds_a_lost_wakeup() {
    explore(|| updates_and_a_remote_flush::<true, false>(Interrupted::Nowhere));
}
