//! The core of every count, below its interface: the switch, the lives, the name, the holders.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use once_cell::race::OnceBox;

use super::count::{Count, Revival};
use super::holders::{Sites, StillHeldError};
use super::raw::{AreaSlots, Name};
use super::rows;
use super::switch::{After, Slots, Switch};
use crate::misuse::{self, Misuse, MisuseKind, Reported};
use crate::storage::Area;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::wake::{ThisThread, wake_all};
use crate::wakers::Wakers;

/// The mode in which a count starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// Alive, counting per CPU, with one reference.
    #[default]
    Percpu,
    /// Alive, in atomic mode until [`switch_to_percpu`](super::PercpuRef::switch_to_percpu), with
    /// one reference. Implies [`allow_reinit`](Options::allow_reinit).
    Atomic,
    /// Dead and released, until [`reinit`](super::PercpuRef::reinit). Implies
    /// [`allow_reinit`](Options::allow_reinit).
    Dead,
}

/// Options of a new count.
///
/// # Examples
/// ```
/// use submeter_percpu::PercpuRef;
/// use submeter_percpu::percpu_ref::{Options, Start};
///
/// let count = PercpuRef::with(Options::new().start(Start::Dead).name("worker"), || ())?;
/// assert!(count.is_released() && count.reinit());
/// assert_eq!(count.name(), "worker");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Options {
    start: Start,
    allow_reinit: bool,
    name: Option<Cow<'static, str>>,
    area: Option<Area>,
}

impl Options {
    /// Returns the defaults: alive, per CPU, one life, in the common area.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets the mode in which the count starts.
    pub fn start(self, start: Start) -> Options {
        Options { start, ..self }
    }

    /// Allows `reinit`, `resurrect` and `switch_to_percpu`.
    pub fn allow_reinit(self) -> Options {
        Options { allow_reinit: true, ..self }
    }

    /// Sets the name used in misuse reports and in [`StillHeldError`].
    pub fn name(self, name: impl Into<Cow<'static, str>>) -> Options {
        Options { name: Some(name.into()), ..self }
    }

    /// Sets the area from which the per-CPU words are taken.
    pub fn area(self, area: &Area) -> Options {
        Options { area: Some(area.clone()), ..self }
    }
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct Core {
    pub(super) switch: Switch<AreaSlots>,
    life: Life,
    name: Name,
    pub(super) sites: Sites,
}

// Every group has one.
#[cfg(all(target_pointer_width = "64", not(debug_assertions)))]
const _: () = assert!(size_of::<Core>() == 88);

impl Core {
    pub(super) fn new(options: Options, name: &'static str) -> io::Result<Core> {
        let slots = match &options.area {
            Some(area) => AreaSlots::new(area)?,
            None => AreaSlots::new(Area::common()?)?,
        };
        let dead = options.start == Start::Dead;
        Ok(Core {
            switch: Switch::new(slots, options.start == Start::Atomic, dead),
            life: Life::new(dead, options.allow_reinit || options.start != Start::Percpu),
            name: options.name.unwrap_or(Cow::Borrowed(name)).into(),
            sites: Sites::default(),
        })
    }

    /// Returns the name, bypassing the views: it never changes, so a lookup needs no fence to
    /// compare it.
    #[inline(always)]
    pub(super) fn name(&self) -> &str {
        self.name.as_str()
    }

    #[inline(always)]
    pub(super) fn view(&self) -> View<'_> {
        View { core: self, count: self.switch.count_since_opening() }
    }

    #[cold]
    fn report(&self, kind: MisuseKind) {
        if self.life.reported.is_first(kind) {
            let address = std::ptr::from_ref(self).addr();
            misuse::report(&Misuse { kind, times: 1, name: self.name(), address });
        }
    }

    /// Returns whether a second life is allowed; reports misuse if not.
    pub(super) fn may_reinit(&self) -> bool {
        if !self.life.reinit {
            self.report(MisuseKind::ReinitNotAllowed);
        }
        self.life.reinit
    }

