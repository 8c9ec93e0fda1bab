//! Sandboxes that forbid the system calls of the probe.

use submeter_sys::{Backend, Barrier, SelfTest, barrier, cpu, probe};

use crate::again::{again_under, deny, install, is_child};
use crate::broken::add_on_threads;

const RSEQ_BARRIER: u32 = 1 << 7;
const REGISTER_RSEQ: u32 = 1 << 8;

/// Makes the probe reach the forbidden call even on a kernel that may lose a restart, where it
/// would stop earlier.
const TRUST: (&str, &str) = ("SUBMETER_RSEQ", "trust");

/// Returns the backend below sequences: it depends on whether this libc reports the CPU.
fn backend_without_sequences() -> Backend {
    if probe().libc_area_bytes.is_some_and(|bytes| bytes > 0) {
        Backend::LockedByCpu
    } else {
        Backend::LockedByThread
    }
}

/// Asserts what all these sandboxes share: no sequences, and a CPU hint only if libc gives one.
fn assert_locked() {
    assert!(probe().rseq().is_none(), "{:?}", probe());
    assert_eq!(probe().backend, backend_without_sequences());
    assert_eq!(probe().cpu_hint().is_some(), probe().backend == Backend::LockedByCpu);
}

#[test]
fn a_forbidden_membarrier_is_named() {
    const NAME: &str = "seccomp::a_forbidden_membarrier_is_named";
    if is_child() {
        let errno = std::env::var("SUBMETER_TEST_ERRNO").expect("set").parse().expect("a number");
        assert_eq!(probe().membarrier, Err(errno));
        assert_eq!(probe().reason, format!("membarrier is refused (errno {errno})"));
        assert_locked();
        return;
    }
    for errno in [libc::EPERM, libc::ENOSYS] {
        let variables = [TRUST, ("SUBMETER_TEST_ERRNO", &*errno.to_string())];
        again_under(NAME, &variables, &deny(libc::SYS_membarrier, None, errno));
    }
}

#[test]
fn without_membarrier_visits_wait_for_sequences() {
    const NAME: &str = "seccomp::without_membarrier_visits_wait_for_sequences";
    if is_child() {
        assert!(probe().membarrier.is_err());
        println!("{}, {}", probe().backend.name(), probe().barrier.name());
        add_on_threads();
        barrier::wait().expect("granted");
        return;
    }
    let filter = deny(libc::SYS_membarrier, None, libc::EPERM);
    let Some(text) = again_under(NAME, &[("SUBMETER_RSEQ", "on")], &filter) else { return };
    if probe().rseq().is_some() {
        let expected = format!("{}, {}", probe().backend.name(), Barrier::Visits.name());
        assert!(text.contains(&expected), "{text}");
    }
}

/// An affinity that is forbidden later makes visits fail, not wait forever.
#[test]
fn a_forbidden_affinity_is_an_error_of_visits() {
    const NAME: &str = "seccomp::a_forbidden_affinity_is_an_error_of_visits";
    if is_child() {
        if probe().rseq().is_none() {
            return;
        }
        barrier::wait().expect("allowed");
        // Before the filter is installed, which threads inherit when they start: the visitor ends
        // when idle. The remaining threads are the program's own and the test's.
        while std::fs::read_dir("/proc/self/task").expect("readable").count() > 2 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        install(&deny(libc::SYS_sched_setaffinity, None, libc::EPERM)).expect("as before");
        let refused = barrier::wait().expect_err("refused");
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        return;
    }
    // Only if filters are available.
    let none = deny(libc::SYS_membarrier, None, libc::EPERM);
    again_under(NAME, &[("SUBMETER_RSEQ", "visits")], &none);
}

#[test]
fn a_forbidden_membarrier_registration_is_named() {
    const NAME: &str = "seccomp::a_forbidden_membarrier_registration_is_named";
    if is_child() {
        assert!(probe().reason.starts_with("membarrier"), "{}", probe().reason);
        assert_locked();
        return;
    }
    again_under(NAME, &[TRUST], &deny(libc::SYS_membarrier, Some(REGISTER_RSEQ), libc::EPERM));
}

#[test]
fn a_forbidden_rseq_leaves_locked_adds_by_thread() {
    const NAME: &str = "seccomp::a_forbidden_rseq_leaves_locked_adds_by_thread";
    if is_child() {
        assert!(probe().rseq().is_none());
        assert_eq!(probe().backend, Backend::LockedByThread, "{:?}", probe());
        assert!(probe().reason.contains("libc"), "{}", probe().reason);
        assert!(probe().cpu_hint().is_none());
        return;
    }
    for errno in [libc::EPERM, libc::ENOSYS] {
        again_under(NAME, &[TRUST], &deny(libc::SYS_rseq, None, errno));
    }
}

#[test]
fn self_test_is_inconclusive_without_affinity() {
    const NAME: &str = "seccomp::self_test_is_inconclusive_without_affinity";
    if is_child() {
        assert_locked();
        if probe().membarrier.is_ok_and(submeter_sys::membarrier::supports_rseq) {
            assert_eq!(probe().self_test, SelfTest::Inconclusive);
            assert!(probe().reason.contains("inconclusive"), "{}", probe().reason);
        }
        return;
    }
    again_under(NAME, &[TRUST], &deny(libc::SYS_sched_setaffinity, None, libc::EPERM));
}

/// A barrier that is offered and refused leaves locked adds.
#[test]
fn a_refused_barrier_leaves_locked_adds() {
    const NAME: &str = "seccomp::a_refused_barrier_leaves_locked_adds";
    if is_child() {
        assert_locked();
        if probe().membarrier.is_ok_and(submeter_sys::membarrier::supports_rseq)
            && cpu::affinity().is_ok_and(|cpus| cpus.len() > 1)
        {
            assert_eq!(probe().self_test, SelfTest::Inconclusive);
        }
        return;
    }
    again_under(NAME, &[TRUST], &deny(libc::SYS_membarrier, Some(RSEQ_BARRIER), libc::EPERM));
}

#[test]
fn a_limit_on_threads_is_survived() {
    const NAME: &str = "seccomp::a_limit_on_threads_is_survived";
    if is_child() {
        for call in [libc::SYS_clone, libc::SYS_clone3] {
            if let Err(error) = install(&deny(call, None, libc::EAGAIN)) {
                println!("skipped: no system call filters here: {error}");
                return;
            }
        }
        assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "the filter does not work");
        assert_locked();
        return;
    }
    again_under(NAME, &[], &[]);
}
