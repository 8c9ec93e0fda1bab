//! The group that a worker thread is in while it executes a batch.

use submeter::Group;
use submeter::switch::Entered;

/// The group of the request that is being executed. Lives for one batch. It is dropped once the
/// batch's answers are with the kernel, or wait for a client that does not read; all of the batch's
/// CPU time has then been charged.
#[derive(Default)]
pub(crate) struct CurrentGroup(Option<Entered>);

impl CurrentGroup {
    /// Moves to `group`: free if the last request was of the same group, otherwise one switch.
    #[inline]
    pub(super) fn move_to(&mut self, group: &Group) {
        match &mut self.0 {
            Some(entered) => entered.switch_to(group),
            None => self.0 = Some(group.enter()),
        }
    }
}
