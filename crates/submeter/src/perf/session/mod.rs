//! Events of a tree's groups, on all threads.

mod counts;
mod follower;
mod shared;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::event::EventGroup;
use super::pmu::Pmu;
use super::scheduler::GroupKey;
use super::thread::ThreadPmu;
use crate::group::Group;
use crate::switch::{self, Observation};
use crate::tree::Tree;
pub use counts::{RequestCounts, RequestState};
use follower::Follower;
use shared::{Attachment, SessionState};

/// A request for one event group: for a group of the tree and all below it, or for the whole
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
    /// Counts while a thread works for `group`, or for one below it.
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

    /// Counts whatever threads do, in no group too.
    ///
    /// # Examples
    /// ```
    /// use submeter::perf::{Request, Session, parse};
    /// # use submeter::{Schema, Tree};
    /// # let tree = Tree::new(Schema::builder().build()?)?;
    /// let session = Session::open(&tree, [Request::everywhere(parse("task-clock")?.remove(0))]);
    /// assert_eq!(session.counts()[0].path(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn everywhere(events: EventGroup) -> Request {
        Request { group: None, events }
    }
}

/// Events of a tree's groups, counted on all threads that switch between groups until it is
/// dropped.
///
/// Each thread has a [`Scheduler`](super::Scheduler) of its own, which follows the group switch
/// ([`Group::enter`], [`in_group`](switch::InGroup::in_group)); what it has counted it leaves where
/// [`counts`](Session::counts) sums it up, without stopping a thread.
///
/// # What it costs
/// - **A switch** to another group: what the scheduler does with the events of the groups that are
///   left and entered, and some stores to make their counts known. The clock is read once, for this
///   and for metered CPU time. It allocates nothing and takes no lock. Entering the current group
///   again costs nothing.
/// - **A thread**'s first switch after the session was opened, or its first [`park`](switch::park):
///   memory and time in proportion to the number of requests, a descriptor for each different event
///   that the kernel counts, and one for all together.
/// - **Reading**: in proportion to threads and requests.
///
/// # What is seen, and when
/// - A thread is followed from its next switch or park on. One that never does either is not
///   counted, not even by [`Request::everywhere`].
/// - What a group's events count is seen when the thread has left the group. Events of a common
///   ancestor, which a switch does not touch, and those for the whole process, are seen at the
///   first switch after each interval ([`SessionBuilder::interval`]), when the thread parks, and at
///   its end. So a thread that never switches shows nothing new, unless it calls
///   [`park`](switch::park).
/// - The counts of threads that have ended stay.
/// - A group that is killed is not held by the session: its release waits for nothing. Its counts
///   stay, and [`RequestCounts::is_killed`] is true. What is still done in it is counted; a new
///   group of that name is another one.
/// - A forked child has its own copy: it starts with what the parent had counted, and goes on
///   alone. Where another thread of the parent was reading at that moment,
///   [`counts`](Session::counts) never returns in the child: as with a flush, exec first.
///
/// # Too few counters
/// Event groups take turns at a switch, when an interval of the thread's own CPU time has passed
/// since the last time: there is no timer and no background thread. A thread that never switches
/// does not rotate.
///
/// # When not to use it
/// When every group is to count the same few events:
/// [`SchemaBuilder::event`](crate::SchemaBuilder::event) reads one set of events for all groups and
/// lets flushes carry the sums, with no work for each group. For threads that use no groups: `perf
/// stat`.
///
/// # Examples
/// ```
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
/// let counts = session.counts();
/// assert_eq!(*counts[0].state(), RequestState::Counting);
/// assert!(counts[0].values()[0] > 0, "nanoseconds");
/// assert_eq!(counts[0].values(), counts[1].values(), "nothing ran in the parent itself");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Differences from Linux
/// `perf stat -G` counts what runs on a CPU, this what threads do. Events of a common ancestor stay
/// on their counters at a switch between siblings; Linux takes them off and on.
pub struct Session {
    shared: Arc<SessionState>,
    /// Last: threads that are still followed need nothing of the above.
    observation: Observation,
}

/// A builder of a [`Session`] with other than the usual interval or counters.
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

/// How often perf rotates: once in a tick, which is 4 ms where the kernel was built with
/// `CONFIG_HZ=250`, as Debian's and Ubuntu's long were. `perf_event_mux_interval_ms` in sysfs says
/// it for a machine.
const INTERVAL: Duration = Duration::from_millis(4);

