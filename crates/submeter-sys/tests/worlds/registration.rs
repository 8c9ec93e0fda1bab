//! Threads whose registration ends early, and decisions made in unusual places.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use submeter_sys::{Backend, Barrier, Exit, Rseq, SelfTest, cpu, probe};

use crate::again::{again, is_child};
use crate::rows::Rows;

/// Undoes libc's registration of the calling thread. Returns whether that worked, `None` if the
/// area cannot be found.
fn unregister_libc() -> Option<bool> {
    // SAFETY: 1. The call only looks up a name, which ends with a NUL.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
    if symbol.is_null() {
        eprintln!("skipped: a static program cannot look libc's area up");
        return None;
    }
    // SAFETY: 1. The type is right: glibc documents the symbol as `const ptrdiff_t`.
    let offset = unsafe { symbol.cast::<isize>().read() };
    let pointer: usize;
    // SAFETY: 1. Reading the thread pointer has no effect.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer);
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer);
    }
    let signature = if cfg!(target_arch = "x86_64") { 0x5305_3053u32 } else { 0xd428_bc00 };
    // libc may have registered more than the original 32 bytes, and does not say how much.
    let undone = [32, 64, 96, 128].into_iter().any(|bytes| {
        let area = pointer.wrapping_add_signed(offset);
        // SAFETY: 1. The area is the one that libc registered for this thread: computed above. 2.
        // The kernel only releases it: 1 means "unregister".
        unsafe { libc::syscall(libc::SYS_rseq, area, bytes, 1, signature) == 0 }
    });
    Some(undone)
}

/// A thread whose registration was undone exits its sequence, and loses nothing.
#[test]
fn an_undone_registration_loses_nothing() {
    if probe().backend != Backend::LibcRseq {
        eprintln!("skipped: libc registers no threads here");
        return;
    }
    let rows = Rows::new().expect("the best backend");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(rows.rseq.row().is_some());
            match unregister_libc() {
                Some(undone) => assert!(undone, "the kernel does not let go"),
                None => return,
            }
            assert_eq!(rows.rseq.row(), None);
            assert_eq!(probe().cpu_hint().and_then(|hint| hint.number()), None);
            for _ in 0..1000 {
                // SAFETY: 1. The word lies in rows `0..cpus`: the test keeps them. 2. Only
                // sequences write it.
                unsafe {
                    assert!(!rows.rseq.add(rows.word(0), 1));
                    let added = rows.rseq.add_carry(rows.word(0), 1);
                    assert_eq!((added.exit(), added.changed()), (Some(Exit::Outside), u64::MAX));
                }
            }
            assert!(!rows.rseq.adopt_thread(), "what libc owns is not taken over");
        });
    });
    assert_eq!(rows.sum(0), 0);
}

#[test]
fn a_process_on_one_cpu_passes_the_self_test() {
    const NAME: &str = "registration::a_process_on_one_cpu_passes_the_self_test";
    if is_child() {
        let allowed = cpu::affinity().expect("readable");
        cpu::set_affinity(&allowed[allowed.len() - 1..]).expect("allowed");
        // A visit of the only CPU is a preemption; no barrier meets a running sequence there.
        let expected = match probe().barrier {
            Barrier::Membarrier => SelfTest::PassedWithoutBarrier,
            Barrier::Visits => SelfTest::Passed,
        };
        assert_eq!(probe().self_test, expected, "{}", probe().reason);
        crate::broken::add_on_threads();
        return;
    }
    if probe().rseq().is_none() {
        eprintln!("skipped: no sequences here: {}", probe().reason);
        return;
    }
    again(NAME, &[]);
}