    // A get or put has three parts: the sequence, inlined; a locked row, in a function that saves
    // no register; everything else, cold.

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
        if let Some(row) = self.switch.slots.row_by_hint()
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
            self.report(MisuseKind::GetAtZero);
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
        if let Some(row) = self.switch.slots.row_by_hint()
            && rows::add(row, -i64::from(n))
        {
            return;
        }
        self.put_slower(n, release);
    }

    #[cold]
    #[inline(never)]
    fn put_slower<R: Fn()>(&self, n: u32, release: &R) {
        self.act(After::from(self.switch.put_slow(n)), release);
    }

    /// Reports and releases what a put or a change of mode found. No lock is held.
    pub(super) fn act(&self, after: After, release: impl FnOnce()) {
        if after.below {
            self.report(MisuseKind::ExcessPut);
        }
        if after.last {
            self.release(release);
        }
    }

    /// Runs the release, once per life.
    #[cold]
    pub(super) fn release(&self, release: impl FnOnce()) {
        /// Ends the release even if the callback panics, so that waiters wake.
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

    /// Reports a kill of a count that was dead already.
    pub(super) fn second_kill(&self) {
        self.report(MisuseKind::SecondKill);
    }

    pub(super) fn reinit(&self) -> (bool, After) {
        if !self.may_reinit() {
            return (false, After::default());
        }
        let (done, after) = self.switch.reinit(|| self.life.restart());
        if !done {
            self.report(MisuseKind::ReinitAlive);
        }
        (done, after)
    }

    pub(super) fn resurrect(&self) -> (bool, After) {
        if !self.may_reinit() {
            return (false, After::default());
        }
        let (revival, after) = self.switch.resurrect();
        if revival == Revival::NotDead {
            self.report(MisuseKind::ResurrectAlive);
        }
        (revival == Revival::Done, after)
    }

    /// Finishes a kill whose thread a fork left behind.
    pub(super) fn help(&self) -> After {
        // No ordering is needed: a kill that a fork left behind came before the fork.
        if self.switch.count.is_dead() { self.switch.help() } else { After::default() }
    }

    /// Reports references that were forgotten. Called by a drop, when nothing else can use the
    /// count.
    pub(super) fn exit(&self) {
        if self.view().is_dying() && !self.view().is_released() {
            self.report(MisuseKind::ExitDying);
        }
    }
}

/// The queries and waits on a count that do not change it.
///
/// Made for each query. Making it orders the loads of `count` and of the core's `life` after the
/// opening of a life; both were set before the opening.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    core: &'a Core,
    count: &'a Count,
}

impl<'a> View<'a> {
    /// Returns the number of references; `None` while they are counted per CPU.
    pub(super) fn references(self) -> Option<i64> {
        self.count.exact()
    }

    pub(super) fn is_dying(self) -> bool {
        self.count.is_dead()
    }

    pub(super) fn is_released(self) -> bool {
        self.core.life.is_released()
    }

    pub(super) fn released(self) -> Released<'a> {
        self.core.life.released()
    }

    pub(super) fn released_blocking(self, timeout: Duration) -> Result<(), StillHeldError> {
        if self.core.life.wait(timeout) { Ok(()) } else { Err(self.holders()) }
    }

    pub(super) fn holders(self) -> StillHeldError {
        StillHeldError {
            name: self.core.name().to_owned(),
            dying: self.is_dying(),
            references: self.references(),
            sites: self.core.sites.list(),
        }
    }
}

/// The release callback is running, or has returned.
const RELEASING: u32 = 1;
/// The callback has returned.
const RELEASED: u32 = 2;
/// There may be waiters.
const WAITING: u32 = 4;
/// The number of the life, above the flags.
const LIFE: u32 = 8;

/// The state of a count across its lives: the release, once per life, and the waiters for its end.
#[derive(Debug)]
struct Life {
    /// Bits: as above. Writers: the last putter sets the first two, waiters the third, `restart`
    /// starts over.
    phase: AtomicU32,
    /// The misuse reported so far, in all lives.
    reported: Reported,
    /// Whether a second life is allowed.
    reinit: bool,
    /// None until the first wait: most counts are never waited for, and every group has one. If two
    /// threads are the first to wait at the same time, each makes them, and one drops its own: with
    /// a lock, a fork could leave the child without them forever.
    waiters: OnceBox<Wakers>,
}

impl Life {
    /// A count that starts dead has nothing to release: it counts as released.
    fn new(dead: bool, reinit: bool) -> Life {
        let phase = AtomicU32::new(if dead { RELEASING | RELEASED } else { 0 });
        Life { phase, reported: Reported::new(), reinit, waiters: OnceBox::new() }
    }

