//! The entries of known blocks.
#![allow(unsafe_code, reason = "entries in mapped memory")]

use std::ptr::NonNull;
use std::sync::atomic::AtomicU16;

use super::{LEAF, LEAVES};

pub(super) type Entries = [AtomicU16; LEAF];

/// Returns a part of the map, made first if `make` is set.
#[inline]
pub(super) fn entries(leaf: usize, make: bool) -> Option<&'static Entries> {
    let leaf = LEAVES.get(leaf)?;
    let made: Option<NonNull<Entries>> = leaf.get();
    let made = if make { made.or_else(|| leaf.make()) } else { made };
    // SAFETY: 1. A leaf is zeroed, zeroes are valid entries, and it is never freed. 2. It is
    // accessed only as entries.
    made.map(|made| unsafe { made.as_ref() })
}
