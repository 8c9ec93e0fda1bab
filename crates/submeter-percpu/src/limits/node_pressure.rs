//! The stalls of [`LimitNode`]s. All of them are changed and read with their tree's queue held.

use super::node::{LimitNode, NodeInner};
use super::pressure::Pressure;
use crate::sync::atomic::Ordering;

impl LimitNode {
    /// Returns how long charges of this group and the groups below it have waited up to now. Costs
    /// a lock, which waiting charges share, or a load where no charge ever waited.
    ///
    /// Do not call it in signal handlers. It is 0 in a forked child whose fork left another thread
    /// of the parent behind in the queue: no charge can wait there.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        let node = self.node();
        // Relaxed: it is set before the first wait is timed, so only a wait that begins at the same
        // moment is missed.
        if !node.has_stalled.load(Ordering::Relaxed) {
            return Pressure::default();
        }
        let read = node.waiting().with(|_| {
            let now = node.now();
            node.stalls.lock().as_mut().map(|meter| meter.read(now))
        });
        read.flatten().unwrap_or_default()
    }
}

impl NodeInner {
    /// Records at all levels that a charge waits from now on, or no longer waits.
    pub(super) fn note_wait(&self, begins: bool) {
        let now = self.now();
        for node in self.up() {
            // Relaxed: see `LimitNode::pressure`.
            node.has_stalled.store(true, Ordering::Relaxed);
            node.stalls.lock().get_or_insert_default().wait(begins, node.holds(), now);
        }
    }

    /// Records which groups hold something, after a charge or a release.
    pub(super) fn look_at_stalls(&self) {
        // Nothing changes above the level that charges wait for: that level holds something.
        let now = self.now();
        for node in self.up() {
            if let Some(meter) = &mut *node.stalls.lock() {
                meter.look(node.holds(), now);
            }
        }
    }
}

// Not under Miri: it takes long, and the tests of waits already run the unsafe code there.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::task::{Context, Poll, Waker};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::limits::LimitTurn;
    use crate::storage::Area;

    fn tree<const N: usize>() -> (LimitNode, [LimitNode; N]) {
        let root = LimitNode::root(Area::common().expect("an area"));
        root.set_limit(100);
        let children = std::array::from_fn(|_| root.child());
        (root, children)
    }

    /// Polls a charge once, which then waits.
    fn waits(node: &LimitNode, n: u64) -> LimitTurn {
        let mut turn = LimitTurn::default();
        assert!(poll(node, &mut turn, n).is_pending());
        turn
    }

    fn poll(node: &LimitNode, turn: &mut LimitTurn, n: u64) -> Poll<bool> {
        let mut context = Context::from_waker(Waker::noop());
        node.poll_charge(turn, n, &mut context).map(|result| result.is_ok())
    }

    fn totals(node: &LimitNode) -> [Duration; 2] {
        let Pressure { some, full } = node.pressure();
        [some.total, full.total]
    }

    /// Lets time pass, and returns which totals of a group rise with it.
    fn stalls(node: &LimitNode) -> [bool; 2] {
        let before = totals(node);
        thread::sleep(Duration::from_micros(100));
        let after = totals(node);
        [0, 1].map(|line| after[line] > before[line])
    }

    const NONE: [bool; 2] = [false; 2];
    const SOME: [bool; 2] = [true, false];
    const FULL: [bool; 2] = [true; 2];

    #[test]
    fn a_group_stalls_from_first_wait_to_last_end() {
        let (root, [web, mail, idle]) = tree();
        root.try_charge(60).expect("room");
        let before = Instant::now();
        let [mut first, mut second] = [waits(&web, 50), waits(&mail, 41)];
        assert_eq!([&root, &web, &mail, &idle].map(stalls), [SOME, FULL, FULL, NONE]);
        root.release(60);
        assert_eq!([&root, &web, &mail].map(stalls), [NONE; 3], "both were granted");
        assert!(totals(&root)[0] <= before.elapsed(), "waits at the same time count once");
        assert!(totals(&root)[0] >= totals(&web)[0], "one of those above began no later");
        assert_eq!((poll(&web, &mut first, 50), poll(&mail, &mut second, 41)), {
            (Poll::Ready(true), Poll::Ready(true))
        });
        let over = [&root, &web, &mail, &idle].map(totals);
        assert_eq!([&root, &web, &mail, &idle].map(stalls), [NONE; 4]);
        assert_eq!([&root, &web, &mail, &idle].map(totals), over);
        assert_eq!(over[3], [Duration::ZERO; 2]);
    }

    #[test]
    fn who_waits_and_holds_something_stalls_in_part() {
        let (root, [web, mail]) = tree();
        mail.try_charge(60).expect("room");
        let mut turn = waits(&web, 50);
        assert_eq!([&root, &web, &mail].map(stalls), [SOME, FULL, NONE]);
        web.try_charge(1).expect("room");
        assert_eq!(stalls(&web), SOME, "it holds something");
        web.release(1);
        assert_eq!(stalls(&web), FULL);
        web.end_turn(&mut turn, 50);
        assert_eq!([&root, &web].map(stalls), [NONE; 2]);
    }

    #[test]
    fn waits_without_a_grant_end_their_stall() {
        let (root, [web, mail]) = tree();
        mail.try_charge(60).expect("room");
        web.charge_blocking(50, Duration::from_millis(1)).expect_err("it took too long");
        assert_eq!(stalls(&web), NONE);
        let mut turn = waits(&web, 50);
        assert_eq!(stalls(&web), FULL);
        root.set_limit(49);
        assert_eq!(stalls(&web), NONE, "it can never be granted");
        assert_eq!(poll(&web, &mut turn, 50), Poll::Ready(false));
        assert_eq!(stalls(&web), NONE);
    }

    #[test]
    fn charges_that_need_not_wait_stall_nobody() {
        let (root, [web, mail]) = tree();
        assert_eq!(web.charge_blocking(60, Duration::ZERO), Ok(()));
        mail.set_limit(30);
        mail.charge_blocking(31, Duration::from_secs(60)).expect_err("it never fits");
        assert_eq!(mail.charge_blocking(30, Duration::ZERO), Ok(()));
        assert_eq!([&root, &web, &mail].map(totals), [[Duration::ZERO; 2]; 3]);
    }
}
