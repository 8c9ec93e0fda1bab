//! One thread of a session.

use std::iter::successors;
use std::sync::Arc;

use submeter_events::{GroupKey, Pmu, Scheduler};

use super::accounts::TimeKeeper;
use super::shared::{Requests, ThreadCounts};
use crate::switch::Observer;
use crate::tree::group::Group;

/// An observer that follows its thread.
pub(super) struct Follower<P> {
    /// `None` if CPU time alone is requested.
    events: Option<Scheduler<P>>,
    /// `None` if no event group counts CPU time alone.
    time: Option<TimeKeeper>,
    counts: Arc<ThreadCounts>,
    /// The tree's root: groups of other trees count as none.
    root: GroupKey,
    interval_ns: u64,
    /// The last time that event groups took turns.
    turned_ns: u64,
}

impl<P: Pmu> Follower<P> {
    /// Attaches the requested events. Returns `None` if a fork left the session in an unusable
    /// state.
    pub(super) fn new(
        pmu: P,
        root: GroupKey,
        interval_ns: u64,
        requests: &Requests,
        now_ns: u64,
    ) -> Option<Follower<P>> {
        let counts = requests.join()?;
        let time = requests.time_keeper(&counts, now_ns);
        // Complete before the counters are used: if they panic, the drop records its end.
        let mut follower = Follower {
            events: None,
            time,
            counts: Arc::clone(&counts),
            root,
            interval_ns,
            turned_ns: now_ns,
        };
        let mut scheduled = requests.scheduled(&counts).peekable();
        if scheduled.peek().is_some() {
            let events = follower.events.insert(Scheduler::new(pmu));
            for (attachment, published) in scheduled {
                let (scope, group) = (attachment.scope, &attachment.events);
                let published = Some(published.clone());
                if let Err(error) = events.attach_published(scope, group, published, now_ns) {
                    attachment.note_failure(&error);
                }
            }
        }
        Some(follower)
    }
}

impl<P: Pmu> Follower<P> {
    /// Not inlined: it needs registers, which CPU time alone does not.
    #[inline(never)]
    fn schedule(&mut self, next: Option<&Group>, now_ns: u64) {
        let Some(events) = &mut self.events else { return };
        // Before the switch, because the groups that used the time are those whose events take
        // turns.
        if now_ns.saturating_sub(self.turned_ns) >= self.interval_ns {
            self.turned_ns = now_ns;
            events.turn(now_ns);
            events.publish(now_ns);
        }
        events.switch_along(path(next), self.root, now_ns);
    }
}

impl<P: Pmu> Observer for Follower<P> {
    fn switched(&mut self, _: Option<&Group>, next: Option<&Group>, now_ns: u64) {
        if let Some(time) = &mut self.time {
            time.switch_to(next, now_ns);
        }
        if self.events.is_some() {
            self.schedule(next, now_ns);
        }
    }

    fn parked(&mut self, group: Option<&Group>, now_ns: u64) {
        // The thread may have entered its group before it was followed; otherwise nothing changes.
        if let Some(time) = &mut self.time {
            time.switch_to(group, now_ns);
        }
        if let Some(events) = &mut self.events {
            events.switch_along(path(group), self.root, now_ns);
            events.publish(now_ns);
        }
    }
}

/// Returns `group` and its ancestors, each with its depth.
#[inline]
fn path(group: Option<&Group>) -> impl Iterator<Item = (GroupKey, usize)> {
    successors(group, |group| group.parent()).map(|group| (GroupKey(group.id()), group.depth()))
}

impl<P> Drop for Follower<P> {
    fn drop(&mut self) {
        self.counts.end();
    }
}
