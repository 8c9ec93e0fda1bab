//! The memory that blocks take beyond the requested size.

use std::fs;
use std::io;

use crate::Tenants;

/// The sizes that are weighed.
pub const SIZES: [usize; 4] = [8, 16, 64, 4_160];

/// Total number of bytes requested. A debug build only shows that it works.
const ALL: usize = if cfg!(debug_assertions) { 8 << 20 } else { 32 << 20 };

/// A block that holds the next one, so that the list needs no other memory.
struct Node<const MORE: usize> {
    next: Option<Box<Node<MORE>>>,
    _more: [u8; MORE],
}

/// Returns the resident bytes per block of this size; `None` for a size that is not weighed.
///
/// # Errors
/// When the kernel does not say how much is resident.
pub(crate) fn weigh(tenants: &mut impl Tenants, size: usize) -> io::Result<Option<f64>> {
    Ok(Some(match size {
        8 => weighed::<0>(tenants)?,
        16 => weighed::<8>(tenants)?,
        64 => weighed::<56>(tenants)?,
        4_160 => weighed::<4_152>(tenants)?,
        _ => return Ok(None),
    }))
}

fn weighed<const MORE: usize>(tenants: &mut impl Tenants) -> io::Result<f64> {
    let blocks = ALL / size_of::<Node<MORE>>();
    let mut list = None;
    let before = resident_bytes()?;
    tenants.run(0, || {
        for _ in 0..blocks {
            list = Some(Box::new(Node { next: list.take(), _more: [1; MORE] }));
        }
    });
    let after = resident_bytes()?;
    // Freed one after another: the derived drop would recurse.
    while let Some(node) = list {
        list = node.next;
    }
    Ok(after.saturating_sub(before) as f64 / blocks as f64)
}

/// Returns the resident memory of this process: exact, unlike cheaper figures.
fn resident_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kib.ok_or(io::ErrorKind::Unsupported)? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rung, groups};

    #[test]
    fn blocks_of_each_size_take_at_least_that() {
        let (_tree, _charges, mut tenants) = groups(Rung::Bare).expect("address space");
        for size in SIZES {
            let bytes = weigh(&mut tenants, size).expect("said").expect("one of them");
            // Memory left over from the previous size is reused.
            assert!(bytes < size as f64 * 1.3 + 64.0, "{size}: {bytes}");
        }
        assert!(weigh(&mut tenants, 17).expect("said").is_none());
    }
}
