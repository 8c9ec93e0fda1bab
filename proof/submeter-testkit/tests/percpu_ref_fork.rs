//! Reference counts work in a forked child, whatever the parent's other threads were doing.
#![cfg(not(miri))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use submeter_percpu::percpu_ref::Options;
use submeter_percpu::{Area, PercpuArc, PercpuRef};
use submeter_sys::{Backend, probe};

#[path = "common/fork.rs"]
#[expect(unsafe_code, reason = "forks")]
mod fork;
#[path = "../../../crates/submeter-percpu/tests/it/met.rs"]
mod met;
#[path = "common/pthread.rs"]
#[expect(unsafe_code, reason = "a thread that the standard library does not know")]
mod pthread;
#[path = "common/stop.rs"]
mod stop;
#[path = "../../../crates/submeter-percpu/tests/it/witness.rs"]
#[expect(dead_code, reason = "shared with tests that Miri runs")]
mod witness;

use met::until_met;
use stop::StopOnDrop;

/// Runs `test` on every backend that this machine supports.
fn on_every_backend(test: impl Fn(&Area)) {
    let mut backends = vec![Backend::LockedByThread, Backend::LockedByCpu];
    if probe().rseq().is_some() {
        backends.push(probe().backend);
    } else {
        eprintln!("skipped on rseq: {}", probe().reason);
    }
    for backend in backends {
        test(&Area::with_backend(backend, |_| 0).expect("address space"));
    }
}

/// A deadline that only a leaked reference exceeds.
fn soon() -> Duration {
    Duration::from_secs(60)
}

/// PercpuRef works in a child forked while killing.
///
/// The parent's other threads constantly get, put, kill, revive and switch; the child must cope
/// with the state that they left, and without them.
#[test]
fn percpu_ref_works_in_a_child_amid_kills_stress() {
    on_every_backend(|area| {
        let options = || Options::new().area(area).allow_reinit();
        let killed = PercpuRef::with(options(), || ()).expect("room");
        let switched = PercpuRef::with(options(), || ()).expect("room");
        let stop = AtomicBool::new(false);
        // Relaxed: only ends the loops.
        let going = || !stop.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            // Also if a child failed: the other threads would continue, and the scope would not
            // end.
            let _stop = StopOnDrop(&stop);
            scope.spawn(|| {
                while going() {
                    assert!(killed.kill());
                    killed.released_blocking(soon()).expect("it has no holders");
                    assert!(killed.reinit());
                }
            });
            scope.spawn(|| {
                while going() {
                    switched.get();
                    switched.switch_to_atomic();
                    switched.switch_to_percpu();
                    switched.put();
                }
            });
            until_met(100, || {
                switched.get();
                let met = fork::found_in_a_fork(|| {
                    // Between a kill and the next life.
                    let amid = killed.is_dying();
                    let right = takes_over(&killed) && outlives(&switched) && its_own_work(area);
                    right.then_some(amid)
                });
                switched.put();
                met.expect("the child")
            });
        });
    });
}

/// Checks a count without holders, found at any point of its kill or of its next life.
fn takes_over(killed: &PercpuRef) -> bool {
    if !killed.is_dying() {
        return killed.kill() && killed.is_released();
    }
    // It is not released only if the lost thread was about to release it, or to start its next
    // life.
    let released = killed.released_blocking(Duration::from_millis(50));
    released.is_ok() || killed.is_zero()
}

/// Checks a count of which this thread holds a reference.
fn outlives(switched: &PercpuRef) -> bool {
    let took = switched.tryget_live();
    let killed = switched.kill();
    let refused = !switched.tryget_live();
    let held = !switched.is_zero() && !switched.is_released();
    switched.put_many(2);
    // The lost thread may have held one too.
    let left = switched.holders().references();
    took && killed && refused && held && matches!(left, Some(0 | 1))
}

fn its_own_work(area: &submeter_percpu::Area) -> bool {
    let (owner, pointer) =
        PercpuArc::with(Options::new().area(area), String::from("child")).expect("room");
    let (mut elsewhere, mut length) = (Some(pointer.clone()), 0);
    let ran = pthread::on_another_thread(|| {
        length = elsewhere.take().map_or(0, |pointer| pointer.len());
    });
    owner.kill();
    drop(pointer);
    ran && length == 5 && owner.is_released()
}

/// After a fork, parent and child count their copies independently.
#[test]
fn percpu_ref_counts_separately_after_a_fork() {
    on_every_backend(|area| {
        let released = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&released);
        let release = move || {
            // Relaxed: one thread.
            counter.fetch_add(1, Ordering::Relaxed);
        };
        // Relaxed: as above.
        let times = || released.load(Ordering::Relaxed);
        let reference = PercpuRef::with(Options::new().area(area), release).expect("room");
        reference.get_many(2);
        assert!(fork::in_a_fork(|| {
            reference.put();
            reference.kill();
            let held = times() == 0;
            reference.put();
            held && times() == 1
        }));
        assert!(reference.tryget_live() && times() == 0);
        reference.put_many(3);
        reference.kill();
        assert_eq!(times(), 1);
    });
}
