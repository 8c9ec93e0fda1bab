//! The counts of a session, summed over threads.

use submeter_events::{Copied, EventGroup, NotSupportedError, scale};

/// The state of a request's counts.
///
/// # Examples
/// ```
/// use submeter::perf::{Request, RequestState, Session, parse};
/// # use submeter::{Schema, Tree};
/// # let tree = Tree::new(Schema::builder().build()?)?;
/// let web = tree.create("/web")?;
/// let session = Session::open(&tree, [Request::group(&web, parse("task-clock")?.remove(0))]);
/// assert_eq!(*session.counts()[0].state(), RequestState::NotCounted, "no thread was in it yet");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestState {
    /// It was on counters for some time, or counted something in a time too short for the clock.
    Counting,
    /// It was never on counters: no thread has worked for the group yet, or its turn has not come.
    /// Shown as `<not counted>`.
    NotCounted,
    /// An unknown amount is missing from the counts, for the reason given.
    Error(String),
    /// One of its events cannot be counted here, so none of them is. Shown as `<not supported>`.
    NotSupported(NotSupportedError),
}

/// The counts of one request of a [`Session`](super::Session), summed over all threads.
///
/// # Examples
/// ```
/// use submeter::perf::{Request, Session, parse};
/// # use submeter::{Schema, Tree};
/// # let tree = Tree::new(Schema::builder().build()?)?;
/// let web = tree.create("/web")?;
/// let clock = parse("task-clock")?.remove(0);
/// let requests = [Request::group(&web, clock.clone()), Request::everywhere(clock)];
/// let session = Session::open(&tree, requests);
/// web.kill()?;
/// let counts = session.counts();
/// assert_eq!((counts[0].path(), counts[0].is_killed()), (Some("/web"), true));
/// assert_eq!(counts[1].path(), None, "the whole process");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RequestCounts {
    pub(super) path: Option<String>,
    pub(super) events: EventGroup,
    pub(super) state: RequestState,
    pub(super) killed: bool,
    pub(super) sum: Sum,
}

impl RequestCounts {
    /// Returns the path of the group; `None` for the whole process.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Returns the requested events.
    #[must_use]
    pub fn events(&self) -> &EventGroup {
        &self.events
    }

    /// Returns the state of the counts.
    #[must_use]
    pub fn state(&self) -> &RequestState {
        &self.state
    }

    /// Returns whether the group was killed in the meantime: it can no longer be found, but work
    /// that still holds it is counted.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.killed
    }

    /// Returns the raw count of each event, in the order of the events. Meaningless unless the
    /// state is [`Counting`](RequestState::Counting); see [`scaled`](RequestCounts::scaled).
    #[must_use]
    pub fn values(&self) -> &[u64] {
        &self.sum.values
    }

    /// Returns how long it could have counted, in CPU time summed over all threads.
    #[must_use]
    pub fn enabled_ns(&self) -> u64 {
        self.sum.enabled_ns
    }

    /// Returns how long of that time it did count.
    #[must_use]
    pub fn running_ns(&self) -> u64 {
        self.sum.running_ns
    }

    /// Returns the number of threads on which it could have counted.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.sum.threads
    }

    /// Estimates what event `index` would have counted if it had always been on a counter, from the
    /// sums over threads, as perf does. Returns `None` unless the state is
    /// [`Counting`](RequestState::Counting), because no number is better than a wrong one.
    ///
    /// # Examples
    /// ```
    /// use submeter::perf::{Request, Session, parse};
    /// # use submeter::{Schema, Tree};
    /// # let tree = Tree::new(Schema::builder().build()?)?;
    /// let clock = parse("task-clock")?.remove(0);
    /// let session = Session::open(&tree, [Request::group(tree.root(), clock)]);
    /// assert_eq!(session.counts()[0].scaled(0), None, "not counted yet");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn scaled(&self, index: usize) -> Option<u64> {
        if self.state != RequestState::Counting {
            return None;
        }
        let Sum { values, enabled_ns, running_ns, .. } = &self.sum;
        scale(*values.get(index)?, *enabled_ns, *running_ns)
    }
}

/// The counts of several threads.
#[derive(Clone, Debug)]
pub(super) struct Sum {
    values: Box<[u64]>,
    enabled_ns: u64,
    running_ns: u64,
    threads: usize,
    errors: usize,
}

impl Sum {
    pub(super) fn new(events: usize) -> Sum {
        let values = vec![0; events].into_boxed_slice();
        Sum { values, enabled_ns: 0, running_ns: 0, threads: 0, errors: 0 }
    }

    pub(super) fn add(&mut self, one: &Copied) {
        for (sum, value) in self.values.iter_mut().zip(&one.values) {
            *sum = sum.wrapping_add(*value);
        }
        self.enabled_ns += one.enabled_ns;
        self.running_ns += one.running_ns;
        self.threads += usize::from(one.enabled_ns > 0);
        self.errors += usize::from(one.error);
    }

    /// Adds the CPU time of one thread, which each of its events counts.
    pub(super) fn add_time(&mut self, ns: u64) {
        for sum in &mut self.values {
            *sum += ns;
        }
        self.enabled_ns += ns;
        self.running_ns += ns;
        self.threads += usize::from(ns > 0);
    }

    /// Returns the worst known state.
    pub(super) fn state(
        &self,
        refused: Option<&NotSupportedError>,
        failed: Option<String>,
    ) -> RequestState {
        if let Some(refused) = refused {
            RequestState::NotSupported(refused.clone())
        } else if let Some(reason) = failed {
            RequestState::Error(reason)
        } else if self.errors > 0 {
            RequestState::Error(format!(
                "no counter was left on {} threads: request fewer pinned events, or stop other users of the counters",
                self.errors
            ))
        } else if self.running_ns == 0 && self.values.iter().all(|&value| value == 0) {
            RequestState::NotCounted
        } else {
            RequestState::Counting
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event that happened counts, even in a time too short for the clock.
    #[test]
    fn only_what_never_ran_is_not_counted() {
        let state = |running_ns, value| {
            Sum { values: [0, value].into(), running_ns, ..Sum::new(2) }.state(None, None)
        };
        assert_eq!(state(0, 0), RequestState::NotCounted);
        // It ran and nothing happened; or a kernel event happened while no time passed.
        assert_eq!([state(1, 0), state(0, 1), state(1, 1)], [const { RequestState::Counting }; 3]);
    }
}
