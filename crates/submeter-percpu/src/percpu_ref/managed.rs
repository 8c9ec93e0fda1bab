//! Pointers to objects that nobody kills: a scanner finds out which are no longer held.

use std::any::type_name;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::core::{Begun, Core};
use super::face::{Options, Start, barrier_for};
use super::raw::{Reference, Shared};
use super::switch::After;

/// Shares a value like [`Arc`], with clone and drop counted per CPU, for objects without an owner.
///
/// Nobody kills: a [`Scanner`] makes the counts exact for a moment, drops the values that nobody holds,
/// and lets the rest count per CPU again. A value thus lives until the first scan after its last pointer
/// is gone; without a scan, for ever.
///
/// # Examples
/// ```
/// use submeter_percpu::percpu_ref::Scanner;
///
/// let scanner = Scanner::new();
/// let label = scanner.manage(String::from("of many files"))?;
/// let other = label.clone();
/// drop(label);
/// assert_eq!(scanner.scan().released, 0);
/// drop(other);
/// assert_eq!(scanner.scan().released, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ManagedRef<T> {
    reference: Reference<T>,
}

/// Finds the values that nobody holds any more. Cloning is a pointer copy.
///
/// A scan costs one barrier, however many values there are, and a visit to each CPU's word of each. While it runs, the
/// values' pointers are counted in one shared word each: slower, never wrong.
#[derive(Clone, Default)]
pub struct Scanner {
    managed: Arc<Mutex<Vec<Arc<dyn Managed>>>>,
}

/// Says what a scan found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Values that were looked at.
    pub visited: usize,
    /// Values that were dropped, by this scan or by whoever let go of them in the middle of it or of one before.
    pub released: usize,
}

/// Scans from time to time, until it is dropped. Nobody needs one: a program may call [`Scanner::scan`] when it likes.
#[derive(Debug)]
#[must_use = "the scans end when it is dropped"]
pub struct Scanning {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

/// An object of any type, as the scanner sees it.
trait Managed: Send + Sync {
    fn core(&self) -> &Core;
    /// Acts on what was found out about it.
    fn act(self: Arc<Self>, after: After);
}

impl<T: Send + Sync> Managed for Shared<T> {
    fn core(&self) -> &Core {
        Shared::core(self)
    }

    fn act(self: Arc<Self>, after: After) {
        Shared::act(&self, after);
    }
}

impl Scanner {
    /// Creates one that has nothing to scan.
    #[must_use]
    pub fn new() -> Scanner {
        Scanner::default()
    }

    /// Shares `value` until a scan finds it not held.
    ///
    /// # Errors
    /// When there is no address space for the common area, or no word left in it; the value is dropped then.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn manage<T: Send + Sync + 'static>(&self, value: T) -> io::Result<ManagedRef<T>> {
        self.manage_with(Options::new(), value)
    }

    /// Shares `value`, with the name and the area of `options`.
    ///
    /// # Errors
    /// As [`manage`](Self::manage).
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn manage_with<T: Send + Sync + 'static>(
        &self,
        options: Options,
        value: T,
    ) -> io::Result<ManagedRef<T>> {
        let core = Core::new(options.start(Start::Percpu), type_name::<T>())?;
        let shared = Shared::new(core, value);
        let reference = shared.try_get(false).expect("the initial reference is not put yet");
        // Nobody kills, so nobody has an initial reference to put later.
        shared.put_initial();
        self.all().push(shared);
        Ok(ManagedRef { reference })
    }

    /// Drops the values that nobody holds.
    pub fn scan(&self) -> Scan {
        // A copy: values are dropped here, and may manage others, or scan, when they are.
        let all: Vec<Arc<dyn Managed>> = self.all().clone();
        let begun = |object: &Arc<dyn Managed>| Begun {
            after: After::default(),
            stopping: object.core().switch.begin_atomic(false),
        };
        let visits: Vec<_> = all.into_iter().map(|object| (begun(&object), object)).collect();
        barrier_for(visits.iter().map(|(begun, object)| (object.core(), begun)));
        let visited = visits.len();
        for (begun, object) in visits {
            let after = object.core().finish(begun);
            if after.last {
                object.act(after);
            } else {
                // Refused if the last pointer goes now: whoever drops it releases.
                let after = object.core().switch.to_percpu(false);
                object.act(after);
            }
        }
        let mut all = self.all();
        let before = all.len();
        all.retain(|object| !object.core().life.is_released());
        Scan { visited, released: before - all.len() }
    }

    /// Scans once every `period` on a thread of its own, until what this returns is dropped.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn scan_every(&self, period: Duration) -> io::Result<Scanning> {
        let (scanner, stop) = (self.clone(), Arc::<(Mutex<bool>, Condvar)>::default());
        let watched = Arc::clone(&stop);
        let run = move || {
            let mut stopped = lock(&watched.0);
            while !*stopped {
                let waited = watched.1.wait_timeout(stopped, period);
                stopped = waited.unwrap_or_else(PoisonError::into_inner).0;
                if !*stopped {
                    drop(stopped);
                    scanner.scan();
                    stopped = lock(&watched.0);
                }
            }
        };
        let thread = std::thread::Builder::new().name("submeter-scan".to_owned()).spawn(run)?;
        Ok(Scanning { stop, thread: Some(thread) })
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<dyn Managed>>> {
        lock(&self.managed)
    }
}

/// A panic elsewhere leaves a list, or a flag, as good as before.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Scanning {
    fn drop(&mut self) {
        *lock(&self.stop.0) = true;
        self.stop.1.notify_all();
        // A value's drop may drop this, in the middle of a scan: a thread cannot wait for itself.
        let here = std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != here) {
            // A panic of a value's drop was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl<T> Clone for ManagedRef<T> {
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn clone(&self) -> ManagedRef<T> {
        ManagedRef { reference: self.reference.clone() }
    }
}

impl<T> Deref for ManagedRef<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.reference.value()
    }
}

impl<T: fmt::Debug> fmt::Debug for ManagedRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManagedRef").field(&**self).finish()
    }
}

impl fmt::Debug for Scanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scanner({} values)", self.all().len())
    }
}
