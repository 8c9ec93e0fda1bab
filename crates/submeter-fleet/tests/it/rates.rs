//! Rates, without threads.

use std::time::{Duration, Instant};

use submeter::Rate;
use submeter_bank::{Bank, Outage};

use crate::world::{LONG, World, bank, memory_of, requests_of, step, until};

#[test]
fn an_unlent_rate_grants_nothing() {
    let (budget, world) = (requests_of("/acme"), World::new());
    let mut driver = world.driver();
    driver.add_rate(&budget, world.requests, [world.answered], 1, Outage::Strict).expect("a group");
    assert!(!world.take("/acme"));
    let bank = bank(LONG, &[(&budget, 1000)]);
    step(&mut driver, &bank);
    until("a request is granted", || {
        step(&mut driver, &bank);
        world.take("/acme")
    });
    driver.release();
    assert!(!world.take("/acme"), "what was left of the rate is gone with the lease");
}

/// Refusals count the time that they wait for with a lease, and none without.
#[test]
fn refusals_count_time_only_with_a_lease() {
    let (budget, world) = (requests_of("/acme"), World::new());
    let mut driver = world.driver();
    driver.add_rate(&budget, world.requests, [world.answered], 1, Outage::Strict).expect("a group");
    let acme = world.group("/acme");
    let counted = || {
        let time = Duration::from_nanos(acme.sum(world.requests.throttled_time()));
        (acme.sum(world.requests.throttled()), time)
    };
    let refused = acme.try_take(world.requests, 1).expect_err("nothing is lent yet");
    assert_eq!((refused.retry_after(), refused.rate()), (None, Rate::NOTHING));
    assert_eq!(counted(), (1, Duration::ZERO));
    let bank = bank(LONG, &[(&budget, 1)]);
    until("there is a lease", || step(&mut driver, &bank));
    acme.try_take(world.requests, 1).expect_err("a second for one");
    let (refusals, time) = counted();
    assert!(refusals == 2 && time > Duration::ZERO && time <= Duration::from_secs(1), "{time:?}");
    driver.release();
    acme.try_take(world.requests, 1).expect_err("nothing is lent any more");
    assert_eq!(counted(), (3, time));
}

#[test]
fn a_new_process_has_no_burst_it_has_not_earned() {
    let (budget, world) = (requests_of("/acme"), World::new());
    let bank = bank(LONG, &[(&budget, 1_000_000)]);
    let mut driver = world.driver();
    let start = Instant::now();
    driver
        .add_rate(&budget, world.requests, [world.answered], 1000, Outage::Floor(1000))
        .expect("a group");
    step(&mut driver, &bank);
    let taken = (0..100_000).take_while(|_| world.take("/acme")).count() as u128;
    let earned = start.elapsed().as_millis() + 1;
    assert!(taken <= earned, "{taken} were taken of {earned}");
}

#[test]
fn a_burst_claims_no_more_than_the_lent_rate() {
    let (budget, world) = (requests_of("/acme"), World::new());
    let bank = bank(Duration::from_millis(600), &[(&budget, 1_000)]);
    let mut driver = world.driver();
    driver
        .add_rate(&budget, world.requests, [world.answered], 1_000, Outage::Strict)
        .expect("a group");
    let mut bursts = 0;
    until("there were five bursts", || {
        if let Some(request) = driver.look() {
            let has = request.wants[0].has;
            assert!(has <= driver.status()[0].limit, "{has}: {:?}", driver.status());
            driver.accept(&bank.exchange(&request).expect("an answer"));
            // What is saved up is taken at once, and the next request is due 50 ms later.
            let taken = (0..1_000).take_while(|_| world.take("/acme")).count();
            bursts += u32::from(taken > 100);
            std::thread::sleep(Duration::from_millis(30));
        }
        bursts == 5
    });
}

