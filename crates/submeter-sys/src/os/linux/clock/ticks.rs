//! The CPU's own clock: a counter of constant rate that one instruction reads.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Rate;

/// Reads the counter. Not ordered with what other threads do; the rate is constant, the start is
/// arbitrary.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn now() -> u64 {
    // SAFETY: 1. Every x86-64 CPU has the instruction. 2. User mode may run it: Linux allows it,
    // and a process that forbids it to itself (`PR_SET_TSC`) also breaks the vDSO's clocks.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Reads the counter. Not ordered with what other threads do; the rate is constant, the start is
/// arbitrary.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn now() -> u64 {
    let ticks;
    // Not `nomem`: the load that follows must stay after it. SAFETY: 1. User mode may read the
    // virtual counter: Linux allows it.
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nostack, preserves_flags));
    }
    ticks
}

/// No counter here: [`rate`] says so.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
pub(crate) fn now() -> u64 {
    0
}

/// Returns the counter's rate, measured once per process, or why the counter cannot serve.
#[inline]
pub(crate) fn rate() -> Result<Rate, &'static str> {
    /// 0: not measured yet.
    static FACTOR: AtomicU64 = AtomicU64::new(0);
    // Relaxed: only the number itself matters; two threads that both measure are both right.
    let mut factor = FACTOR.load(Ordering::Relaxed);
    if factor == 0 {
        factor = measure_if_constant();
        // Relaxed: as above.
        FACTOR.store(factor, Ordering::Relaxed);
    }
    // A factor of 2^32 or more is a counter below 1 GHz. That is fine as long as 10 ms of it stay
    // below 2^32 when multiplied; below 1 MHz it would be useless anyway.
    match factor {
        1..ABSURD => Ok(Rate { factor }),
        CHANGES => Err("the CPU's time stamp counter has no constant rate"),
        _ => Err("the CPU's counter has an implausible rate"),
    }
}

/// The smallest factor that is not accepted.
const ABSURD: u64 = 1 << 42;

/// Stored in place of a factor: asking the CPU each time whether the rate is constant would exit a
/// virtual machine, which takes some microseconds.
const CHANGES: u64 = u64::MAX;

#[cold]
#[inline(never)]
fn measure_if_constant() -> u64 {
    if is_constant() { measure().min(CHANGES - 1) } else { CHANGES }
}

/// Returns whether the counter keeps one rate whatever the CPU's frequency and sleep state.
#[cfg(target_arch = "x86_64")]
fn is_constant() -> bool {
    use core::arch::x86_64::__cpuid;
    /// "Advanced Power Management Information" (AMD64 manual, volume 3; Intel's says the same).
    const LEAF: u32 = 0x8000_0007;
    #[allow(unused_unsafe, reason = "safe from Rust 1.94 on, unsafe on the oldest that must work")]
    // SAFETY: 1. Every x86-64 CPU has the instruction. 2. The leaf exists where it is queried: the
    // first comparison checks that.
    unsafe {
        __cpuid(0x8000_0000).eax >= LEAF && __cpuid(LEAF).edx >> 8 & 1 == 1
    }
}

/// The architecture requires it.
#[cfg(target_arch = "aarch64")]
fn is_constant() -> bool {
    true
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn is_constant() -> bool {
    false
}

/// The architecture has a register for it.
#[cfg(target_arch = "aarch64")]
fn measure() -> u64 {
    let hertz: u64;
    // SAFETY: 1. User mode may read the register: Linux allows it.
    unsafe {
        core::arch::asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack, preserves_flags));
    }
    (1_000_000_000u64 << 32).checked_div(hertz).unwrap_or(0)
}

/// Compares it with the monotonic clock over a millisecond. With readings accurate to some 50 ns at
/// both ends, the rate is right to one part in ten thousand, and
/// [`ThreadClock`](crate::clock::ThreadClock) never extrapolates further than that.
#[cfg(not(target_arch = "aarch64"))]
fn measure() -> u64 {
    let first = both();
    while first.1.elapsed().as_millis() < 1 {
        std::hint::spin_loop();
    }
    let last = both();
    let ns = last.1.duration_since(first.1).as_nanos();
    ((ns << 32) / u128::from(last.0.wrapping_sub(first.0)).max(1)) as u64
}

/// Reads both clocks at one moment: the closest of several tries, because a switch may come
/// between.
#[cfg(not(target_arch = "aarch64"))]
fn both() -> (u64, std::time::Instant) {
    let once = || {
        let before = now();
        let clock = std::time::Instant::now();
        let took = now().wrapping_sub(before);
        (took, (before.wrapping_add(took / 2), clock))
    };
    let tries = std::array::from_fn::<_, 8, _>(|_| once());
    tries.into_iter().min_by_key(|&(took, _)| took).map_or((0, std::time::Instant::now()), |t| t.1)
}
