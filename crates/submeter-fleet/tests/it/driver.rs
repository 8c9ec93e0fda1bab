//! Levels, without threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use submeter_bank::{InForce, Ledger, MemoryBank, Outage, Past};

use crate::world::{LONG, StopOnDrop, World, bank, memory_of, requests_of, step, until};

#[test]
fn a_group_is_limited_as_soon_as_it_is_added() {
    let world = World::new();
    let mut driver = world.driver();
    driver.add_level(&memory_of("/acme"), world.memory, 50, Outage::Floor(10)).expect("a group");
    assert_eq!(world.limit("/acme"), Some(10));
    let status = &driver.status()[0];
    assert_eq!((status.in_force, status.limit), (InForce::Floor, 10));
    step(&mut driver, &bank(LONG, &[(&memory_of("/acme"), 1000)]));
    assert_eq!(world.limit("/acme"), Some(50));
    assert_eq!(driver.status()[0].in_force, InForce::Lease);
}

#[test]
fn a_refusal_asks_for_more_until_it_is_granted() {
    // Below a leased parent, whose lease has to grow with the child's.
    let (root, acme) = (memory_of("/"), memory_of("/acme"));
    let bank = bank(LONG, &[(&root, 100_000), (&acme, 50_000)]);
    let world = World::new();
    let mut driver = world.driver();
    driver.add_level(&root, world.memory, 1, Outage::Strict).expect("a group");
    driver.add_level(&acme, world.memory, 1, Outage::Strict).expect("a group");
    let group = world.group("/acme");
    let mut exchanges = 0;
    until("40,000 are granted", || {
        exchanges += u32::from(step(&mut driver, &bank));
        group.try_charge(world.memory, 40_000).is_ok()
    });
    // It doubles each time, with a few more because two budgets alternate.
    assert!(exchanges < 40, "{exchanges} exchanges");
}

/// A lease's unused part is returned, and lent to others.
#[test]
fn what_is_not_used_is_lent_to_others() {
    let budget = memory_of("/acme");
    let bank = bank(Duration::from_secs(1), &[(&budget, 1000)]);
    let worlds = [World::new(), World::new()];
    let mut drivers = worlds.each_ref().map(World::driver);
    for (driver, world) in drivers.iter_mut().zip(&worlds) {
        driver.add_level(&budget, world.memory, 10, Outage::Strict).expect("a group");
    }
    let mut held = Vec::new();
    for (at, other) in [(0, 1), (1, 0)] {
        let group = worlds[at].group("/acme");
        until("nine tenths are granted", || {
            for driver in &mut drivers {
                step(driver, &bank);
            }
            let limits = worlds.each_ref().map(|world| world.limit("/acme").expect("a limit"));
            assert!(limits[0] + limits[1] <= 1000, "{limits:?}");
            held.extend(group.try_charge(worlds[at].memory, 900));
            !held.is_empty()
        });
        assert_eq!(worlds[other].group("/acme").usage(worlds[other].memory).current, 0);
        held.clear();
    }
}

#[test]
fn a_limit_changed_beside_the_driver_is_put_back() {
    let (budget, world) = (memory_of("/acme"), World::new());
    let mut driver = world.driver();
    driver.add_level(&budget, world.memory, 50, Outage::Strict).expect("a group");
    step(&mut driver, &bank(LONG, &[(&budget, 1000)]));
    world.group("/acme").set_limit(world.memory, None);
    driver.look();
    assert_eq!(world.limit("/acme"), Some(50));
}

