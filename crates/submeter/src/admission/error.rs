//! Why work was refused.

use std::fmt;
use std::time::Duration;

use crate::retry;
use crate::tree::group::Group;

/// The error of work that was not admitted: see [`Admission`](super::Admission).
///
/// Its text (`Display`) may be shown to the tenant: it says nothing about others, not even how many
/// there are. [`detail`](Self::detail), `Debug` and the methods are for the program and its logs.
///
/// # Examples
/// ```
/// use submeter::admission::Admission;
/// use submeter::{Schema, Tree};
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let (web, admission) = (tree.create("/web")?, Admission::new(1));
/// let admitted = admission.try_acquire(&web)?;
/// let refused = admission.try_acquire(&web).expect_err("one is in flight");
/// assert!(refused.is_late() && refused.group() == &web);
/// assert_eq!(refused.to_string(), "no place became free in time");
/// let detail = "/web: no place became free in time; 1 of 1 in flight, 0 waiting, 0 of them in \
///               this group";
/// assert_eq!(refused.detail().to_string(), detail);
/// # drop(admitted);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Boxed, like other refusals: the `Ok` side should not be copied with room for an error.
#[derive(Debug)]
pub struct AdmissionError(pub(super) Box<Refused>);

#[derive(Debug)]
pub(super) struct Refused {
    pub(super) group: Group,
    pub(super) why: Why,
    pub(super) retry_after: Option<Duration>,
    pub(super) in_flight: u32,
    pub(super) limit: u32,
    pub(super) waiting: usize,
    /// In the group and below.
    pub(super) waiting_there: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Full,
    FullForGroup,
    Displaced,
    Late,
    Killed,
    Abandoned,
}

impl AdmissionError {
    /// Returns whether the queue was full and the group had no fewer waiters than the others: all
    /// tenants together ask for too much.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.why == Why::Full
    }

    /// Returns whether too many of the group waited: as many as one group may have, or more than
    /// any other group when the queue was full, so that this one had to make room for another
    /// group's.
    #[must_use]
    pub fn is_full_for_group(&self) -> bool {
        matches!(self.0.why, Why::FullForGroup | Why::Displaced)
    }

    /// Returns whether no place became free before the deadline.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.0.why == Why::Late
    }

    /// Returns whether the group was killed first.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.0.why == Why::Killed
    }

    /// Estimates when another try is more likely to succeed, from how fast places became free
    /// recently; `None` if that is unknown, or if no try can succeed.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Returns the group that the work was for.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.0.group
    }

    /// Returns the whole text, for logs: whose work it was, and how much others have. Not for
    /// tenants.
    pub fn detail(&self) -> impl fmt::Display + '_ {
        Detail(self)
    }
}

/// For the tenant: it says nothing about other groups.
impl fmt::Display for AdmissionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0.why {
            Why::Full => "overloaded: the queue is full",
            Why::FullForGroup => "too many are already waiting",
            Why::Displaced => "too many are waiting, and this one came last",
            Why::Late => "no place became free in time",
            Why::Killed => "the group was killed",
            Why::Abandoned => "the queue's lock was held at a fork: nothing can wait in this child",
        })?;
        match self.0.retry_after {
            Some(after) => retry::after(f, after),
            None => Ok(()),
        }
    }
}

impl std::error::Error for AdmissionError {}

struct Detail<'a>(&'a AdmissionError);

impl fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { group, in_flight, limit, waiting, waiting_there, .. } = &*self.0.0;
        write!(f, "{group}: {}; {in_flight} of {limit} in flight, ", self.0)?;
        write!(f, "{waiting} waiting, {waiting_there} of them in this group")
    }
}
