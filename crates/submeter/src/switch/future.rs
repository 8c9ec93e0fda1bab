//! A future that runs in a group.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::group::Group;

/// Attaches a group to a future.
pub trait InGroup: Future + Sized {
    /// Makes a future that enters `group` at each poll, leaves it at the end of the poll, and is
    /// dropped in it. Keeps the group's handle as long as it lives.
    ///
    /// Costs two switches per poll. What the executor does between polls is charged to no group;
    /// tasks that the future spawns are not in the group, unless they are placed there.
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
    fn in_group(self, group: &Group) -> GroupFuture<Self> {
        GroupFuture { future: Some(self), group: Some(group.clone()) }
    }
}

impl<F: Future> InGroup for F {}

pin_project! {
    /// A future in a group. See [`InGroup::in_group`].
    #[must_use = "a future does nothing unless it is polled"]
    pub struct GroupFuture<F> {
        // `None` only while being dropped.
        #[pin]
        future: Option<F>,
        group: Option<Group>,
    }

    impl<F> PinnedDrop for GroupFuture<F> {
        fn drop(this: Pin<&mut Self>) {
            // Its values may do work when they are dropped.
            let mut this = this.project();
            let _entered = this.group.as_ref().map(Group::enter);
            this.future.set(None);
        }
    }
}

impl<F> GroupFuture<F> {
    /// A future that is in a group only if there is one.
    #[cfg(feature = "tower")]
    pub(super) fn new(future: F, group: Option<Group>) -> GroupFuture<F> {
        GroupFuture { future: Some(future), group }
    }

    /// Returns the future's group.
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
    #[must_use]
    pub fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }
}

impl<F: Future> Future for GroupFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        // Dropped after the poll, and when the poll panics.
        let _entered = this.group.as_ref().map(Group::enter);
        match this.future.as_pin_mut() {
            Some(future) => future.poll(context),
            // Polled while being dropped, which safe code cannot do.
            None => Poll::Pending,
        }
    }
}

impl<F> fmt::Debug for GroupFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupFuture").field("group", &self.group).finish_non_exhaustive()
    }
}
