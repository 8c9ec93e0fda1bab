//! The thread-local pointer that profilers read.

use std::arch::asm;

context_symbol!();

/// Stores the calling thread's pointer.
///
/// Uses a TLS descriptor, the access that the specification recommends: in a program, the linker
/// turns all but the last two instructions into an immediate.
#[inline(always)]
pub(crate) fn publish_context(record: *const u8) {
    // SAFETY: 1. The word is the calling thread's: the descriptor's function returns its distance
    // from the thread pointer. 2. No Rust reference points to it: only this block names it. 3. The
    // call finds an aligned stack: the block may use it. 4. The function preserves all registers
    // except x0, x1, x30 and flags, which are declared clobbered: the ABI says so.
    unsafe {
        asm!(
            "adrp x0, :tlsdesc:otel_thread_ctx_v1",
            "ldr x1, [x0, :tlsdesc_lo12:otel_thread_ctx_v1]",
            "add x0, x0, :tlsdesc_lo12:otel_thread_ctx_v1",
            ".tlsdesccall otel_thread_ctx_v1",
            "blr x1",
            "mrs x1, tpidr_el0",
            "str {record}, [x1, x0]",
            record = in(reg) record,
            out("x0") _,
            out("x1") _,
            out("x30") _,
        );
    }
}
