//! The guard of a thread that is in a group.

use std::marker::PhantomData;

use super::thread::{self, Depth};
use crate::group::Group;

/// Keeps the calling thread in a group until it is dropped. See [`Group::enter`].
#[must_use = "the thread leaves the group when the guard is dropped: keep it, or use `run`"]
#[derive(Debug)]
pub struct Entered {
    /// What was current before; `None` in the inner option if it is this guard's group.
    before: Option<Before>,
    depth: Depth,
    /// It belongs to its thread.
    _not_send: PhantomData<*const ()>,
}

/// The group that a guard took the place of, if any.
#[derive(Debug)]
pub(super) struct Before(pub(super) Option<Group>);

impl Entered {
    #[inline]
    pub(super) fn new(group: &Group) -> Entered {
        let (depth, before) = match thread::enter_again(group) {
            Some(depth) => (depth, None),
            None => thread::enter(group),
        };
        Entered { before, depth, _not_send: PhantomData }
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        match self.before.take() {
            None if thread::leave_again(self.depth) => {}
            before => thread::leave(self.depth, before),
        }
    }
}
