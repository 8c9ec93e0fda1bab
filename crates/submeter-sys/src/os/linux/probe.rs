//! Finds out what the kernel, libc and this build offer, and decides.

use super::{own_registration, pin, selftest};
use crate::probe::{Backend, CpuHint, Probe, SelfTest};
use crate::rseq::Rseq;
use crate::{arch, cpu, membarrier};

pub(crate) fn decide() -> Probe {
    let libc = libc_area();
    // glibc registers on every target, also on those where nothing here can read the area.
    let readable = |&(bytes, _): &(u32, isize)| bytes > 0 && arch::SIGNATURE != 0;
    let libc_offset = libc.filter(readable).map(|(_, offset)| offset);
    let mut probe = Probe {
        cpus: cpu::possible(),
        libc_area_bytes: libc.map(|(bytes, _)| bytes),
        kernel_feature_bytes: feature_bytes(),
        membarrier: query(),
        libc_offset,
        ..Probe::without(String::new())
    };
    match usable(&probe) {
        Ok((backend, offset, cpus)) => {
            probe.self_test = selftest::run(offset, prepare(backend));
            if probe.self_test == SelfTest::Passed {
                probe.backend = backend;
                probe.reason = "the self-test passed".to_owned();
                probe.rseq = Some(Rseq::new(offset, cpus));
                return probe;
            }
            probe.reason = format!("the self-test {}", probe.self_test);
        }
        Err(reason) => probe.reason = reason,
    }
    if probe.cpu_hint().and_then(CpuHint::cpu).is_some() {
        probe.backend = Backend::LockedByCpu;
    } else {
        probe.libc_offset = None;
    }
    probe
}

/// Returns which registration could serve, or why none can.
fn usable(probe: &Probe) -> Result<(Backend, isize, u32), String> {
    if let Some(value) = std::env::var_os("SUBMETER_RSEQ") {
        match value.to_str() {
            Some("off") => return Err("SUBMETER_RSEQ=off".to_owned()),
            Some("on" | "") => {}
            // Not silently "on": a caller that sets it wants something.
            _ => return Err(format!("SUBMETER_RSEQ={value:?} is neither on nor off; took off")),
        }
    }
    if arch::SIGNATURE == 0 {
        return Err("no sequences for this target (x86-64 and aarch64 Linux have them)".to_owned());
    }
    if !pin::keep_loaded() {
        return Err("the library with the sequences cannot be kept loaded".to_owned());
    }
    let cpus = probe.cpus.ok_or("/sys/devices/system/cpu/possible is not readable")?;
    let cpus = u32::try_from(cpus).map_err(|_| "too many CPUs")?;
    match probe.membarrier {
        Err(errno) => return Err(format!("membarrier is refused (errno {errno})")),
        Ok(mask) if !membarrier::supports_rseq(mask) => {
            return Err("membarrier cannot restart sequences (Linux 5.10 can)".to_owned());
        }
        Ok(_) => {}
    }
    membarrier::register_rseq().map_err(|error| format!("membarrier registration: {error}"))?;
    if let Some(offset) = probe.libc_offset {
        // libc tried and the kernel refused it (-2): it would refuse us too.
        return match probe.cpu_hint().and_then(CpuHint::cpu) {
            Some(_) => Ok((Backend::LibcRseq, offset, cpus)),
            None => Err("libc's registration failed".to_owned()),
        };
    }
    own_registration::prepare_process()
        .and_then(|()| own_registration::register())
        .map_err(|error| format!("libc registers no rseq and the kernel says: {error}"))?;
    Ok((Backend::OwnRseq, arch::own_area_offset(), cpus))
}

/// What a thread of the self-test must do before its first sequence.
fn prepare(backend: Backend) -> fn() -> bool {
    match backend {
        Backend::OwnRseq => || own_registration::register().is_ok(),
        _ => || true,
    }
}

/// Returns size and offset of libc's rseq area, `None` if this libc knows nothing of rseq.
fn libc_area() -> Option<(u32, isize)> {
    let (size, offset) = libc_symbols();
    if size.is_null() || offset.is_null() {
        return None;
    }
    // SAFETY: 1. The types are right: glibc documents `__rseq_size` as `const unsigned int` and
    // `__rseq_offset` as `const ptrdiff_t`. 2. They do not change: both are set before `main`.
    Some(unsafe { (size.read(), offset.read()) })
}

/// Looked up at run time: linking to the symbols would tie the program to glibc 2.35.
#[cfg(not(target_feature = "crt-static"))]
fn libc_symbols() -> (*const u32, *const isize) {
    // SAFETY: 1. The name ends with a NUL: it is a `CStr`. 2. The call only looks it up.
    let symbol = |name: &std::ffi::CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (symbol(c"__rseq_size").cast(), symbol(c"__rseq_offset").cast())
}

/// A static program has no dynamic linker to ask, and no other libc to run with either.
#[cfg(target_feature = "crt-static")]
use crate::arch::libc_symbols;

fn feature_bytes() -> u64 {
    /// linux/auxvec.h
    const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
    // SAFETY: 1. The call takes a number and returns one, 0 for an entry that the kernel did not
    // pass: getauxval(3) says so.
    let bytes = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) };
    #[allow(clippy::useless_conversion, reason = "c_ulong has 32 bits on some targets")]
    u64::from(bytes)
}

fn query() -> Result<u32, i32> {
    membarrier::query().map_err(|error| error.raw_os_error().unwrap_or(0))
}

/// Registers the calling thread, where that is this crate's part. Returns whether it is registered
/// now.
pub(crate) fn register_thread(probe: &Probe) -> bool {
    probe.backend == Backend::OwnRseq && own_registration::register().is_ok()
}
