//! Keeps the code of the sequences loaded.
//!
//! A thread's `rseq_cs` points to the descriptor of the last sequence it ran until the kernel next
//! reads it. If this code were part of a library that is unloaded before that, the kernel would
//! read unmapped memory and kill the process. Clearing the field after each sequence would cost
//! every add a store, and clearing that of other threads is impossible.

use std::ffi::CStr;
use std::mem::MaybeUninit;

/// Ensures that the object with this code stays loaded. Returns whether it will.
pub(crate) fn keep_loaded() -> bool {
    let Some(here) = object_of(keep_loaded as fn() -> bool as *const libc::c_void) else {
        // No dynamic linker knows this code: the program is static, and nothing can be unloaded.
        return true;
    };
    // SAFETY: 1. The call takes a number and returns one: getauxval(3) says so.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) } as *const libc::c_void;
    if object_of(entry).is_some_and(|program| program.dli_fbase == here.dli_fbase) {
        return true;
    }
    if here.dli_fname.is_null() {
        return false;
    }
    // SAFETY: 1. The name ends with a NUL, and lives while the object is loaded: the dynamic linker
    // keeps it. 2. The object is loaded: it runs.
    let name = unsafe { CStr::from_ptr(here.dli_fname) };
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: 1. No constructor runs: `NOLOAD`, and the object is loaded. 2. The handle stays
    // valid: it is deliberately never closed.
    !unsafe { libc::dlopen(name.as_ptr(), flags) }.is_null()
}

/// Returns what the dynamic linker knows of the object that contains `address`.
fn object_of(address: *const libc::c_void) -> Option<libc::Dl_info> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: 1. Any address may be passed: dladdr(3) says so. 2. `info` is live and writable.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) } != 0;
    // SAFETY: 1. The value is initialised: zeroes are valid for plain pointers.
    found.then(|| unsafe { info.assume_init() })
}
