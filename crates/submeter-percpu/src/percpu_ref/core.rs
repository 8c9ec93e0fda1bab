//! What every face of the reference count has: the switch, its lives, its name, its holders in debug builds.

use std::borrow::Cow;
use std::io;
use std::time::Instant;

use super::count::{Put, Revival};
use super::error::StillHeld;
use super::face::{Options, Start};
use super::life::Life;
use super::report::{EventKind, Reports};
use super::rows;
use super::sites::Sites;
use super::slots::AreaSlots;
use super::switch::{After, Slots, Stopping, Switch};
use crate::storage::Area;

#[derive(Debug)]
#[repr(C)]
pub(super) struct Core {
    pub(super) switch: Switch<AreaSlots>,
    pub(super) life: Life,
    reports: Reports,
    reinit: bool,
    pub(super) sites: Sites,
}

/// A kill, or a change of mode, that waits for its barrier.
#[must_use]
pub(super) struct Begun {
    pub(super) after: After,
    pub(super) stopping: Option<Stopping>,
}

impl Core {
    pub(super) fn new(options: Options, name: &'static str) -> io::Result<Core> {
        let slots = match &options.area {
            Some(area) => AreaSlots::new(area)?,
            None => AreaSlots::new(Area::common()?)?,
        };
        let dead = options.start == Start::Dead;
        Ok(Core {
            switch: Switch::new(slots, options.start == Start::Atomic, dead),
            life: Life::new(dead),
            reports: Reports::new(options.name.unwrap_or(Cow::Borrowed(name))),
            reinit: options.allow_reinit || options.start != Start::Percpu,
            sites: Sites::default(),
        })
    }

    pub(super) fn name(&self) -> &str {
        self.reports.name()
    }

    #[cold]
    pub(super) fn report(&self, kind: EventKind) {
        self.reports.report(kind);
    }

    /// Whether a second life is allowed; reports if not.
    pub(super) fn may_reinit(&self) -> bool {
        if !self.reinit {
            self.report(EventKind::ReinitNotAllowed);
        }
        self.reinit
    }

    #[inline(always)]
    pub(super) fn get(&self, n: u32) {
        let slots = &self.switch.slots;
        let done = if n == 1 { slots.add_one::<1>() } else { slots.add(n.into()) };
        if !done {
            self.get_slow(n);
        }
    }

    #[inline(never)]
    fn get_slow(&self, n: u32) {
        if let Some(row) = self.switch.slots.row_by_cpu()
            && rows::add(row, n.into())
        {
            return;
        }
        self.get_slower(n);
    }

    #[cold]
    #[inline(never)]
    fn get_slower(&self, n: u32) {
        if !self.switch.get_slow(n) {
            self.report(EventKind::GetAtZero);
        }
    }

    /// Puts `n` references, and releases if they were the last.
    #[inline(always)]
    pub(super) fn put<R: Fn()>(&self, n: u32, release: &R) {
        let slots = &self.switch.slots;
        let done = if n == 1 { slots.add_one::<-1>() } else { slots.add(-i64::from(n)) };
        if !done {
            self.put_slow(n, release);
        }
    }

    #[inline(never)]
    fn put_slow<R: Fn()>(&self, n: u32, release: &R) {
        if let Some(row) = self.switch.slots.row_by_cpu()
            && rows::add(row, -i64::from(n))
        {
            return;
        }
        self.put_slower(n, release);
    }

    #[cold]
    #[inline(never)]
    fn put_slower<R: Fn()>(&self, n: u32, release: &R) {
        self.after_put(self.switch.put_slow(n), release);
    }

    /// Acts on a put's answer.
    #[inline(always)]
    pub(super) fn after_put(&self, put: Put, release: impl FnOnce()) {
        if put != Put::Held {
            let mut after = After::default();
            after.note(put);
            self.act(after, release);
        }
    }

    /// Reports and releases what a change of mode brought to light. With no lock held.
    #[cold]
    pub(super) fn act(&self, after: After, release: impl FnOnce()) {
        if after.below {
            self.report(EventKind::PutBelowZero);
        }
        if after.last {
            self.release(release);
        }
    }

    /// Runs the release, once a life.
    #[cold]
    pub(super) fn release(&self, release: impl FnOnce()) {
        /// Ends the release even if the callback panics: nobody is to wait for ever.
        struct End<'a>(&'a Life);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.end_release();
            }
        }
        if self.life.begin_release() {
            let _end = End(&self.life);
            release();
        }
    }

    /// The part of a kill before the barrier; `None`, and a report, if it is dead.
    pub(super) fn begin_kill(&self, keep: bool) -> Option<Begun> {
        let begun = self.switch.begin_kill(keep);
        if begun.is_none() {
            self.report(EventKind::SecondKill);
        }
        begun.map(|(after, stopping)| Begun { after, stopping })
    }

    /// The part of a kill or a change to atomic mode after the barrier.
    pub(super) fn finish(&self, begun: Begun) -> After {
        let mut after = begun.after;
        if let Some(stopping) = begun.stopping {
            let found = self.switch.finish(stopping);
            after.last |= found.last;
            after.below |= found.below;
        }
        after
    }

    pub(super) fn switch_to_atomic(&self) -> After {
        let stopping = self.switch.begin_atomic(true);
        if stopping.is_some() {
            self.switch.slots.barrier();
        }
        self.finish(Begun { after: After::default(), stopping })
    }

    pub(super) fn reinit(&self) -> (bool, After) {
        if !self.may_reinit() {
            return (false, After::default());
        }
        let (done, after) = self.switch.reinit(|| self.life.restart());
        if !done {
            self.report(EventKind::ReinitAlive);
        }
        (done, after)
    }

    pub(super) fn resurrect(&self) -> (bool, After) {
        if !self.may_reinit() {
            return (false, After::default());
        }
        let (revival, after) = self.switch.resurrect();
        if revival == Revival::NotDead {
            self.report(EventKind::ResurrectAlive);
        }
        (revival == Revival::Done, after)
    }

    /// Finishes what a killer that a fork left behind will never finish.
    pub(super) fn help(&self) -> After {
        if self.switch.count.is_dead() { self.switch.help() } else { After::default() }
    }

    pub(super) fn wait_released(&self, deadline: Instant) -> Result<(), StillHeld> {
        if self.life.wait(deadline) { Ok(()) } else { Err(self.still_held()) }
    }

    pub(super) fn still_held(&self) -> StillHeld {
        StillHeld {
            name: self.name().to_owned(),
            dying: self.switch.count.is_dead(),
            references: self.switch.count.exact(),
            sites: self.sites.list(),
        }
    }

    /// Called when nobody can use it any more.
    pub(super) fn exit(&self) -> bool {
        let dying = self.switch.count.is_dead() && !self.life.is_released();
        if dying {
            self.report(EventKind::ExitDying);
        }
        !dying
    }
}
