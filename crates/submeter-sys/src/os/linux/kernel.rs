//! The kernel's name.

use std::ffi::CStr;
use std::mem::MaybeUninit;

pub(crate) fn release() -> String {
    let mut names = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: 1. `names` is live and writable. 2. It is initialised whether or not the call
    // succeeds: zeroes are empty strings.
    let names = unsafe {
        libc::uname(names.as_mut_ptr());
        names.assume_init()
    };
    // SAFETY: 1. Each name ends with a NUL inside its array: uname(2) says so, and it was zero
    // before.
    unsafe { CStr::from_ptr(names.release.as_ptr()) }.to_string_lossy().into_owned()
}
