//! What a profiler reads from a thread that works for the group.

use submeter_sys::thread_context::SUPPORTED;

/// Trace, span, the flags of both and the length of what follows. There is no trace, which zeros
/// say.
const HEADER_LEN: usize = 28;
const VALID_AT: usize = 24;
const LEN_AT: usize = 26;

/// The number of the path's key in the list that the process announces.
const KEY: u8 = 0;

/// Maximum number of bytes of a path: its length is one byte.
const PATH_MAX: usize = u8::MAX as usize;

/// A record in the format of OpenTelemetry's thread context, with the group's path. It never
/// changes, and it lives as long as the group: a thread that publishes it has a handle.
///
/// In words of two bytes, for the alignment that the record needs.
pub(crate) struct Context(Box<[u16]>);

impl Context {
    pub(super) fn new(path: &str) -> Context {
        if !SUPPORTED {
            return Context(Box::default());
        }
        let mut ends = (0..=path.len().min(PATH_MAX)).rev();
        let path = &path[..ends.find(|&end| path.is_char_boundary(end)).unwrap_or(0)];
        let mut bytes = [0; HEADER_LEN + 2 + PATH_MAX + 1];
        let attributes_len = 2 + path.len();
        bytes[VALID_AT] = 1;
        bytes[LEN_AT..HEADER_LEN].copy_from_slice(&(attributes_len as u16).to_ne_bytes());
        bytes[HEADER_LEN] = KEY;
        bytes[HEADER_LEN + 1] = path.len() as u8;
        bytes[HEADER_LEN + 2..][..path.len()].copy_from_slice(path.as_bytes());
        let used = bytes[..HEADER_LEN + attributes_len.next_multiple_of(2)].chunks_exact(2);
        Context(used.map(|pair| u16::from_ne_bytes([pair[0], pair[1]])).collect())
    }

    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr().cast()
    }
}
