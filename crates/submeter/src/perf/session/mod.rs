//! Perf events of a tree's groups, on all threads.

mod accounts;
mod counts;
mod follower;
mod shared;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use submeter_events::{EventGroup, GroupKey, Pmu, ThreadPmu};

use crate::switch::{self, Observation};
use crate::tree::group::Group;
use crate::tree::tree::Tree;
use accounts::Accounts;
pub use counts::{RequestCounts, RequestState};
use follower::Follower;
use shared::{Attachment, SessionState};

/// A request to count one event group, for a group of the tree and its descendants or for the whole
/// process.
///
/// # Examples
/// ```
/// use submeter::perf::{Request, Session, parse};
/// # use submeter::{Schema, Tree};
/// # let tree = Tree::new(Schema::builder().build()?)?;
/// let clock = parse("task-clock")?.remove(0);
/// let requests = [Request::group(tree.root(), clock.clone()), Request::everywhere(clock)];
/// assert_eq!(Session::open(&tree, requests).counts().len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    group: Option<Group>,
    events: EventGroup,
}

impl Request {
    /// Creates a request that counts while a thread works for `group` or a descendant.
    ///
    /// # Examples
    /// ```
    /// use submeter::perf::{Request, Session, parse};
    /// # use submeter::{Schema, Tree};
    /// # let tree = Tree::new(Schema::builder().build()?)?;
    /// let web = tree.create("/web")?;
    /// let session = Session::open(&tree, [Request::group(&web, parse("task-clock")?.remove(0))]);
    /// assert_eq!(session.counts()[0].path(), Some("/web"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn group(group: &Group, events: EventGroup) -> Request {
        Request { group: Some(group.clone()), events }
    }

    /// Creates a request that counts everything that threads do, including work outside of all
    /// groups.
    #[must_use]
    pub fn everywhere(events: EventGroup) -> Request {
        Request { group: None, events }
    }
}

/// A count of perf events by group, on all threads that switch between groups, until it is dropped.
///
/// Each thread has its own scheduler, which follows the group switch
/// ([`Group::enter`], [`in_group`](switch::InGroup::in_group)) and publishes its counts;
/// [`counts`](Session::counts) sums them up without stopping a thread.
///
/// # What it costs
/// - **A switch** to another group: the scheduler's work on the events of the groups that are left
///   and entered, and some stores to publish their counts. For event groups of CPU time alone, one
///   addition and one search for the next group's account; a deeper group costs no more if it has
///   such a request itself. The clock is read once, for all of this and for metered CPU time. A
///   switch allocates nothing and takes no lock. Entering the current group again costs nothing.
/// - **A thread**'s first switch after the session was opened, or its first [`park`](switch::park):
///   memory and time in proportion to the number of requests, a file descriptor for each different
///   event that the kernel counts, and one more for all of them together.
/// - **Reading**: in proportion to threads and requests.
///
/// # What is seen, and when
/// - A thread is followed from its next switch or park on. A thread that never switches or parks is
///   not counted, not even by [`Request::everywhere`].
/// - The counts of a group's events become visible when the thread leaves the group. Those of a
///   common ancestor, which a switch does not touch, and those for the whole process become visible
///   at the first switch after each interval ([`SessionBuilder::interval`]), when the thread parks,
///   and when it exits. CPU time alone becomes visible at each switch, for ancestors and for the
///   whole process too. A thread that never switches therefore shows nothing new, unless it calls
///   [`park`](switch::park).
/// - The counts of threads that have exited are kept.
/// - The session does not hold a killed group, so it does not delay its release. The group's counts
///   are kept, and [`RequestCounts::is_killed`] is true. Work that is still done in it is counted;
///   a new group with its name is a different group.
/// - A forked child has its own copy, which starts with the parent's counts and continues
///   independently. If another thread of the parent was reading at the moment of the fork,
///   [`counts`](Session::counts) never returns in the child: as with a flush, exec first.
///
/// # Too few counters
/// Event groups take turns at a switch, once an interval of the thread's own CPU time has passed
/// since the last turn: there is no timer and no background thread. A thread that never switches
/// does not rotate.
///
/// # When not to use it
/// If every group needs the same few events, use
/// [`SchemaBuilder::event`](crate::SchemaBuilder::event), which reads one set of events for all
/// groups and lets flushes propagate the sums, without work per group. For threads that use no
/// groups, use `perf stat`.
///
/// # Examples
/// ```standalone_crate
/// use submeter::perf::{Request, RequestState, Session, parse};
/// use submeter::{Schema, Tree};
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let web = tree.get_or_create("/acme/web")?;
/// let acme = tree.get("/acme").expect("made with its child");
/// let [clock] = &parse("task-clock")?[..] else { panic!("one event group") };
///
/// let requests = [&web, &acme].map(|group| Request::group(group, clock.clone()));
/// let session = Session::open(&tree, requests);
/// web.run(|| std::hint::black_box((0..100_000u64).sum::<u64>()));
///
/// assert_eq!(session.threads(), 1);
/// let counts = session.counts();
/// assert_eq!(*counts[0].state(), RequestState::Counting);
/// assert!(counts[0].values()[0] > 0, "nanoseconds");
/// assert_eq!(counts[0].values(), counts[1].values(), "nothing ran in the parent itself");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Differences from Linux
/// `perf stat -G` counts per CPU, a session per thread. Events of a common ancestor stay on their
/// counters at a switch between siblings; Linux takes them off and puts them on again.
pub struct Session {
    shared: Arc<SessionState>,
    /// Dropped last: threads that are still followed do not need the fields above.
    observation: Observation,
}

