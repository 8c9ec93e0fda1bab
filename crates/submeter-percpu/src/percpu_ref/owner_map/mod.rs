//! Owners by name, found without a lock.

#[expect(unsafe_code, reason = "follows pointers that a table holds")]
mod raw;

#[cfg(test)]
mod tests;

pub use raw::{OwnerMap, Reading, Writing};
