//! The state that the threads of a session share with its readers.
//!
//! A thread joins once, by adding its counts to a list, and from then on writes them without
//! waiting for others. When it exits, it sets a flag; the next holder of the list's lock folds its
//! counts into a sum, so that any number of threads may come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use submeter_events::{EventGroup, GroupKey, NotSupportedError, Pmu, Published, Scope};

use super::accounts::{AccountTimes, Accounts, TimeKeeper};
use super::counts::{RequestCounts, Sum};
use crate::tree::group::Group;
use crate::tree::tree::Tree;

/// The readers' view of a session.
pub(super) struct SessionState {
    tree: Tree,
    requests: Arc<Requests>,
}

/// The part of a session that threads need. It excludes the tree, which would otherwise live as
/// long as they follow it.
pub(super) struct Requests {
    list: Box<[Attachment]>,
    /// `None` if no event group counts CPU time alone.
    accounts: Option<Arc<Accounts>>,
    threads: Mutex<Threads>,
    /// The number of threads that failed to join: their work is missing.
    missed: AtomicUsize,
}

/// A request and its state.
pub(super) struct Attachment {
    pub(super) scope: Scope,
    /// The group's path; `None` for the whole process.
    path: Option<String>,
    pub(super) events: EventGroup,
    refused: Option<NotSupportedError>,
    /// Whether it counts CPU time alone, and if so in which account.
    pub(super) account: Option<u32>,
    killed: AtomicBool,
    /// Why it is not counted on some thread.
    failed: Mutex<Option<String>>,
}

struct Threads {
    live: Vec<Arc<ThreadCounts>>,
    /// The counts of exited threads, by request.
    folded: Box<[Sum]>,
    joined: usize,
}

/// The counts of one thread.
pub(super) struct ThreadCounts {
    /// By request; `None` if it is not supported, or counts CPU time alone.
    published: Box<[Option<Published>]>,
    times: Option<Arc<AccountTimes>>,
    ended: AtomicBool,
}

impl Attachment {
    /// Returns the attachment, and whether it counts CPU time alone: then it needs an account.
    pub(super) fn new<P: Pmu>(
        group: Option<&Group>,
        events: EventGroup,
        pmu: &mut P,
    ) -> (Attachment, bool) {
        let scope = group.map_or(Scope::Everywhere, |group| Scope::Group(GroupKey(group.id())));
        let mut time_alone = true;
        let refused = events.events().iter().find_map(|event| match pmu.prepare(event) {
            Ok(handle) => {
                time_alone &= pmu.is_clock(handle);
                pmu.release(handle);
                None
            }
            Err(error) => Some(error),
        });
        let refused = refused.or_else(|| NotSupportedError::empty(&events));
        time_alone &= refused.is_none();
        let attachment = Attachment {
            scope,
            path: group.map(|group| group.path().to_owned()),
            refused,
            events,
            account: None,
            killed: AtomicBool::new(false),
            failed: Mutex::new(None),
        };
        (attachment, time_alone)
    }

    /// Returns whether a scheduler counts it.
    fn is_scheduled(&self) -> bool {
        self.refused.is_none() && self.account.is_none()
    }

    /// Notes that one thread could not attach it, although another one could: file descriptors may
    /// have run out.
    #[cold]
    pub(super) fn note_failure(&self, error: &NotSupportedError) {
        // Never waits long, because in a forked child the thread that holds the lock may not exist.
        if let Some(mut failed) = self.failed.try_lock_for(PATIENCE) {
            failed.get_or_insert_with(|| {
                let (event, reason) = (error.event(), error.reason());
                format!("event {event:?} is missing on at least one thread: {reason}")
            });
        }
    }

    /// Returns whether its group is no longer in the tree.
    fn is_killed(&self, tree: &Tree) -> bool {
        // Relaxed: only saves the search; a killed group never comes back.
        if self.killed.load(Ordering::Relaxed) {
            return true;
        }
        let (Scope::Group(key), Some(path)) = (self.scope, &self.path) else { return false };
        let killed = tree.get(path).is_none_or(|group| GroupKey(group.id()) != key);
        // Relaxed: as above.
        self.killed.fetch_or(killed, Ordering::Relaxed) || killed
    }
}

/// How long a joining thread waits for a reader.
const PATIENCE: Duration = Duration::from_secs(1);

