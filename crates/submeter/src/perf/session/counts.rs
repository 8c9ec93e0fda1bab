//! What a session has counted, summed over threads.

use crate::perf::event::EventGroup;
use crate::perf::pmu::NotSupportedError;
use crate::perf::published::Copied;
use crate::perf::scheduler;

/// What the counts of a request are worth.
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
    /// It was on counters for some time at least, or has counted something in no time that the
    /// clock could tell.
    Counting,
    /// It never was: no thread has worked for the group yet, or its turn has not come. Shown as
    /// `<not counted>`.
    NotCounted,
    /// The counts lack an unknown amount: the reason says of what.
    Error(String),
    /// One of its events cannot be counted here, so that none of them is. Shown as `<not
    /// supported>`.
    NotSupported(NotSupportedError),
}

/// What one request of a [`Session`](super::Session) has counted, on all threads together.
#[derive(Clone, Debug)]
pub struct RequestCounts {
    pub(super) path: Option<String>,
    pub(super) events: EventGroup,
    pub(super) state: RequestState,
    pub(super) killed: bool,
    pub(super) sum: Sum,
}

impl RequestCounts {
    /// Returns the path of the group, `None` for the whole process.
    ///
    /// # Examples
    /// ```
    /// use submeter::perf::{Request, Session, parse};
    /// # use submeter::{Schema, Tree};
    /// # let tree = Tree::new(Schema::builder().build()?)?;
    /// let session = Session::open(&tree, [Request::everywhere(parse("task-clock")?.remove(0))]);
    /// assert_eq!(session.counts()[0].path(), None, "the whole process");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Returns what was asked for.
    #[must_use]
    pub fn events(&self) -> &EventGroup {
        &self.events
    }

    /// Returns what the counts are worth.
    #[must_use]
    pub fn state(&self) -> &RequestState {
        &self.state
    }

    /// Returns whether the group was killed since: what is left counts to its end, and it
    /// cannot be found any more.
    ///
    /// # Examples
    /// ```
    /// use submeter::perf::{Request, Session, parse};
    /// # use submeter::{Schema, Tree};
    /// # let tree = Tree::new(Schema::builder().build()?)?;
    /// let web = tree.create("/web")?;
    /// let session = Session::open(&tree, [Request::group(&web, parse("task-clock")?.remove(0))]);
    /// web.kill()?;
    /// assert!(session.counts()[0].is_killed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.killed
    }

    /// Returns what each event was seen to count, in the order of the events. Of no meaning unless
    /// the state is [`Counting`](RequestState::Counting); see [`scaled`](RequestCounts::scaled).
    #[must_use]
    pub fn values(&self) -> &[u64] {
        &self.sum.values
    }

    /// Returns how long it could have counted, in CPU time of all threads.
    #[must_use]
    pub fn enabled_ns(&self) -> u64 {
        self.sum.enabled_ns
    }

    /// Returns how long of that it did.
    #[must_use]
    pub fn running_ns(&self) -> u64 {
        self.sum.running_ns
    }

    /// Returns on how many threads it could have counted.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.sum.threads
    }

    /// Estimates what event `index` would have counted, had it always been on a counter, from the
    /// sums over threads as perf does. `None` unless the state is
    /// [`Counting`](RequestState::Counting): no number is better than a wrong one.
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
        scheduler::scale(*values.get(index)?, *enabled_ns, *running_ns)
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

    /// The worst that is known.
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
                "no counter was left on {} threads: ask for fewer pinned events, or stop who else counts",
                self.errors
            ))
        } else if self.running_ns == 0 && self.values.iter().all(|&value| value == 0) {
            RequestState::NotCounted
        } else {
            RequestState::Counting
        }
    }
}