/// The self-test decides although other threads keep every CPU busy.
#[test]
fn the_self_test_decides_on_busy_cpus_stress() {
    const NAME: &str = "registration::the_self_test_decides_on_busy_cpus_stress";
    const STARTS: usize = 6;
    if is_child() {
        assert!(probe().self_test.passed(), "{}", probe().reason);
        return;
    }
    if probe().rseq().is_none() {
        eprintln!("skipped: no sequences here: {}", probe().reason);
        return;
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 * cpu::affinity().map_or(1, |cpus| cpus.len()) {
            // Relaxed: a plain signal.
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        let all = || (0..STARTS).for_each(|_| drop(again(NAME, &[])));
        let result = std::panic::catch_unwind(all);
        // Relaxed: as above. Set before the panic resumes, or the scope would never end.
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
}

/// The sequences and the word that the threads of the next test share.
static ENDING: OnceLock<(Rseq, usize)> = OnceLock::new();
static ADDED: AtomicI64 = AtomicI64::new(0);
static LATE: AtomicU64 = AtomicU64::new(0);
static LATE_KEY: AtomicU64 = AtomicU64::new(0);

fn add_once() -> bool {
    let Some(&(rseq, word)) = ENDING.get() else { return false };
    for _ in 0..1000 {
        // SAFETY: 1. The word lies in rows `0..cpus`: the test keeps them. 2. Only sequences write
        // it.
        let added = unsafe { rseq.add_carry(word as *mut i64, 1) };
        match added.exit() {
            None => {
                // Relaxed: a statistic, read when the threads have been joined.
                ADDED.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            Some(Exit::Outside) if !rseq.adopt_thread() => return false,
            Some(_) => {}
        }
    }
    false
}

struct AddsWhenDropped(Cell<bool>);

impl Drop for AddsWhenDropped {
    fn drop(&mut self) {
        assert!(add_once(), "a thread is registered until its thread-local values are gone");
    }
}

thread_local!(static VALUE: AddsWhenDropped = const { AddsWhenDropped(Cell::new(false)) });

/// Adds in the first round of key destructors and in the second. By the second, the registration
/// has been undone, because its key is older.
extern "C" fn late(round: *mut libc::c_void) {
    let added = add_once();
    if round.addr() == 1 {
        assert!(added, "a thread is registered in the first round of key destructors");
        // Relaxed: written once, before there were threads.
        let key = LATE_KEY.load(Ordering::Relaxed) as libc::pthread_key_t;
        // SAFETY: 1. The key exists: the test made it. 2. Its value is not an address: only the
        // destructor reads it.
        unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(2)) };
    } else if !added {
        // Relaxed: a statistic, read when the threads have been joined.
        LATE.fetch_add(1, Ordering::Relaxed);
    }
}

/// Threads with their own registration end cleanly, whenever they add last.
#[test]
fn registered_threads_end_cleanly_stress() {
    const NAME: &str = "registration::registered_threads_end_cleanly_stress";
    const WAVES: u64 = 20;
    const THREADS: u64 = 25;
    if !is_child() {
        again(NAME, &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")]);
        return;
    }
    let Some(rows) = Rows::new() else { return };
    if probe().backend != Backend::OwnRseq {
        eprintln!("skipped: libc registers threads whatever the tunable says");
        return;
    }
    ENDING.set((rows.rseq, rows.word(0) as usize)).expect("once");
    let mut key = 0;
    // SAFETY: 1. `key` is live and writable. 2. The destructor exists when a thread ends: it is a
    // function of this program.
    assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(late)) }, 0);
    // Relaxed: before there are threads.
    LATE_KEY.store(key.into(), Ordering::Relaxed);
    for _ in 0..WAVES {
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    VALUE.with(|value| value.0.set(true));
                    // SAFETY: 1. The key exists: the test made it. 2. Its value is not an address:
                    // only the destructor reads it.
                    unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(1)) };
                    assert!(add_once());
                });
            }
        });
    }
    // The scope ends when the closures do: the destructors may still run.
    let start = std::time::Instant::now();
    // Relaxed, here and below: statistics, the last of which each thread writes last.
    while LATE.load(Ordering::Relaxed) < WAVES * THREADS
        && start.elapsed() < std::time::Duration::from_secs(30)
    {
        std::thread::yield_now();
    }
    assert_eq!(LATE.load(Ordering::Relaxed), WAVES * THREADS, "ended threads do not add");
    assert_eq!(ADDED.load(Ordering::Relaxed), 3 * (WAVES * THREADS).cast_signed());
    assert_eq!(rows.sum(0), 3 * (WAVES * THREADS).cast_signed());
}

#[test]
fn a_child_forked_amid_a_decision_decides_itself() {
    const NAME: &str = "registration::a_child_forked_amid_a_decision_decides_itself";
    const FORKS: usize = 12;
    if !is_child() {
        again(NAME, &[]);
        return;
    }
    let started = std::sync::Barrier::new(2);
    let mut children = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            started.wait();
            probe();
        });
        started.wait();
        for _ in 0..FORKS {
            // SAFETY: 1. The child does only what it may: it calls functions that glibc keeps
            // usable after a fork (allocation, threads), and ends.
            let child = unsafe { libc::fork() };
            assert!(child >= 0);
            if child == 0 {
                // SAFETY: 1. The call takes a number; the signal ends this child if it hangs.
                unsafe { libc::alarm(30) };
                let provisional = probe().reason.is_empty();
                // SAFETY: 1. The call takes a number and does not return.
                unsafe { libc::_exit(i32::from(provisional)) };
            }
            children.push(child);
        }
    });
    for child in children {
        let mut status = 0;
        // SAFETY: 1. The integer is live and writable. 2. The child is ours to wait for: made
        // above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "a child hung, or had no answer of its own");
    }
}
