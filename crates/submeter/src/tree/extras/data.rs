//! The program's own value of a group.

use std::any::Any;
use std::sync::{Arc, Weak};

use once_cell::race::OnceBox;
use submeter_percpu::process_lock::ProcessMutex;

/// A value, which its readers share with the group.
pub(crate) type Data = Arc<dyn Any + Send + Sync>;

/// The value of one group.
///
/// The group owns it until the kill, and no longer: so a value may hold handles and charges of its
/// own group, which end with it. A plain reference to it could not be taken away at the kill; a
/// lock around it would be taken by each reader.
#[derive(Default)]
pub(super) struct DataSlot {
    /// Leads to the value without a lock. In a box, because the pointer that is swapped in is
    /// untyped.
    shared: OnceBox<Weak<dyn Any + Send + Sync>>,
    /// Held while the value is made, so that it is made once.
    owned: ProcessMutex<Option<Data>>,
}

/// The reason why there is no value of the type.
pub(crate) enum NoData {
    OtherType,
    Killed,
}

impl DataSlot {
    /// Returns the value, unless it is of another type or was dropped after the kill.
    pub(super) fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.shared.get()?.upgrade()?.downcast().ok()
    }

    /// Returns the value; `make` makes it if there is none. The killer marks the group, which
    /// `is_killed` sees, before it calls [`take`](Self::take).
    pub(super) fn get_or_init<T: Any + Send + Sync>(
        &self,
        is_killed: impl FnOnce() -> bool,
        make: impl FnOnce() -> T,
    ) -> Result<Arc<T>, NoData> {
        if self.shared.get().is_none() {
            let mut owned = self.owned.lock();
            // With the lock: a killer that comes later takes the value from here.
            if is_killed() {
                return Err(NoData::Killed);
            }
            if owned.is_none() {
                let made: Data = Arc::new(make());
                let is_set = self.shared.set(Box::new(Arc::downgrade(&made))).is_ok();
                debug_assert!(is_set, "only the holder of the lock sets it");
                *owned = Some(made);
            }
        }
        let shared = self.shared.get().and_then(Weak::upgrade).ok_or(NoData::Killed)?;
        shared.downcast().map_err(|_| NoData::OtherType)
    }

    /// Takes the value from the group. Leaves it to be leaked where a fork has left a thread behind
    /// that was making one.
    pub(super) fn take(&self) -> Option<Data> {
        self.owned.lock_unless_abandoned()?.take()
    }
}
