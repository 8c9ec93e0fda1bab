//! Lists that each flush fills anew.

/// Empties a list that is used again, and gives back half of its memory where less than a quarter
/// was used: after the flush of a large tree it would be kept for ever.
pub(crate) fn empty<T>(list: &mut Vec<T>) {
    let used = list.len();
    list.clear();
    if used < list.capacity() / 4 && list.capacity() > KEPT {
        list.shrink_to(list.capacity() / 2);
    }
}

/// So many elements are not worth giving back.
const KEPT: usize = 1024;
