//! Every sequence loses nothing on several threads that are migrated and interrupted.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use submeter_sys::{Exit, Rseq, STRIDE, barrier, cpu};

use crate::rows::Rows;
use crate::stop::StopOnDrop;

/// Runs `work` on four threads for a while, with constant migrations and barriers.
fn hammer(rows: &Rows, work: impl Fn(&AtomicBool) + Sync) {
    let stop = AtomicBool::new(false);
    let allowed = cpu::affinity().expect("readable");
    std::thread::scope(|scope| {
        let _stopping = StopOnDrop(&stop);
        for thread in 0..4 {
            let (work, stop, allowed) = (&work, &stop, &allowed);
            scope.spawn(move || {
                rows.adopt_thread();
                // Pinning to a CPU migrates at once; the workers do it to themselves below.
                cpu::set_affinity(&[allowed[thread % allowed.len()]]).expect("allowed");
                work(stop);
            });
        }
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(300) {
            barrier::wait().expect("granted");
            std::thread::sleep(Duration::from_micros(200));
        }
    });
}

/// Calls `step` until told to stop, moving to another CPU now and then.
fn migrate_between(stop: &AtomicBool, mut step: impl FnMut()) {
    let allowed = cpu::affinity().map(|_| (0..cpu::possible().unwrap_or(1)).collect::<Vec<_>>());
    let allowed = allowed.expect("readable");
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        turn += 1;
        // EINVAL for a CPU that is possible but not allowed: stay.
        let _ = cpu::set_affinity(&[allowed[turn % allowed.len()]]);
        for _ in 0..2000 {
            step();
        }
    }
}

/// Adds of every shape are exact under migration and barriers.
#[test]
fn every_add_is_exact_under_migration_stress() {
    let Some(rows) = Rows::new() else { return };
    let (done, mode) = (AtomicI64::new(0), AtomicU32::new(rows.rseq.cpus()));
    hammer(&rows, |stop| {
        let mut own = 0;
        migrate_between(stop, || {
            // SAFETY: 1. The word lies in rows `0..cpus`: the test keeps them. 2. Only sequences
            // write it. 3. `mode` is live and holds the number of rows.
            let ok = unsafe {
                [
                    rows.rseq.add(rows.word(0), 5),
                    rows.rseq.gated().add_while::<1>(rows.word(0), mode.as_ptr()),
                    rows.rseq.gated().add_value_while(rows.word(0), mode.as_ptr(), 7),
                    rows.rseq.add_within(rows.word(0), 11, 127),
                    rows.rseq.gated().add_capped(rows.word(0), mode.as_ptr(), 13, 1 << 62),
                ]
            };
            own += [5, 1, 7, 11, 13]
                .iter()
                .zip(ok)
                .map(|(n, ok)| if ok { *n } else { 0 })
                .sum::<i64>();
        });
        done.fetch_add(own, Ordering::Relaxed);
    });
    let done = done.into_inner();
    assert!(done > 0, "nothing was added");
    assert_eq!(rows.sum(0), done);
}

#[test]
fn add_carry_reports_the_word_and_changed_bits() {
    let Some(rows) = Rows::new() else { return };
    for n in [1, -1, 63, -64, i64::MAX, i64::MIN, 3, 5, 7, -2] {
        let before: Vec<i64> =
            (0..rows.rseq.cpus()).map(|cpu| rows.row(cpu, 1).load(Ordering::Relaxed)).collect();
        // SAFETY: 1. The word lies in rows `0..cpus`: the test keeps them. 2. Only sequences write
        // it.
        let added = unsafe { rows.rseq.add_carry(rows.word(1), n) };
        if added.exit().is_some() {
            assert_eq!(added.changed(), u64::MAX);
            continue;
        }
        let cpu = (0..rows.rseq.cpus())
            .find(|&cpu| rows.row(cpu, 1).load(Ordering::Relaxed) != before[cpu as usize])
            .expect("one row changed");
        let was = before[cpu as usize];
        assert_eq!(added.after(), was.wrapping_add(n));
        assert_eq!(added.changed(), (was ^ added.after()).cast_unsigned());
    }
}

#[test]
fn a_commit_of_every_bit_is_not_an_exit() {
    let Some(rows) = Rows::new() else { return };
    for reason in 1..=3i64 {
        let word = 8 + reason as usize;
        for cpu in 0..rows.rseq.cpus() {
            rows.row(cpu, word).store(!reason, Ordering::Relaxed);
        }
        let added = loop {
            // SAFETY: 1. The word lies in rows `0..cpus`: the test keeps them. 2. Only sequences
            // write it from here on.
            let added = unsafe { rows.rseq.add_carry(rows.word(word), 2 * reason + 1) };
            if added.exit() != Some(Exit::Aborted) {
                break added;
            }
        };
        assert_eq!((added.exit(), added.after(), added.changed()), (None, reason, u64::MAX));
    }
}

