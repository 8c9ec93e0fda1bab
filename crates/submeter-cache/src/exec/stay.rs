//! In whose group a worker thread is while it works through a batch.

use submeter::Group;
use submeter::switch::Entered;

/// The group of the request that is being carried out. Made for a batch, and dropped once its answers are with the
/// kernel, or wait for a client that does not read: then all its CPU time is charged.
#[derive(Default)]
pub(crate) struct Stay(Option<Entered>);

impl Stay {
    /// Goes to `group`: nothing where the request before it was of the same one, else one switch.
    #[inline]
    pub(super) fn at(&mut self, group: &Group) {
        match &mut self.0 {
            Some(entered) => entered.switch_to(group),
            None => self.0 = Some(group.enter()),
        }
    }
}
