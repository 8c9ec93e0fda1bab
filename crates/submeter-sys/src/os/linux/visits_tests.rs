//! Rounds of visits, and how a CPU that refuses the visitor is handled.

use super::*;

/// Allows one test at a time, because all share the visitor of this process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `act` with the number of a CPU that a real-time thread of this process occupies until
/// `act` stops it. Does nothing if that is not allowed, or if there is no other CPU to run on.
fn beside_a_thread_that_keeps_a_cpu(act: impl FnOnce(usize, &AtomicBool)) {
    let _alone = alone();
    let allowed = crate::cpu::affinity().expect("readable");
    let &[here, .., kept] = &allowed[..] else {
        eprintln!("skipped: one CPU is allowed here");
        return;
    };
    let (state, stop) = (Mutex::new(None), AtomicBool::new(false));
    let keep = || {
        crate::cpu::set_affinity(&[kept]).expect("allowed");
        // SAFETY: 1. Zeroes are a valid parameter: plain data.
        let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
        parameter.sched_priority = 1;
        // SAFETY: 1. The parameter is live. 2. It only affects this thread.
        let set = unsafe {
            libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const parameter)
        };
        *state.lock().expect("no panic") = Some(set == 0);
        // Relaxed: a plain signal. The time is below what a kernel allows such a thread in a
        // second.
        let start = Instant::now();
        while set == 0 && !stop.load(Ordering::Relaxed) && start.elapsed().as_millis() < 800 {
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(keep);
        crate::cpu::set_affinity(&[here]).expect("allowed");
        loop {
            match *state.lock().expect("no panic") {
                None => {}
                Some(true) => break act(kept, &stop),
                Some(false) => {
                    break eprintln!("skipped: no real-time threads here (root may)");
                }
            }
            std::thread::yield_now();
        }
        // Relaxed: a plain signal.
        stop.store(true, Ordering::Relaxed);
        crate::cpu::set_affinity(&allowed).expect("allowed before");
    });
}

/// Makes a round begin that reaches the occupied CPU, and returns the error of callers that do not
/// wait for it. `None` if the kernel gave the visitor its share of that CPU.
fn told_of(kept: usize) -> Option<io::Error> {
    loop {
        match wait(Some(Duration::from_millis(1))) {
            Ok(()) => {
                eprintln!("too noisy: the CPU was visited beside a real-time thread");
                return None;
            }
            Err(error) if waiting().is_some_and(|(cpu, _)| cpu == kept) => return Some(error),
            // The visitor is on its way there.
            Err(_) => {}
        }
    }
}

/// A round that cannot end is reported, and serves later waiters.
#[test]
fn a_round_without_end_serves_later_waits() {
    beside_a_thread_that_keeps_a_cpu(|kept, stop| {
        if let Some(error) = told_of(kept) {
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        let rounds = visitor().rounds();
        // Unless the kernel has given the visitor its share meanwhile.
        if rounds.at.is_some() {
            // Later callers do not wait that long again.
            let long = rounds.at.map_or(Duration::ZERO, |(_, since)| since.elapsed());
            assert!(rounds.is_stuck(Some(long)) && !rounds.is_stuck(None));
            assert!(!rounds.is_stuck(Some(long + Duration::from_secs(60))));
        }
        drop(rounds);
        // Relaxed: a plain signal.
        stop.store(true, Ordering::Relaxed);
        wait(None).expect("allowed");
    });
}

#[test]
fn those_who_wait_during_a_round_share_the_next() {
    beside_a_thread_that_keeps_a_cpu(|kept, stop| {
        _ = told_of(kept);
        let mut rounds = visitor().rounds();
        if rounds.at.is_some() {
            assert_eq!(rounds.ended + 1, rounds.begun, "one is under way");
            let next = rounds.begun + 1;
            assert_eq!([(); 5].map(|()| rounds.ask()), [next; 5]);
        }
        drop(rounds);
        // Relaxed: a plain signal.
        stop.store(true, Ordering::Relaxed);
        wait(None).expect("allowed");
    });
}

#[test]
fn a_forked_child_has_a_visitor_of_its_own() {
    let _alone = alone();
    wait(None).expect("allowed");
    let held = visitor().rounds();
    // SAFETY: 1. The child makes system calls, allocates a little, which libc allows after a
    // fork, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // Its parent's lock is held forever. SAFETY: 1. The call takes a number.
        unsafe { libc::alarm(20) };
        let waited = wait_for_round(None);
        // SAFETY: 1. The call takes a number and does not return.
        unsafe { libc::_exit(i32::from(waited.is_err())) };
    }
    drop(held);
    let mut status = -1;
    // SAFETY: 1. `status` is live and writable. 2. The child is ours to wait for: made above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child waits for its parent's");
    wait(None).expect("allowed");
}

