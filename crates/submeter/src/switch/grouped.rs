//! A value that works in a group whenever it is polled.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::in_group_of::{InGroupOf, Keeper};
use crate::tree::group::{Group, KillWait};

/// Attaches a group to a future, a stream, a body, or anything else that is polled.
pub trait InGroup: Sized {
    /// Makes a value that enters `group` at each poll, leaves it at the end of the poll, and is
    /// dropped in it; a future is dropped at the end of its last poll. It keeps the group's handle
    /// as long as it lives.
    ///
    /// Costs two switches per poll. What the executor does between polls is charged to no group;
    /// tasks that a future spawns are not in the group, unless they are placed there
    /// ([`in_current_group`](InGroup::in_current_group)).
    ///
    /// # Examples
    /// ```
    /// use submeter::switch::{self, InGroup};
    /// use submeter::{Schema, Tree};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let web = tree.get_or_create("/acme/web")?;
    /// let seen = async { switch::current() }.in_group(&web).await;
    /// assert_eq!(seen, Some(web));
    /// assert_eq!(switch::current(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg_attr(debug_assertions, track_caller)]
    fn in_group(self, group: &Group) -> Grouped<Self> {
        Grouped::new(self, Some(group.clone()))
    }

    /// Attaches the calling thread's current group, if it has one. What is handed to a spawning
    /// function then stays in the group of its creator, without naming it.
    ///
    /// # Examples
    /// ```
    /// use submeter::switch::{self, InGroup};
    /// use submeter::{Schema, Tree};
    /// use tokio::task::JoinSet;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let web = tree.get_or_create("/acme/web")?;
    /// let handler = async {
    ///     let mut tasks = JoinSet::new();
    ///     tasks.spawn(async { switch::current() }.in_current_group());
    ///     tasks.join_next().await
    /// };
    /// let seen = handler.in_group(&web).await.expect("one task")?;
    /// assert_eq!(seen, Some(web));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg_attr(debug_assertions, track_caller)]
    fn in_current_group(self) -> Grouped<Self> {
        Grouped::new(self, super::current())
    }
}

impl<T> InGroup for T {}

pin_project! {
    /// A value that works in a group whenever it is polled. See [`InGroup`].
    ///
    /// It is a [`Future`] if the value is one. With the feature `futures` the same holds for
    /// `Stream`, with `http-body` for `http_body::Body`, and with `rayon` for `ParallelIterator`
    /// and `IndexedParallelIterator`, which enter the group on every thread that they use.
    ///
    /// # Examples
    /// ```
    /// use submeter::switch::InGroup;
    /// # use submeter::{Schema, Tree};
    /// # let tree = Tree::new(Schema::builder().build()?)?;
    /// let future = async { 17 }.in_group(tree.root());
    /// assert_eq!(future.group(), Some(tree.root()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "it does nothing unless it is polled"]
    pub struct Grouped<T> {
        #[pin]
        kept: InGroupOf<T, Option<Group>>,
    }
}

impl<T> Grouped<T> {
    /// Makes a value that is in a group only if there is one.
    pub(crate) fn new(value: T, group: Option<Group>) -> Grouped<T> {
        Grouped { kept: InGroupOf::new(value, group) }
    }

    /// Returns the group.
    #[must_use]
    pub fn group(&self) -> Option<&Group> {
        self.kept.keeper().group()
    }

    /// Enters the group, and returns the value with the guard, which is dropped after the poll, or
    /// when the poll panics.
    #[cfg(any(feature = "futures", feature = "http-body"))]
    #[inline]
    pub(crate) fn enter(self: Pin<&mut Self>) -> (Pin<&mut T>, Option<super::Entered>) {
        let (value, _, entered) = self.project().kept.enter();
        // Missing only in a future that has ended, which must not be polled.
        (value.as_pin_mut().expect("not polled after its end"), entered)
    }

    /// Returns the value for questions that need no poll.
    #[cfg(any(feature = "futures", feature = "http-body", feature = "rayon"))]
    pub(crate) fn value(&self) -> &T {
        self.kept.value().expect("borrowed while it exists")
    }

    /// Takes the value out.
    pub(crate) fn take(self) -> (T, Option<Group>) {
        self.kept.take()
    }
}

impl<F: Future> Grouped<F> {
    /// Waits for the future's end, or for the [kill](Group::kill) of its group: `None` then, and
    /// the future is dropped in the group, whatever it was waiting for. A connection served like
    /// this ends with its tenant, whether it reads, works or writes to a client that does not read.
    ///
    /// The future of a killed group is polled no more, not even once. Without a group it is only
    /// awaited. Costs two switches a poll, and a lock of the group if another task polled before.
    ///
    /// # Examples
    /// ```
    /// use submeter::switch::InGroup;
    /// use submeter::{Schema, Tree};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let web = tree.get_or_create("/acme/web")?;
    /// assert_eq!(async { 17 }.in_group(&web).until_killed().await, Some(17));
    ///
    /// let connection = std::future::pending::<()>().in_group(&web);
    /// let served = tokio::spawn(connection.until_killed());
    /// tokio::task::yield_now().await; // it waits for its client
    /// let killed = web.kill()?;
    /// drop(web);
    /// assert_eq!(served.await?, None);
    /// killed.await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn until_killed(self) -> impl Future<Output = Option<F::Output>> {
        let (future, group) = self.take();
        UntilKilled { kept: InGroupOf::new(future, Watched { group, wait: KillWait::default() }) }
    }
}

/// A group whose kill wakes the task.
struct Watched {
    group: Option<Group>,
    wait: KillWait,
}

impl Keeper for Watched {
    #[inline]
    fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            self.wait.leave(group);
        }
    }
}

pin_project! {
    // Not an async function: that would have room for the future three times.
    #[must_use = "a future does nothing unless it is polled"]
    struct UntilKilled<F> {
        #[pin]
        kept: InGroupOf<F, Watched>,
    }
}

impl<F: Future> Future for UntilKilled<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let (mut value, Watched { group, wait }, _entered) = self.project().kept.enter();
        let is_killed = group.as_ref().is_some_and(|group| wait.poll(group, context).is_ready());
        let polled = if is_killed {
            Poll::Ready(None)
        } else {
            let future = value.as_mut().as_pin_mut().expect("not polled after its end");
            future.poll(context).map(Some)
        };
        if polled.is_ready() {
            value.set(None);
        }
        polled
    }
}

impl<F: Future> Future for Grouped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let (mut value, _, _entered) = self.project().kept.enter();
        let future = value.as_mut().as_pin_mut().expect("not polled after its end");
        let polled = future.poll(context);
        if polled.is_ready() {
            value.set(None);
        }
        polled
    }
}

impl<T> fmt::Debug for Grouped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grouped").field("group", &self.group()).finish_non_exhaustive()
    }
}
