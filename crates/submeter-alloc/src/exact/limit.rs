//! Limits on what a group's blocks take, and who looks at them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use submeter::Group;
use submeter::switch::{self, Grouped};

use super::numbers::Owner;
use super::{books, owners};

/// The error of what a group over its limit may not do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OverLimit {
    /// The path of the group.
    pub path: String,
    /// The bytes that its blocks took.
    pub bytes: u64,
    /// The bytes that they may take.
    pub limit: u64,
}

impl fmt::Display for OverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverLimit { path, bytes, limit } = self;
        write!(f, "{path} holds {bytes} bytes of heap memory, and may hold {limit}")
    }
}

impl std::error::Error for OverLimit {}

/// The error of [`Heap::set_limit`](super::Heap::set_limit).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoNumber {
    path: String,
}

impl NoNumber {
    pub(super) fn new(group: &Group) -> NoNumber {
        NoNumber { path: group.path().to_owned() }
    }
}

impl fmt::Display for NoNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nobody counts the heap memory of {}", self.path)
    }
}

impl std::error::Error for NoNumber {}

/// Returns whether a group holds no more than its limit, as before work is begun for it.
///
/// Costs two loads where it has no limit, and otherwise two sums over CPUs. What other threads that
/// are in the group keep to themselves, up to 64 KiB each, is not in it.
///
/// # Errors
/// When it holds more.
pub fn admit(group: &Group) -> Result<(), OverLimit> {
    let Some(owner) = group.companion::<Owner>() else { return Ok(()) };
    let Some(limit) = owner.limit() else { return Ok(()) };
    books::posted();
    // At least: a group that allocates and frees much is not refused for what it never held.
    let bytes = owners::sum_at_least(owner.number).max(0).unsigned_abs();
    if bytes <= limit {
        return Ok(());
    }
    Err(OverLimit { path: group.path().to_owned(), bytes, limit })
}

/// Does as [`admit`] for the group that the calling thread works for: inside a long poll, where
/// [`or_over_heap`](OrOverHeap) does not look.
///
/// # Errors
/// When the group holds more than its limit.
pub fn check() -> Result<(), OverLimit> {
    switch::current().map_or(Ok(()), |group| admit(&group))
}

/// Ends a future that works in a group when the group is over its limit.
pub trait OrOverHeap: Sized {
    /// Makes a future that ends with [`OverLimit`] at the end of a poll that leaves its group over
    /// the limit that [`Heap::set_limit`](super::Heap::set_limit) has set, and with what the future
    /// returns otherwise. The future is dropped at once, in its group, and what it had is free.
    ///
    /// A tenant's futures end one by one as each is polled, until the tenant is below its limit;
    /// no other's does. So a tenant is over by what one poll allocates, and what is allocated for
    /// it without a poll.
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
        OrOver { group: self.group().cloned(), future: Some(self) }
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
        // Its own handle: to ask the future would be a reference to all of it, beside those that it
        // has to its own variables, and writes by.
        group: Option<Group>,
    }
}

impl<F: Future> Future for OrOver<Grouped<F>> {
    type Output = Result<F::Output, OverLimit>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let future = this.future.as_mut().as_pin_mut().expect("not polled after its end");
        if let Poll::Ready(done) = future.poll(context) {
            return Poll::Ready(Ok(done));
        }
        let over = this.group.as_ref().and_then(|group| admit(group).err());
        let Some(over) = over else { return Poll::Pending };
        this.future.set(None);
        // A future that has ended and is kept must not keep the group alive.
        *this.group = None;
        Poll::Ready(Err(over))
    }
}
