//! Complete kills: the steps before the barrier, the barrier, and the steps after it.
//!
//! They work over any slots and are separate from `core`, so that the models run exactly these
//! steps.

use std::collections::VecDeque;

use super::switch::{After, Slots, Stopping, Switch};

/// A count as seen by a kill.
pub(super) trait Counted {
    type Slots: Slots;

    fn switch(&self) -> &Switch<Self::Slots>;
    /// Reports a kill of a count that was dead already.
    fn second_kill(&self);
    /// Reports and releases what a change of mode found. No lock is held.
    fn act(&self, after: After);
}

/// Kills all of them behind one barrier. Returns how many were alive.
pub(super) fn kill_many<C: Counted>(all: impl IntoIterator<Item = C>) -> usize {
    let all = all.into_iter();
    let begun = VecDeque::with_capacity(all.size_hint().0);
    let mut kills = Kills { begun, is_ordered: false };
    for one in all {
        let begun = Begun::new(&one, false);
        kills.begun.extend(begun.map(|begun| (one, begun)));
    }
    let killed = kills.begun.len();
    kills.finish();
    killed
}

/// Kills a count, and calls `confirm` after `tryget_live` has stopped succeeding and before the
/// release. Returns whether the count was alive.
pub(super) fn kill_and_confirm<C: Counted>(one: C, confirm: impl FnOnce()) -> bool {
    let Some(begun) = Begun::new(&one, true) else { return false };
    if begun.stopping.is_some() {
        one.switch().slots.barrier();
    }
    begun.finish(&one);
    /// Puts the initial reference, even if `confirm` panics. It was kept so that nothing is
    /// released before.
    struct Initial<C: Counted>(C);
    impl<C: Counted> Drop for Initial<C> {
        fn drop(&mut self) {
            let put = self.0.switch().put_one();
            self.0.act(After::from(put));
        }
    }
    let _initial = Initial(one);
    confirm();
    true
}

/// A kill that waits for its barrier.
struct Begun {
    after: After,
    stopping: Option<Stopping>,
}

impl Begun {
    /// Does the part of a kill before the barrier. If the count is dead, reports it and returns
    /// `None`.
    fn new(one: &impl Counted, keep: bool) -> Option<Begun> {
        let begun = one.switch().begin_kill(keep);
        if begun.is_none() {
            one.second_kill();
        }
        begun.map(|(after, stopping)| Begun { after, stopping })
    }

    /// Does the part after the barrier.
    fn finish(self, one: &impl Counted) {
        let folded = self.stopping.map(|stopping| one.switch().finish(stopping));
        one.act(self.after | folded.unwrap_or_default());
    }
}

/// Kills that have begun. They are always finished, even if the iterator, a misuse hook or a
/// release panics: a count that was closed but not folded would never be released. A second panic
/// aborts.
struct Kills<C: Counted> {
    begun: VecDeque<(C, Begun)>,
    /// Whether the barrier was issued.
    is_ordered: bool,
}

impl<C: Counted> Kills<C> {
    fn finish(&mut self) {
        if !self.is_ordered {
            let waiting = self.begun.iter().filter(|(_, begun)| begun.stopping.is_some());
            let mut slots = waiting.map(|(one, _)| &one.switch().slots);
            // The barrier covers the process: any slots that need one issue it for all.
            if let Some(slots) = slots.find(|slots| slots.needs_barrier()) {
                slots.barrier();
            }
            self.is_ordered = true;
        }
        while let Some((one, begun)) = self.begun.pop_front() {
            begun.finish(&one);
        }
    }
}

impl<C: Counted> Drop for Kills<C> {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use submeter_sys::Backend;

    use super::Counted;
    use crate::percpu_ref::raw::barriers_of_this_thread;
    use crate::percpu_ref::{Options, PercpuArc, PercpuOwner, PercpuRef, Start};
    use crate::storage::Area;

    /// Returns how many barriers `act` issues.
    fn barriers(act: impl FnOnce()) -> u32 {
        let before = barriers_of_this_thread();
        act();
        barriers_of_this_thread() - before
    }

    /// Returns one where there are sequences, else zero.
    fn one() -> u32 {
        u32::from(Area::common().expect("address space").rseq().is_some())
    }

    fn count(options: Options) -> PercpuRef {
        PercpuRef::with(options, || ()).expect("room")
    }

    #[test]
    fn many_are_killed_behind_one_barrier() {
        let rows = Area::with_backend(Backend::LockedByThread, |_| 0).expect("address space");
        let all = [
            count(Options::new().area(&rows)),
            count(Options::new().start(Start::Atomic)),
            count(Options::new()),
            count(Options::new().start(Start::Dead)),
            count(Options::new()),
            count(Options::new()),
        ];
        assert_eq!(barriers(|| assert_eq!(PercpuRef::kill_many(&all), 5)), one());
        assert!(all.iter().all(PercpuRef::is_released));
        let owners = [(); 9].map(|()| PercpuArc::new(1).expect("room").0);
        assert_eq!(barriers(|| assert_eq!(PercpuOwner::kill_many(&owners), 9)), one());
        assert!(owners.iter().all(PercpuOwner::is_released));
    }

    #[test]
    fn each_kill_by_itself_has_a_barrier() {
        let owner = || PercpuArc::new(1).expect("room").0;
        assert_eq!(barriers(|| assert!(count(Options::new()).kill())), one());
        assert_eq!(barriers(|| assert!(count(Options::new()).kill_and_confirm(|| ()))), one());
        assert_eq!(barriers(|| assert!(owner().kill())), one());
        assert_eq!(barriers(|| assert!(owner().kill_and_confirm(|| ()))), one());
        assert_eq!(barriers(|| drop(owner())), one());
        let kept = count(Options::new().allow_reinit());
        assert_eq!(barriers(|| kept.switch_to_percpu()), 0, "it counts per CPU already");
        assert_eq!(barriers(|| kept.switch_to_atomic()), one());
        assert_eq!(barriers(|| assert!(kept.kill())), 0, "nothing is counted per CPU any more");
    }

    /// Waiters finish a kill whose thread a fork left behind at its barrier.
    #[test]
    fn waiters_finish_an_abandoned_kill() {
        let abandoned = || {
            let reference = count(Options::new());
            assert!(Counted::switch(&&reference).begin_kill(false).is_some());
            assert!(!reference.is_released());
            reference
        };
        abandoned().released_blocking(Duration::ZERO).expect("finished");
        let reference = abandoned();
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(reference.released()).poll(&mut context).is_ready());
    }

    #[test]
    fn rows_that_die_by_themselves_need_no_barrier() {
        let rows = Area::with_backend(Backend::LockedByThread, |_| 0).expect("address space");
        let all = [(); 3].map(|()| count(Options::new().area(&rows)));
        assert_eq!(barriers(|| assert_eq!(PercpuRef::kill_many(&all), 3)), 0);
        assert_eq!(barriers(|| assert_eq!(PercpuRef::kill_many([]), 0)), 0);
    }
}
