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

impl Entered {
    /// Leaves the guard's group for `group`, in one switch instead of two. When the guard is dropped, what was current before
    /// it is so again.
    ///
    /// For loops over requests of many tenants. Costs what [`Group::enter`] does: nothing but a comparison if it is the
    /// group already. Of no effect while a guard lives that was made later.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree, switch};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let (web, mail) = (tree.get_or_create("/web")?, tree.get_or_create("/mail")?);
    /// let mut entered = web.enter();
    /// entered.switch_to(&mail);
    /// assert_eq!(switch::current().as_ref(), Some(&mail));
    /// drop(entered);
    /// assert_eq!(switch::current(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn switch_to(&mut self, group: &Group) {
        if let Some(left) = thread::switch_to(group, self.depth) {
            // What was current before the guard stays what it goes back to.
            self.before.get_or_insert(Before(Some(left)));
        }
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
