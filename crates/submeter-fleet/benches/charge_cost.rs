//! The cost of a charge whose limit is leased, compared with one whose limit is the process's own.
//!
//! `cargo bench -p submeter-fleet --bench charge_cost`

use std::time::{Duration, Instant};

use submeter::{Bytes, Group, Quota, Schema, Tree};
use submeter_bank::{Budget, InForce, MemoryBank, Outage};
use submeter_fleet::Driver;

/// A time to live that users would choose.
const TTL: Duration = Duration::from_secs(15);
const LIMIT: u64 = 1 << 30;
/// How long each variant charges before the other does. A driver looks every 50 ms.
const TURN: Duration = Duration::from_millis(60);
const TURNS: usize = 300;

/// A tree with a tenant of two levels.
fn tree() -> (Tree, Group, Quota<Bytes>) {
    let mut schema = Schema::builder();
    let memory = schema.quota::<Bytes>("memory", "Memory held");
    let tree = Tree::new(schema.build().expect("a schema")).expect("a tree");
    let group = tree.create("/acme").and_then(|acme| acme.create_child("query"));
    (tree.clone(), group.expect("a group"), memory)
}

/// Charges for a while, and returns how many nanoseconds each charge took with its release.
fn charge(group: &Group, memory: Quota<Bytes>) -> f64 {
    let (start, mut n) = (Instant::now(), 0_u32);
    while start.elapsed() < TURN {
        for _ in 0..1_000 {
            drop(group.try_charge(memory, 64).expect("room"));
        }
        n += 1_000;
    }
    start.elapsed().as_nanos() as f64 / f64::from(n)
}

fn main() {
    let (own_tree, own, memory) = tree();
    let acme = own_tree.get("/acme").expect("it is there");
    acme.set_limit(memory, Some(LIMIT));
    let (tree, leased, leased_memory) = tree();
    let budget = Budget::new("/acme", "memory").expect("a name");
    let bank = MemoryBank::new(TTL);
    bank.set_limit(&budget, LIMIT, 0).expect("no floors");
    let mut driver = Driver::new(&tree, "web-1");
    driver.add_level(&budget, leased_memory, LIMIT / 2, Outage::Strict).expect("a group");
    let fleet = driver.start(bank).expect("threads");
    // A group that holds nothing is idle, and returns its lease.
    let hold = |group: &Group, memory| loop {
        match group.try_charge(memory, LIMIT / 4) {
            Ok(held) => break held,
            Err(_) => std::thread::yield_now(),
        }
    };
    let _held = [hold(&own, memory), hold(&leased, leased_memory)];
    assert_eq!(fleet.status()[0].in_force, InForce::Lease);
    let mut ratios: Vec<_> = (0..TURNS)
        .map(|turn| {
            // Each goes first as often as the other.
            let first = (turn % 2 == 1).then(|| charge(&leased, leased_memory));
            let own = charge(&own, memory);
            first.unwrap_or_else(|| charge(&leased, leased_memory)) / own
        })
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let [low, median, high] = [1, 2, 3].map(|quarter| ratios[TURNS * quarter / 4]);
    let exchanges = fleet.exchanges();
    println!(
        "leased ÷ own: {median:.4}, quartiles {low:.4} and {high:.4}, {TURNS} turns of {TURN:?}"
    );
    println!("{exchanges:?}");
    fleet.stop();
}
