//! Values with owners, such as aggregators.

use std::any::Any;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// The values of one group, one for each owner.
#[derive(Default)]
pub(crate) struct Owned {
    list: Mutex<Vec<OwnedValue>>,
}

struct OwnedValue {
    /// The owner's address, which is not reused while `liveness` exists.
    owner: usize,
    /// Cannot be upgraded once the owner is dropped.
    liveness: Weak<dyn Any + Send + Sync>,
    value: Box<dyn Any + Send + Sync>,
}

impl Owned {
    /// Lends `owner`'s value to `look`, if there is one. The value is lent and not shared, so that
    /// it is dropped with the group.
    pub(crate) fn find<O: Any + Send + Sync, T: Any, R>(
        &self,
        owner: &Arc<O>,
        look: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        find(&self.list.lock(), owner).map(look)
    }

    /// Lends `owner`'s value to `look`; `make` creates it if there is none.
    pub(crate) fn find_or_insert<O: Any + Send + Sync, T: Any + Send + Sync, R>(
        &self,
        owner: &Arc<O>,
        make: impl FnOnce() -> T,
        look: impl FnOnce(&T) -> R,
    ) -> R {
        let mut list = self.list.lock();
        // Another thread may have inserted it first.
        if let Some(value) = find(&list, owner) {
            return look(value);
        }
        // Values of dropped owners are removed now, because nothing else would ever find them.
        let gone = list.extract_if(.., |entry| entry.liveness.strong_count() == 0).collect();
        let value = make();
        let result = look(&value);
        let liveness: Weak<O> = Arc::downgrade(owner);
        list.push(OwnedValue { owner: address(owner), liveness, value: Box::new(value) });
        drop(list);
        // Outside the lock, because the user's `drop` may call this again.
        drop::<Vec<OwnedValue>>(gone);
        result
    }
}

fn find<'a, O, T: Any>(list: &'a [OwnedValue], owner: &Arc<O>) -> Option<&'a T> {
    let entry = list.iter().find(|entry| entry.owner == address(owner))?;
    entry.value.downcast_ref()
}

fn address<O>(owner: &Arc<O>) -> usize {
    Arc::as_ptr(owner).addr()
}