#[test]
fn a_group_made_again_is_never_without_its_lease() {
    const LEASE: u64 = 1000;
    let (level, rate) = (memory_of("/acme/web"), requests_of("/acme/web"));
    let bank = bank(LONG, &[(&level, LEASE), (&rate, LEASE)]);
    let world = World::new();
    let mut driver = world.driver();
    driver.add_level(&level, world.memory, 1, Outage::Strict).expect("a group");
    driver.add_rate(&rate, world.requests, [world.answered], 1, Outage::Strict).expect("a group");
    let stop = AtomicBool::new(false);
    let taken = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let guard = StopOnDrop(&stop);
        let writers = [(); 2].map(|()| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let Ok(group) = world.tree.get_or_create("/acme/web") else { continue };
                    // More than is ever lent at once, so that the driver asks for all of it.
                    let held: Vec<_> =
                        (0..11).map_while(|_| group.try_charge(world.memory, 100).ok()).collect();
                    let usage = group.usage(world.memory);
                    assert!(usage.limit.is_some_and(|limit| limit <= LEASE), "{usage:?}");
                    assert!(usage.current <= LEASE, "{usage:?}");
                    while group.try_take(world.requests, 1).is_ok() {
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                    assert!(group.rate(world.requests).is_some());
                    drop(held);
                }
            })
        });
        for life in 0..1000 {
            step(&mut driver, &bank);
            let path = if life % 2 == 0 { "/acme/web" } else { "/acme" };
            if let Some(group) = world.tree.get(path) {
                let _ = group.kill_subtree();
            }
        }
        drop(guard);
        for writer in writers {
            writer.join().expect("no look was above the lease");
        }
    });
    let most = start.elapsed().as_secs_f64() * LEASE as f64;
    let taken = taken.into_inner();
    assert!(taken as f64 <= most + 2.0, "{taken} were taken of {most}");
}

#[test]
fn a_lease_ends_while_a_request_is_under_way() {
    let (budget, world) = (memory_of("/acme"), World::new());
    let mut driver = world.driver();
    driver.add_level(&budget, world.memory, 50, Outage::Floor(10)).expect("a group");
    step(&mut driver, &bank(Duration::from_millis(500), &[(&budget, 1000)]));
    assert_eq!(world.limit("/acme"), Some(60 - 10));
    let mut requests = 0;
    until("the lease has ended", || {
        requests += u32::from(driver.look().is_some());
        world.limit("/acme") == Some(10)
    });
    assert_eq!((driver.status()[0].in_force, requests), (InForce::Floor, 1));
    driver.failed();
    until("it asks again", || driver.look().is_some());
}

#[test]
fn a_leaving_process_returns_what_is_unused() {
    let budget = memory_of("/acme");
    let bank = bank(LONG, &[(&budget, 1000)]);
    let worlds = [World::new(), World::new()];
    let mut drivers = worlds.each_ref().map(World::driver);
    for (driver, world) in drivers.iter_mut().zip(&worlds) {
        driver.add_level(&budget, world.memory, 1000, Outage::Strict).expect("a group");
    }
    step(&mut drivers[0], &bank);
    let held = worlds[0].group("/acme").try_charge(worlds[0].memory, 300).expect("1000 are lent");
    let last = drivers[0].release();
    assert_eq!(worlds[0].limit("/acme"), Some(0));
    submeter_bank::Bank::exchange(&bank, &last).expect("an answer");
    step(&mut drivers[1], &bank);
    assert_eq!(worlds[1].limit("/acme"), Some(700));
    drop(held);
}

#[test]
fn a_bank_that_learns_is_known_to() {
    let (budget, world) = (memory_of("/acme"), World::new());
    let mut ledger = Ledger::new(Duration::from_millis(300), Past::Unknown);
    ledger.set_limit(&budget, 1000, 0).expect("no floors");
    let bank = MemoryBank::from(ledger);
    let mut driver = world.driver();
    driver.add_level(&budget, world.memory, 50, Outage::Strict).expect("a group");
    step(&mut driver, &bank);
    assert!(driver.learns());
    assert_eq!(world.limit("/acme"), Some(0));
    until("it lends", || {
        step(&mut driver, &bank);
        // Without refusals it would be idle, and want nothing.
        world.group("/acme").try_charge(world.memory, 20).is_ok()
    });
    assert!(!driver.learns());
}