/// Refusals of a neighbour neither take a quiet tenant's lease nor measure it anew.
#[test]
fn a_neighbours_refusals_leave_a_quiet_rate() {
    let (budget, noisy, world) = (requests_of("/acme"), memory_of("/noisy"), World::new());
    let bank = bank(LONG, &[(&budget, 1_000), (&noisy, u64::MAX / 2)]);
    let mut driver = world.driver();
    driver.add_rate(&budget, world.requests, [world.answered], 1, Outage::Strict).expect("a group");
    driver.add_level(&noisy, world.memory, 1, Outage::Strict).expect("a group");
    until("there are 100 a second", || {
        step(&mut driver, &bank);
        world.take("/acme");
        driver.status()[0].limit >= 100
    });
    let lent = driver.status()[0].limit;
    let (mut exchanges, mut charges) = (0, Vec::new());
    until("the neighbour was lent more ten times", || {
        let lent = driver.status()[1].limit;
        let charge = world.group("/noisy").try_charge(world.memory, lent + 1);
        charges.extend(charge);
        exchanges += u32::from(step(&mut driver, &bank));
        exchanges >= 10
    });
    let status = &driver.status()[0];
    assert!(status.limit >= lent && status.used == 0, "no period has ended: {status:?}");
}

/// Two processes together are granted no more than the rate of the fleet.
#[test]
fn two_processes_share_the_rate() {
    const PER_SECOND: u64 = 2_000;
    let budget = requests_of("/acme");
    let bank = bank(Duration::from_secs(1), &[(&budget, PER_SECOND)]);
    let worlds = [World::new(), World::new()];
    let mut drivers = worlds.each_ref().map(World::driver);
    let start = Instant::now();
    for (driver, world) in drivers.iter_mut().zip(&worlds) {
        driver
            .add_rate(&budget, world.requests, [world.answered], 100, Outage::Strict)
            .expect("a group");
    }
    // As much as each can get, one after the other, and then both.
    let mut taken = 0;
    for eager in [0..1, 1..2, 0..2] {
        let until = start.elapsed() + Duration::from_secs(2);
        while start.elapsed() < until {
            for driver in &mut drivers {
                step(driver, &bank);
            }
            for world in &worlds[eager.clone()] {
                taken += (0..1_000).take_while(|_| world.take("/acme")).count() as u64;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    // Nothing is saved up before the first lease, so there is no burst on top.
    let most = start.elapsed().as_secs_f64() * PER_SECOND as f64;
    assert!(taken as f64 <= most + 2.0, "{taken} were taken of {most}");
    let rates = worlds.each_ref().map(|world| world.group("/acme").rate(world.requests));
    assert!(rates.iter().all(Option::is_some), "{rates:?}");
    // Slow machines take less, but most of the time there was a lease.
    assert!(taken as f64 >= most / 4.0, "only {taken} were taken of {most}");
}

/// In any span of time a fleet is granted its rate, plus one second of it.
#[test]
fn any_span_grants_the_rate_and_one_second() {
    const PER_SECOND: u64 = 2_000;
    let budget = requests_of("/acme");
    // No lease ends, so that an idle member keeps its lease long enough to save up as much as it
    // may.
    let bank = bank(LONG, &[(&budget, PER_SECOND)]);
    let worlds = [World::new(), World::new()];
    let mut drivers = worlds.each_ref().map(World::driver);
    for (driver, world) in drivers.iter_mut().zip(&worlds) {
        driver
            .add_rate(&budget, world.requests, [world.answered], 100, Outage::Strict)
            .expect("a group");
    }
    let start = Instant::now();
    // Repeated on a machine that was too busy to grant what was saved up within a short time.
    until("something was saved up", || {
        let mut grants = Vec::new();
        // Each has a part, all save up, and then both want everything at once.
        for (eager, millis) in [(0..2, 300), (0..0, 1_200), (0..2, 200)] {
            let until = start.elapsed() + Duration::from_millis(millis);
            while start.elapsed() < until {
                for driver in &mut drivers {
                    step(driver, &bank);
                }
                for world in &worlds[eager.clone()] {
                    let began = start.elapsed();
                    let taken = (0..10_000).take_while(|_| world.take("/acme")).count();
                    grants.push((began, start.elapsed(), taken as f64));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let mut saved = 0.0;
        for (first, (began, ..)) in grants.iter().enumerate() {
            let mut taken = 0.0;
            for (_, ended, n) in &grants[first..] {
                taken += n;
                let rated = PER_SECOND as f64 * (*ended - *began).as_secs_f64();
                saved = f64::max(saved, taken - rated);
                // Each bucket may round up a token that is nearly there.
                let most = rated + PER_SECOND as f64 + 2.0;
                assert!(taken <= most, "{taken} of {most} in {:?}", *ended - *began);
            }
        }
        saved > PER_SECOND as f64 / 2.0
    });
}
