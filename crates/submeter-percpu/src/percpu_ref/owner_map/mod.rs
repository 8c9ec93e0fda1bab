//! Owners by name, found without a lock.
//!
//! A concurrent map of a library was measured and rejected, papaya 0.2.5 with one collector for all
//! maps. It takes 56 bytes in the group and 256 beside it while it is empty, and 680 with one
//! entry, where this takes 24, none, and 96; most groups of a tree have none. A lookup took a
//! quarter longer. A thread that moves it to a larger table makes others wait: of 1307 children
//! that were forked beside insertions, 10 hung in one of their own, where this gives up the lock
//! and says so.

#[expect(unsafe_code, reason = "follows pointers that a table holds")]
mod raw;

#[cfg(test)]
mod tests;

pub use raw::{OwnerMap, Reading, Writing};
