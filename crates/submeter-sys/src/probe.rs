//! What this process can use, decided once, with the reason.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::rseq::{FIELD_CPU_ID, FIELD_MM_CID, Rseq};
use crate::{arch, cpu, membarrier, own, pin, selftest, thread};

pub use crate::selftest::SelfTest;

/// The rungs of the ladder, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// Sequences, on the area that libc registers for every thread.
    LibcRseq,
    /// Sequences, on an area that this crate registers for each thread that needs one.
    OwnRseq,
    /// Locked adds in words of the running CPU, whose number libc's area tells at the price of a load.
    LockedByCpu,
    /// Locked adds in words chosen by thread.
    LockedByThread,
}

impl Rung {
    /// Returns a short name, as `submeter doctor` prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Rung::LibcRseq => "rseq (libc's registration)",
            Rung::OwnRseq => "rseq (own registration)",
            Rung::LockedByCpu => "locked adds by CPU",
            Rung::LockedByThread => "locked adds by thread",
        }
    }
}

/// Tells the running CPU by one load from libc's rseq area. Copied into whatever needs it.
#[derive(Clone, Copy, Debug)]
pub struct CpuHint {
    offset: isize,
}

impl CpuHint {
    /// Returns the CPU on which the calling thread runs, stale as soon as it is read; `None` for a
    /// thread that is not registered.
    #[inline]
    #[must_use]
    pub fn cpu(self) -> Option<u32> {
        // SAFETY: a `CpuHint` exists only where libc's area does, which is 20 bytes at least.
        let cpu = unsafe { arch::read_u32(self.offset, FIELD_CPU_ID) };
        (cpu.cast_signed() >= 0).then_some(cpu)
    }
}

/// Holds what was found and what was decided.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The rung in use.
    pub rung: Rung,
    /// Why not a better one; on the best rung, what confirmed it.
    pub reason: String,
    /// One more than the highest CPU number that can come online, if the kernel says.
    pub cpus: Option<usize>,
    /// The size of the area that libc registered, 0 if it registered none, `None` if it has no support.
    pub libc_area_bytes: Option<u32>,
    /// How much of the area this kernel fills in (`AT_RSEQ_FEATURE_SIZE`), 0 before Linux 6.3.
    pub kernel_feature_bytes: u64,
    /// The bit mask of `membarrier` commands, or the error number.
    pub membarrier: Result<u32, i32>,
    /// What the self-test found.
    pub self_test: SelfTest,
    /// From the thread pointer to libc's area.
    libc_offset: Option<isize>,
    rseq: Option<Rseq>,
}

impl Probe {
    /// Returns the sequences, if they work here.
    #[must_use]
    pub fn rseq(&self) -> Option<Rseq> {
        self.rseq
    }

    /// Returns the way to learn the running CPU at the price of a load, where libc's area tells it.
    #[must_use]
    pub fn cpu_hint(&self) -> Option<CpuHint> {
        self.libc_offset.map(|offset| CpuHint { offset })
    }

    /// From the thread pointer to libc's area, where it has registered the deciding thread.
    pub(crate) fn libc_area_offset(&self) -> Option<isize> {
        self.libc_offset
    }

    pub(crate) fn registers_threads(&self) -> bool {
        self.rung == Rung::OwnRseq
    }

    pub(crate) fn mm_cid_offset(&self) -> Option<isize> {
        // The area that libc declares may be smaller than what the kernel fills in: both must reach.
        // glibc before 2.41 declares 20 or 32 whatever the kernel offers, but allocates 32.
        let end = FIELD_MM_CID as u64 + 4;
        let area = match self.libc_area_bytes? {
            0 => return None,
            20 => 32,
            bytes => u64::from(bytes),
        };
        (self.kernel_feature_bytes.min(area) >= end).then_some(self.libc_offset?)
    }
}

