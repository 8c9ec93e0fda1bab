//! Loom's atomics, which record where they are accessed, so that it is known for each line with an
//! atomic which models execute it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::Location;

use loom::sync::atomic as checked;
pub(crate) use loom::sync::atomic::Ordering;

// Not loom's: loom runs all threads of a model on one.
std::thread_local! {
    static SITES: RefCell<BTreeSet<(&'static str, u32)>> = const { RefCell::new(BTreeSet::new()) };
}

/// Returns the files and lines recorded since the last call.
#[cfg(test)]
pub(crate) fn take_sites() -> BTreeSet<(&'static str, u32)> {
    SITES.take()
}

fn note(at: &'static Location<'static>) {
    SITES.with_borrow_mut(|sites| _ = sites.insert((at.file(), at.line())));
}

#[track_caller]
pub(crate) fn fence(order: Ordering) {
    note(Location::caller());
    checked::fence(order);
}

macro_rules! atomics {
    ($($name:ident$(<$of:ident>)?: $value:ty, $($op:ident)*;)*) => {$(
        // Used in the signatures of public items.
        #[allow(unreachable_pub, reason = "the module is not")]
        #[derive(Debug)]
        pub struct $name$(<$of>)?(checked::$name$(<$of>)?);

        #[allow(dead_code, reason = "each has what one of them needs")]
        impl$(<$of>)? $name$(<$of>)? {
            #[track_caller]
            pub(crate) fn new(value: $value) -> Self {
                Self(checked::$name::new(value))
            }

            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                note(Location::caller());
                self.0.load(order)
            }

            #[track_caller]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                note(Location::caller());
                self.0.store(value, order);
            }

            #[track_caller]
            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                note(Location::caller());
                self.0.compare_exchange(current, new, success, failure)
            }

            #[track_caller]
            pub(crate) fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                note(Location::caller());
                self.0.compare_exchange_weak(current, new, success, failure)
            }

            #[track_caller]
            pub(crate) fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                note(Location::caller());
                self.0.fetch_update(set, fetch, change)
            }

            $(
                #[track_caller]
                pub(crate) fn $op(&self, value: $value, order: Ordering) -> $value {
                    note(Location::caller());
                    self.0.$op(value, order)
                }
            )*
        }
    )*};
}

atomics! {
    AtomicBool: bool, swap fetch_and fetch_or;
    AtomicI32: i32, swap fetch_add fetch_sub fetch_and fetch_or fetch_max fetch_min;
    AtomicI64: i64, swap fetch_add fetch_sub fetch_and fetch_or fetch_max fetch_min;
    AtomicPtr<T>: *mut T, swap;
    AtomicU16: u16, swap;
    AtomicU32: u32, swap fetch_add fetch_sub fetch_and fetch_or fetch_max fetch_min;
    AtomicU64: u64, swap fetch_add fetch_sub fetch_and fetch_or fetch_max fetch_min;
    AtomicUsize: usize, swap fetch_add fetch_sub fetch_and fetch_or fetch_max fetch_min;
}

impl Default for AtomicU64 {
    fn default() -> AtomicU64 {
        AtomicU64::new(0)
    }
}
