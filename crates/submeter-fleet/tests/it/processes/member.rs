//! A member of a fleet, in a process of its own.

use std::path::Path;
use std::process::Child;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use fastrand::Rng;
use submeter::{Charge, Group};
use submeter_bank::{Answer, InForce, Outage, Request};
use submeter_fleet::Driver;

use super::arbiter::{Arbiter, Teller};
use super::{FLOOR, LIMITS, again, end, engine, signal};
use crate::world::{World, memory_of};

const TEST: &str = "processes::member::member_of_a_fleet";
const VARIABLE: &str = "SUBMETER_FLEET_MEMBER";
/// A pause that counts as a stop.
const STOPPED: Duration = Duration::from_millis(300);

pub(super) struct Member {
    name: String,
    child: Child,
}

impl Member {
    pub(super) fn start(at: usize, arbiter: &Arbiter, bank: &str) -> Member {
        let name = format!("member-{at}");
        let child = spawn(&name, arbiter, bank);
        Member { name, child }
    }

    pub(super) fn start_again(&mut self, arbiter: &Arbiter, bank: &str) {
        self.child = spawn(&self.name, arbiter, bank);
    }

    pub(super) fn kill(&mut self) {
        end(&mut self.child);
    }

    pub(super) fn stop_for(&mut self, time: Duration, arbiter: &Arbiter) {
        arbiter.stops(self.child.id());
        signal(self.child.id(), "-STOP");
        std::thread::sleep(time);
        arbiter.goes_on(self.child.id());
        signal(self.child.id(), "-CONT");
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Fails if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(name: &str, arbiter: &Arbiter, bank: &str) -> Child {
    let value = format!("{name} {} {bank}", arbiter.path().display());
    again(TEST, VARIABLE, &value).spawn().expect("the test's own program")
}

/// Runs the member's process if the variable is set, and does nothing otherwise.
#[test]
fn member_of_a_fleet() {
    let Ok(value) = std::env::var(VARIABLE) else { return };
    let words: Vec<_> = value.split(' ').collect();
    let [name, arbiter, bank] = words[..] else { panic!("{value}") };
    let world = World::new();
    let mut driver = Driver::new(&world.tree, name);
    for (path, _) in LIMITS {
        let outage = Outage::Floor(FLOOR);
        driver.add_level(&memory_of(path), world.memory, 30, outage).expect("a group");
    }
    work(&world, driver, bank, Teller::connect(Path::new(arbiter)));
}

/// Starts the thread that waits for the bank, so that the other need not.
fn asker(url: &str) -> (Sender<Request>, Receiver<Option<Answer>>) {
    let (requests, asked) = channel::<Request>();
    let (answers, answered) = channel();
    let url = url.to_owned();
    std::thread::spawn(move || {
        let exchange = engine::client(&url);
        for request in asked {
            if answers.send(exchange(&request)).is_err() {
                return;
            }
        }
    });
    (requests, answered)
}

fn work(world: &World, mut driver: Driver, bank: &str, mut teller: Teller) {
    let (requests, answers) = asker(bank);
    let groups = [world.group("/acme"), world.tree.create("/other").expect("a group")];
    let mut held: Vec<(Group, Charge)> = Vec::new();
    let mut rng = Rng::new();
    let mut appetite = 50;
    let mut last = Instant::now();
    loop {
        let was_stopped = last.elapsed() > STOPPED;
        last = Instant::now();
        for answer in answers.try_iter() {
            match answer {
                Some(answer) => drop(driver.accept(&answer)),
                None => driver.failed(),
            }
        }
        if let Some(request) = driver.look() {
            requests.send(request).expect("the thread lives");
        }
        let has_lease = driver.status()[0].in_force == InForce::Lease;
        // A program gives back what exceeds its limits once it has no lease.
        while !has_lease
            && LIMITS.iter().any(|(path, _)| world.group(path).usage(world.memory).excess() > 0)
        {
            let Some(one) = held.pop() else { break };
            if !give(&mut teller, one) {
                return;
            }
        }
        if was_stopped && !teller.tell("awake") {
            return;
        }
        if rng.u8(0..50) == 0 {
            appetite = rng.u8(0..100);
        }
        let group = &groups[rng.usize(..2)];
        let n = rng.u64(1..60);
        let told = if rng.u8(0..100) < appetite {
            // Refused charges are what makes it ask for more.
            group.try_charge(world.memory, n).map_or(true, |charge| {
                held.push((group.clone(), charge));
                teller.tell(&format!("hold {} {n}", group.path()))
            })
        } else if held.is_empty() {
            true
        } else {
            let one = held.swap_remove(rng.usize(..held.len()));
            give(&mut teller, one)
        };
        if !told {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn give(teller: &mut Teller, (group, charge): (Group, Charge)) -> bool {
    teller.tell(&format!("give {} {}", group.path(), charge.amount()))
}