#[test]
fn a_thread_inside_waits_for_nothing() {
    let inside = WaitGuard::new().expect("not inside");
    assert_eq!(wait(None).expect_err("inside").kind(), io::ErrorKind::TimedOut);
    drop(inside);
    let _alone = alone();
    wait(None).expect("allowed");
}

/// A refused CPU is left out once each thread was seen on another one or asleep.
#[test]
fn a_refused_cpu_is_left_out_in_the_end() {
    let allowed = crate::cpu::affinity().expect("readable");
    let room = &mut [0; 1000];
    // This thread runs while it looks. Another test's thread may end meanwhile.
    let mut ours = Set::empty();
    allowed.iter().for_each(|&cpu| ours.insert(cpu));
    assert!((0..10).all(|_| !nobody_is_on(&ours, room)));
    let elsewhere = Set::one(CPUS_MAX - 1);
    assert!((0..1000).any(|_| nobody_is_on(&elsewhere, room)));
    let on = |is_running, flags| Thread { is_running, flags, cpu: 3 }.is_on(&Set::one(3));
    assert!(on(true, 0x40_0040));
    assert!(!on(false, 0x40_0040), "switched out");
    assert!(!on(true, 0x40_0050), "a worker of io_uring");
    assert!(!Thread { is_running: true, flags: 0, cpu: 2 }.is_on(&Set::one(3)));
}

#[test]
fn a_thread_is_what_the_kernel_says() {
    let here = Thread::of(thread::number() as c_int).expect("it lives");
    assert!(here.is_running && here.cpu < crate::cpu::possible().expect("readable"));
    assert!(Thread::of(c_int::MAX).is_none(), "no such thread");
    assert!(online().iter().next().is_some());
    assert!(!File::open(c"/proc/self/stat", 0).expect("mounted").is_of(libc::SYSFS_MAGIC));
}

#[test]
fn a_list_has_every_lasting_thread_or_is_none() {
    let stop = AtomicBool::new(false);
    let (mine, room) = (thread::number() as c_int, &mut [0; 1000]);
    std::thread::scope(|scope| {
        // Threads that come and go between those that stay.
        let lived = [(); 4].map(|()| {
            let (say, hear) = std::sync::mpsc::channel();
            let stop = &stop;
            scope.spawn(move || {
                say.send(thread::number() as c_int).expect("somebody hears");
                // Relaxed: a plain signal.
                while !stop.load(Ordering::Relaxed) {
                    std::thread::spawn(|| ()).join().expect("no panic");
                }
            });
            hear.recv().expect("said")
        });
        let mut whole = 0;
        for _ in 0..1000 {
            let directory = Directory::open(c"/proc/self/task").expect("mounted");
            let Some(listed) = directory.numbers(room) else { continue };
            if listed.iter().all(|&thread| Thread::of(thread).is_some()) {
                whole += 1;
                assert!(lived.iter().chain([&mine]).all(|thread| listed.contains(thread)));
            }
        }
        // Relaxed: a plain signal.
        stop.store(true, Ordering::Relaxed);
        assert!(whole > 0, "no list was whole");
    });
    let directory = Directory::open(c"/proc/self/task").expect("mounted");
    assert!(directory.numbers(&mut []).is_none(), "no room");
    assert!(Directory::open(c"/proc/1/task").is_ok_and(|other| other.numbers(room).is_none()));
}