impl Requests {
    /// Adds a thread's counts. Returns `None` if that takes too long: in a forked child the lock
    /// may never be released.
    pub(super) fn join(&self) -> Option<Arc<ThreadCounts>> {
        let published = self.list.iter().map(|attachment| {
            let events = attachment.events.events().len();
            attachment.is_scheduled().then(|| Published::new(events))
        });
        let counts = Arc::new(ThreadCounts {
            published: published.collect(),
            times: self.accounts.as_ref().map(|accounts| Arc::new(AccountTimes::new(accounts))),
            ended: AtomicBool::new(false),
        });
        let Some(mut threads) = self.threads.try_lock_for(PATIENCE) else {
            // Relaxed: a statistic.
            self.missed.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.fold(&mut threads);
        threads.live.push(Arc::clone(&counts));
        threads.joined += 1;
        Some(counts)
    }

    /// Returns the keeper that charges a thread's CPU time, if any event group counts only that.
    pub(super) fn time_keeper(&self, counts: &ThreadCounts, now_ns: u64) -> Option<TimeKeeper> {
        let (accounts, times) = self.accounts.as_ref().zip(counts.times.as_ref())?;
        Some(TimeKeeper::new(Arc::clone(accounts), Arc::clone(times), now_ns))
    }

    /// Returns the event groups to attach on a thread, and where it publishes their counts.
    pub(super) fn scheduled<'a>(
        &'a self,
        counts: &'a ThreadCounts,
    ) -> impl Iterator<Item = (&'a Attachment, &'a Published)> {
        let published = counts.published.iter();
        self.list
            .iter()
            .zip(published)
            .filter_map(|(attachment, p)| Some((attachment, p.as_ref()?)))
    }

    /// Adds up the counts of exited threads, and removes them from the list.
    fn fold(&self, Threads { live, folded, .. }: &mut Threads) {
        live.retain(|counts| {
            // Acquire: pairs with the Release in `end`, so that the thread's last published counts
            // are seen.
            let ended = counts.ended.load(Ordering::Acquire);
            if ended {
                self.add(counts, folded);
            }
            !ended
        });
    }

    /// Adds the counts of a thread to `sums`, by request.
    fn add(&self, counts: &ThreadCounts, sums: &mut [Sum]) {
        let times = self.accounts.as_ref().zip(counts.times.as_ref());
        let times = times.map(|(accounts, times)| accounts.totals(times)).unwrap_or_default();
        for ((sum, published), attachment) in sums.iter_mut().zip(&counts.published).zip(&self.list)
        {
            if let Some(published) = published {
                sum.add(&published.read());
            }
            if let Some(account) = attachment.account {
                sum.add_time(times[account as usize]);
            }
        }
    }
}

impl ThreadCounts {
    /// Notes that the thread has stopped counting.
    pub(super) fn end(&self) {
        // Release: pairs with the Acquire in `fold`.
        self.ended.store(true, Ordering::Release);
    }
}

impl SessionState {
    pub(super) fn new(
        tree: Tree,
        list: Box<[Attachment]>,
        accounts: Option<Accounts>,
    ) -> SessionState {
        let folded = list.iter().map(|a| Sum::new(a.events.events().len())).collect();
        let threads = Mutex::new(Threads { live: Vec::new(), folded, joined: 0 });
        SessionState {
            tree,
            requests: Arc::new(Requests {
                list,
                accounts: accounts.map(Arc::new),
                threads,
                missed: AtomicUsize::new(0),
            }),
        }
    }

    pub(super) fn requests(&self) -> &Arc<Requests> {
        &self.requests
    }

    pub(super) fn threads(&self) -> usize {
        self.requests.threads.lock().joined
    }

    /// Keeps threads from joining while `act` runs.
    #[cfg(test)]
    pub(super) fn locked<T>(&self, act: impl FnOnce() -> T) -> T {
        let _locked = self.requests.threads.lock();
        act()
    }

    /// Returns how many threads are followed, or have exited since the last fold.
    #[cfg(test)]
    pub(super) fn live(&self) -> usize {
        let mut threads = self.requests.threads.lock();
        self.requests.fold(&mut threads);
        threads.live.len()
    }

    /// Sums up the counts. `panicked` threads are no longer followed.
    pub(super) fn counts(&self, panicked: u64) -> Vec<RequestCounts> {
        let sums = {
            let mut threads = self.requests.threads.lock();
            self.requests.fold(&mut threads);
            let mut sums = threads.folded.clone();
            for counts in &threads.live {
                self.requests.add(counts, &mut sums);
            }
            sums
        };
        // Relaxed: a statistic.
        let missed = self.requests.missed.load(Ordering::Relaxed);
        let list = self.requests.list.iter().zip(sums);
        list.map(|(attachment, sum)| {
            let failed = attachment.failed.lock().clone();
            let failed = failed.or_else(|| {
                (panicked > 0).then(|| format!("counters panicked on {panicked} threads"))
            });
            let failed = failed.or_else(|| {
                let why = "waited too long for a reader: read less often, or request fewer events";
                (missed > 0).then(|| format!("{missed} threads are missing, as they {why}"))
            });
            RequestCounts {
                path: attachment.path.clone(),
                events: attachment.events.clone(),
                state: sum.state(attachment.refused.as_ref(), failed),
                killed: attachment.is_killed(&self.tree),
                sum,
            }
        })
        .collect()
    }
}
