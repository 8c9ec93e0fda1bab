//! The count itself, with every operation that the kernel's has.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use super::core::{Begun, Core};
use super::error::StillHeld;
use super::life::Waiting;
use super::sites::Site;
use super::switch::{After, Slots};
use crate::storage::Area;

/// Counts references per CPU while it is alive; after the kill, releases when the last one is put.
///
/// A get or put is a plain add on the running CPU's word: about a nanosecond, wherever the others
/// run. Nobody knows the sum meanwhile. [`kill`](Self::kill) drops the *initial* reference, with which
/// the count is created, and makes the count exact; whoever then puts the last reference runs
/// the release callback, once.
///
/// Every operation is wait-free (in atomic mode gets are lock-free) but the changes of mode (`kill`, `reinit`, `resurrect`, `switch_…`),
/// which serialise among themselves and wait for each other and for the barrier, never for gets and puts. Gets and puts,
/// unless a put is the last, may be made in signal handlers, and in children of a fork.
///
/// Misuse changes nothing that others rely on and is told of once (see [`set_event_hook`](super::set_event_hook)).
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use submeter_percpu::PercpuRef;
///
/// let released = Arc::new(AtomicU32::new(0));
/// let tenant = PercpuRef::new({
///     let released = Arc::clone(&released);
///     move || { released.fetch_add(1, Ordering::Relaxed); }
/// })?;
/// assert!(tenant.tryget_live()); // a request arrives,
/// tenant.kill(); // the tenant is deleted,
/// assert!(!tenant.tryget_live()); // no further request gets in,
/// assert_eq!(released.load(Ordering::Relaxed), 0);
/// tenant.put(); // and the first one ends.
/// assert_eq!(released.load(Ordering::Relaxed), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Ordering
/// What a thread does before a put happens before the release. Gets order nothing; whoever may take one reaches the object by
/// something that does.
///
/// # Differences from Linux
/// A change of mode is over when its call returns: a barrier takes microseconds, not an RCU grace
/// period. So `switch_to_atomic` is its `_sync` too, and there is no reference of the switch's own
/// that could outlive it. Words of CPUs are never zeroed. `tryget_live` and the kill meet in one word, so that it
/// fails after the confirmation in atomic mode as well. `resurrect` says whether it came in time. A second kill does not put.
#[repr(C)]
pub struct PercpuRef {
    core: Core,
    release: Box<dyn Fn() + Send + Sync>,
}

/// Says how a [`PercpuRef`] starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// Alive, counting per CPU, with one reference.
    #[default]
    Percpu,
    /// Alive, in atomic mode until [`switch_to_percpu`](PercpuRef::switch_to_percpu), with one
    /// reference. Implies [`allow_reinit`](Options::allow_reinit).
    Atomic,
    /// Dead and released, until [`reinit`](PercpuRef::reinit). Implies [`allow_reinit`](Options::allow_reinit).
    Dead,
}

/// Holds what a reference count is created with.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Options {
    pub(super) start: Start,
    pub(super) allow_reinit: bool,
    pub(super) name: Option<Cow<'static, str>>,
    pub(super) area: Option<Area>,
}

impl Options {
    /// Returns the usual: alive, per CPU, one life, in the common area.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets how it starts.
    pub fn start(self, start: Start) -> Options {
        Options { start, ..self }
    }

    /// Allows `reinit`, `resurrect` and `switch_to_percpu`.
    pub fn allow_reinit(self) -> Options {
        Options { allow_reinit: true, ..self }
    }

    /// Sets the name by which misuse is told of.
    pub fn name(self, name: impl Into<Cow<'static, str>>) -> Options {
        Options { name: Some(name.into()), ..self }
    }

    /// Sets the area that the per-CPU words are taken from.
    pub fn area(self, area: &Area) -> Options {
        Options { area: Some(area.clone()), ..self }
    }
}

impl PercpuRef {
    /// Creates a count that is alive, with one reference, and calls `release` after the last put.
    ///
    /// # Errors
    /// When there is no address space for the common area, or no word left in it.
    pub fn new(release: impl Fn() + Send + Sync + 'static) -> io::Result<PercpuRef> {
        PercpuRef::with(Options::new(), release)
    }

    /// Creates a count as `options` say.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with(
        options: Options,
        release: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<PercpuRef> {
        Ok(PercpuRef { core: Core::new(options, "PercpuRef")?, release: Box::new(release) })
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.core.name()
    }

