//! Waiting for the release.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use submeter_percpu::percpu_ref::Options;
use submeter_percpu::{PercpuArc, PercpuRef};

use crate::common::{on_every_backend, rounds, soon};

/// A waker that counts its wake-ups.
#[derive(Default)]
struct Bell(AtomicU32);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // Relaxed: read by the thread that rang, or after a join.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn backend(bell: &Bell) -> u32 {
    // Relaxed: as above.
    bell.0.load(Ordering::Relaxed)
}

/// Zero is not the release: the last putter may still run the callback.
#[test]
fn percpu_ref_released_is_after_the_callback() {
    on_every_backend(|area| {
        let (say, entered) = mpsc::channel();
        let (leave, left) = mpsc::channel::<()>();
        let left = Mutex::new(left);
        let reference = PercpuRef::with(Options::new().area(area), move || {
            say.send(()).expect("heard");
            // Returns an error when a failed assertion below drops the sender, so that the test
            // fails instead of hanging.
            let _ = left.lock().expect("no panic inside").recv();
        })
        .expect("room");
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        let mut context = Context::from_waker(&waker);
        let mut released = pin!(reference.released());
        std::thread::scope(|scope| {
            let leave = leave;
            scope.spawn(|| reference.kill());
            entered.recv().expect("the callback runs");
            assert!(reference.is_zero() && !reference.is_released());
            assert_eq!(released.as_mut().poll(&mut context), Poll::Pending);
            let early = reference.released_blocking(Duration::ZERO).expect_err("not yet");
            assert!(early.to_string().contains("callback is running"), "{early}");
            assert_eq!(backend(&bell), 0);
            leave.send(()).expect("it waits");
        });
        assert_eq!(backend(&bell), 1);
        assert_eq!(released.as_mut().poll(&mut context), Poll::Ready(()));
        reference.released_blocking(Duration::ZERO).expect("over");
    });
}

/// Every waiter is woken once, and no dropped one is woken.
#[test]
fn percpu_ref_each_waiter_is_woken_once_stress() {
    on_every_backend(|area| {
        for _ in 0..rounds(200) {
            let reference = PercpuRef::with(Options::new().area(area), || ()).expect("room");
            reference.get();
            let bells: Vec<_> = (0..3).map(|_| Arc::new(Bell::default())).collect();
            let wakers: Vec<_> = bells.iter().map(|bell| Waker::from(Arc::clone(bell))).collect();
            let mut waits: Vec<_> = bells.iter().map(|_| Box::pin(reference.released())).collect();
            for (wait, waker) in waits.iter_mut().zip(&wakers) {
                for _ in 0..2 {
                    let polled = wait.as_mut().poll(&mut Context::from_waker(waker));
                    assert!(polled.is_pending());
                }
            }
            drop(waits.remove(1));
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| reference.released_blocking(soon()).expect("put below"));
                }
                scope.spawn(|| reference.put());
                reference.kill();
            });
            assert_eq!([0, 1, 2].map(|n| backend(&bells[n])), [1, 0, 1]);
            for (wait, waker) in waits.iter_mut().zip(&wakers) {
                assert!(wait.as_mut().poll(&mut Context::from_waker(waker)).is_ready());
            }
        }
    });
}

/// A wait that is dropped leaves nothing of its task behind.
#[test]
fn percpu_ref_a_dropped_wait_frees_its_waker() {
    on_every_backend(|area| {
        let reference = PercpuRef::with(Options::new().area(area), || ()).expect("room");
        let bell = Arc::new(Bell::default());
        let mut wait = Box::pin(reference.released());
        assert!(
            wait.as_mut().poll(&mut Context::from_waker(&Arc::clone(&bell).into())).is_pending()
        );
        assert_eq!(Arc::strong_count(&bell), 2);
        drop(wait);
        assert_eq!(Arc::strong_count(&bell), 1);
        reference.kill();
        assert_eq!(backend(&bell), 0);
    });
}

/// A wait belongs to the life in which it began.
#[test]
fn percpu_ref_a_new_life_does_not_swallow_a_wait() {
    on_every_backend(|area| {
        let options = Options::new().area(area).allow_reinit();
        let reference = PercpuRef::with(options, || ()).expect("room");
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        let mut context = Context::from_waker(&waker);
        let mut first = pin!(reference.released());
        assert_eq!(format!("{first:?}"), "Released(life 0)");
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(reference.kill() && reference.reinit());
        assert!(first.as_mut().poll(&mut context).is_ready());
        assert!(pin!(reference.released()).poll(&mut context).is_pending());
        reference.kill();
    });
}

#[test]
fn percpu_ref_says_by_the_deadline_who_holds() {
    on_every_backend(|area| {
        let options = Options::new().area(area).name("/acme/web");
        let (owner, first) = PercpuArc::with(options, 1).expect("room");
        let second = owner.try_clone_live().expect("alive");
        let fourth = second.try_clone_live().expect("alive");
        let unkilled = owner.released_blocking(Duration::ZERO).expect_err("alive");
        assert!(unkilled.to_string().contains("it was not killed"), "{unkilled}");
        owner.kill();
        let third = second.clone();
        drop(first);
        let (start, timeout) = (Instant::now(), Duration::from_millis(20));
        let held = owner.released_blocking(timeout).expect_err("held");
        assert!(start.elapsed() >= timeout);
        assert_eq!(held.references(), Some(3));
        let text = held.to_string();
        assert!(text.starts_with("/acme/web is not released: 3 references"), "{text}");
        let places: Vec<_> =
            held.places().map(|(place, held)| (place.map(|at| at.file()), held)).collect();
        if cfg!(debug_assertions) {
            assert_eq!(places, [(Some(file!()), 1); 3], "{text}");
        } else {
            assert_eq!(places, []);
        }
        drop((second, third, fourth));
        owner.released_blocking(soon()).expect("nobody holds it");
    });
}

#[test]
fn percpu_ref_puts_are_counted_as_they_are_made() {
    on_every_backend(|area| {
        let reference = PercpuRef::with(Options::new().area(area), || ()).expect("room");
        reference.get_many(5);
        reference.put_many(3);
        reference.put();
        let held: i64 = reference.holders().places().map(|(_, held)| held).sum();
        assert_eq!(held, i64::from(cfg!(debug_assertions)));
        reference.put();
    });
}

/// A release between a poll's first look and its last is not missed: nobody would wake for it.
#[test]
fn percpu_ref_a_release_amid_a_poll_is_found() {
    struct Puts(Arc<PercpuRef>);
    impl Wake for Puts {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Puts {
        fn drop(&mut self) {
            self.0.put();
        }
    }
    on_every_backend(|area| {
        let reference = PercpuRef::with(Options::new().area(area), || ()).expect("room");
        let reference = Arc::new(reference);
        reference.get();
        reference.kill();
        let mut released = pin!(reference.released());
        let puts = Waker::from(Arc::new(Puts(Arc::clone(&reference))));
        assert!(released.as_mut().poll(&mut Context::from_waker(&puts)).is_pending());
        drop(puts);
        // Another waker takes its place, and it is dropped.
        assert!(released.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    });
}

/// A callback that panics must not leave its waiters waiting.
#[test]
fn percpu_ref_a_panicking_release_is_over() {
    on_every_backend(|area| {
        let reference =
            PercpuRef::with(Options::new().area(area), || panic!("on purpose")).expect("room");
        std::thread::scope(|scope| {
            assert!(scope.spawn(|| reference.kill()).join().is_err());
        });
        reference.released_blocking(soon()).expect("over");
    });
}
