//! What a profiler reads of a thread that works for the group.

use submeter_sys::thread_context::SUPPORTED;

/// Trace, span, the marks of both and the length of what follows. There is no trace: what is zero
/// says so.
const HEADER_LEN: usize = 28;
const VALID_AT: usize = 24;
const LEN_AT: usize = 26;

/// The number of the path's key in the list that the process announces.
const KEY: u8 = 0;

/// The most bytes of a path: the length is one byte.
const PATH_MAX: usize = u8::MAX as usize;

/// A record as OpenTelemetry's thread context has it, with the group's path. It never changes, and
/// it goes with the group: a thread that publishes it has a handle.
///
/// In words of two bytes, which is how it must be aligned.
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
