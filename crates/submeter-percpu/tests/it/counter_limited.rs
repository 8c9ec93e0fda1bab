//! The guarantees of a limited counter, on every backend.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use submeter_percpu::{Area, LimitedCounter};

use crate::common::{migrate, on_every_backend, rounds};

const ADDS: u32 = rounds(if cfg!(miri) { 2_000 } else { 20_000 });

/// Adds never exceed the limit while adders take and give back at random. Grants are counted
/// separately, after each grant and before each give-back, so that this count never exceeds the
/// truth.
#[test]
fn try_add_never_exceeds_the_limit_stress() {
    // A single thread would hold more (290), so the limit is met in any schedule.
    const LIMIT: i64 = 250;
    on_every_backend(|area| {
        for batch in [4, 1, 32].into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
            let counter = LimitedCounter::with_batch(area, batch, LIMIT).expect("room");
            let (granted, refused) = (AtomicI64::new(0), AtomicI64::new(0));
            std::thread::scope(|scope| {
                for thread in 0..4usize {
                    let (counter, granted, refused) = (&counter, &granted, &refused);
                    scope.spawn(move || {
                        let mut held = Vec::new();
                        for round in 0..ADDS as usize {
                            if round % 1000 == 0 {
                                migrate(thread + round / 1000);
                            }
                            let n = (round * 7 + thread) as i64 % 61 + 1;
                            if counter.try_add(n).is_ok() {
                                let now = granted.fetch_add(n, SeqCst) + n;
                                assert!(now <= LIMIT, "the limit is exceeded: {now}");
                                held.push(n);
                            } else {
                                refused.fetch_add(1, SeqCst);
                            }
                            if round % 9 < 4 || held.len() > 20 {
                                for n in held.drain(held.len() / 2..) {
                                    granted.fetch_sub(n, SeqCst);
                                    counter.try_add(-n).expect("never refused");
                                }
                            }
                        }
                        for n in held {
                            granted.fetch_sub(n, SeqCst);
                            counter.try_add(-n).expect("never refused");
                        }
                    });
                }
            });
            assert_eq!((counter.sum(), granted.into_inner()), (0, 0));
            let read = counter.read();
            assert!(read.low() <= 0 && 0 <= read.high(), "{read:?}");
            assert!(cfg!(miri) || refused.into_inner() > 0, "the limit was never near");
        }
    });
}

/// A counter that several threads fill by ones ends at the limit, whatever lay in stock.
#[test]
fn a_refusal_is_exact() {
    on_every_backend(|area| {
        let sizes = [(1, 100), (8, 1000), (32, 5000)];
        for (batch, limit) in sizes.into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
            let counter = LimitedCounter::with_batch(area, batch, limit).expect("room");
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let counter = &counter;
                    scope.spawn(move || {
                        migrate(thread);
                        while counter.try_add(1).is_ok() {}
                    });
                }
            });
            assert_eq!(counter.sum(), limit, "batch {batch}");
            assert_eq!(counter.slack(), area.data_rows() as u64 * (batch - 1));
            counter.try_add(-limit / 2).expect("never refused");
            counter.try_add(limit / 2 + 1).expect_err("one too many");
            counter.try_add(limit / 2).expect("to the unit");
            let read = counter.read();
            assert_eq!((read.low(), read.high()), (limit, limit), "all stock was given back");
        }
    });
}

#[test]
fn without_slack_a_limit_is_met_to_the_unit() {
    on_every_backend(|area| {
        let counter = LimitedCounter::with_batch(area, 1, 100).expect("room");
        assert_eq!(counter.slack(), 0);
        counter.try_add(99).expect("fits");
        let refused = counter.try_add(2).expect_err("101");
        assert_eq!((refused.n, refused.limit, refused.high), (2, 100, 99));
        assert!(refused.to_string().contains("adding 2 to 99 would exceed the limit of 100"));
        counter.try_add(1).expect("fits");
        counter.try_add(i64::MAX).expect_err("too much");
        counter.set_limit(50);
        counter.try_add(0).expect("nothing is never refused");
        counter.set_limit(101);
        counter.try_add(1).expect("another limit");
        assert_eq!(counter.limit(), 101);
        assert_eq!(format!("{counter:?}"), "LimitedCounter(101)");
        assert_eq!((counter.sum(), counter.read().low()), (101, 101));
    });
}

#[test]
fn limits_at_the_ends_of_i64_do_not_wrap() {
    on_every_backend(|area| {
        for batch in [1, 32, 1 << 48] {
            let counter = LimitedCounter::with_batch(area, batch, i64::MAX).expect("room");
            let room = i64::MAX - counter.slack() as i64;
            counter.try_add(room).expect("it fits with the slack");
            assert_eq!(counter.sum(), room);
            for n in [i64::MAX, i64::MAX - 1, 1 << 62] {
                counter.try_add(n).expect_err("the sum would wrap around");
            }
            assert_eq!(counter.sum(), room);
            counter.set_limit(0);
            counter.try_add(-room).expect("never refused");
            for limit in [i64::MIN, -1] {
                counter.set_limit(limit);
                counter.try_add(1).expect_err("above it");
                assert_eq!(counter.limit(), limit);
            }
            assert_eq!(counter.sum(), 0);
        }
    });
}

#[test]
fn a_read_at_the_least_i64_holds() {
    on_every_backend(|area| {
        let counter = LimitedCounter::with_batch(area, 32, i64::MAX).expect("room");
        counter.try_add(i64::MIN).expect("never refused");
        // Far more is free than lies in stock.
        for sum in 1..10 {
            counter.try_add(1).expect("far from the limit");
            let (read, sum) = (counter.read(), i64::MIN + sum);
            assert_eq!(counter.sum(), sum);
            assert!(read.low() <= sum && sum <= read.high(), "{read:?}");
        }
    });
}

#[test]
fn a_sixteenth_of_a_limit_is_aside_at_most() {
    for limit in [-50, 0, 1, 10, 1000, 1 << 20, 1 << 40, i64::MAX] {
        let counter = LimitedCounter::for_limit(limit).expect("room");
        let sixteenth = limit.max(0).cast_unsigned() / 16;
        assert!(counter.slack() <= sixteenth, "{} of {limit}", counter.slack());
        let most = limit - counter.slack() as i64;
        counter.try_add(most).expect("it fits with the slack");
        assert_eq!(counter.sum(), most);
    }
    let roomy = LimitedCounter::for_limit(1 << 30).expect("room");
    assert_eq!(roomy.slack() % 31, 0, "the usual batch");
    assert!(roomy.slack() > 0);
}

#[test]
fn stock_of_many_cpus_is_found_where_wanted() {
    let cpus = if cfg!(miri) { 9 } else { 64 };
    let area = Area::simulated(cpus).expect("address space");
    let limit = 1 << 20;
    let counter = LimitedCounter::with_batch(&area, 8, limit).expect("room");
    assert_eq!(counter.slack(), 7 * cpus as u64);
    for (cpu, sum) in (0..cpus).zip(1..) {
        Area::simulate_cpu(cpu as u32);
        counter.try_add(1).expect("far from the limit");
        let read = counter.read();
        assert!(counter.sum() == sum && read.low() <= sum && sum <= read.high(), "{read:?}");
    }
    let (sum, high) = (cpus as i64, counter.read().high());
    assert!(high > 2 * sum, "most CPUs have some in stock: {high}");
    counter.try_add(limit - sum + 1).expect_err("more than there is");
    counter.try_add(limit - sum).expect("to the unit");
    assert_eq!(counter.sum(), limit);
    counter.try_add(1).expect_err("full");
}
