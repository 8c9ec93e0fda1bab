//! Counters in signal handlers, which are to a thread what interrupts are to the kernel.
#![cfg(not(miri))]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use submeter_percpu::{Area, LimitedCounter, PercpuCounter};
use submeter_sys::Backend;

#[path = "common/handler.rs"]
#[expect(unsafe_code, reason = "handles signals")]
mod handler;

/// Frequent enough to interrupt every step of an add, rare enough that threads make progress.
const PERIOD_NS: i64 = 40_000;

/// Interruptions that the test waits for.
const HANDLED_MIN: u64 = 5_000;

/// Long enough that only a machine without signals exceeds it.
const TIMEOUT: Duration = Duration::from_secs(60);

const BATCH: u64 = 16;
const LIMIT: i64 = 400;

/// Counters on one backend, with independent counts of what was added.
struct Counters {
    area: Area,
    plain: PercpuCounter,
    limited: LimitedCounter,
    added: AtomicI64,
    granted: AtomicI64,
    /// The largest amount that was ever granted at the same time.
    most: AtomicI64,
}

impl Counters {
    fn on(backend: Backend) -> Counters {
        let area = Area::with_backend(backend, |_| 0).expect("address space");
        Counters {
            plain: PercpuCounter::with_batch(&area, BATCH).expect("room"),
            limited: LimitedCounter::with_batch(&area, BATCH, LIMIT).expect("room"),
            area,
            added: AtomicI64::new(0),
            granted: AtomicI64::new(0),
            most: AtomicI64::new(0),
        }
    }

    fn add(&self, n: i64) {
        self.plain.add(n);
        // Relaxed, here and below: read after all threads were joined.
        self.added.fetch_add(n, Ordering::Relaxed);
        if self.limited.try_add(n.abs()).is_ok() {
            // SeqCst: increased after the grant and reduced before its release, so it is never
            // above the true value.
            let now = self.granted.fetch_add(n.abs(), Ordering::SeqCst) + n.abs();
            self.most.fetch_max(now, Ordering::Relaxed);
        } else if let Ok(held) =
            self.granted.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |held| {
                (held >= LIMIT / 2).then_some(held - LIMIT / 4)
            })
        {
            assert!(held <= LIMIT, "the limit is exceeded: {held}");
            self.limited.try_add(-LIMIT / 4).expect("never refused");
        }
    }

    fn must_be_exact(&self, backend: Backend) {
        let truth = self.added.load(Ordering::Relaxed);
        assert_eq!(self.plain.sum(), truth, "{backend:?}");
        let read = self.plain.read();
        assert!(read.low() <= truth && truth <= read.high(), "{backend:?}: {read:?} for {truth}");
        let rows = self.area.rows_in_use().len() as u64;
        assert!(read.low().abs_diff(read.high()) < rows * BATCH, "{backend:?}: {read:?}");
        assert_eq!(self.limited.sum(), self.granted.load(Ordering::SeqCst), "{backend:?}");
        let most = self.most.load(Ordering::Relaxed);
        assert!(0 < most && most <= LIMIT, "{backend:?}: {most} of {LIMIT}");
    }
}

/// Decision and update are one step: a handler cannot push a word beyond its batch.
///
/// The handler adds to the counter that the interrupted thread is adding to, even between the test
/// for the batch and the add, where the kernel's first version let a word grow beyond the batch.
#[test]
fn a_handler_stays_within_its_batch_stress() {
    #[cfg(submeter_inject)]
    submeter_sys::inject::delay(submeter_sys::inject::Point::BeforeCommit, 300);
    let backends = [submeter_sys::probe().backend, Backend::LockedByCpu, Backend::LockedByThread];
    let counters = Arc::new(backends.map(Counters::on));
    let handled = Arc::new(AtomicU64::new(0));
    handler::on_signal({
        let (counters, handled) = (Arc::clone(&counters), Arc::clone(&handled));
        move || {
            counters.iter().for_each(|counters| counters.add(7));
            // Relaxed: read after all threads were joined.
            handled.fetch_add(1, Ordering::Relaxed);
        }
    });
    let deadline = Instant::now() + TIMEOUT;
    // Relaxed: only ends the loops.
    let going = || handled.load(Ordering::Relaxed) < HANDLED_MIN && Instant::now() < deadline;
    let work = |thread: i64| {
        let _timer = match handler::Timer::on_this_thread(PERIOD_NS) {
            Ok(timer) => timer,
            Err(error) => {
                eprintln!("skipped: adds in a handler: no timer: {error}");
                return false;
            }
        };
        while going() {
            for n in 0..500 {
                counters.iter().for_each(|counters| counters.add(n % 40 - 13 - thread));
            }
        }
        true
    };
    let interrupted = std::thread::scope(|scope| {
        let work = &work;
        let threads = [0, 1, 2].map(|thread| scope.spawn(move || work(thread)));
        threads.map(|thread| thread.join().expect("no panic"))
    });
    #[cfg(submeter_inject)]
    submeter_sys::inject::delay(submeter_sys::inject::Point::BeforeCommit, 0);
    // Relaxed: all threads were joined.
    let handled = handled.load(Ordering::Relaxed);
    println!("{handled} interruptions");
    if interrupted == [true; 3] {
        assert!(handled >= HANDLED_MIN, "{handled} interruptions");
        backends
            .iter()
            .zip(&*counters)
            .for_each(|(&backend, counters)| counters.must_be_exact(backend));
    }
}
