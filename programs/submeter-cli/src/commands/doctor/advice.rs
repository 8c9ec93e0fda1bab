//! What would improve the choice of backend, and what to beware of. Each line says what, why, and
//! what to try.

use submeter_sys::clock::Source;
use submeter_sys::kernel::CORRECTED_RELEASES;

use super::facts::{BackendName, Facts};
use super::surroundings::Container;

/// Describes the world in one line: the kernel's barrier, who registers threads, whether perf
/// events report context switches, and what surrounds the process.
pub(crate) fn world(facts: &Facts) -> String {
    let barrier = match facts.membarrier_errno {
        Some(_) => "no membarrier",
        None if !facts.membarrier_restarts => "a membarrier that cannot restart sequences",
        None if facts.kernel_may_lose_restarts => "a membarrier that may lose a restart",
        None => "a membarrier that keeps all restarts",
    };
    let visits = if facts.by_visits { " (each CPU is visited)" } else { "" };
    let registration = match (facts.backend, facts.libc_area_bytes) {
        (BackendName::OwnRseq, _) => "threads registered by submeter",
        (_, Some(1..)) => "threads registered by libc",
        _ => "no thread registered",
    };
    let events = if facts.perf_event_errno.is_some() { "refused" } else { "allowed" };
    let around = facts.container.map_or("no container detected".to_owned(), |container| {
        format!("in a {} container", container.name())
    });
    format!("{barrier}{visits}, {registration}, perf events {events}, {around}")
}

/// Returns what would lead to a better backend and a better clock. Empty when both are already the
/// best.
pub(crate) fn remedies(facts: &Facts) -> Vec<String> {
    let backend = match facts.backend {
        BackendName::LibcRseq => None,
        BackendName::OwnRseq => Some(own(facts)),
        BackendName::LockedByCpu | BackendName::LockedByThread => Some(locked(facts)),
    };
    let by_page = facts.cpu_clock == Source::PerfPage.name();
    let clock = match facts.perf_event_errno.filter(|_| !by_page) {
        Some(errno) => Some(perf_events(facts, errno)),
        None => clock(facts).map(|costs| format!("{costs}; {}", facts.cpu_clock_reason)),
    };
    let barrier = (facts.by_visits && facts.variable.as_deref() != Some("visits")).then(|| {
        let host = if facts.container.is_some() { " of the host" } else { "" };
        format!(
            "ending a group, and an occasional flush, wait until a thread has visited each CPU: \
             {CORRECTED_RELEASES}, and later kernels{host} of these series, need no visits if \
             membarrier is allowed"
        )
    });
    backend.into_iter().chain(barrier).chain(clock).collect()
}

/// `EACCES`: the error that `kernel.perf_event_paranoid` gives and a filter does not.
const EACCES: i32 = 13;

/// Says how to allow the perf event by which a thread's clock learns of context switches. The
/// wording follows whatever refuses the event.
fn perf_events(facts: &Facts, errno: i32) -> String {
    let strict = facts.perf_event_paranoid.filter(|&level| level > 2);
    let how = match (facts.container, errno) {
        (Some(Container::Kubernetes), _) => {
            "in the container's securityContext, use `capabilities: {add: [PERFMON]}`, with which \
             the default filter of containerd 1.7 allows perf_event_open, or `seccompProfile: \
             {type: Localhost, localhostProfile: FILE}` with a filter that allows it"
        }
        (Some(Container::Docker), _) => {
            "use `docker run --cap-add PERFMON`, with which the default filter of Docker 23 allows \
             perf_event_open, or `--security-opt seccomp=profile.json`, Docker's default profile \
             with that name added to the allowed calls"
        }
        (Some(Container::Podman), _) => {
            "use `podman run --security-opt seccomp=profile.json`, a copy of \
             /usr/share/containers/seccomp.json with perf_event_open added to the allowed calls"
        }
        (None, EACCES) => {
            "grant the capability CAP_PERFMON (AmbientCapabilities= in a systemd unit)"
        }
        (None, _) => {
            "allow perf_event_open in the system call filter (SystemCallFilter= in a systemd \
             unit)"
        }
    };
    // With the capability the level does not matter; an open filter leaves the level in the way.
    let host = strict.map_or(String::new(), |level| {
        let joined = if errno == EACCES { "or" } else { "and, without that capability," };
        format!("; {joined} set `sysctl kernel.perf_event_paranoid=2` on the host (now {level})")
    });
    let what = clock(facts).unwrap_or("CPU time does not come from the best source");
    format!("{what}, because perf events are refused (errno {errno}): {how}{host}")
}

