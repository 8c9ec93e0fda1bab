//! The count itself, with every operation of the kernel's `percpu_ref`.

use std::fmt;
use std::io;
use std::time::Duration;

use super::core::{Core, Options, Released};
use super::holders::{Sites, StillHeldError};
use super::kill::{Counted, kill_and_confirm, kill_many};
use super::raw::AreaSlots;
use super::switch::{After, Switch};

/// A reference count that is kept per CPU while it is alive. After the kill, the last put releases.
///
/// A get or put is a plain add on the running CPU's word. It takes about a nanosecond, wherever
/// other threads run. The price is that the sum is not known. [`kill`](Self::kill) puts the
/// *initial* reference, with which the count is created, and makes the count exact; the put of the
/// last reference then runs the release callback, once.
///
/// While it is alive, gets and puts are wait-free. After a kill, and in atomic mode, they work on
/// one shared word: puts are wait-free, gets lock-free (a get retries when another thread changed
/// the word at the same moment). Changes of mode (`kill`, `reinit`, `resurrect`, `switch_…`) wait
/// for one another and for the barrier, never for gets and puts. Gets and puts, unless a put is the
/// last, are allowed in signal handlers and in children of a fork.
///
/// Misuse changes nothing that other threads rely on, and is reported once; see
/// [`misuse`](crate::misuse).
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
/// What a thread does before a put happens before the release. Gets order nothing, and neither do
/// lookups (`tryget`, `tryget_live`) that succeed: a thread that may take a reference has reached
/// the object through something that orders. This holds for each life: preparations before `reinit`
/// are published by whatever leads threads to the object again, not by the count.
///
/// # Differences from Linux
/// A change of mode is complete when its call returns: a barrier takes microseconds, an RCU grace
/// period milliseconds. `switch_to_atomic` is therefore its own `_sync`, and the switch holds no
/// reference that could outlive it. The CPUs' words are never zeroed. `tryget_live` and the kill
/// act on one word, so `tryget_live` fails after the confirmation in atomic mode too. `resurrect`
/// returns whether it came in time. A second kill does not put. `exit` is the drop.
#[repr(C)]
pub struct PercpuRef {
    core: Core,
    release: Box<dyn Fn() + Send + Sync>,
}

// Not counting the places of holders, which release builds leave out.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<PercpuRef>() - size_of::<Sites>() <= 256);

impl PercpuRef {
    /// Creates a count that is alive, with one reference, and calls `release` after the last put.
    ///
    /// # Errors
    /// When there is no address space for the common area, or no word left in it.
    pub fn new(release: impl Fn() + Send + Sync + 'static) -> io::Result<PercpuRef> {
        PercpuRef::with(Options::new(), release)
    }

    /// Creates a count with these options.
    ///
    /// # Errors
    /// The same as [`new`](Self::new).
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

    /// Takes a reference. The caller must hold one, or know that the initial one has not been put
    /// yet; otherwise use [`tryget`](Self::tryget).
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

    /// Takes a reference unless none is left, even after a kill. Returns whether it did.
    #[inline]
    #[must_use = "without a reference the object may be freed"]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn tryget(&self) -> bool {
        self.try_many(1, false)
    }

    /// Takes `n` references unless none is left.
    #[inline]
    #[must_use = "without a reference the object may be freed"]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn tryget_many(&self, n: u32) -> bool {
        self.try_many(n, false)
    }

    /// Takes a reference unless the count was killed. Always fails once a kill has returned or
    /// confirmed.
    #[inline]
    #[must_use = "without a reference the object may be freed"]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn tryget_live(&self) -> bool {
        self.try_many(1, true)
    }

    /// Takes `n` references unless the count was killed.
    #[inline]
    #[must_use = "without a reference the object may be freed"]
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

    /// Marks the count dead, waits for the barrier, and puts the initial reference. Returns whether
    /// it did: a second kill is reported and ignored.
    ///
    /// When it returns, the count is exact, and `tryget_live` no longer succeeds. Costs one
    /// barrier: use [`kill_many`](Self::kill_many) for several counts.
    pub fn kill(&self) -> bool {
        kill_many([self]) == 1
    }

    /// Kills the count, and calls `confirm` once `tryget_live` can no longer succeed, always before
    /// the release.
    pub fn kill_and_confirm(&self, confirm: impl FnOnce()) -> bool {
        kill_and_confirm(self, confirm)
    }

    /// Kills all of them behind one barrier. Returns how many were alive.
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
        kill_many(refs)
    }

    /// Makes the count exact, and keeps it exact through kills and new lives, until
    /// [`switch_to_percpu`](Self::switch_to_percpu).
    pub fn switch_to_atomic(&self) {
        let after = self.core.switch.to_atomic();
        self.act(after);
    }

    /// Counts per CPU again: now if the count is alive, otherwise from its next life on.
    pub fn switch_to_percpu(&self) {
        if self.core.may_reinit() {
            let after = self.core.switch.to_percpu();
            self.act(after);
        }
    }

    /// Starts a new life with one reference. Returns whether it did: a count that was not killed
    /// and [released](Self::released) is reported and left as it is.
    ///
    /// The caller ensures that no reference is left over from the previous life.
    pub fn reinit(&self) -> bool {
        let (done, after) = self.core.reinit();
        self.act(after);
        done
    }

    /// Undoes a kill. Returns false if it is too late because the last reference has been put.
    pub fn resurrect(&self) -> bool {
        let (done, after) = self.core.resurrect();
        self.act(after);
        done
    }

    /// Returns whether no reference is held; false while references are counted per CPU. The
    /// release may still be running: see [`is_released`](Self::is_released).
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.core.view().references() == Some(0)
    }

    /// Returns whether the count was killed and has not been revived since.
    #[must_use]
    pub fn is_dying(&self) -> bool {
        self.core.view().is_dying()
    }

    /// Returns whether the release callback has returned. If so, its effects are visible.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.core.view().is_released()
    }

    /// Waits asynchronously until the release callback has returned. The count reaches zero
    /// earlier: the thread of the last put may still be in the callback, using its data.
    ///
    /// Finishes a kill that a fork left unfinished, which may run the release here.
    pub fn released(&self) -> Released<'_> {
        self.act(self.core.help());
        self.core.view().released()
    }

    /// Waits until the release callback has returned, blocking the thread.
    ///
    /// # Errors
    /// When it has not returned within `timeout`: the references held and, in debug builds, the
    /// places where they were taken.
    pub fn released_blocking(&self, timeout: Duration) -> Result<(), StillHeldError> {
        self.act(self.core.help());
        self.core.view().released_blocking(timeout)
    }

    /// Returns the references that prevent the release, as in the error of
    /// [`released_blocking`](Self::released_blocking).
    #[must_use]
    pub fn holders(&self) -> StillHeldError {
        self.core.view().holders()
    }
}

impl Counted for &PercpuRef {
    type Slots = AreaSlots;

    fn switch(&self) -> &Switch<AreaSlots> {
        &self.core.switch
    }

    fn second_kill(&self) {
        self.core.second_kill();
    }

    fn act(&self, after: After) {
        self.core.act(after, &self.release);
    }
}

impl Drop for PercpuRef {
    /// Reports, between kill and release, that references were forgotten.
    fn drop(&mut self) {
        self.core.exit();
    }
}

impl fmt::Debug for PercpuRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("PercpuRef");
        out.field("name", &self.name()).field("dying", &self.is_dying());
        match self.core.view().references() {
            Some(references) => out.field("references", &references),
            None => out.field("references", &format_args!("per CPU")),
        };
        out.field("released", &self.is_released()).finish()
    }
}
