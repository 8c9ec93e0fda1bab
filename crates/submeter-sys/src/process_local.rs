//! What a forked child must leave alone.

use std::fmt;

use crate::fork::Home;

/// A value that only the process that made it can reach. In a forked child it is neither used nor
/// dropped.
///
/// It is meant for handles of threads and for what they share: the child has none of its parent's
/// threads, a lock may be held by one of them forever, and the C library may give the name in a
/// thread's handle to a thread of the child. An access costs two loads.
pub struct ProcessLocal<T> {
    /// `None` once taken.
    value: Option<T>,
    home: Home,
}

impl<T> ProcessLocal<T> {
    /// Makes it a value of this process.
    pub fn new(value: T) -> ProcessLocal<T> {
        ProcessLocal { value: Some(value), home: Home::new() }
    }

    /// Returns the value; `None` in a forked child, and once it is taken.
    #[must_use]
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.home.is_here())
    }

    /// Takes the value out, to end what it stands for; `None` in a forked child.
    #[must_use]
    pub fn take(&mut self) -> Option<T> {
        let value = self.value.take();
        if self.home.is_here() {
            return value;
        }
        std::mem::forget(value);
        None
    }
}

impl<T> Drop for ProcessLocal<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T: fmt::Debug> fmt::Debug for ProcessLocal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProcessLocal").field(&self.get()).finish()
    }
}
