//! Values attached to a group for its lifetime: one per owner, and one of the program's own.
//!
//! Values are stored without their types, so that a group need not know who its owners are.

use std::any::Any;
use std::sync::OnceLock;

use once_cell::race::OnceBox;

#[cfg(feature = "aggregator")]
mod owned;

#[cfg(feature = "aggregator")]
use owned::Owned;

/// The attachments of one group. A single pointer while there are none, as in most groups.
#[derive(Default)]
pub(crate) struct Attachments {
    attached: OnceBox<Attached>,
}

#[derive(Default)]
struct Attached {
    #[cfg(feature = "aggregator")]
    owned: Owned,
    /// The program's own value.
    data: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Attachments {
    /// Returns the program's value, if it has set one of this type.
    pub(crate) fn data<T: Any>(&self) -> Option<&T> {
        self.attached.get()?.data.get()?.downcast_ref()
    }

    /// Sets the program's value, or returns it if there is one already.
    pub(crate) fn set_data<T: Any + Send + Sync>(&self, data: T) -> Result<(), T> {
        let attached = self.attached.get_or_init(Box::default);
        attached.data.set(Box::new(data)).map_err(|data| {
            *data.downcast().unwrap_or_else(|_| unreachable!("boxed as a `T` above"))
        })
    }

    /// Returns the values with owners, if anything is attached yet.
    #[cfg(feature = "aggregator")]
    pub(crate) fn owned(&self) -> Option<&Owned> {
        Some(&self.attached.get()?.owned)
    }

    /// Returns the values with owners, after making room for them.
    #[cfg(feature = "aggregator")]
    pub(crate) fn owned_or_init(&self) -> &Owned {
        &self.attached.get_or_init(Box::default).owned
    }
}
