//! Lists that each flush refills.

/// Empties a list for reuse, and returns half of its memory if less than a quarter was used:
/// otherwise the memory of one flush of a large tree would never be returned.
pub(crate) fn empty<T>(list: &mut Vec<T>) {
    let used = list.len();
    list.clear();
    if used < list.capacity() / 4 && list.capacity() > KEPT {
        list.shrink_to(list.capacity() / 2);
    }
}

/// Number of elements that is not worth giving back.
const KEPT: usize = 1024;
