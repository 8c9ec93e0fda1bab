//! What was found and decided.

use serde::Serialize;
use submeter_sys::kernel::Kernel;
use submeter_sys::{Backend, Barrier, clock, cpu, membarrier, perf_event, probe};

use super::surroundings::{self, Container};

/// Everything that needs no measurement. The names are those of the JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Facts {
    /// `uname -r`.
    pub(crate) kernel: String,
    /// Whether this kernel's barrier may lose a restart, i.e. is not known to be fixed.
    pub(crate) kernel_may_lose_restarts: bool,
    /// The instruction set.
    pub(crate) arch: &'static str,
    /// One more than the highest CPU number that can come online.
    pub(crate) cpus_possible: Option<usize>,
    /// The CPUs on which this process may run.
    pub(crate) cpus_allowed: Vec<usize>,
    /// The size of the area that libc registers for each thread. 0: libc does not register one;
    /// none: it cannot.
    pub(crate) libc_area_bytes: Option<u32>,
    /// How much of the area the kernel fills in.
    pub(crate) kernel_feature_bytes: u64,
    /// Whether threads have an `mm_cid`.
    pub(crate) mm_cid: bool,
    /// Whether rows are indexed by `mm_cid`: the compiler was given `--cfg submeter_mm_cid`.
    pub(crate) rows_by_mm_cid: bool,
    /// The `membarrier` commands.
    pub(crate) membarrier: Vec<&'static str>,
    /// Why there are no `membarrier` commands.
    pub(crate) membarrier_errno: Option<i32>,
    /// Whether one of the commands restarts sequences.
    pub(crate) membarrier_restarts: bool,
    /// Whether the process waits for sequences by a thread that visits each CPU.
    pub(crate) by_visits: bool,
    /// What the self-test found.
    pub(crate) self_test: String,
    /// Where the CPU time of threads comes from.
    pub(crate) cpu_clock: &'static str,
    /// Why it does not come from a cheaper source.
    pub(crate) cpu_clock_reason: String,
    /// Why the kernel opens no perf event, as an error number.
    pub(crate) perf_event_errno: Option<i32>,
    /// `kernel.perf_event_paranoid`.
    pub(crate) perf_event_paranoid: Option<i32>,
    /// What has put the process into a container, where that is visible.
    pub(crate) container: Option<Container>,
    /// The file of a mapped tcmalloc.
    pub(crate) tcmalloc: Option<String>,
    /// The backend in use.
    pub(crate) backend: BackendName,
    /// Why this backend is in use.
    pub(crate) reason: String,
    /// `SUBMETER_RSEQ`, where it is set.
    pub(crate) variable: Option<String>,
    /// Whether the compiler was given `--cfg submeter_portable`.
    pub(crate) built_without: bool,
    /// Whether figures mean nothing because the build is not optimised.
    pub(crate) debug_build: bool,
}

/// [`Backend`] as named in the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BackendName {
    LibcRseq,
    OwnRseq,
    LockedByCpu,
    LockedByThread,
}

impl From<Backend> for BackendName {
    fn from(backend: Backend) -> BackendName {
        match backend {
            Backend::LibcRseq => BackendName::LibcRseq,
            Backend::OwnRseq => BackendName::OwnRseq,
            Backend::LockedByCpu => BackendName::LockedByCpu,
            Backend::LockedByThread => BackendName::LockedByThread,
        }
    }
}

impl BackendName {
    /// Returns whether the backend runs sequences.
    pub(crate) fn is_rseq(self) -> bool {
        matches!(self, BackendName::LibcRseq | BackendName::OwnRseq)
    }
}

impl Facts {
    /// Asks the probe and the kernel.
    pub(crate) fn gather() -> Facts {
        let (probe, clock) = (probe(), clock::choice());
        let kernel = Kernel::running();
        let mask = probe.membarrier.unwrap_or(0);
        Facts {
            kernel_may_lose_restarts: !kernel.keeps_restarts(),
            kernel: kernel.release,
            arch: std::env::consts::ARCH,
            cpus_possible: probe.cpus,
            cpus_allowed: cpu::affinity().unwrap_or_default(),
            libc_area_bytes: probe.libc_area_bytes,
            kernel_feature_bytes: probe.kernel_feature_bytes,
            mm_cid: probe.has_mm_cid(),
            rows_by_mm_cid: submeter_sys::rseq::ROWS_BY_MM_CID,
            membarrier: membarrier::names(mask).collect(),
            membarrier_errno: probe.membarrier.err(),
            membarrier_restarts: membarrier::supports_rseq(mask),
            by_visits: probe.barrier == Barrier::Visits,
            self_test: probe.self_test.to_string(),
            cpu_clock: clock.source.name(),
            cpu_clock_reason: clock.reason.clone(),
            perf_event_errno: surroundings::perf_event_errno(),
            perf_event_paranoid: perf_event::paranoid(),
            container: surroundings::container(),
            tcmalloc: surroundings::tcmalloc(),
            backend: probe.backend.into(),
            reason: probe.reason.clone(),
            variable: std::env::var_os("SUBMETER_RSEQ").map(|v| v.to_string_lossy().into_owned()),
            built_without: cfg!(submeter_portable),
            debug_build: cfg!(debug_assertions),
        }
    }
}
