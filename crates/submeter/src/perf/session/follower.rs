//! One thread of a session.

use std::sync::Arc;

use super::shared::{Requests, ThreadCounts};
use crate::group::Group;
use crate::perf::pmu::Pmu;
use crate::perf::scheduler::{GroupKey, Scheduler};
use crate::switch::Observer;

/// An observer that follows its thread with a scheduler.
pub(super) struct Follower<P> {
    events: Scheduler<P>,
    counts: Arc<ThreadCounts>,
    /// The tree's root: groups of other trees count as none.
    root: GroupKey,
    interval_ns: u64,
    /// The last time that event groups took turns.
    turned_ns: u64,
}

impl<P: Pmu> Follower<P> {
    /// Attaches the requested events. `None` if a fork left the session in an unusable state.
    pub(super) fn new(
        pmu: P,
        root: GroupKey,
        interval_ns: u64,
        requests: &Requests,
        now_ns: u64,
    ) -> Option<Follower<P>> {
        let counts = requests.join()?;
        let events = Scheduler::new(pmu);
        // Complete before the counters are used: if they panic, the drop notes its end.
        let mut follower =
            Follower { events, counts: Arc::clone(&counts), root, interval_ns, turned_ns: now_ns };
        for (attachment, published) in requests.supported(&counts) {
            let (scope, group) = (attachment.scope, &attachment.events);
            let published = Some(published.clone());
            if let Err(error) = follower.events.attach_published(scope, group, published, now_ns) {
                attachment.note_failure(&error);
            }
        }
        Some(follower)
    }
}

impl<P: Pmu> Observer for Follower<P> {
    fn switched(&mut self, _: Option<&Group>, next: Option<&Group>, now_ns: u64) {
        // Before the switch, because the groups that used the time are those whose events take
        // turns.
        if now_ns.saturating_sub(self.turned_ns) >= self.interval_ns {
            self.turned_ns = now_ns;
            self.events.turn(now_ns);
            self.events.publish(now_ns);
        }
        self.events.switch_to(next, self.root, now_ns);
    }

    fn parked(&mut self, group: Option<&Group>, now_ns: u64) {
        // The thread may have entered its group before it was followed; otherwise nothing changes.
        self.events.switch_to(group, self.root, now_ns);
        self.events.publish(now_ns);
    }
}

impl<P> Drop for Follower<P> {
    fn drop(&mut self) {
        self.counts.end();
    }
}
