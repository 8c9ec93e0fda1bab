//! Which operators a pool asks to spill.

use std::sync::Arc;

use datafusion::execution::memory_pool::{FairSpillPool, MemoryPool, MemoryReservation};
use submeter_datafusion::{GroupPool, TenantPools};

use crate::{World, fixed, spillable};

/// A tenant with a limit of 9000, and a pool for all its queries.
fn pool() -> (World, Arc<dyn MemoryPool>) {
    let world = World::new();
    let acme = world.tenant("/acme", 9000);
    let pool = Arc::new(GroupPool::new(&acme, world.memory));
    (world, pool)
}

/// Grows until it is asked to spill.
fn fill(reservation: &MemoryReservation) -> usize {
    while reservation.try_grow(1).is_ok() {}
    reservation.size()
}

/// Idle operators take nothing from those at work.
#[test]
fn idle_operators_take_nothing_from_others() {
    let (_world, pool) = pool();
    let fair: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(9000));
    let idle = |pool| (0..128).map(|_| spillable("idle", pool)).collect::<Vec<_>>();
    let (_idle, _fair_idle) = (idle(&pool), idle(&fair));
    assert_eq!(fill(&spillable("sort", &fair)), 9000 / 129, "what DataFusion's pool gives");
    assert_eq!(fill(&spillable("sort", &pool)), 9000 / 2);
}

/// Operators at work share, and leave room for the next.
#[test]
fn who_works_shares_and_leaves_room_for_others() {
    let (_world, pool) = pool();
    let sorts = [0, 1].map(|_| spillable("sort", &pool));
    for _ in 0..9000 {
        for sort in &sorts {
            let _ = sort.try_grow(1);
        }
    }
    // Each is asked once and then continues, up to the limit: it would have spilled.
    assert_eq!(pool.reserved(), 9000);
    for sort in &sorts {
        sort.free();
    }
    let mut asked = [None; 2];
    while asked.contains(&None) {
        for (sort, asked) in sorts.iter().zip(&mut asked) {
            if asked.is_none() && sort.try_grow(1).is_err() {
                *asked = Some(sort.size());
            }
        }
    }
    assert_eq!(asked, [Some(3000), Some(3000)], "a third each");
    fixed("join", &pool).try_grow(3000).expect("the rest is for others");
}

#[test]
fn a_refusal_to_spill_says_so_and_comes_once() {
    let (_world, pool) = pool();
    let sort = spillable("ExternalSorter[0]", &pool);
    sort.try_grow(4500).expect("half");
    let refused = sort.try_grow(1).expect_err("no more than half");
    assert_eq!(
        refused.strip_backtrace(),
        "Resources exhausted: /acme: 1.0 B more for ExternalSorter[0], which can spill the 4.4 KB \
         that it holds, would leave too little for others below /acme: 4.4 KB of 8.8 KB held"
    );
    sort.try_grow(4500).expect("to spill may take memory: only limits refuse it now");
    assert!(sort.try_grow(1).is_err(), "the limit");
    sort.shrink(0);
    sort.shrink(200);
    sort.try_grow(100).expect("to sort what it writes, say");
    let again = sort.try_grow(1).expect_err("it has given back and taken, and is asked again");
    assert!(again.to_string().contains("can spill the 8.7 KB"), "{again}");
}

#[test]
fn what_cannot_spill_is_refused_by_limits_only() {
    let (_world, pool) = pool();
    let join = fixed("join", &pool);
    join.try_grow(8200).expect("it cannot spill, and may take all");
    let (sort, small) = (spillable("sort", &pool), spillable("sort", &pool));
    sort.try_grow(700).expect("it holds nothing yet");
    small.try_grow(20).expect("it holds nothing yet");
    assert!(sort.try_grow(1).is_err(), "80 are left, and it holds 700");
    for _ in 0..70 {
        small.try_grow(1).expect("below a thirty-second it is not worth it");
    }
    assert_eq!(pool.reserved(), 8990);
}

#[test]
fn high_is_for_those_that_can_spill() {
    let world = World::new();
    let acme = world.tenant("/acme", 9000);
    acme.set_high(world.memory, Some(5000));
    let pools = TenantPools::new(&acme, world.memory);
    let pool = |name| Arc::clone(&pools.query_named(name).expect("a new name").memory_pool);
    let (one, two) = (pool("one"), pool("two"));
    let sort = spillable("sort", &one);
    assert_eq!(fill(&sort), 2500, "half of what is below high");
    assert_eq!(fill(&sort), 9000, "asked once, then limits alone");
    sort.free();
    sort.try_grow(2500).expect("as before");
    let refused = sort.try_grow(1).expect_err("no more").to_string();
    assert!(refused.ends_with("below /acme: 2.4 KB of 4.9 KB held"), "{refused}");
    fixed("join", &two).try_grow(6500).expect("above high there is room for what cannot spill");
}

/// Without limits no operator has to spill.
#[test]
fn without_limits_all_is_granted() {
    let world = World::new();
    let acme = world.tree.create("/acme").expect("a new name");
    let pool: Arc<dyn MemoryPool> = Arc::new(GroupPool::new(&acme, world.memory));
    let sort = spillable("sort", &pool);
    for _ in 0..3 {
        sort.try_grow(1 << 40).expect("no limit");
    }
}
