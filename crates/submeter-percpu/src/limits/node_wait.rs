//! Charges of a [`LimitNode`] that wait for room.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::level::{Cause, Refusal};
use super::node::{LimitNode, NodeInner, Refused};
use super::path::Path;
use super::tree::{charge_stock, is_awaited, release, try_charge};
use super::wait::{Cancelled, Failure, Polled};
use crate::sync::atomic::Ordering;
use crate::wake::{ThisThread, let_go};

/// The place in the queue of a waiting charge. For futures: see [`LimitNode::poll_charge`].
#[derive(Debug, Default)]
pub struct LimitTurn {
    number: Option<u64>,
}

impl LimitNode {
    /// Charges `n` to this group and every one above it once all have room. Until then `context`'s
    /// waker is woken when to poll again. A turn is for one charge: call
    /// [`end_turn`](LimitNode::end_turn) before it is dropped.
    ///
    /// Charges that wait for one limit are granted in the order in which they first polled; a
    /// [`try_charge`](LimitNode::try_charge) does not wait for them. While no charge waits, polling
    /// costs as much as that. While a charge waits for a limit, charges and releases below the
    /// limit take the exact path, and each of them tries the waiting charges until one does not
    /// fit.
    ///
    /// Do not call it in signal handlers, nor release in handlers while a charge waits: wakers must
    /// not run there.
    ///
    /// # Errors
    /// When `n` alone exceeds an enforced limit, at once or as soon as a limit is lowered that far,
    /// whatever is ahead of it; when it would wait but the waits of its group have
    /// [ended](LimitNode::end_waits), or end; if it does not fit in a forked child whose fork left
    /// another thread of the parent behind in the queue or with the stock of the tree: room that is
    /// released might not be seen there.
    pub fn poll_charge(
        &self,
        turn: &mut LimitTurn,
        n: u64,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Refused>> {
        let node = self.node();
        if turn.number.is_none() {
            // Stock lies within all limits, and there is no stock where a charge waits.
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
                let_go(waker);
                match polled.unwrap_or(Polled::Unknown) {
                    Polled::Waits => return Poll::Pending,
                    Polled::Unknown => {}
                    Polled::Done(outcome) => {
                        turn.number = None;
                        return Poll::Ready(outcome.map_err(|failure| node.fail(failure)));
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

    /// Returns the amounts waited for at this level and each above, by a turn's charge and the
    /// charges ahead that hold it up; `None` if it does not wait. Costs a lock and a scan of the
    /// waiting charges.
    #[must_use]
    pub fn wanted(&self, turn: &LimitTurn) -> Option<Vec<u64>> {
        let number = turn.number?;
        self.node().waiting().with(|queue| queue.wanted(number)).flatten()
    }

    /// Sets whether the charges behind a turn's charge may pass it, while its owner makes room,
    /// which may take long. The charge keeps its place.
    pub fn set_asks(&self, turn: &LimitTurn, asks: bool) {
        let Some(number) = turn.number else { return };
        self.node().waiting().with(|queue| queue.set_asks(number, asks));
        self.node().serve();
    }

    /// Stops charges of this group from waiting. Waiting charges end with [`Cause::Ended`] at the
    /// next [`wake_ended`](LimitNode::wake_ended), and from now on so does each charge that would
    /// have to wait. A charge that fits is granted as before, and charges of groups below wait as
    /// before.
    pub fn end_waits(&self) {
        // Relaxed: the queue's lock orders it, see `wake_ended`.
        self.node().ended.store(true, Ordering::Relaxed);
    }

    /// Ends and wakes the charges of this tree whose groups have [ended](LimitNode::end_waits)
    /// their waits. Call it once for many groups, since it scans all waiting charges.
    pub fn wake_ended(&self) {
        // No wakeup is lost. A charge checks with the queue locked whether its group has ended, and
        // is in the queue when it releases the lock; a group is marked before the queue is locked
        // here. So in either order of locking, this finds the charge, or the charge finds the mark.
        self.node().reconsider();
    }

    /// Does the same as [`try_charge`](LimitNode::try_charge), but counts no refusal: for callers
    /// that then wait or make room.
    ///
    /// # Errors
    /// The same as for `try_charge`.
    pub fn charge_uncounted(&self, n: u64) -> Result<(), Refused> {
        charge_uncounted(self.node(), n).map_err(|at| refused(Failure::limit(at)))
    }

    /// Ends a turn whose charge is no longer wanted: releases it if it was granted in the meantime,
    /// and serves the charges behind it. Does nothing for a turn that has ended.
    pub fn end_turn(&self, turn: &mut LimitTurn, n: u64) {
        let Some(number) = turn.number.take() else { return };
        let node = self.node();
        match node.waiting().with(|queue| queue.cancel(number)) {
            Some(Cancelled::Granted) => release(node, n),
            Some(Cancelled::Waited(_, waker)) => let_go(waker),
            None => {}
        }
        node.serve();
    }

    /// Charges `n` to this group and every one above it as soon as all have room, and blocks the
    /// thread until then, for at most `timeout`. See [`poll_charge`](LimitNode::poll_charge).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter_percpu::{Area, LimitNode};
    ///
    /// let root = LimitNode::root(Area::common()?);
    /// root.set_limit(100);
    /// root.try_charge(60).expect("it fits");
    /// let refused = root.charge_blocking(50, Duration::from_millis(1)).expect_err("60 are held");
    /// assert_eq!((refused.held, refused.limit), (60, 100));
    /// std::thread::scope(|scope| {
    ///     let waits = scope.spawn(|| root.charge_blocking(50, Duration::from_secs(60)));
    ///     root.release(60);
    ///     assert_eq!(waits.join().unwrap(), Ok(()));
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there was no room in that time, and the errors of
    /// [`poll_charge`](LimitNode::poll_charge).
    pub fn charge_blocking(&self, n: u64, timeout: Duration) -> Result<(), Refused> {
        self.charge_blocking_with(n, timeout, |_| false)
    }

    /// Does the same as [`charge_blocking`](LimitNode::charge_blocking), and calls `ask` once the
    /// charge waits, to make room. It is called again as long as it returns true and there is no
    /// room.
    ///
    /// # Errors
    /// The same as for `charge_blocking`.
    pub fn charge_blocking_with(
        &self,
        n: u64,
        timeout: Duration,
        mut ask: impl FnMut(&LimitTurn) -> bool,
    ) -> Result<(), Refused> {
        let this_thread = ThisThread::new();
        let mut context = Context::from_waker(this_thread.waker());
        let (mut turn, start) = (LimitTurn::default(), Instant::now());
        let mut asks = true;
        loop {
            if let Poll::Ready(result) = self.poll_charge(&mut turn, n, &mut context) {
                return result;
            }
            if asks {
                asks = ask(&turn);
                continue;
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return self.give_up(&mut turn, n);
            }
            this_thread.wait(Some(left));
        }
    }

    /// Ends a turn that took too long, unless its charge has been granted.
    ///
    /// # Errors
    /// The reason why it was not granted: there is no room, or another charge waits ahead of it.
    pub fn give_up(&self, turn: &mut LimitTurn, n: u64) -> Result<(), Refused> {
        let node = self.node();
        // A thread that released something may not have served the queue yet.
        node.serve();
        let number = turn.number.take();
        let cancelled = number.and_then(|number| node.waiting().with(|queue| queue.cancel(number)));
        let failed = match cancelled {
            Some(Cancelled::Granted) => return Ok(()),
            Some(Cancelled::Waited(failed, waker)) => {
                let_go(waker);
                failed
            }
            None => None,
        };
        node.serve();
        // It is first in the queue and may try: it gets room that was released in between.
        // Otherwise the limit is described as it was when it refused.
        let charged = match failed {
            Some(failed) => Err(failed),
            None => charge_uncounted(node, n).map_err(Failure::limit),
        };
        charged.map_err(|failure| node.fail(failure))
    }
}

impl NodeInner {
    /// Counts a refusal by a limit.
    pub(super) fn refuse(&self, at: (usize, Refusal)) -> Refused {
        self.fail(Failure::limit(at))
    }

    /// Counts a charge that a limit refused, or that waiting charges held up.
    fn fail(&self, failure: Failure) -> Refused {
        if failure.cause != Cause::Ended {
            self.levels().nth(failure.index).expect("it refused").refuse();
        }
        refused(failure)
    }
}

fn refused(failure: Failure) -> Refused {
    let Failure { index: levels, refusal: Refusal { held, limit }, cause } = failure;
    Refused { levels, held, limit, cause }
}

/// Out of line, once for all waits.
#[inline(never)]
fn charge_uncounted(node: &Arc<NodeInner>, n: u64) -> Result<(), (usize, Refusal)> {
    try_charge(node, n)
}

#[cfg(test)]
mod tests {
    use std::iter::zip;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Wake, Waker};

    use super::*;
    use crate::limits::wait::Queue;
    use crate::storage::Area;

    /// The queue does not miss a release by a handler that interrupts it.
    #[test]
    fn no_release_by_a_handler_is_missed() {
        let root = LimitNode::root(Area::common().expect("an area"));
        root.set_limit(100);
        root.try_charge(60).expect("it fits");
        let (mut turn, mut context) = (LimitTurn::default(), Context::from_waker(Waker::noop()));
        assert!(root.poll_charge(&mut turn, 50, &mut context).is_pending());
        // A handler may interrupt the thread that holds the queue.
        root.node().waiting().with(|_| root.release(60)).expect("nobody has it");
        assert_eq!(root.usage().current, 50);
        assert_eq!(root.poll_charge(&mut turn, 50, &mut context), Poll::Ready(Ok(())));
    }

    #[test]
    fn a_fork_leaves_grants_and_nobody_elses_turn() {
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
        assert_eq!(root.poll_charge(granted, 41, &mut context), Poll::Ready(Ok(())));
        assert_eq!(root.usage().current, 100);
        root.release(41);
        assert_eq!(root.usage().current, 59);
        root.release(9);
        assert_eq!(root.poll_charge(new, 50, &mut context), Poll::Ready(Ok(())));
        assert_eq!(root.usage().current, 100);
        root.end_turn(waits, 50);
        let node = Arc::downgrade(root.node());
        drop(root);
        assert_eq!(node.strong_count(), 0, "what was forgotten keeps the tree");
    }

    #[test]
    fn making_room_holds_up_nobody_and_keeps_a_place() {
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

    /// A release, a newcomer and a charge that gives up try the charges that wait for their own
    /// levels, however many wait elsewhere.
    #[test]
    fn only_charges_of_the_same_levels_are_tried() {
        const NODES: u64 = if cfg!(miri) { 16 } else { 100 };
        let root = LimitNode::root(Area::common().expect("an area"));
        let nodes: Vec<_> = (0..NODES).map(|_| root.child()).collect();
        let mut context = Context::from_waker(Waker::noop());
        let mut turns: Vec<_> = nodes.iter().map(|_| LimitTurn::default()).collect();
        nodes.iter().for_each(|node| _ = node.set_limit(1));
        for (node, turn) in zip(&nodes, &mut turns) {
            node.try_charge(1).expect("it fits");
            assert!(node.poll_charge(turn, 1, &mut context).is_pending());
        }
        let tries = || root.node().waiting().with(|queue| queue.tries).expect("nobody has it");
        assert_eq!(tries(), NODES, "each newcomer once");
        nodes[7].release(1);
        assert_eq!(nodes[7].poll_charge(&mut turns[7], 1, &mut context), Poll::Ready(Ok(())));
        nodes[8].end_turn(&mut turns[8], 1);
        assert_eq!(tries(), NODES + 1);
        // A limit that all share holds up the next ones, behind the first.
        root.set_limit(NODES - 1);
        assert!(nodes[8].poll_charge(&mut turns[8], 1, &mut context).is_pending());
        nodes.iter().skip(9).take(5).for_each(|node| _ = node.set_limit(3));
        root.set_limit(NODES + 3);
        let granted = |at: &usize| nodes[*at].usage().current == 2;
        assert_eq!((8..15).filter(granted).collect::<Vec<_>>(), [9, 10, 11]);
        zip(&nodes, &mut turns).for_each(|(node, turn)| node.end_turn(turn, 1));
    }

    /// The oldest that waits at any level of a release goes first, also while it lets others pass.
    #[test]
    fn a_charge_that_makes_room_gets_it_first() {
        let root = LimitNode::root(Area::common().expect("an area"));
        let [web, mail] = [root.child(), root.child()];
        root.set_limit(100);
        mail.set_limit(60);
        web.try_charge(40).expect("it fits");
        mail.try_charge(60).expect("it fits");
        let mut context = Context::from_waker(Waker::noop());
        let [mut first, mut second]: [LimitTurn; 2] = Default::default();
        assert!(web.poll_charge(&mut first, 50, &mut context).is_pending(), "at the root");
        web.set_asks(&first, true);
        assert!(mail.poll_charge(&mut second, 50, &mut context).is_pending(), "at its own level");
        // What its request freed there.
        mail.release(60);
        assert_eq!(web.poll_charge(&mut first, 50, &mut context), Poll::Ready(Ok(())));
        assert!(mail.poll_charge(&mut second, 50, &mut context).is_pending());
        web.release(90);
        assert_eq!(mail.poll_charge(&mut second, 50, &mut context), Poll::Ready(Ok(())));
    }

    /// A timeout asks for room until there is some or none can be had.
    #[test]
    fn a_timeout_asks_for_room_again_and_again() {
        let root = LimitNode::root(Area::common().expect("an area"));
        root.set_limit(100);
        root.try_charge(100).expect("it fits");
        let mut asked = 0;
        let charged = root.charge_blocking_with(50, Duration::ZERO, |turn| {
            assert_eq!(root.wanted(turn), Some(vec![50]));
            asked += 1;
            root.release(20);
            true
        });
        assert_eq!((charged, asked, root.usage().current), (Ok(()), 3, 90));
        let refused = root.charge_blocking_with(50, Duration::ZERO, |_| {
            asked += 1;
            false
        });
        assert_eq!((refused.expect_err("nobody gave anything").held, asked), (90, 4));
        assert_eq!(root.usage().refused, 1);
        assert_eq!(root.charge_uncounted(50).expect_err("it does not fit").held, 90);
        assert_eq!((root.usage().refused, root.charge_uncounted(10)), (1, Ok(())));
    }

    /// A charge that gives up reports whether there was no room or another charge was ahead of it.
    #[test]
    fn a_charge_that_gives_up_says_why() {
        let root = LimitNode::root(Area::common().expect("an area"));
        let [web, mail] = [root.child(), root.child()];
        root.set_limit(100);
        web.set_limit(70);
        web.try_charge(60).expect("it fits");
        let mut context = Context::from_waker(Waker::noop());
        let mut turns: [LimitTurn; 2] = Default::default();
        assert!(web.poll_charge(&mut turns[0], 50, &mut context).is_pending());
        // The first waits at /web; charges that wait for other limits hold up no charge there.
        let refused = |charged: Result<(), Refused>| {
            let Refused { levels, held, limit, cause } = charged.expect_err("no room, or behind");
            (levels, held, limit, cause)
        };
        let timeout = |node: &LimitNode, n| node.charge_blocking(n, Duration::ZERO);
        assert_eq!(refused(timeout(&web, 10)), (0, 60, 70, Cause::Behind));
        assert_eq!(refused(timeout(&web, 11)), (0, 60, 70, Cause::Limit), "nor does it fit");
        assert_eq!(timeout(&mail, 10), Ok(()));
        assert!(mail.poll_charge(&mut turns[1], 60, &mut context).is_pending());
        assert_eq!(refused(timeout(&mail, 30)), (1, 70, 100, Cause::Behind));
        assert_eq!(refused(timeout(&mail, 31)), (1, 70, 100, Cause::Limit));
        // A charge that is behind another at its own level may also lack room above: that reason
        // comes first.
        assert_eq!(refused(timeout(&web, 101)), (0, 60, 70, Cause::Limit));
        assert_eq!([&web, &root].map(|node| node.usage().refused), [3, 2]);
        root.end_turn(&mut turns[1], 60);
        web.end_turn(&mut turns[0], 50);
        assert_eq!(timeout(&web, 10), Ok(()));
    }

    /// Only waits of the named groups end, and their owners are woken.
    #[test]
    fn only_waits_of_the_groups_named_end() {
        let root = LimitNode::root(Area::common().expect("an area"));
        let web = root.child();
        let [page, mail] = [web.child(), root.child()];
        root.set_limit(100);
        root.try_charge(60).expect("it fits");
        let nodes = [&root, &web, &page, &mail];
        let flags: [Arc<Flag>; 4] = Default::default();
        let mut turns: [LimitTurn; 4] = Default::default();
        let poll = |at: usize, turn: &mut LimitTurn| {
            let waker = Waker::from(Arc::clone(&flags[at]));
            nodes[at].poll_charge(turn, 41, &mut Context::from_waker(&waker))
        };
        for (at, turn) in turns.iter_mut().enumerate() {
            assert!(poll(at, turn).is_pending());
        }
        [&web, &page].into_iter().for_each(LimitNode::end_waits);
        mail.wake_ended();
        // Relaxed: one thread.
        let woken = flags.each_ref().map(|flag| flag.0.load(Ordering::Relaxed));
        assert_eq!(woken, [false, true, true, false]);
        for (at, turn) in turns.iter_mut().enumerate().skip(1).take(2) {
            let Poll::Ready(Err(refused)) = poll(at, turn) else { panic!("it ended") };
            assert_eq!((refused.levels, refused.cause), (0, Cause::Ended));
            // And forever, unless it fits.
            assert!(matches!(
                poll(at, turn),
                Poll::Ready(Err(Refused { cause: Cause::Ended, .. }))
            ));
        }
        assert_eq!(nodes.map(|node| node.usage().refused), [0; 4], "no limit refused it");
        root.release(40);
        assert_eq!(poll(0, &mut turns[0]), Poll::Ready(Ok(())));
        assert!(poll(3, &mut turns[3]).is_pending(), "the others keep their places");
        root.end_turn(&mut turns[3], 41);
        assert_eq!(web.charge_blocking(39, Duration::ZERO), Ok(()), "it fits");
    }

    #[test]
    fn a_wakeup_that_a_callback_took_is_not_awaited() {
        let root = LimitNode::root(Area::common().expect("an area"));
        root.set_limit(100);
        root.try_charge(60).expect("it fits");
        let (long, begun) = (Duration::from_secs(60), Instant::now());
        let charged = root.charge_blocking_with(50, long, |_| {
            root.end_waits();
            root.wake_ended();
            // Like a callback that waits for a thread of its own.
            std::thread::park();
            false
        });
        assert_eq!(charged.expect_err("it ended").cause, Cause::Ended);
        assert!(begun.elapsed() < long, "it slept to the end");
    }

    /// A waker that panics when it is woken or dropped.
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
        let mut context = Context::from_waker(Waker::noop());
        for gives_up in [false, true] {
            let waker = of(Bomb { woken: false });
            let mut by_bomb = Context::from_waker(&waker);
            assert!(root.poll_charge(&mut turns[0], 100, &mut by_bomb).is_pending());
            // The queue now has the last clone, which panics when it is dropped.
            drop(waker);
            if gives_up {
                assert_eq!(root.give_up(&mut turns[0], 100).expect_err("50 are held").held, 50);
            } else {
                root.end_turn(&mut turns[0], 100);
            }
        }
        assert!(root.poll_charge(&mut turns[2], 50, &mut context).is_ready(), "nobody is before");
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

    /// A waiting task that ends with its last waker.
    struct Task(Arc<LimitNode>, Mutex<LimitTurn>);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Task {
        fn drop(&mut self) {
            self.0.end_turn(&mut self.1.lock().expect("no panic"), 50);
        }
    }

    /// A task that ends with its last waker leaves the queue.
    #[test]
    fn a_task_that_ends_leaves_the_queue() {
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