/// Says what a clock other than the best costs.
fn clock(facts: &Facts) -> Option<&'static str> {
    if facts.cpu_clock == Source::Syscall.name() {
        Some("each switch of groups asks the kernel for CPU time")
    } else if facts.cpu_clock == Source::Ticks.name() {
        Some(
            "CPU time of groups may include waits of less than 20 µs until the kernel is asked, \
             once a millisecond",
        )
    } else {
        None
    }
}

/// Returns what is wrong even though everything works.
pub(crate) fn warnings(facts: &Facts) -> Vec<String> {
    let mut warnings = Vec::new();
    if facts.backend.is_rseq() && facts.kernel_may_lose_restarts && !facts.by_visits {
        warnings.push(format!(
            "SUBMETER_RSEQ=trust: unless Linux {} has \"rseq: Protect event mask against membarrier \
             IPI\", a barrier may lose a restart: then a flush misses an update, or a group is \
             released while a handle exists",
            facts.kernel
        ));
    }
    if let Some(file) = &facts.tcmalloc {
        warnings.push(format!(
            "{file} is mapped. The tcmalloc of gperftools is harmless; Google's, with per-CPU \
             caches, writes words of the rseq area that belong to the kernel, and since Linux 6.19 \
             it and other users of rseq have broken each other \
             (https://github.com/google/tcmalloc/issues/292): leave glibc.pthread.rseq at 1, so \
             that glibc registers threads and tcmalloc does not. A statically linked one shows \
             only in the program's symbols"
        ));
    }
    if facts.debug_build {
        warnings.push(
            "this is a debug build, whose figures mean nothing: use cargo run --release".to_owned(),
        );
    }
    warnings
}

fn own(facts: &Facts) -> String {
    match facts.libc_area_bytes {
        Some(_) => {
            "libc could register threads, but GLIBC_TUNABLES has glibc.pthread.rseq=0: remove it \
             to save a system call at each thread's first add"
        }
        None => {
            "this libc does not register threads: glibc 2.35 does, which saves a system call at \
             each thread's first add"
        }
    }
    .to_owned()
}

