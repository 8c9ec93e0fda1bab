//! A future or a body that is polled and dropped in a group.

use std::fmt;
use std::pin::Pin;

use pin_project_lite::pin_project;
use submeter::Group;
use submeter::switch::Entered;

pin_project! {
    /// A value that is polled and dropped in the group of its keeper, if the keeper has one.
    pub(super) struct InGroupOf<T, K: Keeper> {
        // `None` while being dropped or taken, and after the value has ended.
        #[pin]
        value: Option<T>,
        keeper: K,
    }

    impl<T, K: Keeper> PinnedDrop for InGroupOf<T, K> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            // Not through a shared reference: the value may refer to itself, and write through
            // that.
            if this.value.as_mut().as_pin_mut().is_some() {
                // Dropping the value may do work.
                let _entered = this.keeper.group().map(Group::enter);
                this.value.set(None);
            }
        }
    }
}

impl<T, K: Keeper + fmt::Debug> fmt::Debug for InGroupOf<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.keeper.fmt(f)
    }
}

/// The keeper of a group's handle.
pub(super) trait Keeper {
    fn group(&self) -> Option<&Group>;
}

impl<T, K: Keeper> InGroupOf<T, K> {
    pub(super) fn new(value: T, keeper: K) -> InGroupOf<T, K> {
        InGroupOf { value: Some(value), keeper }
    }

    pub(super) fn value(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// Enters the group, and returns the value and its keeper with the guard, which is dropped
    /// after the poll, also when the poll panics. A value that has ended is set to `None` before
    /// the guard is dropped, as dropping the whole would otherwise enter the group once more.
    #[inline]
    pub(super) fn enter(self: Pin<&mut Self>) -> (Pin<&mut Option<T>>, &mut K, Option<Entered>) {
        let this = self.project();
        let entered = this.keeper.group().map(Group::enter);
        (this.value, this.keeper, entered)
    }
}
