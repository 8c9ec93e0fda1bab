//! Setting a counter: a sum, and an add of what it lacks.

use crate::sync::Mutex;

/// A lock that lets one set happen at a time.
#[derive(Debug)]
pub(super) struct Setter(Mutex<()>);

impl Setter {
    pub(super) fn new() -> Setter {
        Setter(Mutex::new(()))
    }

    /// Adds what `sum` lacks of `value`. Two that do so at once would add it twice.
    pub(super) fn set(&self, value: i64, sum: impl FnOnce() -> i64, add: impl FnOnce(i64)) {
        let _alone = self.0.lock();
        add(value.wrapping_sub(sum()));
    }
}
