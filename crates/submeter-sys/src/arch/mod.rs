//! One file per instruction set, each implementing `PSEUDOCODE.md`.

use std::sync::atomic::AtomicU32;

/// The name of our own area's symbol.
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    not(any(miri, submeter_portable, submeter_plugin))
))]
macro_rules! own_area {
    () => {
        concat!(
            "submeter_sys_rseq_area_",
            env!("CARGO_PKG_VERSION_MAJOR"),
            "_",
            env!("CARGO_PKG_VERSION_MINOR"),
            "_",
            env!("CARGO_PKG_VERSION_PATCH"),
        )
    };
}

// An area of our own, in the initial TLS image, so that its distance from the thread pointer is the
// same constant for every thread. Its `cpu_id` is -1 (unregistered) until the thread registers it.
// Not `thread_local!`: in a library loaded late its distance would differ from thread to thread,
// and its first use could allocate, even in a signal handler. The 32 bytes after the kernel's are
// ours: the state of the registration (`own_registration.rs`), the thread's number (`row_hint.rs`).
//
// The symbol carries the version: two versions of this crate in one program have separate areas,
// and the kernel accepts one for each thread.
#[cfg(all(
    any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")),
    target_pointer_width = "64",
    target_os = "linux",
    not(any(miri, submeter_portable, submeter_plugin))
))]
std::arch::global_asm!(
    ".pushsection .tdata.submeter_rseq, \"awT\", %progbits",
    ".balign 32",
    concat!(".hidden ", own_area!()),
    concat!(".globl ", own_area!()),
    concat!(".type ", own_area!(), ", %object"),
    concat!(".size ", own_area!(), ", 64"),
    concat!(own_area!(), ":"),
    ".long 0",
    ".long 0xffffffff",
    ".quad 0, 0, 0",
    ".long 0, 0xffffffff",
    ".quad 0, 0, 0",
    ".popsection",
);

/// Defines the thread-local pointer that profilers read.
//
// Not hidden, and not `thread_local!`: readers look for this name in the dynamic symbol table, and
// stable Rust cannot define a thread-local symbol. Two publishers in one program are a linker
// error, because they would overwrite each other's pointer.
#[cfg(all(
    feature = "thread-context",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    not(any(miri, submeter_portable))
))]
macro_rules! context_symbol {
    () => {
        std::arch::global_asm!(
            ".pushsection .tbss.otel_thread_ctx_v1, \"awT\", %nobits",
            ".balign 8",
            ".globl otel_thread_ctx_v1",
            ".type otel_thread_ctx_v1, %object",
            ".size otel_thread_ctx_v1, 8",
            "otel_thread_ctx_v1:",
            ".zero 8",
            ".popsection",
        );
    };
}

// 64-bit pointers only: x32 and ILP32 lay out the same registers differently. Little-endian only: a
// big-endian AArch64 kernel reads a different signature than `.inst` writes.
#[cfg(all(
    target_arch = "x86_64",
    target_pointer_width = "64",
    target_os = "linux",
    not(any(miri, submeter_portable))
))]
#[path = "x86_64.rs"]
mod isa;

#[cfg(all(
    target_arch = "aarch64",
    target_pointer_width = "64",
    target_endian = "little",
    target_os = "linux",
    not(any(miri, submeter_portable))
))]
#[path = "aarch64.rs"]
mod isa;

#[cfg(not(all(
    any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")),
    target_pointer_width = "64",
    target_os = "linux",
    not(any(miri, submeter_portable))
)))]
#[path = "none.rs"]
#[allow(dead_code, reason = "the portable half asks for less")]
mod isa;

pub(crate) use isa::*;

/// No area of ours: see [`HAS_OWN_AREA`](crate::rseq::HAS_OWN_AREA).
#[cfg(submeter_plugin)]
pub(crate) fn own_area_offset() -> isize {
    crate::rseq::NO_AREA as isize
}

/// The state that the self-test's section shares with the thread that watches it.
#[derive(Debug, Default)]
#[allow(dead_code, reason = "the portable half has no self-test")]
pub(crate) struct SpinShared {
    /// The ticket that the watcher has let through; the section with that ticket then commits.
    pub(crate) flag: AtomicU32,
    /// The ticket of the running section: the one store that a section makes before its commit.
    pub(crate) entered: AtomicU32,
    /// The ticket of the section that committed.
    pub(crate) result: AtomicU32,
}

#[cfg(all(
    test,
    any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")),
    target_pointer_width = "64",
    target_os = "linux",
    not(any(miri, submeter_portable))
))]
mod tests;
