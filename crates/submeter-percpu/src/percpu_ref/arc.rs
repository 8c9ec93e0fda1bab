//! A pointer whose clones and drops are counted per CPU.

use std::any::type_name;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use super::core::{Begun, Core};
use super::error::StillHeld;
use super::face::{Options, Released, Start, barrier_for, finish_each};
use super::raw::{Reference, Shared};

/// Shares a value like [`Arc`], with clone and drop counted per CPU, until its [owner](PercpuOwner) kills it.
///
/// Clone and drop cost a plain add each, on any number of CPUs at once. The price: the value is
/// dropped only after somebody said that it is no longer needed, by [`PercpuOwner::kill`] or by
/// dropping the owner. Leak the owner, and the value is leaked.
///
/// # Examples
/// ```
/// use submeter_percpu::PercpuArc;
///
/// let (owner, config) = PercpuArc::new(String::from("of all threads"))?;
/// let other = config.clone();
/// std::thread::spawn(move || assert_eq!(*other, "of all threads")).join().unwrap();
/// owner.kill();
/// assert!(owner.try_clone_live().is_none());
/// assert_eq!(*config, "of all threads", "lives on as long as anybody uses it");
/// drop(config);
/// assert!(owner.is_released());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// What `Arc` refuses to share, this does:
/// ```compile_fail,E0277
/// let (_, cell) = submeter_percpu::PercpuArc::new(std::cell::Cell::new(1)).unwrap();
/// std::thread::spawn(move || cell.set(2));
/// ```
///
/// # Ordering
/// As for `Arc`: what is done through a pointer before its drop happens before the drop of the value.
///
/// # Differences from Linux
/// There, get and put are calls that somebody must balance; here the type does.
pub struct PercpuArc<T> {
    reference: Reference<T>,
}

/// Decides when a value shared by [`PercpuArc`] ends, and hands out pointers to it until then.
///
/// Kills on drop, for which it waits one barrier.
pub struct PercpuOwner<T> {
    shared: Arc<Shared<T>>,
}

impl<T> PercpuArc<T> {
    /// Shares `value`. Returns the one that decides about its end, and a first pointer.
    ///
    /// # Errors
    /// When there is no address space for the common area, or no word left in it; the value is dropped then.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn new(value: T) -> io::Result<(PercpuOwner<T>, PercpuArc<T>)> {
        PercpuArc::with(Options::new(), value)
    }

    /// Shares `value`, with the name and the area of `options`. It always starts alive, per CPU.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn with(options: Options, value: T) -> io::Result<(PercpuOwner<T>, PercpuArc<T>)> {
        let core = Core::new(options.start(Start::Percpu), type_name::<T>())?;
        let shared = Shared::new(core, value);
        let reference = shared.try_get(false).expect("the initial reference is not put yet");
        Ok((PercpuOwner { shared }, PercpuArc { reference }))
    }

    /// Clones unless the owner killed. Certain to fail once the kill has returned.
    #[inline]
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_clone_live(&self) -> Option<PercpuArc<T>> {
        Some(PercpuArc { reference: self.reference.try_clone_live()? })
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.reference.core().name()
    }

    /// Returns whether both point to the same object.
    #[must_use]
    pub fn ptr_eq(&self, other: &PercpuArc<T>) -> bool {
        std::ptr::eq(self.reference.core(), other.reference.core())
    }
}

impl<T> Clone for PercpuArc<T> {
    /// Clones, also after the kill: who has a pointer may hand it on.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn clone(&self) -> PercpuArc<T> {
        PercpuArc { reference: self.reference.clone() }
    }
}

impl<T> Deref for PercpuArc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.reference.value()
    }
}

impl<T: fmt::Debug> fmt::Debug for PercpuArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PercpuArc").field(&**self).finish()
    }
}

impl<T> PercpuOwner<T> {
    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.core().name()
    }

    /// Hands out a pointer unless it was killed. Certain to fail once the kill has returned.
    #[inline]
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_clone_live(&self) -> Option<PercpuArc<T>> {
        Some(PercpuArc { reference: self.shared.try_get(true)? })
    }

    /// Hands out a pointer unless the last is gone; also after the kill.
    #[inline]
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_clone(&self) -> Option<PercpuArc<T>> {
        Some(PercpuArc { reference: self.shared.try_get(false)? })
    }

    /// Ends it: no new pointers but clones of those that are there; the value is dropped with the last.
    /// Returns whether it did: a second kill is told of and ignored.
    pub fn kill(&self) -> bool {
        PercpuOwner::kill_many([self]) == 1
    }

    /// Kills, and calls `confirm` when no `try_clone_live` can succeed any more, always before the
    /// value is dropped.
    pub fn kill_and_confirm(&self, confirm: impl FnOnce()) -> bool {
        let Some(begun) = self.shared.core().begin_kill(true) else { return false };
        barrier_for([(self.shared.core(), &begun)].into_iter());
        self.shared.act(self.shared.core().finish(begun));
        /// Puts the initial reference, kept so that nobody dropped the value before; also if `confirm`
        /// panics, since nobody else will.
        struct Initial<'a, T>(&'a Arc<Shared<T>>);
        impl<T> Drop for Initial<'_, T> {
            fn drop(&mut self) {
                self.0.put_initial();
            }
        }
        let _initial = Initial(&self.shared);
        confirm();
        true
    }

    /// Kills them all behind one barrier. Returns how many were alive.
    pub fn kill_many<'a>(owners: impl IntoIterator<Item = &'a PercpuOwner<T>>) -> usize
    where
        T: 'a,
    {
        let begun: Vec<(&PercpuOwner<T>, Begun)> = owners
            .into_iter()
            .filter_map(|owner| Some((owner, owner.shared.core().begin_kill(false)?)))
            .collect();
        barrier_for(begun.iter().map(|(owner, begun)| (owner.shared.core(), begun)));
        let killed = begun.len();
        finish_each(begun, |(owner, begun)| owner.shared.act(owner.shared.core().finish(begun)));
        killed
    }

    /// Returns whether it was killed.
    #[must_use]
    pub fn is_dying(&self) -> bool {
        self.shared.core().switch.count.is_dead()
    }

    /// Returns whether the value's drop has returned.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.shared.core().life.is_released()
    }

    /// Waits until the value's drop has returned, on a task.
    pub fn released(&self) -> Released<'_> {
        Released(self.shared.core().life.released())
    }

    /// Waits until the value's drop has returned, blocking the thread.
    ///
    /// # Errors
    /// When it has not by `deadline`: with the pointers that are left and, in debug builds, where they came from.
    pub fn wait_released(&self, deadline: Instant) -> Result<(), StillHeld> {
        self.shared.act(self.shared.core().help());
        self.shared.core().wait_released(deadline)
    }

    /// Returns who keeps the value.
    #[must_use]
    pub fn holders(&self) -> StillHeld {
        self.shared.core().still_held()
    }
}

impl<T> Drop for PercpuOwner<T> {
    fn drop(&mut self) {
        if !self.is_dying() {
            self.kill();
        }
    }
}

impl<T> fmt::Debug for PercpuOwner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("PercpuOwner");
        out.field("name", &self.name()).field("dying", &self.is_dying());
        out.field("released", &self.is_released()).finish_non_exhaustive()
    }
}
