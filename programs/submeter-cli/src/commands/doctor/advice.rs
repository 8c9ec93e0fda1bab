//! What would improve what was decided, and what to beware of. Each line: what, why, what to try.

use submeter_sys::clock::Source;
use submeter_sys::kernel::CORRECTED_RELEASES;

use super::facts::{BackendName, Facts};

/// Returns what would lead to a better backend, and to a better clock; empty with the best of both.
pub(crate) fn remedies(facts: &Facts) -> Vec<String> {
    let backend = match facts.backend {
        BackendName::LibcRseq => None,
        BackendName::OwnRseq => Some(own(facts)),
        BackendName::LockedByCpu | BackendName::LockedByThread => Some(locked(facts)),
    };
    backend.into_iter().chain(clock(facts)).collect()
}

fn clock(facts: &Facts) -> Option<String> {
    let costs = if facts.cpu_clock == Source::Syscall.name() {
        "each switch of groups asks the kernel for CPU time"
    } else if facts.cpu_clock == Source::Ticks.name() {
        "CPU time of groups may have waits of less than 20 µs in it, until the kernel is asked: once \
         a millisecond"
    } else {
        return None;
    };
    Some(format!("{costs}; {}", facts.cpu_clock_reason))
}

/// Returns what is wrong although everything works.
pub(crate) fn warnings(facts: &Facts) -> Vec<String> {
    let mut warnings = Vec::new();
    if facts.backend.is_rseq() && facts.kernel_may_lose_restarts {
        warnings.push(format!(
            "SUBMETER_RSEQ=trust: unless Linux {} has \"rseq: Protect event mask against membarrier \
             IPI\", a barrier may lose a restart: then a flush misses an update, or a group is \
             released while a handle exists",
            facts.kernel
        ));
    }
    if facts.debug_build {
        warnings.push(
            "this is a debug build, and figures of one mean nothing: use cargo run --release"
                .to_owned(),
        );
    }
    warnings
}

fn own(facts: &Facts) -> String {
    match facts.libc_area_bytes {
        Some(_) => {
            "libc could register threads, but GLIBC_TUNABLES has glibc.pthread.rseq=0: remove it, and a \
             thread's first add saves a system call"
        }
        None => {
            "this libc does not register threads: glibc 2.35 does, and a thread's first add saves a \
             system call"
        }
    }
    .to_owned()
}

