//! What is polled and dropped in a group.

use std::fmt;
use std::pin::Pin;

use pin_project_lite::pin_project;

use super::Entered;
use crate::tree::group::Group;

/// The keeper of a group's handle.
#[doc(hidden)]
pub trait Keeper {
    /// Returns the group.
    fn group(&self) -> Option<&Group>;
}

impl Keeper for Group {
    #[inline]
    fn group(&self) -> Option<&Group> {
        Some(self)
    }
}

impl<K: Keeper> Keeper for Option<K> {
    #[inline]
    fn group(&self) -> Option<&Group> {
        self.as_ref().and_then(K::group)
    }
}

pin_project! {
    /// A value that is polled and dropped in the group of its keeper, if the keeper has one.
    #[doc(hidden)]
    pub struct InGroupOf<T, K: Keeper> {
        // `None` while being dropped or taken, when no reference exists that could poll it, and
        // after the value has ended.
        #[pin]
        value: Option<T>,
        keeper: K,
    }

    impl<T, K: Keeper> PinnedDrop for InGroupOf<T, K> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            // Not by a shared reference: the value may refer to itself, and write through that
            // reference.
            if this.value.as_mut().as_pin_mut().is_some() {
                // Its values may do work when they are dropped.
                let _entered = this.keeper.group().map(Group::enter);
                this.value.set(None);
            }
        }
    }
}

impl<T, K: Keeper> InGroupOf<T, K> {
    /// Makes a value that is polled and dropped in its keeper's group.
    pub fn new(value: T, keeper: K) -> InGroupOf<T, K> {
        InGroupOf { value: Some(value), keeper }
    }

    /// Returns the keeper.
    pub fn keeper(&self) -> &K {
        &self.keeper
    }

    /// Returns the value, until it has ended.
    pub fn value(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// Enters the group, and returns the value and its keeper with the guard, which is dropped
    /// after the poll, also when the poll panics. A value that has ended is set to `None` before
    /// the guard is dropped, as dropping the whole would otherwise enter the group once more.
    #[inline]
    pub fn enter(self: Pin<&mut Self>) -> (Pin<&mut Option<T>>, &mut K, Option<Entered>) {
        let this = self.project();
        let entered = this.keeper.group().map(Group::enter);
        (this.value, this.keeper, entered)
    }

    /// Takes the value out, which was never pinned.
    pub(crate) fn take(mut self) -> (T, K)
    where
        K: Default,
    {
        (self.value.take().expect("taken once"), std::mem::take(&mut self.keeper))
    }
}

impl<T, K: Keeper + fmt::Debug> fmt::Debug for InGroupOf<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.keeper.fmt(f)
    }
}
