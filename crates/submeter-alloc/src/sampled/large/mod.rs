//! The owners of known blocks.
//!
//! Known blocks are those of [`EXACT`] bytes and more, and those that are so aligned. Each covers a
//! multiple of `EXACT`, which no other block covers. This map has an entry for each multiple: the
//! number of the owner of the known block that covers it as its first, or 0 for none. There is no
//! search, no two threads share an entry, and the map is never full.

mod raw;

use std::alloc::Layout;
use std::sync::atomic::{AtomicU16, Ordering};

use super::odds::EXACT;
use crate::exact::owners::OWNERS_MAX;
use crate::map::{ADDRESS_BITS, Leaf};
use raw::Entries;

/// Entries of a leaf, which is made where a known block with an owner begins.
const LEAF: usize = match () {
    () if cfg!(miri) => 1 << 8,
    () if usize::BITS == 32 => 1 << 12,
    () => 1 << 20,
};

const LEAVES_MAX: usize = (1 << (ADDRESS_BITS - EXACT.ilog2())) / LEAF;

const _: () = assert!(LEAVES_MAX > 0);
const _: () = assert!(OWNERS_MAX <= u16::MAX as usize + 1);

static LEAVES: [Leaf<Entries>; LEAVES_MAX] = [const { Leaf::new() }; LEAVES_MAX];

/// Returns whether blocks of this layout are known.
#[inline(always)]
pub(super) fn is_known(layout: Layout) -> bool {
    const { assert!(EXACT.is_power_of_two()) };
    // One comparison: either of the two has a bit there.
    layout.size() | layout.align() >= EXACT
}

/// Returns the entry of a known block, or `None` if its part of the map was not or cannot be made.
fn entry(block: *mut u8, make: bool) -> Option<&'static AtomicU16> {
    let index = block.addr().div_ceil(EXACT);
    raw::entries(index / LEAF, make).map(|leaf| &leaf[index % LEAF])
}

/// Records the owner of a known block. Returns false if memory is short: the block has no owner
/// then.
pub(super) fn note(block: *mut u8, owner: u32) -> bool {
    let entry = entry(block, true);
    // Relaxed: only the thread that has the block uses its entry, which passes from thread to
    // thread with the block.
    entry.inspect(|entry| entry.store(owner as u16, Ordering::Relaxed)).is_some()
}

/// Takes the owner of a known block out, before the block is freed or moves; 0 for none.
pub(super) fn forget(block: *mut u8) -> u32 {
    let Some(entry) = entry(block, false) else { return 0 };
    // Relaxed, here and below: as in `note`.
    let owner = entry.load(Ordering::Relaxed);
    if owner != 0 {
        entry.store(0, Ordering::Relaxed);
    }
    owner.into()
}

#[cfg(test)]
mod tests {
    use std::ptr::without_provenance_mut;

    use super::*;

    #[test]
    fn blocks_side_by_side_have_entries_of_their_own() {
        // The smallest known blocks, one after the other, at the worst places.
        for first in [EXACT, EXACT - 16, 16, LEAF * EXACT - 16] {
            let at = |n: usize| without_provenance_mut(first + (1 << 30) + n * EXACT);
            (0..4).for_each(|n| assert!(note(at(n), 1 + n as u32)));
            assert_eq!([0, 1, 2, 3].map(|n| forget(at(n))), [1, 2, 3, 4]);
            assert_eq!([0, 1, 2, 3].map(|n| forget(at(n))), [0; 4], "once");
        }
    }

    /// A block that is only aligned has a known one right behind it.
    #[test]
    fn an_aligned_block_shares_no_entry() {
        let [aligned, next] =
            [0, 16].map(|at| without_provenance_mut((1 << 29) + LEAF * EXACT + at));
        assert!(note(aligned, 1) && note(next, 2));
        assert_eq!([aligned, next].map(forget), [1, 2]);
    }

    #[test]
    fn what_lies_beyond_all_addresses_is_nobodys() {
        let beyond = without_provenance_mut(usize::MAX - 16);
        assert!(cfg!(target_pointer_width = "32") || !note(beyond, 1));
        assert_eq!(forget(beyond), 0);
    }
}
