//! The thread-local pointer that profilers read.

use std::arch::asm;

context_symbol!();

/// Stores the calling thread's pointer.
///
/// Uses a TLS descriptor, the access that the specification recommends: in a program, the linker
/// turns the first two instructions into an immediate.
#[inline(always)]
pub(crate) fn publish_context(record: *const u8) {
    // SAFETY: 1. The word is the calling thread's: the descriptor's function returns its distance
    // from the thread pointer. 2. No Rust reference points to it: only this block names it. 3. The
    // call finds an aligned stack: the block may use it. 4. The function preserves all registers
    // except rax and flags, which are declared clobbered. Older glibc may clobber vector registers
    // where it allocates the word (in a library loaded late): they are declared too.
    unsafe {
        asm!(
            "lea rax, [rip + otel_thread_ctx_v1@TLSDESC]",
            "call [rax + otel_thread_ctx_v1@TLSCALL]",
            "mov qword ptr fs:[rax], {record}",
            record = in(reg) record,
            out("rax") _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            out("xmm16") _, out("xmm17") _, out("xmm18") _, out("xmm19") _,
            out("xmm20") _, out("xmm21") _, out("xmm22") _, out("xmm23") _,
            out("xmm24") _, out("xmm25") _, out("xmm26") _, out("xmm27") _,
            out("xmm28") _, out("xmm29") _, out("xmm30") _, out("xmm31") _,
            out("k1") _, out("k2") _, out("k3") _, out("k4") _,
            out("k5") _, out("k6") _, out("k7") _,
        );
    }
}
