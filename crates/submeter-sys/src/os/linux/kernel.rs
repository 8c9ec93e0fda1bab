//! The kernel's names.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

use crate::kernel::Kernel;

pub(crate) fn names() -> Kernel {
    let mut names = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: 1. `names` is live and writable. 2. It is initialised whether or not the call
    // succeeds: zeroes are empty strings.
    let names = unsafe {
        libc::uname(names.as_mut_ptr());
        names.assume_init()
    };
    Kernel {
        release: text(&names.release),
        version: text(&names.version),
        signature: std::fs::read_to_string("/proc/version_signature").ok(),
    }
}

fn text(name: &[c_char]) -> String {
    // SAFETY: 1. A `c_char` is a byte, signed or not. 2. The range is that of `name`, which is
    // borrowed.
    let bytes = unsafe { std::slice::from_raw_parts(name.as_ptr().cast::<u8>(), name.len()) };
    // Without a NUL the name would be cut; uname(2) says that there is one.
    CStr::from_bytes_until_nul(bytes).unwrap_or_default().to_string_lossy().into_owned()
}
