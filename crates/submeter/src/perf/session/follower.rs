//! One thread of a session.

use std::sync::Arc;
use std::time::Duration;

use super::super::scheduler::{EventGroupId, GroupKey, Published, Scheduler};
use super::super::thread::ThreadPmu;
use super::{Shared, Sum};
use crate::group::Group;
use crate::path::DEPTH_MAX;
use crate::switch::Observer;

/// After how much of a thread's time event groups take turns: perf's default (`perf_event_mux_interval_ms`).
const ROTATE_NS: u64 = 4_000_000;
/// After how much of a thread's time what counts on is published: a thousandth of the usual interval of a reader.
const PUBLISH_NS: u64 = 1_000_000;

/// How long to wait for who adds up, when a thread begins or ends. In a forked child the lock may have been held by
/// a thread that is not there: then the child's thread is not counted.
const PATIENCE: Duration = Duration::from_secs(1);

/// Schedules the session's events on one thread.
pub(super) struct Follower {
    shared: Arc<Shared>,
    scheduler: Scheduler<ThreadPmu>,
    /// In the order of what was wanted; `None` for what this thread cannot count.
    ids: Vec<Option<EventGroupId>>,
    /// Kept for its memory: a switch allocates nothing.
    chain: Vec<GroupKey>,
    now_ns: u64,
    rotate_at_ns: u64,
    publish_at_ns: u64,
}

impl Follower {
    /// `None` if nothing can be counted on this thread.
    pub(super) fn new(shared: &Arc<Shared>, now_ns: u64) -> Option<Follower> {
        let mut scheduler = Scheduler::new(ThreadPmu::new());
        let wanted = shared.wanted.iter();
        let attached: Vec<_> =
            wanted.map(|w| scheduler.attach(w.scope, &w.events, now_ns)).collect();
        let published = attached.iter().map(|id| scheduler.published(*id.as_ref().ok()?));
        let published: Vec<Option<Arc<Published>>> = published.collect();
        let mut found = shared.found.try_lock_for(PATIENCE)?;
        let counts = published.iter().any(Option::is_some);
        if counts {
            found.threads.push(published);
        }
        for (sum, attached) in found.sums.iter_mut().zip(&attached) {
            if let Err(refused) = attached {
                sum.not_supported.get_or_insert_with(|| refused.clone());
            }
        }
        drop(found);
        counts.then(|| Follower {
            shared: Arc::clone(shared),
            scheduler,
            ids: attached.into_iter().map(Result::ok).collect(),
            // The group and its ancestors, the root included.
            chain: Vec::with_capacity(DEPTH_MAX + 1),
            now_ns,
            rotate_at_ns: now_ns + ROTATE_NS,
            publish_at_ns: now_ns + PUBLISH_NS,
        })
    }
}

impl Observer for Follower {
    #[inline]
    fn switched(&mut self, _: Option<&Group>, entered: Option<&Group>, now_ns: u64) {
        self.now_ns = now_ns;
        self.chain.clear();
        let mut group = entered;
        while let Some(at) = group {
            self.chain.push(GroupKey(at.id()));
            group = at.parent();
        }
        self.scheduler.switch(&self.chain, now_ns);
        if now_ns >= self.publish_at_ns {
            self.parked(now_ns);
        }
    }

    #[cold]
    fn parked(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.publish_at_ns = now_ns + PUBLISH_NS;
        self.scheduler.checkpoint(now_ns);
        if now_ns >= self.rotate_at_ns {
            self.rotate_at_ns = now_ns + ROTATE_NS;
            self.scheduler.rotate(now_ns);
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let ids = self.ids.iter().flatten();
        let mine: Vec<_> = ids.clone().filter_map(|id| self.scheduler.published(*id)).collect();
        for id in ids {
            self.scheduler.detach(*id, self.now_ns);
        }
        let Some(mut found) = self.shared.found.try_lock_for(PATIENCE) else { return };
        // Found by what only this thread has published.
        let is_mine = |thread: &Vec<Option<Arc<Published>>>| {
            thread.iter().flatten().any(|p| mine.iter().any(|m| Arc::ptr_eq(m, p)))
        };
        if let Some(at) = found.threads.iter().position(is_mine) {
            let thread = found.threads.swap_remove(at);
            let sums: &mut Vec<Sum> = &mut found.sums;
            for (sum, published) in sums.iter_mut().zip(thread) {
                if let Some(published) = published {
                    sum.add(&published);
                }
            }
        }
    }
}
