//! A tree with leases, and patience.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use submeter::{Bytes, Count, Counter, Group, Quota, RateLimit, Schema, Tree};
use submeter_bank::{Bank, Budget, MemoryBank};
use submeter_fleet::Driver;

/// Long enough that no lease ends during a test that does not wait for it.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// Longer than anything takes on a loaded machine; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) tree: Tree,
    pub(crate) memory: Quota<Bytes>,
    pub(crate) requests: RateLimit<Count>,
    pub(crate) answered: Counter<Count>,
}

impl World {
    pub(crate) fn new() -> World {
        let mut schema = Schema::builder();
        let memory = schema.quota::<Bytes>("memory", "Memory held");
        let requests = schema.rate_limit::<Count>("requests", "Requests");
        let answered = schema.counter::<Count>("answered", "Requests answered");
        let schema = schema.build().expect("a schema");
        World { tree: Tree::new(schema).expect("a tree"), memory, requests, answered }
    }

    pub(crate) fn driver(&self) -> Driver {
        Driver::new(&self.tree, "web").look_every(Duration::from_millis(5))
    }

    pub(crate) fn group(&self, path: &str) -> Group {
        if path == "/" { self.tree.root().clone() } else { self.tree.get(path).expect("a group") }
    }

    pub(crate) fn limit(&self, path: &str) -> Option<u64> {
        self.group(path).usage(self.memory).limit
    }

    /// Takes one request if the rate grants it, and counts it.
    pub(crate) fn take(&self, path: &str) -> bool {
        let group = self.group(path);
        let granted = group.try_take(self.requests, 1).is_ok();
        if granted {
            group.add(self.answered, 1);
        }
        granted
    }
}

pub(crate) fn memory_of(path: &str) -> Budget {
    Budget::new(path, "memory").expect("a name")
}

pub(crate) fn requests_of(path: &str) -> Budget {
    Budget::new(path, "requests").expect("a name")
}

pub(crate) fn bank(ttl: Duration, limits: &[(&Budget, u64)]) -> MemoryBank {
    let bank = MemoryBank::new(ttl);
    for &(budget, limit) in limits {
        bank.set_limit(budget, limit, 0).expect("no floors");
    }
    bank
}

/// Looks once, and asks the bank if it is time.
pub(crate) fn step(driver: &mut Driver, bank: &impl Bank) -> bool {
    let Some(request) = driver.look() else { return false };
    match bank.exchange(&request) {
        Ok(answer) => assert!(driver.accept(&answer), "an answer in time"),
        Err(_) => driver.failed(),
    }
    true
}

/// Tries repeatedly until it holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends a scope's threads with the test, also when it panics.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
