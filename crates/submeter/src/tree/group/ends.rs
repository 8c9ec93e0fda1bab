//! Waits in a group, which end with it.
//!
//! A kill marks the group dead, then looks for waiting tasks; a task that begins to wait first
//! announces itself, then checks whether the group is dead. Each has a fence between its two steps,
//! so at least one sees the other: no task waits for a group that is gone. The same holds for the
//! lists of waits. The first wait makes a list; a kill that finds no list concludes that no task
//! waits.

use std::fmt;
use std::pin::Pin;
use std::ptr;
use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll, Waker};

use submeter_percpu::LimitNode;
use submeter_percpu::contain::contain;
use submeter_sys::fork;

use super::Group;

impl Group {
    /// Waits until this group is killed, by [`kill`](Group::kill), by a
    /// [`kill_subtree`](Group::kill_subtree) here or above, or by the end of the tree. For work
    /// that runs as long as its tenant exists. Ready at once if the group was killed before.
    ///
    /// It works on every runtime, and any number of tasks may wait. A poll that finds the group
    /// alive takes a lock, unless the same task was the last to poll; updates and charges cost what
    /// they did. A dropped future leaves nothing behind. Waiting charges end by themselves: see
    /// [`charge`](Group::charge).
    ///
    /// # Examples
    /// ```
    /// use submeter::{Group, Schema, Tree};
    ///
    /// /// Sends news until the tenant is deleted.
    /// async fn subscription(tenant: Group) -> &'static str {
    ///     tokio::select! {
    ///         () = tenant.killed() => "the tenant is gone",
    ///         news = next() => news,
    ///     }
    /// }
    /// # async fn next() -> &'static str { std::future::pending().await }
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let web = tree.get_or_create("/acme/web")?;
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let task = tokio::spawn(subscription(web));
    /// tokio::task::yield_now().await; // it waits
    /// let killed = tree.get("/acme").expect("made with its child").kill_subtree()?;
    /// assert_eq!(task.await?, "the tenant is gone");
    /// for killed in &killed {
    ///     killed.await;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn killed(&self) -> WhenKilled<'_> {
        WhenKilled { group: self, wait: KillWait::default() }
    }

    /// Registers `waker` to be woken by the kill of this group, and returns the ticket with which
    /// to [forget](Group::forget_kill) it; `None` if the group has been killed.
    pub(crate) fn note_kill(&self, waker: Waker) -> Option<u64> {
        let waits = self.inner.extras.kill_waits();
        let (ticket, _) = waits.insert(None, waker);
        if self.is_killed_meanwhile() {
            drop(waits.remove(ticket));
            return None;
        }
        Some(ticket)
    }

    /// Forgets the waker of a ticket, which is then no longer woken.
    pub(crate) fn forget_kill(&self, ticket: u64) {
        drop(self.inner.extras.kill_waits_if_any().and_then(|waits| waits.remove(ticket)));
    }

    /// Returns whether the group is dead, for a thread that has already announced its wait.
    pub(crate) fn is_killed_meanwhile(&self) -> bool {
        // SeqCst: pairs with the fence in `Ends::add`.
        fence(Ordering::SeqCst);
        self.is_killed()
    }
}

/// A task's place among those that the kill of one group wakes.
#[derive(Debug, Default)]
pub(crate) struct KillWait(Option<Place>);

#[derive(Clone, Copy, Debug)]
struct Place {
    ticket: u64,
    /// Where the waker in the list is. Not a waker: the task may own this, and would own itself.
    waker: [usize; 2],
    /// The process whose list it is: a forked child begins with an empty one.
    process: u32,
}

fn place_of(waker: &Waker) -> [usize; 2] {
    [waker.data().addr(), ptr::from_ref(waker.vtable()).addr()]
}

impl KillWait {
    /// Ready if the group has been killed; otherwise the kill wakes the task.
    pub(crate) fn poll(&mut self, group: &Group, context: &Context<'_>) -> Poll<()> {
        if group.is_killed() {
            return Poll::Ready(());
        }
        let (asking, own) = (place_of(context.waker()), self.0);
        // The list holds that waker until a kill takes it, so nothing else is at its place. A kill
        // that this poll does not see wakes the task, which then polls again.
        if own.is_some_and(|own| own.waker == asking && fork::is(own.process)) {
            return Poll::Pending;
        }
        let waker = context.waker().clone();
        let kept = place_of(&waker);
        let (ticket, old) =
            group.inner.extras.kill_waits().insert(own.map(|own| own.ticket), waker);
        self.0 = Some(Place { ticket, waker: kept, process: fork::generation() });
        // After the lock is released: dropping a waker runs the user's code.
        drop(old);
        if group.is_killed_meanwhile() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Leaves the place.
    pub(crate) fn leave(&mut self, group: &Group) {
        if let Some(Place { ticket, .. }) = self.0.take() {
            drop(group.inner.extras.kill_waits().remove(ticket));
        }
    }
}

/// A future that is ready once a group has been killed. Created by [`Group::killed`].
#[must_use = "a future does nothing unless it is polled"]
pub struct WhenKilled<'a> {
    group: &'a Group,
    wait: KillWait,
}

impl Future for WhenKilled<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let group = self.group;
        self.wait.poll(group, context)
    }
}