/// A builder of a [`Session`] with a custom interval or custom counters.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter::perf::{Request, Session, parse};
/// # use submeter::{Schema, Tree};
/// # let tree = Tree::new(Schema::builder().build()?)?;
/// let request = Request::everywhere(parse("task-clock")?.remove(0));
/// let session = Session::builder().interval(Duration::from_millis(1)).open(&tree, [request]);
/// # drop(session);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SessionBuilder {
    interval: Duration,
}

/// perf's rotation interval: one tick, which is 4 ms in a kernel built with `CONFIG_HZ=250`, as
/// Debian's and Ubuntu's were for a long time. A machine's own interval is in sysfs, as
/// `perf_event_mux_interval_ms`.
const INTERVAL: Duration = Duration::from_millis(4);

impl Session {
    /// Starts to count the requested events.
    ///
    /// A request with an event that cannot be counted here is not counted
    /// ([`RequestState::NotSupported`]); the others are.
    ///
    /// # Examples
    /// ```
    /// use submeter::perf::{Request, Session, parse};
    /// # use submeter::{Schema, Tree};
    /// # let tree = Tree::new(Schema::builder().build()?)?;
    /// let requests = parse("task-clock,context-switches")?;
    /// let session = Session::open(&tree, requests.into_iter().map(Request::everywhere));
    /// assert_eq!(session.counts().len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When a group belongs to another tree.
    #[must_use]
    pub fn open(tree: &Tree, requests: impl IntoIterator<Item = Request>) -> Session {
        Session::builder().open(tree, requests)
    }

    /// Returns a builder for a session with a custom interval or custom counters.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter::perf::Session;
    /// # use submeter::{Schema, Tree};
    /// # let tree = Tree::new(Schema::builder().build()?)?;
    /// let session = Session::builder().interval(Duration::from_millis(10)).open(&tree, []);
    /// assert!(session.counts().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn builder() -> SessionBuilder {
        SessionBuilder { interval: INTERVAL }
    }

    /// Returns the counts so far, one value per request, in their order. See [`Session`] for what
    /// they include.
    ///
    /// The values of one request on one thread are from one moment; those of different requests or
    /// threads are not. Requests for CPU time alone add up instead: on each thread, a group's time
    /// is its own plus that of the groups below it.
    #[must_use]
    pub fn counts(&self) -> Vec<RequestCounts> {
        self.shared.counts(self.observation.panicked())
    }

    /// Returns how many threads are, or were, followed.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.shared.threads()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

impl SessionBuilder {
    /// Sets how much of its own CPU time a thread uses before event groups take turns, and before
    /// it publishes the counts of common ancestors and of the whole process. The default is 4 ms,
    /// as usual for perf.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter::perf::Session;
    ///
    /// let builder = Session::builder().interval(Duration::from_millis(1));
    /// # let _ = builder;
    /// ```
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Opens the session: see [`Session::open`].
    ///
    /// # Panics
    /// When a group belongs to another tree.
    #[must_use]
    pub fn open(self, tree: &Tree, requests: impl IntoIterator<Item = Request>) -> Session {
        self.open_with(tree, requests, ThreadPmu::new)
    }

