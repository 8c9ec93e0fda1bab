//! Where rseq is missing or refused, the probe says so and nothing hangs.

use std::collections::BTreeSet;

use submeter_sys::memory::Reservation;
use submeter_sys::{Backend, Barrier, STRIDE, SelfTest, barrier, cpu, probe};

use crate::again::{again, is_child};

/// Adds on several threads through whatever the probe offers.
pub(crate) fn add_on_threads() {
    let Some(rseq) = probe().rseq() else { return };
    let rows = Reservation::new(rseq.cpus() as usize * STRIDE).expect("reserves");
    let word = rows.base().as_ptr() as usize;
    let done: i64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(move || {
                    assert!(rseq.adopt_thread());
                    (0..100_000)
                        // SAFETY: 1. Rows `0..cpus` of the word are reserved: the test keeps them.
                        // 2. Only sequences write.
                        .map(|_| i64::from(unsafe { rseq.add(word as *mut i64, 1) }))
                        .sum::<i64>()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let total: i64 = (0..rseq.cpus() as usize)
        // SAFETY: 1. The word is inside the reservation: the test keeps it. 2. Nothing writes:
        // every writer has been joined.
        .map(|cpu| unsafe { ((word + cpu * STRIDE) as *const i64).read() })
        .sum();
    assert_eq!(total, done);
    assert!(done > 250_000, "only {done} of 300,000 committed");
}

#[test]
fn the_variable_switches_sequences_off() {
    if is_child() {
        assert!(probe().rseq().is_none());
        assert_eq!(probe().reason, "SUBMETER_RSEQ=off");
        assert_eq!(probe().self_test, SelfTest::NotRun);
        return;
    }
    again("broken::the_variable_switches_sequences_off", &[("SUBMETER_RSEQ", "off")]);
}

#[test]
fn a_misspelt_variable_is_named_and_off() {
    if is_child() {
        assert!(probe().rseq().is_none());
        assert!(probe().reason.contains("\"of\""), "{}", probe().reason);
        return;
    }
    again("broken::a_misspelt_variable_is_named_and_off", &[("SUBMETER_RSEQ", "of")]);
}

/// On a kernel that may lose a restart, grace periods wait for visits, unless it is trusted.
#[test]
fn a_kernel_that_loses_restarts_gets_visits() {
    const NAME: &str = "broken::a_kernel_that_loses_restarts_gets_visits";
    if is_child() {
        // Shows this process a release 2.6.x, as `setarch --uname-2.6` does.
        // SAFETY: 1. The call takes a number, and changes only what uname(2) says.
        assert_ne!(unsafe { libc::personality(libc::UNAME26 as libc::c_ulong) }, -1);
        println!("{}, {}", probe().backend.name(), probe().barrier.name());
        add_on_threads();
        barrier::wait().expect("granted");
        return;
    }
    if probe().rseq().is_none() {
        eprintln!("skipped: no sequences here whatever the kernel: {}", probe().reason);
        return;
    }
    for (variable, barrier) in [("on", Barrier::Visits), ("trust", Barrier::Membarrier)] {
        let text = again(NAME, &[("SUBMETER_RSEQ", variable)]);
        let expected = format!("{}, {}", probe().backend.name(), barrier.name());
        assert!(text.contains(&expected), "{variable}: {text}");
    }
}

#[test]
fn threads_register_themselves_without_libc() {
    if is_child() {
        if probe().libc_area_bytes.is_none_or(|bytes| bytes == 0) && probe().rseq().is_some() {
            assert_eq!(probe().backend, Backend::OwnRseq);
            println!("own registration used");
        }
        add_on_threads();
        return;
    }
    let sequences = probe().rseq().is_some();
    let text = again(
        "broken::threads_register_themselves_without_libc",
        &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")],
    );
    if !text.contains("own registration used") {
        assert!(!sequences, "{text}");
        eprintln!("skipped: this machine has no sequences at all");
    }
}

#[test]
fn the_usual_world_is_exact() {
    add_on_threads();
}

#[test]
fn a_forked_child_keeps_registration_and_barrier() {
    let Some(rseq) = probe().rseq() else { return };
    let rows = Reservation::new(rseq.cpus() as usize * STRIDE).expect("reserves");
    let word = rows.base().as_ptr().cast::<i64>();
    // If libc registers no threads, only the deciding thread is registered, which may be another.
    assert!(rseq.adopt_thread());
    // SAFETY: 1. The child does only what a child of a threaded process may: it runs sequences and
    // system calls, and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let ok = (0..100_000)
            // SAFETY: 1. Rows `0..cpus` of the word are reserved: the test keeps them. 2. Only
            // sequences write.
            .filter(|_| unsafe { rseq.add(word, 1) })
            .count()
            > 90_000
            && barrier::wait().is_ok();
        // SAFETY: 1. The call takes a number and does not return.
        unsafe { libc::_exit(i32::from(!ok)) };
    }
    let mut status = 0;
    // SAFETY: 1. The integer is live and writable. 2. The child is ours to wait for: made above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child could not add or not use the barrier");
    // SAFETY: 1. The word is inside the reservation: the test keeps it. 2. Nothing writes: no
    // sequence runs in this process.
    assert_eq!(unsafe { word.read() }, 0, "the child's adds are its own");
}

/// `mm_cid` is below the number of possible CPUs, wherever threads move.
#[test]
fn mm_cid_is_below_the_possible_cpus() {
    const THREADS: usize = 2;
    if submeter_sys::rseq::mm_cid().is_none() {
        eprintln!("skipped: kernel or libc offers no mm_cid");
        return;
    }
    let cpus = cpu::affinity().expect("readable");
    let move_about = |first: usize| {
        let mut seen = BTreeSet::new();
        for round in 0..10 * cpus.len() {
            cpu::set_affinity(&[cpus[(first + round) % cpus.len()]]).expect("allowed");
            seen.insert(submeter_sys::rseq::mm_cid().expect("as on every thread"));
        }
        seen
    };
    let seen: BTreeSet<u32> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || move_about(n))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let possible = probe().cpus.expect("known where rseq works");
    assert!(seen.iter().all(|&id| (id as usize) < possible), "{seen:?} of {possible}");
    // The kernel does not promise how many numbers they get.
    eprintln!("{} numbers of {THREADS} threads that moved over {} CPUs", seen.len(), cpus.len());
}