#[test]
fn add_marked_adds_only_where_marked_stress() {
    let Some(rows) = Rows::new() else { return };
    let mark = |cpu: u32| {
        let word = rows.word(16).wrapping_byte_add(cpu as usize * STRIDE);
        // SAFETY: 1. The word is inside the reservation: the test keeps it. 2. It is accessed
        // atomically except in the sequence's load.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    };
    let (done, refused) = (AtomicI64::new(0), AtomicI64::new(0));
    hammer(&rows, |stop| {
        let (mut own, mut unmarked) = (0, 0);
        migrate_between(stop, || {
            // SAFETY: 1. Both words lie in rows `0..cpus`: the test keeps them. 2. Only sequences
            // write the first.
            let added =
                unsafe { rows.rseq.add_marked(rows.word(2), 3, rows.word(16).cast(), 64 + 5) };
            match added.exit() {
                None => own += 3,
                Some(Exit::Unmarked) => {
                    unmarked += 1;
                    let cpu = rows.rseq.row().expect("registered");
                    mark(cpu).fetch_or(1 << 5, Ordering::SeqCst);
                }
                Some(Exit::Aborted) => {
                    // Clearing a mark now and then keeps both paths in use.
                    mark(0).fetch_and(!(1 << 5), Ordering::SeqCst);
                }
                Some(Exit::Outside) => panic!("a registered thread on a possible CPU"),
            }
        });
        done.fetch_add(own, Ordering::Relaxed);
        refused.fetch_add(unmarked, Ordering::Relaxed);
    });
    assert_eq!(rows.sum(2), done.into_inner());
    assert!(refused.into_inner() >= 1, "every CPU's first add finds no mark");
}

#[test]
fn a_mode_of_zero_refuses_every_add() {
    let Some(rows) = Rows::new() else { return };
    let mode = AtomicU32::new(0);
    for _ in 0..1000 {
        // SAFETY: 1. The word lies in rows `0..cpus`: the test keeps them. 2. Only sequences write
        // it.
        let added = unsafe { rows.rseq.gated().add_while::<1>(rows.word(3), mode.as_ptr()) };
        assert!(!added);
    }
    assert_eq!(rows.sum(3), 0);
}

#[test]
fn no_add_lands_after_a_mode_change_and_barrier() {
    let Some(rows) = Rows::new() else { return };
    for round in 0..50 {
        let mode = AtomicU32::new(rows.rseq.cpus());
        let (running, stop) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let _stopping = StopOnDrop(&stop);
            for _ in 0..2 {
                scope.spawn(|| {
                    rows.adopt_thread();
                    while !stop.load(Ordering::Relaxed) {
                        // SAFETY: 1. The word lies in rows `0..cpus`: the test keeps them. 2. Only
                        // sequences write it.
                        let _ = unsafe {
                            rows.rseq.gated().add_while::<1>(rows.word(4), mode.as_ptr())
                        };
                        running.store(1, Ordering::Relaxed);
                    }
                });
            }
            while running.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            mode.store(0, Ordering::Relaxed);
            barrier::wait().expect("granted");
            let folded = rows.sum(4);
            for _ in 0..100 {
                std::hint::spin_loop();
                assert_eq!(rows.sum(4), folded, "round {round}: an add landed after the barrier");
            }
            std::thread::sleep(Duration::from_micros(200));
            assert_eq!(rows.sum(4), folded, "round {round}: an add landed after the barrier");
        });
    }
    assert!(rows.sum(4) > 0, "nothing was added");
}

#[test]
fn a_handler_adding_to_the_word_loses_nothing() {
    let Some(rows) = Rows::new() else { return };
    static HANDLER: std::sync::OnceLock<(Rseq, usize)> = std::sync::OnceLock::new();
    static HANDLED: AtomicI64 = AtomicI64::new(0);
    extern "C" fn handler(_: libc::c_int) {
        if let Some(&(rseq, word)) = HANDLER.get() {
            // SAFETY: 1. The word lies in rows `0..cpus`: the test keeps them. 2. Only sequences
            // write it.
            let added = unsafe { rseq.add(word as *mut i64, 1000) };
            HANDLED.fetch_add(i64::from(added), Ordering::Relaxed);
        }
    }
    HANDLER.set((rows.rseq, rows.word(5) as usize)).expect("once");
    // SAFETY: 1. The handler does only what a handler may: sequences and atomics.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
    let (done, stop) = (AtomicI64::new(0), AtomicBool::new(false));
    let worker = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let _stopping = StopOnDrop(&stop);
        scope.spawn(|| {
            rows.adopt_thread();
            // SAFETY: 1. The call takes nothing and names the calling thread.
            worker.store(unsafe { libc::pthread_self() }, Ordering::Release);
            let mut own = 0;
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: 1. The word lies in rows `0..cpus`: the test keeps them. 2. Only
                // sequences write it.
                own += i64::from(unsafe { rows.rseq.add(rows.word(5), 1) });
            }
            done.fetch_add(own, Ordering::Relaxed);
        });
        for _ in 0..2000 {
            let target = worker.load(Ordering::Acquire);
            if target != 0 {
                // SAFETY: 1. The thread exists: the worker runs until `stop`. 2. The signal is
                // handled: the handler is installed.
                unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    });
    assert_eq!(rows.sum(5), done.into_inner() + 1000 * HANDLED.load(Ordering::Relaxed));
    assert!(HANDLED.load(Ordering::Relaxed) > 0);
}
