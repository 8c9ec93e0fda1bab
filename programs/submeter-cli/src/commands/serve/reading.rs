//! Which file is being read, and which of several readings is the latest.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

/// The file that is being read, if one is.
#[derive(Clone, Default)]
pub(super) struct Now(Arc<Mutex<Option<String>>>);

/// One reading of the files while the server runs. The next one takes over from it: a pipe that
/// nothing writes to does not prevent the reading of the file that has since taken its place.
#[derive(Clone, Default)]
pub(super) struct Turn {
    latest: Arc<Mutex<u64>>,
    own: u64,
    /// What it reads.
    pub(super) now: Now,
}

impl Turn {
    /// Begins the next one.
    pub(super) fn next(&self) -> Turn {
        let mut latest = self.latest.lock();
        *latest += 1;
        Turn { latest: Arc::clone(&self.latest), own: *latest, now: Now::default() }
    }

    /// Calls `f`, which uses what was read, unless another reading has begun.
    pub(super) fn if_latest<T>(&self, f: impl FnOnce() -> T) -> Option<T> {
        // Locked in the meantime, so that this does not undo what the next one has read.
        let latest = self.latest.lock();
        (*latest == self.own).then(f)
    }
}

impl Now {
    /// Returns its name, and the flag that names it.
    pub(super) fn file(&self) -> Option<String> {
        self.0.lock().clone()
    }

    /// Notes that a file is being read until `f` returns.
    pub(super) fn reading<T>(&self, flag: &str, path: Option<&Path>, f: impl FnOnce() -> T) -> T {
        *self.0.lock() = path.map(|path| format!("{} ({flag})", path.display()));
        let read = f();
        *self.0.lock() = None;
        read
    }
}
