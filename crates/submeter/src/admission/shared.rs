//! What the handles of an admission share: the places, and the line with its lock.

use std::num::NonZero;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::thread::available_parallelism;
use std::time::Instant;

use submeter_percpu::contain::contain;
use submeter_percpu::process_lock::PerProcess;
use submeter_percpu::slots::Slots;

use super::error::{AdmissionError, Refused, Why};
use super::fair::Fair;
use super::parts::{Bounds, Effects, Kept, Outcome, State, Used};
use crate::switch;
use crate::tree::group::Group;

pub(super) struct Shared {
    slots: Slots,
    line: PerProcess<Fair>,
    /// Whether work costs what it reports, even where CPU time is measured.
    by_reports: bool,
    /// For the wakers that report kills.
    me: Weak<Shared>,
}

/// The result of an attempt that does not block.
pub(super) enum Begun {
    /// Admitted; if by the line, at this expected cost.
    In(Option<u64>),
    Waits(u64),
}

impl Shared {
    pub(super) fn new(limit: u32, bounds: Bounds, by_reports: bool) -> Arc<Shared> {
        let cpus = available_parallelism().map_or(1, NonZero::get);
        let fair = Fair::new(bounds, cpus.try_into().unwrap_or(u32::MAX));
        Arc::new_cyclic(|me| Shared {
            slots: Slots::new(limit),
            line: PerProcess::new(fair),
            by_reports,
            me: Weak::clone(me),
        })
    }

    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Calls `act` with the line, and carries out the effects after the lock is released. `None` if
    /// the lock was held at a fork and stayed behind.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Fair) -> T) -> Option<T> {
        let begin_anew = |fair: &mut Fair| {
            fair.forget_waiting(&mut |group| self.watch(group));
            self.slots.serve(fair);
        };
        let (result, effects) = self.line.with(begin_anew, |fair| {
            // Before anything is admitted: late work never is.
            fair.tick(Instant::now(), self.slots.used().1);
            (act(fair), fair.take_effects())
        })?;
        carry_out(effects);
        Some(result)
    }

    /// Subscribes to a group's kill, unless it has been killed already.
    pub(super) fn watch(&self, group: &Group) -> Option<u64> {
        let shared = Weak::clone(&self.me);
        group.note_kill(Waker::from(Arc::new(TellsOfKill { shared, id: group.id() })))
    }

    /// Enters if a place is free and nothing waits for it; otherwise waits. A `deadline` that has
    /// passed means a last attempt.
    #[inline]
    pub(super) fn begin(
        &self,
        group: &Group,
        waker: impl FnOnce() -> Waker,
        deadline: Option<Instant>,
    ) -> Result<Begun, AdmissionError> {
        if group.is_killed() {
            return Err(self.refusal(group, Why::Killed));
        }
        if self.slots.try_enter() {
            return Ok(Begun::In(None));
        }
        self.join(group, waker(), deadline)
    }

    #[cold]
    #[inline(never)]
    fn join(
        &self,
        group: &Group,
        waker: Waker,
        deadline: Option<Instant>,
    ) -> Result<Begun, AdmissionError> {
        let used = self.cpu_time(group);
        let joined = self.with(|fair| {
            // First, so that nothing takes the place that is reported free here.
            let (inside, most) = self.slots.close();
            let watch = &mut |group: &Group| self.watch(group);
            let joined = fair.join(group, waker, deadline, used, inside < most, watch);
            self.slots.serve(fair);
            let number = joined?;
            if deadline.is_some() {
                fair.expire();
                // That may have been the only waiter.
                self.slots.serve(fair);
            }
            match fair.take_outcome(number) {
                None => Ok(Begun::Waits(number)),
                Some(Outcome::Granted(expected)) => Ok(Begun::In(Some(expected))),
                Some(Outcome::Failed(why)) => Err(why),
            }
        });
        joined.unwrap_or(Err(Why::Abandoned)).map_err(|why| self.refusal(group, why))
    }

    /// Gives back a place; `expected` is the cost at which the line admitted it, if it did.
    #[inline]
    pub(super) fn end(&self, group: &Group, expected: Option<u64>, cost: u64) {
        if expected.is_some() || !self.slots.try_leave() {
            self.end_by_line(group, expected, cost);
        }
    }

    #[cold]
    #[inline(never)]
    fn end_by_line(&self, group: &Group, expected: Option<u64>, cost: u64) {
        if self.cpu_time(group).is_some() {
            // What this thread has used since its last switch is part of the cost.
            switch::park();
        }
        let used = self.cpu_time(group).map_or(Used::Cost(cost), Used::CpuTime);
        let ended = self.with(|fair| {
            match expected {
                Some(expected) => fair.complete(group, expected, used),
                None => fair.complete_other(group, used),
            }
            self.slots.leave();
            self.slots.serve(fair);
        });
        if ended.is_none() {
            // If the line is unusable, the place alone comes back.
            self.slots.leave();
        }
    }

    /// Returns what a group has used, if that is what its work costs: one load per CPU.
    fn cpu_time(&self, group: &Group) -> Option<u64> {
        if self.by_reports {
            return None;
        }
        let cpu_time = group.schema().cpu_time()?;
        let stats = group.counted(cpu_time.key);
        let own = stats.map_or(0, |stats| stats.own(usize::from(cpu_time.key.slot)));
        // A program may have added negative amounts.
        Some(own.max(0).cast_unsigned())
    }

    pub(super) fn refusal(&self, group: &Group, why: Why) -> AdmissionError {
        let (in_flight, limit) = self.slots.used();
        let known = if why == Why::Abandoned {
            None
        } else {
            self.with(|fair| (fair.state(group), fair.waiting(), fair.retry_after(why)))
        };
        let (state, waiting, retry_after) = known.unwrap_or((State::default(), 0, None));
        let (group, waiting_there) = (group.clone(), state.waiting);
        AdmissionError(Box::new(Refused {
            group,
            why,
            retry_after,
            in_flight,
            limit,
            waiting,
            waiting_there,
        }))
    }
}

/// Runs code of others: of runtimes, and destructors of what is dropped with a group.
fn carry_out(effects: Effects) {
    let Effects { woken, dropped, let_go } = effects;
    for waker in woken {
        let _ = contain(|| waker.wake());
    }
    for waker in dropped {
        let _ = contain(|| drop(waker));
    }
    let_go.into_iter().for_each(let_go_of);
}

fn let_go_of(Kept { group, ticket }: Kept) {
    group.forget_kill(ticket);
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Nothing begins anew at the end.
        let kept = self.line.with(|_| (), Fair::take_kept);
        kept.into_iter().flatten().for_each(let_go_of);
    }
}

/// Woken when a group is killed.
struct TellsOfKill {
    shared: Weak<Shared>,
    id: u64,
}

impl Wake for TellsOfKill {
    fn wake(self: Arc<Self>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.with(|fair| {
                fair.kill(self.id);
                shared.slots().serve(fair);
            });
        }
    }
}
