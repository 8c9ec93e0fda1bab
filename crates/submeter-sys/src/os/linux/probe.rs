//! Finds out what the kernel, libc and this build offer, and decides.

use std::ffi::OsStr;

use super::{own_registration, pin, selftest};
use crate::barrier::Barrier;
use crate::kernel::Kernel;
use crate::probe::{Backend, Probe};
use crate::row_hint::RowHint;
use crate::rseq::{HAS_OWN_AREA, MM_CID_END, ROWS_BY_MM_CID, Rseq};
use crate::{arch, cpu, membarrier};

pub(crate) fn decide() -> Probe {
    decide_on(&Kernel::running(), std::env::var_os("SUBMETER_RSEQ").as_deref())
}

/// Decides for a process on `kernel` in which the environment variable has the value `variable`.
fn decide_on(kernel: &Kernel, variable: Option<&OsStr>) -> Probe {
    let libc = libc_area();
    // glibc registers on every target, even on those where nothing here can read the area.
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
    match usable(&probe, kernel, variable) {
        Ok((backend, offset, cpus, barrier)) => {
            probe.self_test = selftest::run(offset as isize, prepare(backend), barrier);
            probe.reason = format!("the self-test {}", probe.self_test);
            if probe.self_test.passed() {
                probe.backend = backend;
                probe.barrier = barrier;
                probe.rseq = Some(Rseq::new(offset, cpus));
                return probe;
            }
        }
        Err(reason) => probe.reason = reason,
    }
    if probe.cpu_hint().and_then(RowHint::number).is_some() {
        probe.backend = Backend::LockedByCpu;
    } else {
        probe.libc_offset = None;
    }
    probe
}

/// Returns which registration and which barrier are usable, or why none is.
fn usable(
    probe: &Probe,
    kernel: &Kernel,
    variable: Option<&OsStr>,
) -> Result<(Backend, i32, u32, Barrier), String> {
    let restarts = probe.membarrier.is_ok_and(membarrier::supports_rseq);
    let barrier = match variable.map(OsStr::to_str) {
        None | Some(Some("on" | "")) if restarts && kernel.keeps_restarts() => Barrier::Membarrier,
        None | Some(Some("on" | "" | "visits")) => Barrier::Visits,
        Some(Some("trust")) => Barrier::Membarrier,
        Some(Some("off")) => return Err("SUBMETER_RSEQ=off".to_owned()),
        // Not silently "on": it was set for a reason.
        Some(_) => {
            let value = variable.unwrap_or_default();
            return Err(format!(
                "SUBMETER_RSEQ={value:?} is not on, off, trust or visits; using off"
            ));
        }
    };
    if arch::SIGNATURE == 0 {
        return Err("no sequences for this target (x86-64 and aarch64 Linux have them)".to_owned());
    }
    if !pin::keep_loaded() {
        return Err("the library with the sequences cannot be kept loaded".to_owned());
    }
    let cpus = probe.cpus.ok_or("/sys/devices/system/cpu/possible is not readable")?;
    let cpus = u32::try_from(cpus).map_err(|_| "too many CPUs")?;
    if ROWS_BY_MM_CID && !probe.has_mm_cid() {
        return Err(format!(
            "--cfg submeter_mm_cid: the kernel and libc fill in {} and {} bytes of the area, but \
             mm_cid ends at {MM_CID_END} (Linux 6.3 has it; otherwise build without)",
            probe.kernel_feature_bytes,
            probe.libc_area_bytes.unwrap_or(0),
        ));
    }
    let registered = membarrier::register_rseq();
    // Visits do not need it.
    if barrier == Barrier::Membarrier {
        probe.membarrier.map_err(|errno| format!("membarrier is refused (errno {errno})"))?;
        if !restarts {
            return Err("membarrier cannot restart sequences (Linux 5.10 can)".to_owned());
        }
        registered.map_err(|error| format!("membarrier registration: {error}"))?;
    }
    if let Some(offset) = probe.libc_offset {
        // libc tried and the kernel refused it (-2): it would refuse us too.
        return match probe.cpu_hint().and_then(RowHint::number) {
            Some(_) => Ok((Backend::LibcRseq, near(offset)?, cpus, barrier)),
            None => Err("libc's registration failed".to_owned()),
        };
    }
    if !HAS_OWN_AREA {
        return Err(
            "libc registers no rseq, and submeter has no area of its own with --cfg submeter_plugin"
                .to_owned(),
        );
    }
    own_registration::prepare_process()
        .and_then(|()| own_registration::register())
        .map_err(|error| format!("libc registers no rseq, and our registration failed: {error}"))?;
    Ok((Backend::OwnRseq, near(arch::own_area_offset())?, cpus, barrier))
}

