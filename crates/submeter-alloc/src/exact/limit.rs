//! Limits on what a group's blocks take, and the checks against them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use submeter::switch::{self, Grouped};
use submeter::{Bytes, Group, Quota};

use super::numbers::Owner;
use super::{books, owners};

/// The error of an operation that a group over its limit is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OverLimit {
    /// The path of the group.
    pub path: String,
    /// The bytes that its blocks took, with those that ended groups below it left: of many such
    /// groups, some as last seen.
    pub bytes: u64,
    /// The bytes that they may take.
    pub limit: u64,
}

impl fmt::Display for OverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverLimit { path, bytes, limit } = self;
        write!(f, "{path} holds {bytes} bytes of heap memory, over its limit of {limit}")
    }
}

impl std::error::Error for OverLimit {}

/// Checks that a group holds no more than its limit, for example before work starts for it: its own
/// blocks, and those that ended groups below it left.
///
/// Costs two loads if the group has no limit, otherwise two sums over CPUs, and two more for each
/// ended group below it that left blocks. Of these it looks at 64 again, and at the others when it
/// is next called, or before it refuses the group because of them. Up to 64 KiB that each other
/// thread in the group has not posted yet is not included.
///
/// # Errors
/// When the group holds more.
pub fn admit(group: &Group) -> Result<(), OverLimit> {
    let Some(owner) = group.companion::<Owner>() else { return Ok(()) };
    let Some(limit) = owner.limit() else { return Ok(()) };
    books::posted();
    // A lower bound: a group that allocates and frees much is not refused for bytes that it never
    // held.
    let own = owners::sum_at_least(owner.number).max(0).unsigned_abs();
    let bytes = own.saturating_add(owner.left.bytes(limit.checked_sub(own)));
    if bytes <= limit {
        return Ok(());
    }
    Err(OverLimit { path: group.path().to_owned(), bytes, limit })
}

/// The same as [`admit`] for the group that the calling thread works for. Use it inside a long
/// poll, where [`or_over_heap`](OrOverHeap) does not check.
///
/// # Errors
/// When the group holds more than its limit.
pub fn check() -> Result<(), OverLimit> {
    switch::current().map_or(Ok(()), |group| admit(&group))
}

/// Ends a future that works in a group when the group is over its limit.
pub trait OrOverHeap: Sized {
    /// Returns a future that ends with [`OverLimit`] after a poll that leaves its group over the
    /// limit set by [`Heap::set_limit`](super::Heap::set_limit), and otherwise with the inner
    /// future's output. The inner future is dropped at once, in its group, which frees its memory.
    ///
    /// A tenant's futures end one by one as each is polled, until the tenant is below its limit; no
    /// other tenant's futures end. A tenant therefore exceeds its limit by what one poll allocates,
    /// plus what is allocated for it without a poll. Caches can be
    /// [asked first](OrOver::reclaiming).
    ///
    /// Costs an [`admit`] for each poll.
    ///
    /// # Examples
    /// ```
    /// use std::alloc::System;
    /// use submeter::switch::InGroup;
    /// use submeter::{Schema, Tree};
    /// use submeter_alloc::Live;
    /// use submeter_alloc::exact::{Exact, Heap, OrOverHeap};
    ///
    /// #[global_allocator]
    /// static HEAP: Exact<System> = Exact::new(System);
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let mut schema = Schema::builder();
    /// let live: Live = schema.declare();
    /// let tree = Tree::new(schema.build()?)?;
    /// let heap = Heap::start(&tree, live)?;
    /// let acme = tree.create("/acme")?;
    /// heap.set_limit(&acme, Some(1 << 20))?;
    ///
    /// let runaway = async {
    ///     let mut rows = Vec::new();
    ///     loop {
    ///         rows.push(vec![0_u8; 100_000]);
    ///         tokio::task::yield_now().await;
    ///     }
    /// };
    /// let ended: Result<(), _> = runaway.in_group(&acme).or_over_heap().await;
    /// let over = ended.expect_err("it never ends by itself");
    /// assert!(over.bytes < (1 << 20) + 110_000, "{over}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn or_over_heap(self) -> OrOver<Self>;
}

impl<F: Future> OrOverHeap for Grouped<F> {
    fn or_over_heap(self) -> OrOver<Grouped<F>> {
        OrOver { group: self.group().cloned(), future: Some(self), reclaims: None }
    }
}

pin_project! {
    /// A future that ends when its group is over its limit. See [`OrOverHeap`].
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is polled"]
    pub struct OrOver<F> {
        // `None` once it has ended.
        #[pin]
        future: Option<F>,
        // Its own handle: asking the future would create a reference to all of it, beside those
        // through which it writes to its own variables.
        group: Option<Group>,
        reclaims: Option<Quota<Bytes>>,
    }
}

impl<F> OrOver<F> {
    /// Asks [callbacks](Group::on_reclaim) before it ends the future: those that the group itself
    /// has registered for `quota` are asked for what is over the limit, until that helps or they
    /// free nothing, and at most 32 times. The future ends only if that was not enough. Groups
    /// below have limits of their own, and their callbacks are not asked.
    ///
    /// For caches that hold what the tenant can do without, and that charge `quota` for it, exactly
    /// or by an estimate: a group that uses none of it is never asked. Callbacks run on the thread
    /// that polls, outside the group. They must not take a lock that the future holds across an
    /// `.await`.
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn reclaiming(self, quota: Quota<Bytes>) -> OrOver<F> {
        // Panics here, if at all.
        let _usage = self.group.as_ref().map(|group| group.usage_at_most(quota));
        OrOver { reclaims: Some(quota), ..self }
    }
}

/// How often a poll asks callbacks at most. Others may fill a cache as fast as it is emptied.
const ROUNDS_MAX: u32 = 32;

/// Returns why a group's future has to end, after asking callbacks for the excess.
fn over(group: &Group, reclaims: Option<Quota<Bytes>>) -> Option<OverLimit> {
    let mut over = admit(group).err()?;
    let Some(quota) = reclaims else { return Some(over) };
    // More than once: what a cache charges for an item need not be what the heap has of it.
    for _ in 0..ROUNDS_MAX {
        if group.reclaim_own(quota, over.bytes - over.limit) == 0 {
            break;
        }
        over = admit(group).err()?;
    }
    Some(over)
}

impl<F: Future> Future for OrOver<Grouped<F>> {
    type Output = Result<F::Output, OverLimit>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let future = this.future.as_mut().as_pin_mut().expect("not polled after its end");
        if let Poll::Ready(done) = future.poll(context) {
            return Poll::Ready(Ok(done));
        }
        let over = this.group.as_ref().and_then(|group| over(group, *this.reclaims));
        let Some(over) = over else { return Poll::Pending };
        this.future.set(None);
        // A future that has ended but is not dropped must not keep the group alive.
        *this.group = None;
        Poll::Ready(Err(over))
    }
}
