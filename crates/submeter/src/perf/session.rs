//! Event groups that follow the groups of a tree on all threads.

use std::sync::Arc;

use parking_lot::Mutex;

use super::event::EventGroup;
use super::pmu::NotSupported;
use super::scheduler::{GroupKey, Published, Scope};
use super::thread::ThreadPmu;
use crate::group::Group;
use crate::switch;

mod follower;

use follower::Follower;

/// Counts event groups on every thread that switches between groups, until it is dropped.
///
/// Each thread that enters or leaves a group of any tree after the session was opened has a [`Scheduler`](super::Scheduler)
/// of its own for it; threads that never do are not counted, nor is what a thread did before. Each event group is
/// for one group of a tree, with all that is below it, or for whatever the threads do.
///
/// # What it costs
/// Each switch of a thread to another group reads its clock once, and each event of the groups that are left or entered once
/// ([`LinuxPmu`](super::LinuxPmu) says at what price). It takes no lock and allocates nothing; a thread's first one after the
/// opening opens the events. Each thread keeps a descriptor for each different event of the kernel, until it
/// switches or [parks](switch::park) after the session's end.
///
/// A session does not keep a group from its release: a group that is killed counts until its last thread has left it.
///
/// # Examples
/// ```
/// use submeter::perf::{Session, parse};
/// use submeter::{Schema, Tree};
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let web = tree.get_or_create("/acme/web")?;
/// let acme = web.parent().expect("made with its child");
/// let events = parse("task-clock")?.remove(0);
///
/// let session = Session::open([(Some(acme), events.clone()), (None, events)]);
/// web.run(|| std::hint::black_box("42".repeat(10_000)));
/// submeter::switch::park();
/// let [in_acme, all] = &session.counts()[..] else { panic!("two were asked for") };
/// assert!(in_acme.values[0] > 0 && all.values[0] >= in_acme.values[0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Differences from Linux
/// - Rotation needs no timer: it comes with a switch, when 4 ms of the thread's time (perf's default,
///   `perf_event_mux_interval_ms`) have passed since the last. A thread that stays in one group does not rotate.
/// - Counts are of closed intervals, see [`counts`](Session::counts).
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
    /// Dropped first of all that threads know of it.
    _observation: switch::Observation,
}

/// What an event group has counted on all threads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionCounts {
    /// The path of the group that it is for; `None` for all.
    pub path: Option<String>,
    /// What was asked for.
    pub events: EventGroup,
    /// What each event has counted.
    pub values: Vec<u64>,
    /// How long it could have counted, in CPU time of the threads.
    pub enabled_ns: u64,
    /// How long of that it did.
    pub running_ns: u64,
    /// How many threads have counted it, ended ones included.
    pub threads: usize,
    /// Whether a pinned one found no counter on some thread, or one was lost: then nobody knows what is missing.
    pub failed: bool,
    /// Why it could not be counted: here at all, or on some thread, if `threads` is not 0.
    pub not_supported: Option<NotSupported>,
}

impl SessionCounts {
    /// Estimates what event `index` would have counted, had it always been on a counter. `None` if it never was, is not
    /// supported, or is in error: none of these is 0.
    #[must_use]
    pub fn scaled(&self, index: usize) -> Option<u64> {
        if self.failed || self.running_ns == 0 {
            return None;
        }
        let value = u128::from(*self.values.get(index)?);
        let scaled = value * u128::from(self.enabled_ns) / u128::from(self.running_ns);
        Some(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

/// What all threads know of a session.
#[derive(Debug)]
struct Shared {
    wanted: Box<[Wanted]>,
    found: Mutex<Found>,
}

#[derive(Debug)]
struct Wanted {
    scope: Scope,
    path: Option<String>,
    events: EventGroup,
}

/// What came of what was wanted, in the same order.
#[derive(Debug)]
struct Found {
    sums: Vec<Sum>,
    /// Of the threads that count now.
    threads: Vec<Vec<Option<Arc<Published>>>>,
}

#[derive(Clone, Debug, Default)]
struct Sum {
    values: Vec<u64>,
    enabled_ns: u64,
    running_ns: u64,
    threads: usize,
    failed: bool,
    not_supported: Option<NotSupported>,
}

impl Sum {
    fn add(&mut self, published: &Published) {
        // Values first, then the times: see `Published`.
        self.values.resize(published.events(), 0);
        for (index, value) in self.values.iter_mut().enumerate() {
            *value += published.value(index);
        }
        self.running_ns += published.running_ns();
        self.enabled_ns += published.enabled_ns();
        self.failed |= published.failed();
        self.threads += 1;
    }
}

impl Session {
    /// Counts each event group for its group and all below it, or for whatever threads do where there is none.
    ///
    /// What cannot be counted here is no error: [`counts`](Session::counts) says so, and all others count.
    pub fn open<'a>(wanted: impl IntoIterator<Item = (Option<&'a Group>, EventGroup)>) -> Session {
        let wanted: Box<[Wanted]> = wanted
            .into_iter()
            .map(|(group, events)| Wanted {
                scope: group.map_or(Scope::Everywhere, |group| Scope::Group(GroupKey(group.id()))),
                path: group.map(|group| group.path().to_owned()),
                events,
            })
            .collect();
        // Known before any thread has switched: who asks is to be told at once.
        let sums = wanted.iter().map(|wanted| {
            let refused = wanted.events.events().iter().find_map(|e| ThreadPmu::supports(e).err());
            let values = vec![0; wanted.events.events().len()];
            Sum { values, not_supported: refused, ..Sum::default() }
        });
        let found = Mutex::new(Found { sums: sums.collect(), threads: Vec::new() });
        let shared = Arc::new(Shared { wanted, found });
        let follow = Arc::clone(&shared);
        let observation =
            switch::observe(move |now_ns| Some(Box::new(Follower::new(&follow, now_ns)?)));
        Session { shared, _observation: observation }
    }

    /// Returns what each event group has counted so far, in the order in which they were asked for.
    ///
    /// Costs a few loads for each thread, and stops none. A thread's time in a group is seen when it leaves the group for another
    /// or parks; what counts while groups change (for an ancestor, or for all) is seen at the first switch of each millisecond of
    /// the thread's time.
    #[must_use]
    pub fn counts(&self) -> Vec<SessionCounts> {
        let found = self.shared.found.lock();
        let mut sums = found.sums.clone();
        for thread in &found.threads {
            for (sum, published) in sums.iter_mut().zip(thread) {
                if let Some(published) = published {
                    sum.add(published);
                }
            }
        }
        drop(found);
        let counts = self.shared.wanted.iter().zip(sums).map(|(wanted, sum)| SessionCounts {
            path: wanted.path.clone(),
            events: wanted.events.clone(),
            values: sum.values,
            enabled_ns: sum.enabled_ns,
            running_ns: sum.running_ns,
            threads: sum.threads,
            failed: sum.failed,
            not_supported: sum.not_supported,
        });
        counts.collect()
    }
}