    /// Takes a reference. The caller must have one, or know that the initial one is not put yet.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn get(&self) {
        self.get_many(1);
    }

    /// Takes `n` references.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn get_many(&self, n: u32) {
        self.core.get(n);
        self.core.sites.took(n);
    }

    /// Takes a reference unless none is left; also after a kill. Returns whether it did.
    #[inline]
    #[must_use = "without a reference the object may go"]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn tryget(&self) -> bool {
        self.try_many(1, false)
    }

    /// Takes `n` references unless none is left.
    #[inline]
    #[must_use = "without a reference the object may go"]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn tryget_many(&self, n: u32) -> bool {
        self.try_many(n, false)
    }

    /// Takes a reference unless it was killed. Certain to fail once the kill has returned, or confirmed.
    #[inline]
    #[must_use = "without a reference the object may go"]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn tryget_live(&self) -> bool {
        self.try_many(1, true)
    }

    /// Takes `n` references unless it was killed.
    #[inline]
    #[must_use = "without a reference the object may go"]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn tryget_live_many(&self, n: u32) -> bool {
        self.try_many(n, true)
    }

    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_many(&self, n: u32, live: bool) -> bool {
        let switch = &self.core.switch;
        let took = if n == 1 { switch.try_get_one(live) } else { switch.try_get(n, live) };
        if took {
            self.core.sites.took(n);
        }
        took
    }

    /// Takes a reference that puts itself when dropped. As [`tryget_live`](Self::tryget_live).
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn hold_live(&self) -> Option<Hold<'_>> {
        if self.core.switch.try_get_one(true) {
            Some(Hold { of: self, site: self.core.sites.took(1) })
        } else {
            None
        }
    }

    /// Puts a reference; if it is the last, runs the release callback before it returns.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn put(&self) {
        #[cfg(debug_assertions)]
        self.core.sites.took(-1i32);
        self.core.put(1, &self.release);
    }

    /// Puts `n` references.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn put_many(&self, n: u32) {
        #[cfg(debug_assertions)]
        self.core.sites.took(-i64::from(n));
        self.core.put(n, &self.release);
    }

    /// Marks it dead, waits for the barrier, and puts the initial reference. Returns whether it did: a
    /// second kill is told of and ignored.
    ///
    /// When it returns, the count is exact, and no `tryget_live` succeeds any more. Costs one barrier:
    /// kill many at once by [`kill_many`](Self::kill_many).
    pub fn kill(&self) -> bool {
        let Some(begun) = self.core.begin_kill(false) else { return false };
        if begun.stopping.is_some() {
            self.core.switch.slots.barrier();
        }
        self.finish(begun);
        true
    }

    /// Kills, and calls `confirm` when no `tryget_live` can succeed any more, always before the release.
    pub fn kill_and_confirm(&self, confirm: impl FnOnce()) -> bool {
        let Some(begun) = self.core.begin_kill(true) else { return false };
        if begun.stopping.is_some() {
            self.core.switch.slots.barrier();
        }
        self.finish(begun);
        /// Puts the initial reference, kept so that nobody released before; also if `confirm` panics, since
        /// nobody else will.
        struct Initial<'a>(&'a PercpuRef);
        impl Drop for Initial<'_> {
            fn drop(&mut self) {
                self.0.core.put(1, &self.0.release);
            }
        }
        let _initial = Initial(self);
        confirm();
        true
    }

    /// Kills them all behind one barrier. Returns how many were alive.
    ///
    /// # Examples
    /// ```
    /// use submeter_percpu::PercpuRef;
    ///
    /// let tenants = [PercpuRef::new(|| ())?, PercpuRef::new(|| ())?];
    /// assert_eq!(PercpuRef::kill_many(&tenants), 2);
    /// assert!(tenants.iter().all(|tenant| tenant.is_released()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn kill_many<'a>(refs: impl IntoIterator<Item = &'a PercpuRef>) -> usize {
        let begun: Vec<(&PercpuRef, Begun)> = refs
            .into_iter()
            .filter_map(|reference| Some((reference, reference.core.begin_kill(false)?)))
            .collect();
        barrier_for(begun.iter().map(|(reference, begun)| (&reference.core, begun)));
        let killed = begun.len();
        finish_each(begun, |(reference, begun)| reference.finish(begun));
        killed
    }

    /// Makes the count exact, and keeps it so through kills and new lives, until
    /// [`switch_to_percpu`](Self::switch_to_percpu).
    pub fn switch_to_atomic(&self) {
        let after = self.core.switch_to_atomic();
        self.act(after);
    }

    /// Counts per CPU again, now if it is alive, otherwise from its next life on.
    pub fn switch_to_percpu(&self) {
        if self.core.may_reinit() {
            let after = self.core.switch.to_percpu(true);
            self.act(after);
        }
    }

    /// Starts a new life with one reference. Returns whether it did: it must be killed and
    /// [released](Self::released), which is told of otherwise.
    ///
    /// Whoever calls it makes sure that nobody has a reference left over from before, nor puts one.
    pub fn reinit(&self) -> bool {
        let (done, after) = self.core.reinit();
        self.act(after);
        done
    }

    /// Takes a kill back. Returns false when it comes too late: the last reference was put meanwhile.
    pub fn resurrect(&self) -> bool {
        let (done, after) = self.core.resurrect();
        self.act(after);
        done
    }

    /// Returns whether nobody holds a reference; false while it counts per CPU. Not that the release is over:
    /// see [`is_released`](Self::is_released).
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.core.switch.count.exact() == Some(0)
    }

    /// Returns whether it was killed, and not revived since.
    #[must_use]
    pub fn is_dying(&self) -> bool {
        self.core.switch.count.is_dead()
    }

    /// Returns whether the release callback has returned. What it did is visible then.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.core.life.is_released()
    }

    /// Waits until the release callback has returned, on a task. Zero is not the end: the last putter may still be in
    /// the callback, with what it uses.
    pub fn released(&self) -> Released<'_> {
        Released(self.core.life.released())
    }

    /// Waits until the release callback has returned, blocking the thread.
    ///
    /// # Errors
    /// When it has not by `deadline`: with the references held and, in debug builds, who took them.
    pub fn wait_released(&self, deadline: Instant) -> Result<(), StillHeld> {
        self.act(self.core.help());
        self.core.wait_released(deadline)
    }

    /// Returns who keeps it from being released, as [`wait_released`](Self::wait_released) would say it.
    #[must_use]
    pub fn holders(&self) -> StillHeld {
        self.core.still_held()
    }

    fn finish(&self, begun: Begun) {
        let after = self.core.finish(begun);
        self.act(after);
    }

    fn act(&self, after: After) {
        if after != After::default() {
            self.core.act(after, &self.release);
        }
    }
}

