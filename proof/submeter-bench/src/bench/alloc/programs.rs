//! The programs in `src/bin`, and those that are not built.

use submeter_heaps::Inner;

use crate::bench::runner::Absent;

/// A program, and the row that it fills.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub(super) file: &'static str,
    pub(super) inner: Inner,
    pub(super) variant: &'static str,
    /// Its environment variables.
    pub(super) variables: &'static [(&'static str, &'static str)],
}

impl Program {
    const fn new(file: &'static str, inner: Inner, variant: &'static str) -> Program {
        Program { file, inner, variant, variables: &[] }
    }
}

const OURS: &[Program] = &[
    Program::new("heap-glibc-bare", Inner::Glibc, "bare"),
    Program::new("heap-glibc-volume", Inner::Glibc, "volume"),
    Program::new("heap-glibc-sampled", Inner::Glibc, "sampled"),
    Program::new("heap-glibc-exact", Inner::Glibc, "exact"),
];

#[cfg(feature = "peers")]
const PEERS: &[Program] = &[
    Program::new("heap-mimalloc-bare", Inner::Mimalloc, "bare"),
    Program::new("heap-mimalloc-volume", Inner::Mimalloc, "volume"),
    Program::new("heap-mimalloc-sampled", Inner::Mimalloc, "sampled"),
    Program::new("heap-mimalloc-exact", Inner::Mimalloc, "exact"),
    Program::new("heap-jemalloc-bare", Inner::Jemalloc, "bare"),
    Program::new("heap-jemalloc-volume", Inner::Jemalloc, "volume"),
    Program::new("heap-jemalloc-sampled", Inner::Jemalloc, "sampled"),
    Program::new("heap-jemalloc-exact", Inner::Jemalloc, "exact"),
    Program::new("heap-glibc-cap", Inner::Glibc, "one_atomic"),
    Program::new("heap-glibc-tracking", Inner::Glibc, "tracking_allocator"),
    Program {
        variables: &[("_RJEM_MALLOC_CONF", "prof:true")],
        ..Program::new("heap-jemalloc-bare", Inner::Jemalloc, "jemalloc_prof")
    },
];
#[cfg(not(feature = "peers"))]
const PEERS: &[Program] = &[];

#[cfg(feature = "datadog")]
const DATADOG: &[Program] = &[Program::new("heap-glibc-datadog", Inner::Glibc, "datadog_sampled")];
#[cfg(not(feature = "datadog"))]
const DATADOG: &[Program] = &[];

/// Returns all programs that were built with this one.
pub(super) fn programs() -> impl Iterator<Item = &'static Program> {
    [OURS, PEERS, DATADOG].into_iter().flatten()
}

/// Returns those that were not, with the command that builds them.
pub(super) fn absent() -> Vec<Absent> {
    let reason = "this program was built without it, which needs libclang, as of the package \
        libclang-dev: cargo build --release -p submeter-bench --features datadog";
    let datadog = Absent { variant: "datadog_sampled", reason: reason.to_owned() };
    let datadog = (!cfg!(feature = "datadog")).then_some(datadog);
    [Absent::peers(), datadog].into_iter().flatten().collect()
}