/// Lists them in the order in which the probe asks.
fn locked(facts: &Facts) -> String {
    let variable = facts.variable.as_deref().unwrap_or_default();
    if facts.built_without {
        "build without --cfg submeter_portable".to_owned()
    } else if !matches!(variable, "" | "on" | "trust" | "visits") {
        "unset the environment variable SUBMETER_RSEQ, or set it to on".to_owned()
    } else if !matches!(facts.arch, "x86_64" | "aarch64") {
        format!("sequences exist only for x86-64 and aarch64, not for {}", facts.arch)
    } else if facts.cpus_possible.is_none() {
        "mount /sys in the container: the number of possible CPUs is read from there".to_owned()
    } else if facts.rows_by_mm_cid && !facts.mm_cid {
        "build without --cfg submeter_mm_cid: mm_cid is not available here (Linux 6.3 and glibc \
         2.35 provide it)"
            .to_owned()
    } else if variable == "trust" && !facts.membarrier_restarts {
        "unset SUBMETER_RSEQ, so that each CPU is visited: trust relies on a membarrier that \
         restarts sequences, which is missing"
            .to_owned()
    } else if facts.self_test.starts_with("failed") {
        "update the kernel: it breaks its promise to abort sequences (as Linux 6.19 did on arm64)"
            .to_owned()
    } else if facts.self_test.starts_with("inconclusive") {
        "allow threads and sched_setaffinity in the sandbox, and restart: the self-test needs \
         both, and some milliseconds on each CPU, which a real-time thread may occupy"
            .to_owned()
    } else {
        "allow the system call rseq: in the sandbox's filter, or with a kernel with CONFIG_RSEQ \
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
            by_visits: false,
            self_test: "passed".to_owned(),
            cpu_clock: Source::PerfPage.name(),
            cpu_clock_reason: String::new(),
            perf_event_errno: None,
            perf_event_paranoid: Some(2),
            container: None,
            tcmalloc: None,
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

    /// A clock that could be better is reported on every backend.
    #[test]
    fn a_clock_that_could_be_better_is_told_of() {
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
    fn the_line_names_every_world() {
        let line = |change: fn(&mut Facts)| {
            let mut facts = facts(BackendName::LibcRseq);
            change(&mut facts);
            world(&facts)
        };
        let best = "a membarrier that keeps all restarts, threads registered by libc, perf events \
                    allowed, no container detected";
        assert_eq!(line(|_| ()), best);
        for (change, part) in [
            ((|f| f.perf_event_errno = Some(1)) as fn(&mut Facts), "perf events refused"),
            (|f| f.kernel_may_lose_restarts = true, "a membarrier that may lose a restart"),
            (|f| f.by_visits = true, "restarts (each CPU is visited),"),
            (|f| f.membarrier_errno = Some(38), "no membarrier,"),
            (|f| f.membarrier_restarts = false, "cannot restart sequences"),
            (|f| f.backend = BackendName::OwnRseq, "registered by submeter"),
            (|f| (f.backend, f.libc_area_bytes) = (BackendName::LockedByThread, None), "no thread"),
            (|f| f.container = Some(Container::Kubernetes), "in a Kubernetes container"),
        ] {
            assert!(line(change).contains(part), "{part}: {}", line(change));
        }
    }

    /// The advice for refused perf events follows what refuses them.
    #[test]
    fn advice_is_in_the_words_of_what_refuses() {
        let with = |container, errno, level| {
            let facts = Facts {
                container,
                perf_event_errno: Some(errno),
                perf_event_paranoid: Some(level),
                cpu_clock: Source::Syscall.name(),
                ..facts(BackendName::LibcRseq)
            };
            let remedies = remedies(&facts);
            assert_eq!(remedies.len(), 1, "one line: {remedies:?}");
            remedies.concat()
        };
        for (container, errno, level, parts, without) in [
            (
                Some(Container::Docker),
                1,
                2,
                ["--cap-add PERFMON", "--security-opt seccomp="],
                "sysctl",
            ),
            (Some(Container::Kubernetes), 1, 4, ["securityContext", "and, without that"], "docker"),
            (Some(Container::Kubernetes), 1, 2, ["add: [PERFMON]", "localhostProfile"], "sysctl"),
            (Some(Container::Podman), 1, 2, ["podman run", "seccomp.json"], "PERFMON"),
            (Some(Container::Docker), 13, 3, ["--cap-add", "or set `sysctl"], "without that"),
            (None, 13, 4, ["CAP_PERFMON", "perf_event_paranoid=2` on the host (now 4)"], "filter"),
            (None, 1, 2, ["allow perf_event_open", "SystemCallFilter"], "sysctl"),
        ] {
            let said = with(container, errno, level);
            assert!(parts.iter().all(|part| said.contains(part)), "{parts:?}: {said}");
            assert!(!said.contains(without), "{without}: {said}");
        }
    }

    #[test]
    fn a_mapped_tcmalloc_is_warned_of() {
        let file = "/usr/lib/libtcmalloc.so.4";
        let facts = Facts { tcmalloc: Some(file.to_owned()), ..facts(BackendName::LibcRseq) };
        let said = warnings(&facts).concat();
        assert!(said.starts_with(file) && said.contains("glibc.pthread.rseq"), "{said}");
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
        let trust = with(|f| {
            f.variable = Some("trust".to_owned());
            f.membarrier_restarts = false;
        });
        assert!(trust.contains("unset SUBMETER_RSEQ"));
        assert!(with(|f| f.self_test = "failed: x".to_owned()).contains("promise"));
        assert!(with(|f| f.self_test = "inconclusive: x".to_owned()).contains("sched_setaffinity"));
        assert!(with(|f| f.self_test = "not run".to_owned()).contains("system call rseq"));
        assert!(remedies(&facts(BackendName::OwnRseq)).concat().contains("glibc.pthread.rseq"));
    }

    /// A kernel that may lose a restart causes a warning if it is trusted.
    #[test]
    fn a_trusted_kernel_without_restarts_is_warned() {
        let old = |backend| Facts { kernel_may_lose_restarts: true, ..facts(backend) };
        let trusted = Facts { variable: Some("trust".to_owned()), ..old(BackendName::OwnRseq) };
        assert!(warnings(&trusted).concat().contains("6.12.53"));
        assert!(warnings(&old(BackendName::LockedByCpu)).is_empty());
        let visits = Facts { by_visits: true, ..old(BackendName::LibcRseq) };
        assert!(warnings(&visits).is_empty());
        assert!(remedies(&visits).concat().contains("6.12.54"));
        let chosen = Facts { variable: Some("visits".to_owned()), ..visits };
        assert!(remedies(&chosen).is_empty());
        assert!(warnings(&facts(BackendName::LibcRseq)).is_empty());
    }
}
