//! Spare buffers of a worker thread: idle connections own none.

use std::cell::RefCell;

/// The size of a new buffer, and the most that one read takes unless a value needs more.
pub(crate) const BUFFER_BYTES: usize = 16 << 10;

/// A buffer that has grown beyond this is freed rather than kept.
const KEEP_BYTES: usize = 64 << 10;

/// Maximum number of buffers that a thread keeps: it works on one connection at a time, while a few
/// more wait for their clients to read.
const KEEP_MAX: usize = 16;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Returns by how much a buffer exceeds what every connection may have without asking.
pub(super) fn excess(capacity: usize) -> u64 {
    capacity.saturating_sub(BUFFER_BYTES) as u64
}

/// Takes an empty buffer.
pub(super) fn take() -> Vec<u8> {
    let spare = SPARE.with_borrow_mut(Vec::pop);
    spare.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
}

/// Gives a buffer back.
pub(super) fn give(mut buffer: Vec<u8>) {
    if (BUFFER_BYTES..=KEEP_BYTES).contains(&buffer.capacity()) {
        buffer.clear();
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < KEEP_MAX {
                spare.push(buffer);
            }
        });
    }
}