    /// Opens the session on counters other than the kernel's. `make` is called on each thread, and
    /// once on this one to find out which events the counters support.
    ///
    /// [`Pmu`] belongs to the crate `submeter-events`, which may change with every minor release.
    ///
    /// # Examples
    /// ```
    /// use submeter::perf::Session;
    /// use submeter::{Schema, Tree};
    /// use submeter_events::SimulatedPmu;
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let _session = Session::builder().open_with(&tree, [], || SimulatedPmu::new(4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When a group belongs to another tree.
    #[must_use]
    pub fn open_with<P: Pmu + 'static>(
        self,
        tree: &Tree,
        requests: impl IntoIterator<Item = Request>,
        make: impl Fn() -> P + Send + Sync + 'static,
    ) -> Session {
        let mut here = make();
        let attach = |request: Request| {
            let group = request.group;
            let strange = group
                .as_ref()
                .is_some_and(|group| !Arc::ptr_eq(group.tree_stats(), tree.root().tree_stats()));
            assert!(
                !strange,
                "the group {} belongs to another tree",
                group.as_ref().map_or("", Group::path)
            );
            let (attachment, time_alone) =
                Attachment::new(group.as_ref(), request.events, &mut here);
            (attachment, time_alone.then_some(group))
        };
        let (mut attachments, of_time): (Vec<_>, Vec<_>) = requests.into_iter().map(attach).unzip();
        let accounts = of_time.iter().any(Option::is_some).then(|| {
            let accounts = Accounts::new(of_time.iter().flatten().flatten().collect());
            for (attachment, group) in attachments.iter_mut().zip(&of_time) {
                attachment.account = group.as_ref().map(|group| accounts.of(group.as_ref()));
            }
            accounts
        });
        let shared = Arc::new(SessionState::new(tree.clone(), attachments.into(), accounts));
        let interval_ns = u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX);
        let root = GroupKey(tree.root().id());
        let follow = {
            let requests = Arc::clone(shared.requests());
            move |now_ns| {
                let follower = Follower::new(make(), root, interval_ns, &requests, now_ns)?;
                Some(Box::new(follower) as Box<dyn switch::Observer>)
            }
        };
        Session { shared, observation: switch::observe(follow) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::Schema;
    use submeter_events::{Event, Handle, NotSupportedError, parse};

    /// Counters that panic when an event is prepared, except for the first time.
    struct Fragile(Arc<AtomicBool>);

    impl Pmu for Fragile {
        fn prepare(&mut self, _: &Event) -> Result<Handle, NotSupportedError> {
            // Relaxed: the threads of the test are joined one by one.
            assert!(!self.0.swap(true, Ordering::Relaxed), "as the test wants");
            Ok(Handle(0))
        }

        fn place(&mut self, _: &[Handle]) -> bool {
            true
        }

        fn remove(&mut self, _: &[Handle]) {}

        fn read(&mut self, _: Handle) -> Option<u64> {
            Some(0)
        }

        fn release(&mut self, _: Handle) {}
    }

    #[test]
    fn panicking_counters_leave_nothing_behind() {
        let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
        let requests = [Request::group(tree.root(), parse("cycles").expect("valid").remove(0))];
        let prepared = Arc::new(AtomicBool::new(false));
        let make = move || Fragile(Arc::clone(&prepared));
        let session = Session::builder().open_with(&tree, requests, make);
        for _ in 0..3 {
            let root = tree.root().clone();
            std::thread::spawn(move || root.run(|| ())).join().expect("contained");
        }
        let RequestState::Error(why) = session.counts()[0].state().clone() else {
            panic!("{session:?}")
        };
        assert!(why.contains("panicked"), "{why}");
        // The threads of other tests switch too, and also panic.
        assert_eq!(session.shared.live(), 0, "of {}", session.threads());
    }

    #[test]
    fn a_thread_that_cannot_join_is_missing() {
        let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
        let requests = [Request::group(tree.root(), parse("task-clock").expect("valid").remove(0))];
        let session = Session::open(&tree, requests);
        let root = tree.root().clone();
        session.shared.locked(|| {
            std::thread::spawn(move || root.run(|| ())).join().expect("it waits only for a while");
        });
        let RequestState::Error(why) = session.counts()[0].state().clone() else {
            panic!("{session:?}")
        };
        assert!(why.contains("missing"), "{why}");
    }
}
