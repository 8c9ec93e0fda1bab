//! Levels, with the driver's own threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use submeter_bank::{Answer, Bank, Budget, InForce, MemoryBank, Outage, RefusedError, Request};
use submeter_fleet::Fleet;

use crate::world::{LONG, World, bank, memory_of, until};

/// A bank that several processes of a test share, and that hangs or panics when told to.
#[derive(Clone)]
struct Shared {
    bank: Arc<MemoryBank>,
    hangs: Arc<Mutex<()>>,
    panics: bool,
}

impl Bank for Shared {
    type Error = RefusedError;

    fn exchange(&self, request: &Request) -> Result<Answer, RefusedError> {
        drop(self.hangs.lock());
        assert!(!self.panics, "as it was told to");
        self.bank.exchange(request)
    }
}

fn shared(ttl: Duration, budget: &Budget, limit: u64) -> Shared {
    let bank = Arc::new(bank(ttl, &[(budget, limit)]));
    Shared { bank, hangs: Arc::default(), panics: false }
}

fn start(world: &World, budget: &Budget, least: u64, outage: Outage, bank: &Shared) -> Fleet {
    let mut driver = world.driver();
    driver.add_level(budget, world.memory, least, outage).expect("a group");
    driver.start(bank.clone()).expect("threads")
}

fn in_force(fleet: &Fleet) -> InForce {
    fleet.status()[0].in_force
}

/// Processes that charge all the time never exceed the limit of the fleet.
#[test]
fn busy_processes_never_exceed_the_limit() {
    const LIMIT: u64 = 10_000;
    let budget = memory_of("/acme");
    let bank = shared(Duration::from_secs(2), &budget, LIMIT);
    let (used, granted) = (AtomicU64::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (used, granted, bank, budget) = (&used, &granted, &bank, &budget);
            scope.spawn(move || {
                let world = World::new();
                let fleet = start(&world, budget, 100, Outage::Strict, bank);
                let group = world.group("/acme");
                let mut rng = fastrand::Rng::with_seed(seed);
                while begun.elapsed() < Duration::from_secs(3) {
                    let n = rng.u64(1..LIMIT);
                    let Ok(held) = group.try_charge(world.memory, n) else {
                        std::thread::sleep(Duration::from_millis(1));
                        continue;
                    };
                    // SeqCst, here and below: an amount is counted from after its grant until
                    // before it is given back, so that the count is never more than what is used.
                    let all = used.fetch_add(n, Ordering::SeqCst) + n;
                    assert!(all <= LIMIT, "{all} are used of {LIMIT}");
                    granted.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(1));
                    used.fetch_sub(n, Ordering::SeqCst);
                    drop(held);
                }
                fleet.stop();
            });
        }
    });
    // SeqCst: as above.
    assert!(granted.load(Ordering::SeqCst) > 10, "a bank that lends nothing keeps every limit");
}

/// Leases end in time while the bank hangs, and return when it continues.
#[test]
fn leases_end_while_the_bank_hangs() {
    let budget = memory_of("/acme");
    let bank = shared(Duration::from_millis(500), &budget, 1000);
    let world = World::new();
    let fleet = start(&world, &budget, 50, Outage::Floor(10), &bank);
    until("there is a lease", || in_force(&fleet) == InForce::Lease);
    let hung = bank.hangs.lock();
    let since = Instant::now();
    until("the floor is in force", || in_force(&fleet) == InForce::Floor);
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    assert_eq!(world.limit("/acme"), Some(10));
    drop(hung);
    until("there is a lease again", || in_force(&fleet) == InForce::Lease);
}

#[test]
fn a_waiting_charge_asks_for_more_and_has_it() {
    let budget = memory_of("/acme");
    let bank = shared(LONG, &budget, 100_000);
    let world = World::new();
    let fleet = start(&world, &budget, 10, Outage::Strict, &bank);
    until("there is a lease", || in_force(&fleet) == InForce::Lease);
    let group = world.group("/acme");
    // It waits only if the limit could grant the charge at all.
    let held = group.try_charge(world.memory, 10).expect("10 are lent");
    let waits = group.charge_blocking(world.memory, 10, Duration::from_secs(60));
    assert!(waits.is_ok(), "{waits:?}: {:?}", fleet.status());
    drop(held);
}

#[test]
fn a_stopping_process_leaves_its_lease() {
    let budget = memory_of("/acme");
    let bank = shared(LONG, &budget, 1000);
    let worlds = [World::new(), World::new()];
    let first = start(&worlds[0], &budget, 1000, Outage::Strict, &bank);
    until("all is lent", || worlds[0].limit("/acme") == Some(1000));
    first.stop();
    let _second = start(&worlds[1], &budget, 1000, Outage::Strict, &bank);
    until("all is lent to the second", || worlds[1].limit("/acme") == Some(1000));
}

/// A bank whose client panics or refuses is reported.
#[test]
fn a_banks_panicking_client_is_reported() {
    let budget = memory_of("/acme");
    let mut bank = shared(LONG, &budget, 1000);
    bank.panics = true;
    let world = World::new();
    let fleet = start(&world, &budget, 10, Outage::Floor(5), &bank);
    until("it has failed twice", || fleet.exchanges().failed >= 2);
    assert_eq!(fleet.exchanges().last_error.as_deref(), Some("the bank's client panicked"));
    assert_eq!(world.limit("/acme"), Some(5));
}

/// A bank that records when it was asked.
struct Noted(MemoryBank, Sender<Instant>);

impl Bank for Noted {
    type Error = RefusedError;

    fn exchange(&self, request: &Request) -> Result<Answer, RefusedError> {
        self.1.send(Instant::now()).expect("the test listens");
        self.0.exchange(request)
    }
}

#[test]
fn refusals_do_not_ask_more_often_than_is_of_use() {
    let budget = memory_of("/acme");
    let (noted, asked): (_, Receiver<Instant>) = channel();
    let world = World::new();
    let mut driver = world.driver();
    driver.add_level(&budget, world.memory, 10, Outage::Strict).expect("a group");
    let bank = Noted(bank(LONG, &[(&budget, 1000)]), noted);
    let fleet = driver.start(bank).expect("threads");
    let group = world.group("/acme");
    until("the whole limit is lent", || {
        drop(group.try_charge(world.memory, 2000));
        fleet.refused();
        world.limit("/acme") == Some(1000)
    });
    let grown = asked.try_iter().count();
    assert!(grown < 20, "{grown} exchanges until all was lent");
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(500) {
        drop(group.try_charge(world.memory, 2000));
        fleet.refused();
        std::thread::sleep(Duration::from_millis(1));
    }
    let more = asked.try_iter().count();
    assert!(more <= 2, "{more} exchanges that brought nothing");
}
