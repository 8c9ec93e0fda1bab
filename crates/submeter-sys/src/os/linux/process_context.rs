//! A mapping that readers find by its name, with the process's description of itself.

use std::ffi::CStr;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

const NAME: &CStr = c"OTEL_CTX";
const VERSION: u32 = 2;

/// Length of the header in bytes: signature, version, length, time, address. The payload follows
/// it.
const HEADER_LEN: usize = 32;
/// Offset of the time in the header.
const TIME_AT: usize = 16;

/// Publishes `payload`; see [`thread_context::announce`](crate::thread_context::announce).
pub(crate) fn announce(payload: &[u8]) -> io::Result<()> {
    let payload_len = u32::try_from(payload.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let len = HEADER_LEN + payload.len();
    let base = map(len)?;
    let payload_at = base.addr().get() as u64 + HEADER_LEN as u64;
    let mut content = Vec::with_capacity(len);
    content.extend(NAME.to_bytes());
    content.extend(VERSION.to_ne_bytes());
    content.extend(payload_len.to_ne_bytes());
    // No time: not ready.
    content.extend(0u64.to_ne_bytes());
    content.extend(payload_at.to_ne_bytes());
    content.extend(payload);
    // SAFETY: 1. The mapping has `len` writable bytes: `map` made it. 2. They overlap no other
    // allocation: it is new.
    unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), base.as_ptr(), len) };
    // SAFETY: 1. The word is inside the mapping, which is never given back. 2. It is aligned: the
    // mapping begins with a page. 3. Everything that writes it does so here.
    let time = unsafe { AtomicU64::from_ptr(base.add(TIME_AT).cast().as_ptr()) };
    // Release: pairs with the barrier of a reader in another process, which finds the rest complete
    // once it has seen a time.
    time.store(since_boot_ns(), Ordering::Release);
    // The last step, because a reader may wait for it.
    name(base, len);
    Ok(())
}

/// Maps `len` bytes under the name that readers look for, which no child inherits.
fn map(len: usize) -> io::Result<NonNull<u8>> {
    let file = file(len);
    let (flags, fd) = match file {
        Ok(fd) => (libc::MAP_PRIVATE, fd),
        Err(_) => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    // SAFETY: 1. The mapping aliases nothing: it is new, private, and at an address of the kernel's
    // choice.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0)
    };
    let mapped = match NonNull::new(address.cast()) {
        Some(base) if address != libc::MAP_FAILED => Ok(base),
        _ => Err(io::Error::last_os_error()),
    };
    if fd >= 0 {
        // SAFETY: 1. The descriptor is open, and belongs only to this function: `file` made it. A
        // mapping needs none.
        unsafe { libc::close(fd) };
    }
    let base = mapped?;
    // SAFETY: 1. The range is the mapping just made. 2. What a child has there does not matter
    // here.
    let apart = unsafe { libc::madvise(address, len, libc::MADV_DONTFORK) } == 0;
    if apart && (file.is_ok() || name(base, len)) {
        return Ok(base);
    }
    let error = io::Error::last_os_error();
    // SAFETY: 1. The range is one whole mapping that nothing uses yet.
    unsafe { libc::munmap(address, len) };
    Err(error)
}

/// Creates a file of `len` zeroes in memory, whose name the mapping shows.
fn file(len: usize) -> io::Result<i32> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // Kernels before 6.3 refuse flags that they do not know.
    let fd = memfd(flags | libc::MFD_NOEXEC_SEAL).or_else(|_| memfd(flags))?;
    let size = i64::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: 1. The descriptor is open: made above.
    if unsafe { libc::ftruncate(fd, size) } == 0 {
        return Ok(fd);
    }
    let error = io::Error::last_os_error();
    // SAFETY: 1. The descriptor is open, and nothing else has it.
    unsafe { libc::close(fd) };
    Err(error)
}

fn memfd(flags: u32) -> io::Result<i32> {
    // Not by libc's function, which old versions lack. SAFETY: 1. The name ends with a zero byte,
    // and the call keeps no pointer to it.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_create, NAME.as_ptr(), flags) };
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(fd as i32) }
}

/// Names the mapping, and returns whether it has the name now: old kernels, and some new ones,
/// cannot.
fn name(base: NonNull<u8>, len: usize) -> bool {
    // SAFETY: 1. The range is a mapping of ours. 2. The name ends with a zero byte, and the kernel
    // copies it.
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_VMA,
            libc::PR_SET_VMA_ANON_NAME as libc::c_ulong,
            base.as_ptr(),
            len,
            NAME.as_ptr(),
        )
    };
    result == 0
}

/// Returns the time since boot, but never 0, which means "not ready".
fn since_boot_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: 1. `time` may be written: it is a local variable.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    (time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64).max(1)
}
