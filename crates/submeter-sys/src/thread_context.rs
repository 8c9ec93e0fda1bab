//! What a thread works on, for readers outside the process: OpenTelemetry's thread context (OTEP
//! 4947) and the process context that announces it (OTEP 4719).
//!
//! A reader stops a thread, finds `otel_thread_ctx_v1` in the dynamic symbol table, and follows it
//! to a record. Available on Linux for x86-64 and aarch64; elsewhere nothing is published.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{arch, fork, os};

/// Whether threads can publish here.
pub const SUPPORTED: bool = arch::SIGNATURE != 0;

/// The process that has announced itself; see [`fork::generation`]. 0 for none.
static ANNOUNCED: AtomicU32 = AtomicU32::new(0);

/// Makes `record` the calling thread's context, or null for none. One store.
///
/// Nothing in this process follows the pointer, so any value is safe. Readers follow it while the
/// thread is stopped: a record must stay until its thread has published another.
#[inline(always)]
pub fn publish(record: *const u8) {
    arch::publish_context(record);
}

/// Makes `payload`, a `ProcessContext` message, this process's context for as long as the process
/// lives. A forked child has none until it announces its own.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if this process has already announced,
/// [`io::ErrorKind::Unsupported`] if threads cannot publish, and the system's errors.
pub fn announce(payload: &[u8]) -> io::Result<()> {
    if !SUPPORTED {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // First: nothing else may have asked yet, and a child would be taken for its parent.
    fork::watch();
    let process = fork::generation();
    // Relaxed, here and below: only the number itself matters.
    if ANNOUNCED.swap(process, Ordering::Relaxed) == process {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    // Relaxed: as above.
    os::process_context::announce(payload).inspect_err(|_| ANNOUNCED.store(0, Ordering::Relaxed))
}