    /// Elects the thread that releases. The count elects one too, but a put of zero references on a
    /// count of zero is reported as the last put as well.
    fn begin_release(&self) -> bool {
        // Acquire: pairs with the Release in `restart`, so that the releases of successive lives
        // are in order. The count orders everything that was done under the references.
        self.phase.fetch_or(RELEASING, Ordering::Acquire) & RELEASING == 0
    }

    /// Notes that the release is over, and wakes the waiters.
    fn end_release(&self) {
        // AcqRel: Release pairs with the Acquire in `is_over`, so that a thread that sees the end
        // sees what the callback did. Acquire pairs with the Release in `poll`, so that a waiter
        // that set its bit is in the list.
        if self.phase.fetch_or(RELEASED, Ordering::AcqRel) & WAITING != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // Wake outside the lock: a waker runs user code.
        wake_all(self.waiters.get().map(Wakers::take).unwrap_or_default().into_values());
    }

    /// Starts the next life if the previous one is over.
    fn restart(&self) -> bool {
        // Relaxed: the exchange below decides.
        let mut phase = self.phase.load(Ordering::Relaxed);
        loop {
            if phase & RELEASED == 0 {
                return false;
            }
            let next = (phase & !(LIFE - 1)).wrapping_add(LIFE);
            // AcqRel: Acquire pairs with the Release in `end_release`, Release with the Acquire in
            // `begin_release`, so that a life happens after the previous one. Relaxed on failure:
            // the loop retries.
            match self.phase.compare_exchange_weak(phase, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => phase = now,
            }
        }
    }

    fn is_released(&self) -> bool {
        self.is_over(self.number())
    }

    fn number(&self) -> u32 {
        // Relaxed: it only names the life to ask about.
        self.phase.load(Ordering::Relaxed) / LIFE
    }

    /// Returns whether the life of that number has been released.
    fn is_over(&self, number: u32) -> bool {
        // Acquire: pairs with the Release in `end_release`.
        let phase = self.phase.load(Ordering::Acquire);
        phase & RELEASED != 0 || phase / LIFE != number
    }

    fn released(&self) -> Released<'_> {
        Released { life: self, number: self.number(), ticket: None }
    }

    /// Blocks until the current life is released or `timeout` has passed. Returns whether it was
    /// released.
    fn wait(&self, timeout: Duration) -> bool {
        // `None` is later than any time the clock will show.
        let deadline = Instant::now().checked_add(timeout);
        let mut waiting = self.released();
        let this_thread = ThisThread::new();
        let mut context = Context::from_waker(this_thread.waker());
        loop {
            if Pin::new(&mut waiting).poll(&mut context).is_ready() {
                return true;
            }
            let left = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return false;
            }
            this_thread.wait(Some(left));
        }
    }
}

/// A future that resolves when a count has been released; see
/// [`PercpuRef::released`](super::PercpuRef::released).
///
/// It needs no runtime. Dropping it stops the wait.
#[must_use = "futures do nothing unless polled"]
pub struct Released<'a> {
    life: &'a Life,
    number: u32,
    ticket: Option<u64>,
}

impl Future for Released<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Released { life, number, ticket } = *self;
        if life.is_over(number) {
            return Poll::Ready(());
        }
        let new = context.waker().clone();
        let (ticket, old) = life.waiters.get_or_init(Box::default).insert(ticket, new);
        // Outside the lock: dropping a waker runs user code too.
        drop(old);
        self.ticket = Some(ticket);
        // AcqRel: Release pairs with the Acquire in `end_release`, so that it finds the list
        // filled. Acquire as in `is_over`. This operation and the end change one location, so one
        // of the two sees the other.
        let phase = life.phase.fetch_or(WAITING, Ordering::AcqRel);
        if phase & RELEASED != 0 || phase / LIFE != number {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for Released<'_> {
    fn drop(&mut self) {
        if let (Some(ticket), Some(waiters)) = (self.ticket, self.life.waiters.get()) {
            drop(waiters.remove(ticket));
        }
    }
}

impl fmt::Debug for Released<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Released(life {})", self.number)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A release runs once, even if it is requested again while it runs.
    #[test]
    fn a_release_asked_for_twice_runs_once() {
        let core = Core::new(Options::new(), "test").expect("room");
        let _after = core.switch.to_atomic();
        let mut releases = 0;
        core.release(|| {
            releases += 1;
            core.release(|| panic!("again, while it runs"));
        });
        core.release(|| panic!("again, when it is over"));
        assert_eq!(releases, 1);
    }
}
