//! A panic in one caller's code never leaves another caller waiting.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use submeter_percpu::percpu_ref::Options;
use submeter_percpu::{Area, PercpuArc, PercpuOwner, PercpuRef};
use submeter_sys::{Backend, probe};

fn on_every_backend(test: impl Fn(&Area)) {
    for backend in [Backend::LockedByThread, probe().backend] {
        test(&Area::with_backend(backend, |_| 0).expect("address space"));
    }
}

struct Bomb(bool, Arc<AtomicU32>);

impl Drop for Bomb {
    fn drop(&mut self) {
        // Relaxed, as everywhere here: one thread.
        self.1.fetch_add(1, Ordering::Relaxed);
        assert!(!self.0, "on purpose");
    }
}

#[test]
fn a_panic_in_one_release_keeps_no_other() {
    on_every_backend(|area| {
        let drops = Arc::new(AtomicU32::new(0));
        let owners: Vec<_> = [false, true, false, false]
            .map(|bomb| {
                let value = Bomb(bomb, Arc::clone(&drops));
                PercpuArc::with(Options::new().area(area), value).expect("room").0
            })
            .into();
        assert!(catch_unwind(AssertUnwindSafe(|| PercpuOwner::kill_many(&owners))).is_err());
        assert!(owners.iter().all(PercpuOwner::is_released));
        assert_eq!(drops.load(Ordering::Relaxed), 4);

        let counts: Vec<_> = [true, false, false]
            .map(|bomb| {
                let release = move || assert!(!bomb, "on purpose");
                PercpuRef::with(Options::new().area(area), release).expect("room")
            })
            .into();
        assert!(catch_unwind(AssertUnwindSafe(|| PercpuRef::kill_many(&counts))).is_err());
        assert!(counts.iter().all(PercpuRef::is_released));
    });
}

#[test]
fn an_iterators_panic_keeps_nothing_begun() {
    on_every_backend(|area| {
        let drops = Arc::new(AtomicU32::new(0));
        let owners = [(); 3].map(|()| {
            let value = Bomb(false, Arc::clone(&drops));
            PercpuArc::with(Options::new().area(area), value).expect("room").0
        });
        let all = owners.iter().enumerate().map(|(n, owner)| {
            assert!(n < 2, "on purpose");
            owner
        });
        assert!(catch_unwind(AssertUnwindSafe(|| PercpuOwner::kill_many(all))).is_err());
        assert_eq!(owners.each_ref().map(PercpuOwner::is_released), [true, true, false]);
        assert_eq!(drops.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_confirmations_panic_keeps_nothing_killed() {
    on_every_backend(|area| {
        let drops = Arc::new(AtomicU32::new(0));
        let value = Bomb(false, Arc::clone(&drops));
        let (owner, pointer) = PercpuArc::with(Options::new().area(area), value).expect("room");
        let confirm = || owner.kill_and_confirm(|| panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(confirm)).is_err());
        assert_eq!(drops.load(Ordering::Relaxed), 0, "still held");
        drop(pointer);
        assert!(owner.is_released());
        assert_eq!(drops.load(Ordering::Relaxed), 1);

        let count = PercpuRef::with(Options::new().area(area), || ()).expect("room");
        let confirm = || count.kill_and_confirm(|| panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(confirm)).is_err());
        assert!(count.is_released());
    });
}

/// Set in the child process that runs a test of this file again.
#[cfg(not(miri))]
const CHILD: &str = "SUBMETER_TEST_CHILD";

/// Misuse is reported on stderr, which may be a closed pipe.
#[cfg(not(miri))]
#[test]
fn a_report_that_nobody_reads_is_not_a_panic() {
    use std::process::{Command, Stdio};

    use submeter_percpu::rcuref::{RcuRef, pin};

    if std::env::var_os(CHILD).is_some() {
        // Wait until the parent has closed its end of stderr.
        std::io::read_to_string(std::io::stdin()).expect("readable");
        let (count, dead) = (PercpuRef::new(|| ()).expect("room"), RcuRef::new());
        assert!(count.kill() && !count.kill());
        assert!(dead.put(&pin()) && !dead.put(&pin()));
        return;
    }
    let name = "panics::a_report_that_nobody_reads_is_not_a_panic";
    let mut child = Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this very program");
    drop(child.stderr.take());
    drop(child.stdin.take());
    assert!(child.wait().expect("ours").success());
}
