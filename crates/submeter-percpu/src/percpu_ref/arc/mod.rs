//! A pointer whose clones and drops are counted per CPU.

use std::any::type_name;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::core::{Core, Options, Released, Start};
use super::holders::StillHeldError;

#[expect(unsafe_code, reason = "objects that free themselves")]
mod raw;
pub(super) use raw::{Reference, Shared};

/// A pointer like [`Arc`] whose clones are counted per CPU until its [owner](PercpuOwner) kills the
/// value.
///
/// Clone and drop cost a plain add each, on any number of CPUs at once. The price: the value is
/// dropped only after [`PercpuOwner::kill`] or the drop of the owner. Leak the owner, and the value
/// is leaked.
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
/// assert_eq!(*config, "of all threads", "lives on while a pointer is left");
/// drop(config);
/// assert!(owner.is_released());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// It shares values that `Arc` refuses to share:
/// ```compile_fail,E0277
/// let (_, cell) = submeter_percpu::PercpuArc::new(std::cell::Cell::new(1)).unwrap();
/// std::thread::spawn(move || cell.set(2));
/// ```
///
/// # Ordering
/// As for `Arc`: everything done through a pointer happens before the drop of the value.
///
/// # Differences from Linux
/// There, get and put are calls that the caller must balance; here the type does.
pub struct PercpuArc<T> {
    pub(super) reference: Reference<T>,
}

/// The owner of a value shared by [`PercpuArc`]: hands out pointers to it, and ends it.
///
/// Its drop kills the value, at the price of one barrier.
pub struct PercpuOwner<T> {
    pub(super) shared: Arc<Shared<T>>,
}

impl<T> PercpuArc<T> {
    /// Shares `value`. Returns its owner and a first pointer.
    ///
    /// # Errors
    /// When there is no address space for the common area, or no word left in it; the value is
    /// dropped then.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn new(value: T) -> io::Result<(PercpuOwner<T>, PercpuArc<T>)> {
        PercpuArc::with(Options::new(), value)
    }

    /// Shares `value`, with the name and the area of `options`. It always starts alive, per CPU.
    ///
    /// # Errors
    /// The same as [`new`](Self::new).
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn with(options: Options, value: T) -> io::Result<(PercpuOwner<T>, PercpuArc<T>)> {
        let core = Core::new(options.start(Start::Percpu), type_name::<T>())?;
        let shared = Shared::new(core, value);
        let reference = shared.try_get(false).expect("the initial reference is not put yet");
        Ok((PercpuOwner { shared }, PercpuArc { reference }))
    }

    /// Clones the pointer unless the owner killed the value. Always fails once the kill has
    /// returned.
    #[inline]
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_clone_live(&self) -> Option<PercpuArc<T>> {
        Some(PercpuArc { reference: self.reference.try_clone_live()? })
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.reference.name()
    }

    /// Returns whether both point to the same object.
    #[must_use]
    pub fn ptr_eq(&self, other: &PercpuArc<T>) -> bool {
        self.reference.ptr_eq(&other.reference)
    }
}

impl<T> Clone for PercpuArc<T> {
    /// Clones the pointer, even after the kill: a pointer may be handed on.
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
        self.shared.name()
    }

    /// Returns a pointer unless the value was killed. Always fails once the kill has returned.
    #[inline]
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_clone_live(&self) -> Option<PercpuArc<T>> {
        Some(PercpuArc { reference: self.shared.try_get(true)? })
    }

    /// Returns a pointer unless the last one is gone, even after the kill.
    #[inline]
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_clone(&self) -> Option<PercpuArc<T>> {
        Some(PercpuArc { reference: self.shared.try_get(false)? })
    }

    /// Ends the value: the only new pointers are clones, and the value is dropped with the last
    /// one. Returns whether it did: a second kill is reported and ignored.
    pub fn kill(&self) -> bool {
        Shared::kill_many([&self.shared]) == 1
    }

    /// Kills the value, and calls `confirm` once `try_clone_live` can no longer succeed, always
    /// before the value is dropped.
    pub fn kill_and_confirm(&self, confirm: impl FnOnce()) -> bool {
        self.shared.kill_and_confirm(confirm)
    }

    /// Kills all of them behind one barrier. Returns how many were alive.
    pub fn kill_many<'a>(owners: impl IntoIterator<Item = &'a PercpuOwner<T>>) -> usize
    where
        T: 'a,
    {
        Shared::kill_many(owners.into_iter().map(|owner| &owner.shared))
    }

    /// Returns whether the value was killed.
    #[must_use]
    pub fn is_dying(&self) -> bool {
        self.shared.view().is_dying()
    }

    /// Returns whether the value's drop has returned.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.shared.view().is_released()
    }

    /// Waits asynchronously until the value's drop has returned.
    ///
    /// Finishes a kill that a fork left unfinished, which may run the release here.
    pub fn released(&self) -> Released<'_> {
        self.shared.help();
        self.shared.view().released()
    }

    /// Waits until the value's drop has returned, blocking the thread.
    ///
    /// # Errors
    /// When it has not returned within `timeout`: the pointers that are left and, in debug builds,
    /// the places where they were made.
    pub fn released_blocking(&self, timeout: Duration) -> Result<(), StillHeldError> {
        self.shared.help();
        self.shared.view().released_blocking(timeout)
    }

    /// Returns the pointers that keep the value alive.
    #[must_use]
    pub fn holders(&self) -> StillHeldError {
        self.shared.view().holders()
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
