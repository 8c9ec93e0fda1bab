//! Owners by name, found without a lock.
//!
//! A concurrent map from a library, papaya 0.2.5 with one collector for all maps, was measured and
//! rejected. It takes 56 bytes in the group and 256 outside it while it is empty, and 680 with one
//! entry, where this map takes 24, none, and 96; most groups of a tree have no entries. A lookup
//! took a quarter longer. A thread that moves the map to a larger table makes others wait: of 1307
//! children forked during insertions, 10 hung in an insertion of their own, where this map gives up
//! the lock and reports it.

#[expect(unsafe_code, reason = "follows pointers that a table holds")]
mod raw;

#[cfg(test)]
mod tests;

pub use raw::{OwnerMap, Reading, Writing};