/// Finishes each kill, the rest of them too when a release panics; a second panic aborts.
pub(super) fn finish_each<K>(begun: Vec<K>, finish: impl Fn(K)) {
    struct Rest<K, F: Fn(K)>(std::vec::IntoIter<K>, F);
    impl<K, F: Fn(K)> Rest<K, F> {
        fn run(&mut self) {
            for kill in self.0.by_ref() {
                (self.1)(kill);
            }
        }
    }
    impl<K, F: Fn(K)> Drop for Rest<K, F> {
        fn drop(&mut self) {
            self.run();
        }
    }
    Rest(begun.into_iter(), finish).run();
}

/// Issues one barrier if any of them waits for one.
pub(super) fn barrier_for<'a>(begun: impl Iterator<Item = (&'a Core, &'a Begun)>) {
    let mut waiting = begun.filter(|(_, begun)| begun.stopping.is_some());
    // The barrier is the process's: any area that has sequences issues it for all.
    if let Some((core, _)) = waiting.find(|(core, _)| core.switch.slots.needs_barrier()) {
        core.switch.slots.barrier();
    }
}

impl Drop for PercpuRef {
    /// Is the kernel's `exit`: whoever drops it has the only access. Dropped between kill and release,
    /// it tells of the references that were forgotten.
    fn drop(&mut self) {
        self.core.exit();
    }
}

impl fmt::Debug for PercpuRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("PercpuRef");
        out.field("name", &self.name()).field("dying", &self.is_dying());
        match self.core.switch.count.exact() {
            Some(references) => out.field("references", &references),
            None => out.field("references", &format_args!("per CPU")),
        };
        out.field("released", &self.is_released()).finish()
    }
}

/// Holds a reference and puts it when dropped.
#[derive(Debug)]
pub struct Hold<'a> {
    of: &'a PercpuRef,
    site: Site,
}

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        self.of.core.sites.gave(self.site);
        self.of.core.put(1, &self.of.release);
    }
}

/// Resolves when a reference count has been released: the future behind [`PercpuRef::released`].
///
/// Needs no runtime; dropping it stops the wait.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Released<'a>(pub(super) Waiting<'a>);

impl Future for Released<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context)
    }
}
