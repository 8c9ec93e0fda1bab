//! The owners' words: how many bytes each holds.
//!
//! A number belongs to a group for as long as the group or one of its blocks lives, and then to
//! another group. Its words stay. Number 0 means no owner and has no words.

use std::io;

use once_cell::race::OnceBox;
use submeter_percpu::{Area, Block, held};

/// How many numbers there are, including 0: two bytes of the map, less the one for a probe.
pub(crate) const OWNERS_MAX: usize = u16::MAX as usize;

/// The number under which a thread tests whether its blocks are noticed.
pub(crate) const PROBE: u32 = OWNERS_MAX as u32;

const CHUNK: usize = 256;

/// Bytes that a thread may keep before it posts them: as much as a batch of bytes.
pub(super) const KEPT_MAX: i64 = 64 << 10;

/// No `OnceLock`: if a thread sets one during a fork, the child waits for it forever.
static CHUNKS: [OnceBox<[OnceBox<Block>; CHUNK]>; OWNERS_MAX.div_ceil(CHUNK)] =
    [const { OnceBox::new() }; OWNERS_MAX.div_ceil(CHUNK)];

/// Samples that began, and those that ended, beside the two words of [`held`]: only where blocks
/// are [`sampled`](crate::sampled).
const BEGUN: usize = 2;
const ENDED: usize = 3;

#[inline]
fn words(owner: u32) -> Option<&'static Block> {
    let owner = owner as usize;
    CHUNKS.get(owner / CHUNK)?.get()?[owner % CHUNK].get()
}

/// Adds to an owner's words. It creates none, which would allocate: that happened before a block
/// had the number. The probe has none.
///
/// Never inlined: most switches have nothing to add, and would save its registers.
#[inline(never)]
pub(crate) fn add(owner: u32, bytes: i64) {
    if let Some(words) = words(owner) {
        held::add(words, bytes);
    }
}

/// Counts a sample that begins or ends, before its bytes are added or taken off, so that an owner
/// without bytes has no sample left.
pub(crate) fn count_sample(owner: u32, begins: bool) {
    if let Some(words) = words(owner) {
        words.add(if begins { BEGUN } else { ENDED }, 1);
    }
}

/// Returns how many samples an owner has.
pub(crate) fn samples(owner: u32) -> i64 {
    // Ended samples first, as in `sum`, which provides the ordering where it is called before.
    words(owner).map_or(0, |words| {
        let ended = words.sum(ENDED);
        words.sum(BEGUN).wrapping_sub(ended)
    })
}

/// Makes an owner's words, unless they exist already.
pub(crate) fn make(owner: u32) -> io::Result<()> {
    let none = || Box::new([const { OnceBox::new() }; CHUNK]);
    let chunk = CHUNKS[owner as usize / CHUNK].get_or_init(none);
    if chunk[owner as usize % CHUNK].get().is_none() {
        let block = Area::common()?.block(4)?;
        // If another thread was faster, it made the same.
        let _ = chunk[owner as usize % CHUNK].set(Box::new(block));
    }
    Ok(())
}

/// Returns the bytes of an owner's blocks, as [`held::sum`]: it is 0 only if there is none.
pub(crate) fn sum(owner: u32) -> i64 {
    words(owner).map_or(0, |words| held::sum(words, KEPT_MAX))
}

/// Returns a lower bound of what an owner's blocks take, whatever others allocate and free
/// meanwhile.
pub(super) fn sum_at_least(owner: u32) -> i64 {
    words(owner).map_or(0, held::sum_at_least)
}

/// Returns the bytes of all owners' blocks, from the words alone.
pub(super) fn total() -> i64 {
    let made = CHUNKS.iter().take_while(|chunk| chunk.get().is_some()).count() * CHUNK;
    (0..made as u32).map(sum).sum()
}
