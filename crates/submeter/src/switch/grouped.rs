//! A value that works in a group whenever it is polled.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::Entered;
use crate::tree::group::Group;

/// Attaches a group to a future, a stream, a body, or anything else that is polled.
pub trait InGroup: Sized {
    /// Makes a value that enters `group` at each poll, leaves it at the end of the poll, and is
    /// dropped in it: a future at the end of its last poll. Keeps the group's handle as long as it
    /// lives.
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

    /// Attaches the group that the calling thread works for, if it works for one: what is handed to
    /// a spawning function then stays in the group of its creator, without naming it.
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
    /// `Stream` and `Sink`, with `tokio` for tokio's `AsyncRead`, `AsyncBufRead`, `AsyncSeek` and
    /// `AsyncWrite`, with `http` for `http_body::Body`, and with `rayon` for `ParallelIterator` and
    /// `IndexedParallelIterator`, which enter the group on every thread that they use.
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
        inside: Inside<T, Option<Group>>,
    }
}

pin_project! {
    /// A value that is polled and dropped in the group of its keeper, if that has one.
    pub(crate) struct Inside<T, K: Keeper> {
        // `None` while being dropped or taken, and where it has ended.
        #[pin]
        value: Option<T>,
        keeper: K,
    }

    impl<T, K: Keeper> PinnedDrop for Inside<T, K> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if this.value.is_some() {
                // Its values may do work when they are dropped.
                let _entered = this.keeper.group().map(Group::enter);
                this.value.set(None);
            }
        }
    }
}

impl<T, K: Keeper + fmt::Debug> fmt::Debug for Inside<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.keeper.fmt(f)
    }
}

/// What keeps the handle of a group.
pub(crate) trait Keeper {
    fn group(&self) -> Option<&Group>;
}

impl Keeper for Option<Group> {
    fn group(&self) -> Option<&Group> {
        self.as_ref()
    }
}

impl<T, K: Keeper> Inside<T, K> {
    pub(crate) fn new(value: T, keeper: K) -> Inside<T, K> {
        Inside { value: Some(value), keeper }
    }

    #[cfg(any(feature = "futures", feature = "http", feature = "tokio", feature = "rayon"))]
    pub(crate) fn value(&self) -> Option<&T> {
        self.value.as_ref()
    }

    pub(crate) fn keeper(&self) -> &K {
        &self.keeper
    }

    /// Enters the group, and returns the value and its keeper with the guard, which is dropped
    /// after the poll, and when the poll panics. A value that has ended is set to `None` before the
    /// guard is dropped, as the end of the whole would enter the group once more.
    #[inline]
    pub(crate) fn enter(self: Pin<&mut Self>) -> (Pin<&mut Option<T>>, &mut K, Option<Entered>) {
        let this = self.project();
        let entered = this.keeper.group().map(Group::enter);
        (this.value, this.keeper, entered)
    }
}

impl<T> Grouped<T> {
    /// A value that is in a group only if there is one.
    pub(crate) fn new(value: T, group: Option<Group>) -> Grouped<T> {
        Grouped { inside: Inside::new(value, group) }
    }

    /// Returns the group.
    #[must_use]
    pub fn group(&self) -> Option<&Group> {
        self.inside.keeper().as_ref()
    }

    /// Enters the group, and returns the value with the guard, which is dropped after the poll, and
    /// when the poll panics.
    #[cfg(any(feature = "futures", feature = "http", feature = "tokio"))]
    #[inline]
    pub(crate) fn enter(self: Pin<&mut Self>) -> (Pin<&mut T>, Option<Entered>) {
        let (value, _, entered) = self.project().inside.enter();
        // It is missing while being dropped or taken, when nobody has a reference to poll by, and
        // for a future that has ended, which nobody may poll.
        (value.as_pin_mut().expect("not polled after its end"), entered)
    }

    /// Returns the value where no poll is needed to ask it.
    #[cfg(any(feature = "futures", feature = "http", feature = "tokio", feature = "rayon"))]
    pub(crate) fn value(&self) -> &T {
        self.inside.value().expect("borrowed while it exists")
    }

    /// Takes the value out.
    #[cfg(feature = "rayon")]
    pub(crate) fn take(mut self) -> (T, Option<Group>) {
        let Inside { value, keeper } = &mut self.inside;
        (value.take().expect("taken once"), keeper.take())
    }
}

impl<F: Future> Future for Grouped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let (mut future, _, _entered) = self.project().inside.enter();
        let polled = future.as_mut().as_pin_mut().expect("not polled after its end").poll(context);
        if polled.is_ready() {
            future.set(None);
        }
        polled
    }
}

impl<T> fmt::Debug for Grouped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grouped").field("group", self.inside.keeper()).finish_non_exhaustive()
    }
}
