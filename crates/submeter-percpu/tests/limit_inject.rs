//! A limit is reached while another thread is inside a sequence that takes from stock.
//!
//! `RUSTFLAGS="--cfg submeter_inject" cargo test -p submeter-percpu --test limit_inject
//! --target-dir target/inject`
#![cfg(not(any(loom, miri)))]

/// Stock that is taken while it is given back is not granted twice.
#[cfg(not(submeter_inject))]
#[test]
fn stock_given_back_is_not_granted_twice() {
    eprintln!("skipped: sequences have no delay points in this build: .ci/run inject");
}

#[cfg(submeter_inject)]
mod crossing {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use submeter_percpu::LimitedCounter;
    use submeter_sys::inject::{Point, delay, entered};
    use submeter_sys::probe;

    const LIMIT: i64 = 1 << 20;
    /// A delay of about 100 µs: longer than giving the stock back takes.
    const DELAY: u32 = 400_000;
    const ROUNDS: u32 = 40;

    /// Adds one and gives it back repeatedly until the end. Returns whether it then holds one.
    fn add_until(counter: &LimitedCounter, end: &AtomicBool) -> bool {
        loop {
            let added = counter.try_add(1).is_ok();
            // SeqCst: set after the limit was reached.
            if end.load(Ordering::SeqCst) {
                return added;
            }
            if added {
                counter.try_add(-1).expect("gives back");
            }
        }
    }

    fn wait_until(what: &str, is: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is() {
            assert!(Instant::now() < deadline, "not in 30 s: {what}");
            std::hint::spin_loop();
        }
    }

    /// Stock that is taken while it is given back is not granted twice.
    #[test]
    fn stock_given_back_is_not_granted_twice() {
        if probe().rseq().is_none() {
            eprintln!("skipped: no sequences here: {}", probe().reason);
            return;
        }
        let counter = LimitedCounter::for_limit(LIMIT).expect("room");
        let mut reached = 0;
        // On a busy machine more rounds may pass before one meets the victim at the point.
        let deadline = Instant::now() + Duration::from_secs(30);
        for point in [Point::AfterCheck, Point::BeforeCommit] {
            let mut rounds = 0;
            while rounds < ROUNDS || (reached == 0 && Instant::now() < deadline) {
                rounds += 1;
                let end = AtomicBool::new(false);
                thread::scope(|scope| {
                    let victim = scope.spawn(|| add_until(&counter, &end));
                    // Stock is handed out again some milliseconds after it was given back.
                    wait_until("stock", || counter.read().low() < counter.read().high());
                    delay(point, DELAY);
                    let _before = entered(point);
                    wait_until("a sequence at the point", || entered(point));
                    // The whole limit: granted only if the victim holds nothing, and was in the
                    // middle of an add, or between two.
                    let all = counter.try_add(LIMIT).is_ok();
                    // SeqCst: see `add_until`.
                    end.store(true, Ordering::SeqCst);
                    delay(point, 0);
                    let one = victim.join().expect("no panic");
                    assert!(!(all && one), "{point:?}: one more than the limit");
                    assert_eq!(counter.sum(), i64::from(one) + if all { LIMIT } else { 0 });
                    let back = counter.sum();
                    counter.try_add(-back).expect("gives back");
                    reached += u32::from(all);
                });
            }
        }
        assert!(reached > 0, "the limit was never reached while the victim was at the point");
    }
}