/// Finds out, on the first call, what this process can use; later calls return the same answer.
///
/// The environment variable `SUBMETER_RSEQ=off`, read on that first call, and `--cfg submeter_no_rseq` rule the
/// sequences out. The first call takes about a millisecond: it starts threads for the self-test. It
/// allocates too, so it must not be made in a signal handler; later calls may.
///
/// A call from *inside* the first one (an allocator that counts, a thread of the self-test) cannot
/// wait for it. It gets a provisional answer: [`Rung::LockedByThread`], with an empty reason.
pub fn probe() -> &'static Probe {
    let asked = Instant::now();
    loop {
        if let Some(decided) = decided() {
            return decided;
        }
        // Acquire, also on failure: pairs with the Release in `publish`, whose caller frees the claim after.
        let claim = DECIDER.compare_exchange(0, identity(), Ordering::Acquire, Ordering::Acquire);
        match claim {
            // Somebody may have decided between the look above and the claim.
            Ok(_) => return publish(decided().is_none().then(decide)),
            Err(decider) if decider == identity() || thread::is_ours() => {
                return &PROVISIONAL;
            }
            // Forked while a thread decided that does not exist in this process: take its place.
            Err(decider) if decider >> 32 != identity() >> 32 => {
                // Relaxed: nothing is handed over; the exchange above starts again.
                let _ = DECIDER.compare_exchange(decider, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
            Err(_) if asked.elapsed() > PATIENCE => return &PROVISIONAL,
            // Not a futex: waiting happens once a process, for a millisecond.
            Err(_) => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

/// How long a call waits for another thread's decision: many times what the self-test may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The answer, null until there is one. No `OnceLock`: its waiters would wait for ever in a forked
/// child, whose deciding thread is gone, and in a call from inside the decision.
static DECIDED: AtomicPtr<Probe> = AtomicPtr::new(std::ptr::null_mut());

/// Process and thread that decide, 0 for nobody.
static DECIDER: AtomicU64 = AtomicU64::new(0);

static PROVISIONAL: Probe = Probe {
    rung: Rung::LockedByThread,
    reason: String::new(),
    cpus: None,
    libc_area_bytes: None,
    kernel_feature_bytes: 0,
    membarrier: Err(0),
    self_test: SelfTest::NotRun,
    libc_offset: None,
    rseq: None,
};

fn decided() -> Option<&'static Probe> {
    // Acquire: pairs with the Release in `publish`, so that the answer's contents are seen.
    let decided = DECIDED.load(Ordering::Acquire);
    // SAFETY: null, or made by `publish` from a box that is never freed and never written again.
    unsafe { decided.as_ref() }
}

/// Makes `new`, if there is one, the answer, and ends the claim.
fn publish(new: Option<Probe>) -> &'static Probe {
    if let Some(probe) = new {
        // Release: pairs with the Acquire in `decided`.
        DECIDED.store(Box::leak(Box::new(probe)), Ordering::Release);
    }
    // Release: pairs with the Acquire in `probe`; a claimant after this finds the answer published.
    DECIDER.store(0, Ordering::Release);
    decided().unwrap_or(&PROVISIONAL)
}

/// Returns process and thread number as one, never 0.
fn identity() -> u64 {
    // SAFETY: takes nothing, returns a number.
    #[cfg(not(miri))]
    let thread = unsafe { libc::syscall(libc::SYS_gettid) } as u64;
    // Miri may lack the call, and cannot fork: any number of the thread's own does.
    #[cfg(miri)]
    let thread = {
        thread_local!(static HERE: u8 = const { 0 });
        HERE.with(|here| std::ptr::from_ref(here).addr() as u64)
    };
    u64::from(std::process::id()) << 32 | (thread & u64::from(u32::MAX))
}

fn decide() -> Probe {
    let libc = libc_area();
    // glibc registers on every target, also on those where nothing here can read the area.
    let readable = |&(bytes, _): &(u32, isize)| bytes > 0 && arch::SIGNATURE != 0;
    let libc_offset = libc.filter(readable).map(|(_, offset)| offset);
    let mut probe = Probe {
        rung: Rung::LockedByThread,
        reason: String::new(),
        cpus: cpu::possible(),
        libc_area_bytes: libc.map(|(bytes, _)| bytes),
        kernel_feature_bytes: feature_bytes(),
        membarrier: query(),
        self_test: SelfTest::NotRun,
        libc_offset,
        rseq: None,
    };
    match usable(&probe) {
        Ok((rung, offset, cpus)) => {
            probe.self_test = selftest::run(offset, prepare(rung));
            if probe.self_test == SelfTest::Passed {
                probe.rung = rung;
                probe.reason = "the self-test passed".to_owned();
                probe.rseq = Some(Rseq::new(offset, cpus));
                return probe;
            }
            probe.reason = format!("the self-test {}", probe.self_test);
        }
        Err(reason) => probe.reason = reason,
    }
    if probe.cpu_hint().and_then(CpuHint::cpu).is_some() {
        probe.rung = Rung::LockedByCpu;
    } else {
        probe.libc_offset = None;
    }
    probe
}

/// Returns which registration could serve, or why none can.
fn usable(probe: &Probe) -> Result<(Rung, isize, u32), String> {
    if cfg!(submeter_no_rseq) {
        return Err("built with --cfg submeter_no_rseq".to_owned());
    }
    if let Some(value) = std::env::var_os("SUBMETER_RSEQ") {
        match value.to_str() {
            Some("off") => return Err("SUBMETER_RSEQ=off".to_owned()),
            Some("on" | "") => {}
            // Not silently "on": whoever sets it wants something.
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
            Some(_) => Ok((Rung::LibcRseq, offset, cpus)),
            None => Err("libc's registration failed".to_owned()),
        };
    }
    own::prepare_process()
        .and_then(|()| own::register())
        .map_err(|error| format!("libc registers no rseq and the kernel says: {error}"))?;
    Ok((Rung::OwnRseq, arch::own_area_offset(), cpus))
}

/// What a thread of the self-test must do before its first sequence.
fn prepare(rung: Rung) -> fn() -> bool {
    match rung {
        Rung::OwnRseq => || own::register().is_ok(),
        _ => || true,
    }
}

/// Returns size and offset of libc's rseq area, `None` if this libc knows nothing of rseq.
#[cfg(all(target_os = "linux", not(miri)))]
fn libc_area() -> Option<(u32, isize)> {
    let (size, offset) = libc_symbols();
    if size.is_null() || offset.is_null() {
        return None;
    }
    // SAFETY: glibc documents `__rseq_size` as `const unsigned int` and `__rseq_offset` as
    // `const ptrdiff_t`, both set before `main` and never changed.
    Some(unsafe { (size.read(), offset.read()) })
}

/// Looked up at run time: linking to the symbols would tie the program to glibc 2.35.
#[cfg(all(target_os = "linux", not(miri), not(target_feature = "crt-static")))]
fn libc_symbols() -> (*const u32, *const isize) {
    // SAFETY: the name is a NUL-terminated string; the call only looks it up.
    let symbol = |name: &std::ffi::CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (symbol(c"__rseq_size").cast(), symbol(c"__rseq_offset").cast())
}

/// A static program has no dynamic linker to ask, and no other libc to run with either.
#[cfg(all(target_os = "linux", not(miri), target_feature = "crt-static"))]
use arch::libc_symbols;

#[cfg(not(all(target_os = "linux", not(miri))))]
fn libc_area() -> Option<(u32, isize)> {
    None
}

#[cfg(all(target_os = "linux", not(miri)))]
fn feature_bytes() -> u64 {
    /// linux/auxvec.h
    const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
    // SAFETY: takes a number and returns one, 0 for an entry that the kernel did not pass.
    let bytes = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) };
    #[allow(clippy::useless_conversion, reason = "c_ulong has 32 bits on some targets")]
    u64::from(bytes)
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn feature_bytes() -> u64 {
    0
}

fn query() -> Result<u32, i32> {
    if cfg!(miri) {
        return Err(libc::ENOSYS);
    }
    membarrier::query().map_err(|error| error.raw_os_error().unwrap_or(0))
}
