//! The crossing itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use submeter_percpu::PercpuRef;
use submeter_sys::inject::{Point, delay, entered};
use submeter_sys::{barrier, cpu, probe};

use crate::raw::{ThreadId, with_handler};
use crate::stop::StopOnDrop;

/// A delay of about 100 µs: long enough for another thread's system call, short enough to repeat.
const ROUNDS: u32 = 400_000;
/// Number of times that each event happens at each point before the kill.
const TIMES: u32 = 10;
/// Number of kills at each point.
const KILLS: u32 = 5;

#[derive(Clone, Copy, Debug)]
enum Event {
    Kill,
    Migration,
    Signal,
    Barrier,
}

/// A kill meets every point of a sequence. A thread takes and puts references while delayed at one
/// point of its sequences; there it is interrupted, migrated, and finally its count is killed.
/// Afterwards the count is exact and released once.
#[test]
fn percpu_ref_4_kill_meets_every_point() {
    if probe().rseq().is_none() {
        eprintln!("skipped: no sequences here: {}", probe().reason);
        return;
    }
    for point in Point::ALL {
        for event in [Event::Kill, Event::Migration, Event::Signal, Event::Barrier] {
            for kill in 0..KILLS {
                cross(point, event, kill % 2 == 1);
            }
        }
    }
}

fn cross(point: Point, event: Event, confirms: bool) {
    let releases = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&releases);
    let reference = PercpuRef::new(move || {
        // Relaxed: read by the thread that puts last, or after a join.
        counter.fetch_add(1, Ordering::Relaxed);
    })
    .expect("room");
    // This reference lets the victim take others even after the kill.
    reference.get();
    let (stop, signals) = (AtomicBool::new(false), AtomicU32::new(0));
    let held = with_handler(&reference, || {
        std::thread::scope(|scope| {
            let stopping = StopOnDrop(&stop);
            let (say, tell) = mpsc::channel();
            let (reference, stop) = (&reference, &stop);
            let victim = scope.spawn(move || {
                say.send(ThreadId::here()).expect("somebody listens");
                let mut held = 0;
                // Relaxed: only ends the loop.
                while !stop.load(Ordering::Relaxed) {
                    reference.get();
                    if reference.tryget() {
                        reference.put();
                    }
                    held += 1;
                    if held == 8 {
                        reference.put_many(8);
                        held = 0;
                    }
                }
                held
            });
            let victim_id = tell.recv().expect("it says");
            delay(point, ROUNDS);
            let allowed = cpu::affinity().expect("readable");
            for round in 0..TIMES {
                wait_for(point);
                match event {
                    Event::Kill => {}
                    Event::Migration => victim_id.migrate(allowed[round as usize % allowed.len()]),
                    Event::Signal => {
                        victim_id.interrupt();
                        // Relaxed: this thread's own note.
                        signals.fetch_add(1, Ordering::Relaxed);
                    }
                    Event::Barrier => barrier::wait().expect("granted"),
                }
            }
            wait_for(point);
            kill(reference, confirms);
            delay(point, 0);
            drop(stopping);
            victim.join().expect("no panic")
        })
    });
    // Signals that were pending at the same time were delivered as one.
    let taken = reference.holders().references().expect("exact after the kill");
    let by_signal = taken - 1 - held;
    let most = i64::from(signals.into_inner());
    assert!((0..=most).contains(&by_signal), "{point:?} {event:?}: {taken} taken, {held} held");
    // Relaxed: as above.
    assert_eq!(releases.load(Ordering::Relaxed), 0);
    for left in (0..taken).rev() {
        reference.put();
        // Relaxed: as above.
        assert_eq!(releases.load(Ordering::Relaxed), u32::from(left == 0), "{point:?} {event:?}");
    }
}

fn kill(reference: &PercpuRef, confirms: bool) {
    let alive = if confirms {
        reference.kill_and_confirm(|| assert!(!reference.tryget_live()))
    } else {
        reference.kill()
    };
    assert!(alive, "killed twice");
}

fn wait_for(point: Point) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !entered(point) {
        assert!(Instant::now() < deadline, "no sequence reached {point:?}");
        std::hint::spin_loop();
    }
}
