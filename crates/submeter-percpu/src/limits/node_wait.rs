//! Charges of a [`LimitNode`] that wait for room.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::level::Refusal;
use super::node::{LimitNode, Node, Refused};
use super::tree::{Path, charge_stock, is_awaited, release, try_charge};
use super::wait::{Cancelled, Polled};

/// The place in the queue of a charge that waits. For futures: see [`LimitNode::poll_charge`].
#[derive(Debug, Default)]
pub struct LimitTurn {
    number: Option<u64>,
}

impl LimitNode {
    /// Charges `n` to this group and every one above it once all have room, or has `context`'s
    /// waker woken when to ask again. A turn is for one charge: [`end_turn`](LimitNode::end_turn)
    /// before it is dropped.
    ///
    /// Those that wait for one limit are granted in the order in which they asked first; a
    /// [`try_charge`](LimitNode::try_charge) does not wait for them. While nobody waits it costs as
    /// much as that. While somebody waits for a limit, charges and releases below it take the way
    /// that is exact, and each tries those that wait, until one does not fit.
    ///
    /// Not for signal handlers, nor are releases in handlers while somebody waits: wakers are not.
    ///
    /// # Errors
    /// When `n` alone exceeds an enforced limit, at once or once one is lowered so far, whoever is
    /// before it; in a forked child in which another thread of the parent stayed behind in the
    /// queue or with the stock of the tree, if it does not fit: room that comes back might not be
    /// seen there.
    pub fn poll_charge(
        &self,
        turn: &mut LimitTurn,
        n: u64,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Refused>> {
        let node = self.node();
        if turn.number.is_none() {
            // Stock lies within all limits, and there is none where somebody waits.
            if charge_stock(node, n) {
                return Poll::Ready(Ok(()));
            }
            if !is_awaited(node) && charge_uncounted(node, n).is_ok() {
                return Poll::Ready(Ok(()));
            }
        }
        loop {
            if let Some(number) = turn.number {
                let mut waker = context.waker().clone();
                let polled = node.waiting().with(|queue| queue.poll(number, &mut waker));
                match polled.unwrap_or(Polled::Unknown) {
                    Polled::Waits => return Poll::Pending,
                    Polled::Unknown => {}
                    Polled::Done(outcome) => {
                        turn.number = None;
                        return Poll::Ready(outcome.map_err(|at| node.refuse(at)));
                    }
                }
            }
            let (path, waker) = (Arc::clone(node), context.waker().clone());
            turn.number = node.waiting().with(|queue| queue.push(path, n, waker));
            if turn.number.is_none() {
                let charged = charge_uncounted(node, n);
                return Poll::Ready(charged.map_err(|at| node.refuse(at)));
            }
            node.serve();
        }
    }

    /// Returns what is waited for at this level and each above, by a turn's charge and those before
    /// it that hold it up; `None` if it does not wait. Costs a lock and a look at those that wait.
    #[must_use]
    pub fn wanted(&self, turn: &LimitTurn) -> Option<Vec<u64>> {
        let number = turn.number?;
        self.node().waiting().with(|queue| queue.wanted(number)).flatten()
    }

    /// Has a turn's charge hold up nobody while its owner has room made for it, which may take
    /// long, or again from then on. It keeps its place.
    pub fn set_asks(&self, turn: &LimitTurn, asks: bool) {
        let Some(number) = turn.number else { return };
        self.node().waiting().with(|queue| queue.set_asks(number, asks));
        self.node().serve();
    }

    /// As [`try_charge`](LimitNode::try_charge), and counts no refusal: for callers that wait or
    /// make room then.
    ///
    /// # Errors
    /// As those of `try_charge`.
    pub fn charge_uncounted(&self, n: u64) -> Result<(), Refused> {
        charge_uncounted(self.node(), n).map_err(refused)
    }

    /// Ends a turn whose charge is wanted no longer: what was granted meanwhile is released, and
    /// those behind it have their turn. Does nothing for a turn that ended.
    pub fn end_turn(&self, turn: &mut LimitTurn, n: u64) {
        let Some(number) = turn.number.take() else { return };
        let node = self.node();
        let waker = match node.waiting().with(|queue| queue.cancel(number)) {
            Some(Cancelled::Granted) => {
                release(node, n);
                None
            }
            Some(Cancelled::Waited(_, waker)) => Some(waker),
            None => None,
        };
        node.serve();
        // Last, as it may panic.
        drop(waker);
    }

    /// Charges `n` to this group and every one above it as soon as all have room, and blocks the
    /// thread until then, for `timeout` at most. See [`poll_charge`](LimitNode::poll_charge).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter_percpu::{Area, LimitNode};
    ///
    /// let root = LimitNode::root(Area::common()?);
    /// root.set_limit(100);
    /// root.try_charge(60).expect("it fits");
    /// let refused = root.charge_timeout(50, Duration::from_millis(1)).expect_err("60 are held");
    /// assert_eq!((refused.held, refused.limit), (60, 100));
    /// std::thread::scope(|scope| {
    ///     let waits = scope.spawn(|| root.charge_timeout(50, Duration::from_secs(60)));
    ///     root.release(60);
    ///     assert_eq!(waits.join().unwrap(), Ok(()));
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there was no room in that time, and as those of
    /// [`poll_charge`](LimitNode::poll_charge).
    pub fn charge_timeout(&self, n: u64, timeout: Duration) -> Result<(), Refused> {
        self.charge_timeout_with(n, timeout, |_| false)
    }

    /// As [`charge_timeout`](LimitNode::charge_timeout), and calls `ask` once the charge waits, for
    /// those that can make room: again as long as it returns true and there is none.
    ///
    /// # Errors
    /// As those of `charge_timeout`.
    pub fn charge_timeout_with(
        &self,
        n: u64,
        timeout: Duration,
        mut ask: impl FnMut(&LimitTurn) -> bool,
    ) -> Result<(), Refused> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        let (mut turn, start) = (LimitTurn::default(), Instant::now());
        let mut asks = true;
        loop {
            if let Poll::Ready(result) = self.poll_charge(&mut turn, n, &mut context) {
                return result;
            }
            asks = asks && ask(&turn);
            if asks {
                continue;
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                // A thread that released something may not have served the queue yet.
                self.node().serve();
                return self.give_up(&turn);
            }
            thread::park_timeout(left);
        }
    }