impl Session {
    /// Counts from now on what is asked for.
    ///
    /// An event that cannot be counted here keeps its request from being counted
    /// ([`RequestState::NotSupported`]), and no other one.
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
    /// When a group is of another tree.
    #[must_use]
    pub fn open(tree: &Tree, requests: impl IntoIterator<Item = Request>) -> Session {
        Session::builder().open(tree, requests)
    }

    /// Starts a session with other than the usual interval or counters.
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

    /// Returns what was counted by now, a value for each request, in their order. See [`Session`]
    /// for what that includes.
    ///
    /// The values of one request and one thread are of one moment; those of different requests or
    /// threads are not.
    ///
    /// # Examples
    /// ```
    /// use submeter::perf::{Request, Session, parse};
    /// # use submeter::{Schema, Tree};
    /// # let tree = Tree::new(Schema::builder().build()?)?;
    /// let clock = parse("task-clock")?.remove(0);
    /// let session = Session::open(&tree, [Request::group(tree.root(), clock)]);
    /// tree.root().run(|| std::hint::black_box((0..100_000u64).sum::<u64>()));
    /// for counts in session.counts() {
    ///     println!("{:?} {}: {:?}", counts.path(), counts.events(), counts.scaled(0));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn counts(&self) -> Vec<RequestCounts> {
        self.shared.counts(self.observation.panicked())
    }

    /// Returns how many threads are or were followed.
    ///
    /// # Examples
    /// ```
    /// use submeter::perf::{Request, Session, parse};
    /// # use submeter::{Schema, Tree};
    /// # let tree = Tree::new(Schema::builder().build()?)?;
    /// let session = Session::open(&tree, [Request::everywhere(parse("task-clock")?.remove(0))]);
    /// tree.root().run(|| ());
    /// assert_eq!(session.threads(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    /// it makes known what it counts for common ancestors and for the whole process. 4 ms unless
    /// set, as perf's usual one.
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
    /// # Examples
    /// ```
    /// use submeter::perf::Session;
    /// # use submeter::{Schema, Tree};
    /// # let tree = Tree::new(Schema::builder().build()?)?;
    /// assert!(Session::builder().open(&tree, []).counts().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When a group is of another tree.
    #[must_use]
    pub fn open(self, tree: &Tree, requests: impl IntoIterator<Item = Request>) -> Session {
        self.open_with(tree, requests, ThreadPmu::new)
    }

    /// Opens the session on other counters than the kernel's: `make` is called on each thread, and
    /// once on this one to find out which events it supports.
    ///
    /// # Panics
    /// When a group is of another tree.
    #[doc(hidden)]
    #[must_use]
    pub fn open_with<P: Pmu + 'static>(
        self,
        tree: &Tree,
        requests: impl IntoIterator<Item = Request>,
        make: impl Fn() -> P + Send + Sync + 'static,
    ) -> Session {
        let mut here = make();
        let attachments = requests.into_iter().map(|request| {
            let group = request.group.as_ref();
            let strange = group
                .is_some_and(|group| !Arc::ptr_eq(group.tree_stats(), tree.root().tree_stats()));
            assert!(!strange, "the group {} is of another tree", group.map_or("", Group::path));
            Attachment::new(group, request.events, &mut here)
        });
        let shared = Arc::new(SessionState::new(tree.clone(), attachments.collect()));
        let interval_ns = u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX);
        let root = GroupKey::of(tree.root());
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
    use crate::perf::event::Event;
    use crate::perf::{Handle, NotSupportedError, parse};

    /// Panics when an event is prepared, but for the first time.
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
    fn threads_whose_counters_panic_leave_nothing_behind() {
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
        // Other tests' threads switch too, and panic as well.
        assert_eq!(session.shared.live(), 0, "of {}", session.threads());
    }

    #[test]
    fn a_thread_that_cannot_join_is_missed() {
        let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
        let requests = [Request::group(tree.root(), parse("task-clock").expect("valid").remove(0))];
        let session = Session::open(&tree, requests);
        let root = tree.root().clone();
        session.shared.locked(|| {
            std::thread::spawn(move || root.run(|| ())).join().expect("it waits for a while only");
        });
        let RequestState::Error(why) = session.counts()[0].state().clone() else {
            panic!("{session:?}")
        };
        assert!(why.contains("missing"), "{why}");
    }
}