/// Returns the offset as an [`Rseq`] holds it. Thread-local memory that programs start with is near
/// the thread pointer on every known system.
fn near(offset: isize) -> Result<i32, String> {
    i32::try_from(offset).map_err(|_| {
        format!("the rseq area is {offset} bytes from the thread pointer, more than 2 GiB away")
    })
}

/// Returns the setup of a self-test thread before its first sequence.
fn prepare(backend: Backend) -> fn() -> bool {
    match backend {
        Backend::OwnRseq => || own_registration::register().is_ok(),
        _ => || true,
    }
}

/// Returns size and offset of libc's rseq area, `None` if this libc does not know rseq.
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

/// A static program has no dynamic linker to ask, and cannot run with another libc either.
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

/// Registers the calling thread, where that is this crate's job. Returns whether it is registered
/// now.
pub(crate) fn register_thread(probe: &Probe) -> bool {
    probe.backend == Backend::OwnRseq && own_registration::register().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::SelfTest;

    fn kernel(release: &str) -> Kernel {
        Kernel { release: release.to_owned(), version: String::new(), signature: None }
    }

    /// `mm_cid` is available where the kernel fills it in and the area is large enough.
    #[test]
    fn mm_cid_needs_the_kernel_and_a_large_area() {
        let cases = [
            // glibc before 2.41 says 20, but has 32.
            (28, Some(20), Some(0), true),
            (33, Some(33), Some(0), true),
            (28, Some(24), Some(0), false),
            (20, Some(32), Some(0), false),
            // Our own has 32.
            (28, Some(0), None, true),
            (28, None, None, true),
            (20, None, None, false),
            (0, None, None, false),
        ];
        for (kernel_feature_bytes, libc_area_bytes, libc_offset, has) in cases {
            let none = Probe::without(String::new());
            let probe = Probe { kernel_feature_bytes, libc_area_bytes, libc_offset, ..none };
            assert_eq!(probe.has_mm_cid(), has, "{probe:?}");
        }
    }

    /// On a kernel that may lose restarts, grace periods wait for visits, unless it is trusted.
    #[test]
    fn visits_serve_where_restarts_may_be_lost() {
        let decided =
            |release, variable: Option<&str>| decide_on(&kernel(release), variable.map(OsStr::new));
        let corrected = decided("6.12.54", None);
        if corrected.rseq.is_none() {
            eprintln!("skipped: no sequences here whatever the kernel: {}", corrected.reason);
            return;
        }
        for (release, variable, barrier) in [
            ("6.12.54", None, Barrier::Membarrier),
            ("6.12.54", Some("on"), Barrier::Membarrier),
            ("6.12.54", Some("visits"), Barrier::Visits),
            ("6.12.53", None, Barrier::Visits),
            ("6.12.53", Some("on"), Barrier::Visits),
            ("6.12.53", Some(""), Barrier::Visits),
            ("gVisor", None, Barrier::Visits),
            ("6.12.53", Some("trust"), Barrier::Membarrier),
        ] {
            let probe = decided(release, variable);
            assert_eq!(
                (probe.backend, probe.barrier),
                (corrected.backend, barrier),
                "{release} {variable:?}: {probe:?}"
            );
            assert!(probe.rseq.is_some(), "{probe:?}");
        }
        let off = decided("6.12.54", Some("off"));
        assert!(off.rseq.is_none() && off.self_test == SelfTest::NotRun, "{off:?}");
    }
}