    /// Ends a turn that took too long, unless it was granted by now.
    fn give_up(&self, turn: &LimitTurn) -> Result<(), Refused> {
        let node = self.node();
        let number = turn.number.expect("it was polled");
        // Its waker is this thread's own, which does not panic.
        let index = match node.waiting().with(|queue| queue.cancel(number)) {
            Some(Cancelled::Granted) => return Ok(()),
            Some(Cancelled::Waited(index, _waker)) => index,
            None => 0,
        };
        let level = node.levels().nth(index).expect("it waited there");
        let refused = node.refuse((index, level.refusal()));
        node.serve();
        Err(refused)
    }
}

impl Node {
    /// Counts a refusal.
    pub(super) fn refuse(&self, at: (usize, Refusal)) -> Refused {
        self.levels().nth(at.0).expect("it refused").refuse();
        refused(at)
    }
}

fn refused((levels, refusal): (usize, Refusal)) -> Refused {
    let Refusal { held, limit } = refusal;
    Refused { levels, held, limit }
}

/// Out of line, once for all that wait.
#[inline(never)]
fn charge_uncounted(node: &Arc<Node>, n: u64) -> Result<(), (usize, Refusal)> {
    try_charge(node, n)
}

/// Wakes a thread that blocks.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::iter::zip;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::limits::wait::Queue;
    use crate::storage::Area;

    #[test]
    fn what_a_handler_releases_that_interrupted_the_queue_is_not_missed() {
        let root = LimitNode::root(Area::common().expect("an area"));
        root.set_limit(100);
        root.try_charge(60).expect("it fits");
        let (mut turn, mut context) = (LimitTurn::default(), Context::from_waker(Waker::noop()));
        assert!(root.poll_charge(&mut turn, 50, &mut context).is_pending());
        // A handler runs on top of whoever has the queue.
        root.node().waiting().with(|_| root.release(60)).expect("nobody has it");
        assert_eq!(root.usage().current, 50);
        assert_eq!(root.poll_charge(&mut turn, 50, &mut context), Poll::Ready(Ok(())));
    }

    #[test]
    fn a_fork_leaves_what_was_granted_and_nobody_elses_turn() {
        let root = LimitNode::root(Area::common().expect("an area"));
        root.set_limit(100);
        root.try_charge(60).expect("it fits");
        let mut context = Context::from_waker(Waker::noop());
        let mut turns: [LimitTurn; 3] = Default::default();
        let [granted, waits, new] = &mut turns;
        assert!(root.poll_charge(granted, 41, &mut context).is_pending());
        assert!(root.poll_charge(waits, 50, &mut context).is_pending());
        root.release(1);
        assert_eq!(root.usage().current, 100, "granted, and not taken");
        // As in a child.
        root.node().waiting().with(Queue::forget_waiting);
        assert!(root.poll_charge(new, 50, &mut context).is_pending());
        root.end_turn(waits, 50);
        assert_eq!(root.poll_charge(granted, 41, &mut context), Poll::Ready(Ok(())));
        assert_eq!(root.usage().current, 100);
        root.release(41);
        assert_eq!(root.usage().current, 59);
        root.release(9);
        assert_eq!(root.poll_charge(new, 50, &mut context), Poll::Ready(Ok(())));
        assert_eq!(root.usage().current, 100);
        let node = Arc::downgrade(root.node());
        drop(root);
        assert_eq!(node.strong_count(), 0, "what was forgotten keeps the tree");
    }

    #[test]
    fn a_charge_that_has_room_made_holds_up_nobody_and_keeps_its_place() {
        let root = LimitNode::root(Area::common().expect("an area"));
        root.set_limit(100);
        let [web, mail] = [root.child(), root.child()];
        root.try_charge(60).expect("it fits");
        let mut context = Context::from_waker(Waker::noop());
        let mut turns: [LimitTurn; 3] = Default::default();
        let [first, second, third] = &mut turns;
        assert!(web.poll_charge(first, 50, &mut context).is_pending());
        assert!(mail.poll_charge(second, 30, &mut context).is_pending());
        assert_eq!(web.wanted(first), Some(vec![50, 50]));
        assert_eq!(mail.wanted(second), Some(vec![30, 80]), "they share the root");
        web.set_asks(first, true);
        assert_eq!(mail.wanted(second), None, "it was granted");
        assert_eq!(mail.poll_charge(second, 30, &mut context), Poll::Ready(Ok(())));
        assert!(mail.poll_charge(third, 20, &mut context).is_pending());
        assert_eq!((web.wanted(first), mail.wanted(third)), (Some(vec![50; 2]), Some(vec![20; 2])));
        root.release(40);
        assert_eq!(web.poll_charge(first, 50, &mut context), Poll::Ready(Ok(())), "it was first");
        assert_eq!((web.wanted(first), root.usage().current), (None, 100));
        web.set_asks(first, false);
        root.release(20);
        assert_eq!(mail.poll_charge(third, 20, &mut context), Poll::Ready(Ok(())));
    }

    #[test]
    fn a_timeout_asks_for_room_until_there_is_some_or_none_is_to_be_had() {
        let root = LimitNode::root(Area::common().expect("an area"));
        root.set_limit(100);
        root.try_charge(100).expect("it fits");
        let mut asked = 0;
        let charged = root.charge_timeout_with(50, Duration::ZERO, |turn| {
            assert_eq!(root.wanted(turn), Some(vec![50]));
            asked += 1;
            root.release(20);
            true
        });
        assert_eq!((charged, asked, root.usage().current), (Ok(()), 3, 90));
        let refused = root.charge_timeout_with(50, Duration::ZERO, |_| {
            asked += 1;
            false
        });
        assert_eq!((refused.expect_err("nobody gave anything").held, asked), (90, 4));
        assert_eq!(root.usage().refused, 1);
        assert_eq!(root.charge_uncounted(50).expect_err("it does not fit").held, 90);
        assert_eq!((root.usage().refused, root.charge_uncounted(10)), (1, Ok(())));
    }

    /// Panics where it is woken or dropped.
    struct Bomb {
        woken: bool,
    }

    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            assert!(!self.woken, "on purpose");
        }
    }

    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(self.woken, "on purpose");
        }
    }

    #[test]
    fn a_waker_that_panics_harms_nobody_else() {
        let root = LimitNode::root(Area::common().expect("an area"));
        root.set_limit(100);
        root.try_charge(60).expect("it fits");
        let flag = Arc::new(Flag::default());
        let of = |bomb| Waker::from(Arc::new(bomb));
        let wakers = [of(Bomb { woken: true }), Waker::from(Arc::clone(&flag))];
        let mut turns: [LimitTurn; 3] = Default::default();
        for (turn, waker) in zip(&mut turns, wakers) {
            assert!(root.poll_charge(turn, 50, &mut Context::from_waker(&waker)).is_pending());
        }
        root.release(60);
        root.end_turn(&mut turns[0], 50);
        // Relaxed: one thread.
        assert!(flag.0.load(Ordering::Relaxed), "the second was granted with it");
        root.end_turn(&mut turns[1], 50);
        root.try_charge(50).expect("it was released");
        let panics = AssertUnwindSafe(|| {
            let waker = of(Bomb { woken: false });
            assert!(
                root.poll_charge(&mut turns[0], 100, &mut Context::from_waker(&waker)).is_pending()
            );
            assert!(
                root.poll_charge(&mut turns[2], 50, &mut Context::from_waker(Waker::noop()))
                    .is_pending()
            );
            drop(waker);
            root.end_turn(&mut turns[0], 100);
        });
        assert!(catch_unwind(panics).is_err(), "its last waker panicked");
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(root.poll_charge(&mut turns[2], 50, &mut context), Poll::Ready(Ok(())));
    }

    /// Whether it was woken.
    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            // Relaxed: one thread.
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// A task that waits, which ends with its last waker.
    struct Task(Arc<LimitNode>, Mutex<LimitTurn>);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Task {
        fn drop(&mut self) {
            self.0.end_turn(&mut self.1.lock().expect("no panic"), 50);
        }
    }

    #[test]
    fn a_task_that_ends_with_its_last_waker_leaves_the_queue() {
        for another_waker in [true, false] {
            let root = LimitNode::root(Area::common().expect("an area"));
            let root = Arc::new(root);
            root.set_limit(100);
            root.try_charge(60).expect("it fits");
            let (mut ends, mut goes_on) = (LimitTurn::default(), LimitTurn::default());
            let mut context = Context::from_waker(Waker::noop());
            assert!(root.poll_charge(&mut ends, 50, &mut context).is_pending());
            let last = Waker::from(Arc::new(Task(Arc::clone(&root), Mutex::new(ends))));
            let mut by_last = Context::from_waker(&last);
            assert!(root.poll_charge(&mut goes_on, 50, &mut by_last).is_pending());
            drop(last); // the queue has it now
            if another_waker {
                assert!(root.poll_charge(&mut goes_on, 50, &mut context).is_pending());
                root.release(60);
                assert_eq!(root.usage().current, 50);
                assert_eq!(root.poll_charge(&mut goes_on, 50, &mut context), Poll::Ready(Ok(())));
            } else {
                root.end_turn(&mut goes_on, 50);
                root.release(60);
                assert_eq!(root.usage().current, 0);
            }
        }
    }
}