impl Drop for WhenKilled<'_> {
    fn drop(&mut self) {
        self.wait.leave(self.group);
    }
}

impl fmt::Debug for WhenKilled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WhenKilled({})", self.group)
    }
}

/// The waits in dead groups. Dropping it ends them and wakes the waiters, with one look per quota
/// at all waiters of the tree. This also happens when a kill panics. Drop it with no lock held,
/// once no new handle can be taken.
pub(super) struct Ends<'a> {
    tree: &'a Group,
    /// By group, each before its descendants.
    wakers: Vec<Vec<Waker>>,
    /// Whether one of them was ever charged or limited.
    have_quotas: bool,
}

impl Ends<'_> {
    /// Returns an empty set for the tree that this group belongs to.
    pub(super) fn of(tree: &Group) -> Ends<'_> {
        Ends { tree, wakers: Vec::new(), have_quotas: false }
    }

    /// Adds the waits in a group that is marked dead.
    pub(super) fn add(&mut self, group: &Group) {
        // SeqCst: pairs with the fence in `is_killed_meanwhile`.
        fence(Ordering::SeqCst);
        if let Some(waits) = group.inner.extras.kill_waits_if_any() {
            self.wakers.push(waits.take().into_values().collect());
        }
        let nodes = group.inner.quotas.nodes();
        self.have_quotas |= nodes.map(LimitNode::end_waits).count() > 0;
    }
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if self.have_quotas {
            let up = std::iter::successors(Some(self.tree), |group| group.parent());
            let root = up.last().expect("the group itself");
            root.inner.quotas.nodes().for_each(LimitNode::wake_ended);
        }
        // Descendants first: a queue that forgot a parent's limit would admit what waits below.
        for waker in std::mem::take(&mut self.wakers).into_iter().rev().flatten() {
            let _ = contain(|| waker.wake());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::task::Wake;

    use super::*;
    use crate::{Schema, Tree};

    #[test]
    fn abandoned_waits_for_a_kill_leave_nothing() {
        let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
        let web = tree.create("/web").expect("new");
        assert!(web.inner.extras.kill_waits_if_any().is_none());
        drop(web.killed());
        assert!(web.inner.extras.kill_waits_if_any().is_none(), "it was never polled");
        let mut context = Context::from_waker(Waker::noop());
        let mut waits: Vec<_> = (0..100).map(|_| web.killed()).collect();
        let poll = |wait: &mut WhenKilled<'_>, context: &mut _| Pin::new(wait).poll(context);
        assert!(waits.iter_mut().all(|wait| poll(wait, &mut context).is_pending()));
        assert!(waits.iter_mut().all(|wait| poll(wait, &mut context).is_pending()));
        let places = web.inner.extras.kill_waits();
        assert_eq!(places.count(), 100, "each has one place, however often it is polled");
        waits.truncate(1);
        assert_eq!(places.count(), 1);
        web.kill().expect("alive");
        assert_eq!(places.count(), 0);
        assert!(poll(&mut waits[0], &mut context).is_ready());
    }

    /// A poll by the same task takes no lock; the first one and one by another task do.
    #[test]
    fn a_poll_by_the_same_task_registers_nothing() {
        let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
        let web = tree.create("/web").expect("new");
        let tasks = [(); 2].map(|()| Arc::new(Woken::default()));
        let wakers = tasks.clone().map(Waker::from);
        let mut wait = web.killed();
        // By how many more wakers a poll of this task's waker is held afterwards.
        let mut poll = |task: usize| {
            let before = Arc::strong_count(&tasks[task]);
            let mut context = Context::from_waker(&wakers[task]);
            assert!(Pin::new(&mut wait).poll(&mut context).is_pending());
            Arc::strong_count(&tasks[task]) - before
        };
        assert_eq!([0, 0, 1, 1].map(&mut poll), [1, 0, 1, 0], "held by the list alone");
        // A list that was emptied shows that no poll of the same task puts the waker back.
        let waits = web.inner.extras.kill_waits();
        assert_eq!(waits.take().len(), 1);
        assert_eq!((poll(1), waits.count()), (0, 0));
        // It is the list of another process that is empty in a forked child.
        wait.wait.0.as_mut().expect("it waits").process -= 1;
        assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&wakers[1])).is_pending());
        assert_eq!(waits.count(), 1);
        web.kill().expect("alive");
        assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&wakers[1])).is_ready());
    }

    #[test]
    fn a_kill_that_panics_wakes_all_that_wait() {
        let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
        let web = tree.create("/web").expect("new");
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut waits = web.killed();
        assert!(Pin::new(&mut waits).poll(&mut Context::from_waker(&waker)).is_pending());
        let panics = AssertUnwindSafe(|| {
            let mut ends = Ends::of(tree.root());
            ends.add(&web);
            resume_unwind(Box::new("as what is dropped with a group may"));
        });
        assert!(catch_unwind(panics).is_err());
        // Relaxed: one thread.
        assert!(woken.0.load(Ordering::Relaxed));
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_kill_asks_only_groups_that_wait() {
        let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
        let web = tree.get_or_create("/acme/web").expect("new");
        tree.get("/acme").expect("above").kill_subtree().expect("alive");
        assert!(web.inner.extras.kill_waits_if_any().is_none(), "nothing was made for it");
        assert!(web.inner.quotas.nodes().next().is_none());
    }
}