/// In the order in which the probe asks.
fn locked(facts: &Facts) -> String {
    let variable = facts.variable.as_deref().unwrap_or_default();
    if facts.built_without {
        "build without --cfg submeter_portable".to_owned()
    } else if !matches!(variable, "" | "on" | "trust") {
        "unset the environment variable SUBMETER_RSEQ, or set it to on".to_owned()
    } else if !matches!(facts.arch, "x86_64" | "aarch64") {
        format!("sequences are written for x86-64 and aarch64, not for {}", facts.arch)
    } else if facts.cpus_possible.is_none() {
        "mount /sys in the container: the number of possible CPUs is read from it".to_owned()
    } else if facts.rows_by_mm_cid && !facts.mm_cid {
        "build without --cfg submeter_mm_cid: Linux 6.3 and glibc 2.35 offer mm_cid, and it is not \
         to be had here"
            .to_owned()
    } else if let Some(errno) = facts.membarrier_errno {
        format!(
            "allow the system call membarrier (it fails with errno {errno}): in the sandbox's filter, \
             or with a kernel that has CONFIG_MEMBARRIER"
        )
    } else if !facts.membarrier_restarts {
        "update the kernel: membarrier restarts sequences since Linux 5.10".to_owned()
    } else if facts.kernel_may_lose_restarts && variable != "trust" {
        format!(
            "update the kernel: {CORRECTED_RELEASES} keep each restart that a barrier asks for, and so \
             do later ones of these series; SUBMETER_RSEQ=trust, where the distribution has merged \
             \"rseq: Protect event mask against membarrier IPI\" into an older one: without it, counts \
             can be lost and groups released too early"
        )
    } else if facts.self_test.starts_with("failed") {
        "update the kernel: it breaks its promise to abort sequences (Linux 6.19 on arm64 did)"
            .to_owned()
    } else if facts.self_test.starts_with("inconclusive") {
        "allow threads and sched_setaffinity in the sandbox, and start again: the self-test needs \
         both, and some milliseconds of CPU time"
            .to_owned()
    } else {
        "allow the system call rseq: in the sandbox's filter, or with a kernel that has CONFIG_RSEQ \
         (Linux 4.18)"
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(backend: BackendName) -> Facts {
        Facts {
            kernel: "6.12.53".to_owned(),
            kernel_may_lose_restarts: false,
            arch: "x86_64",
            cpus_possible: Some(2),
            cpus_allowed: vec![0, 1],
            libc_area_bytes: Some(20),
            kernel_feature_bytes: 28,
            mm_cid: true,
            rows_by_mm_cid: false,
            membarrier: vec!["PRIVATE_EXPEDITED_RSEQ"],
            membarrier_errno: None,
            membarrier_restarts: true,
            self_test: "passed".to_owned(),
            cpu_clock: Source::PerfPage.name(),
            cpu_clock_reason: String::new(),
            backend,
            reason: "the self-test passed".to_owned(),
            variable: None,
            built_without: false,
            debug_build: false,
        }
    }

    #[test]
    fn the_best_backend_needs_no_remedy() {
        assert!(remedies(&facts(BackendName::LibcRseq)).is_empty());
    }

    #[test]
    fn a_clock_that_could_be_better_is_told_of_on_every_backend() {
        let costs = [(Source::Syscall, "each switch"), (Source::Ticks, "20 µs")];
        for backend in [BackendName::LibcRseq, BackendName::LockedByThread] {
            for (source, cost) in costs {
                let mut facts = facts(backend);
                facts.cpu_clock = source.name();
                facts.cpu_clock_reason = "perf page: refused".to_owned();
                let last = remedies(&facts).pop().expect("one");
                assert!(last.contains("perf page: refused") && last.contains(cost), "{last}");
            }
        }
    }

    #[test]
    fn every_cause_has_its_own_remedy() {
        let with = |change: fn(&mut Facts)| {
            let mut facts = facts(BackendName::LockedByCpu);
            change(&mut facts);
            remedies(&facts).concat()
        };
        assert!(with(|f| f.variable = Some("of".to_owned())).contains("unset"));
        assert!(with(|f| f.built_without = true).contains("submeter_portable"));
        assert!(with(|f| f.arch = "s390x").contains("s390x"));
        assert!(with(|f| f.cpus_possible = None).contains("/sys"));
        let cid = with(|f| (f.mm_cid, f.rows_by_mm_cid) = (false, true));
        assert!(cid.contains("without --cfg submeter_mm_cid"));
        assert!(with(|f| f.membarrier_errno = Some(1)).contains("errno 1"));
        assert!(with(|f| f.membarrier_restarts = false).contains("5.10"));
        assert!(with(|f| f.self_test = "failed: x".to_owned()).contains("promise"));
        assert!(with(|f| f.self_test = "inconclusive: x".to_owned()).contains("sched_setaffinity"));
        assert!(with(|f| f.self_test = "not run".to_owned()).contains("system call rseq"));
        assert!(remedies(&facts(BackendName::OwnRseq)).concat().contains("glibc.pthread.rseq"));
    }

    #[test]
    fn a_kernel_that_may_lose_a_restart_is_warned_of_where_it_is_trusted() {
        let old = |backend| Facts { kernel_may_lose_restarts: true, ..facts(backend) };
        let trusted = Facts { variable: Some("trust".to_owned()), ..old(BackendName::OwnRseq) };
        assert!(warnings(&trusted).concat().contains("6.12.53"));
        assert!(warnings(&old(BackendName::LockedByCpu)).is_empty());
        assert!(remedies(&old(BackendName::LockedByCpu)).concat().contains("6.12.54"));
        assert!(warnings(&facts(BackendName::LibcRseq)).is_empty());
    }
}
