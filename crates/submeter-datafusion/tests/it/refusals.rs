//! Which operators are refused, and what the text says.

use std::sync::Arc;

use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use submeter::LimitMode;
use submeter_datafusion::{GroupPool, TenantPools};

use crate::{World, fixed, spillable};

fn text(error: DataFusionError) -> String {
    let DataFusionError::ResourcesExhausted(text) = error else {
        panic!("operators spill upon ResourcesExhausted alone: {error}")
    };
    text
}

fn query(pools: &TenantPools, name: &str) -> Arc<dyn MemoryPool> {
    Arc::clone(&pools.query_named(name).expect("a new name").memory_pool)
}

/// A refusal names the query and the operator that hold the most.
#[test]
fn a_refusal_names_the_largest_holders() {
    let world = World::new();
    let pools = TenantPools::new(&world.tenant("/acme", 1000), world.memory);
    let (report, page) = (query(&pools, "report"), query(&pools, "page"));
    let sort = spillable("ExternalSorter[0]", &report);
    sort.try_grow(600).expect("it is alone");
    let merge = fixed("ExternalSorterMerge[0]", &report);
    merge.try_grow(100).expect("it fits");
    let join = fixed("HashJoinInput", &page);
    join.try_grow(200).expect("it fits");
    let refused = text(join.try_grow(101).expect_err("100 are left"));
    assert_eq!(
        refused,
        "/acme/page: 101.0 B more of memory for HashJoinInput would exceed the limit of /acme: \
         900.0 B of 1000.0 B held; most by /acme/report 700.0 B (ExternalSorter[0] 600.0 B, can \
         spill; ExternalSorterMerge[0] 100.0 B), /acme/page 200.0 B (HashJoinInput 200.0 B)"
    );
    assert_eq!(join.size(), 200);
    join.try_grow(100).expect("it fits exactly");
}

/// A refusal by the query's own limit names its operators.
#[test]
fn a_querys_own_refusal_names_its_operators() {
    let world = World::new();
    let pools = TenantPools::new(&world.tenant("/acme", 1000), world.memory);
    let pool = query(&pools, "page");
    let group = pool.downcast_ref::<GroupPool>().expect("made here").group().clone();
    group.set_limit(world.memory, Some(300));
    let join = fixed("HashJoinInput", &pool);
    join.try_grow(300).expect("it fits");
    assert_eq!(
        text(join.try_grow(1).expect_err("it is full")),
        "/acme/page: 1.0 B more of memory for HashJoinInput would exceed the limit of /acme/page: \
         300.0 B of 300.0 B held; most by HashJoinInput 300.0 B"
    );
    assert_eq!(
        (
            group.usage(world.memory).refused,
            group.parent().expect("/acme").usage(world.memory).refused
        ),
        (1, 0)
    );
}

/// Tenants are refused by their own limits, and by the limit of all.
#[test]
fn own_limits_and_that_of_all_refuse() {
    let world = World::new();
    world.tree.root().set_limit(world.memory, Some(1500));
    let pools = ["/a", "/b"].map(|path| TenantPools::new(&world.tenant(path, 1000), world.memory));
    let [a, b] = [0, 1].map(|at| query(&pools[at], "q"));
    let (held, other) = (fixed("join", &a), fixed("join", &b));
    held.try_grow(1000).expect("the tenant's limit");
    assert!(text(held.try_grow(1).expect_err("a is full")).contains("the limit of /a: "));
    other.try_grow(500).expect("what a holds is not b's matter while the root has room");
    let refused = text(other.try_grow(1).expect_err("the root is full"));
    assert_eq!(
        refused,
        "/b/q: 1.0 B more of memory for join would exceed a limit shared with others"
    );
}

#[test]
fn a_refusals_text_tells_nothing_of_others() {
    let world = World::new();
    let root = world.tree.root();
    let pools = ["/a", "/b"].map(|path| TenantPools::new(&world.tenant(path, 1000), world.memory));
    let [a, b] = [0, 1].map(|at| query(&pools[at], "q"));
    // A group of the program's own has no queries.
    let c: Arc<dyn MemoryPool> = Arc::new(GroupPool::new(&world.tenant("/c", 1000), world.memory));
    let other = fixed("join", &a);
    other.try_grow(777).expect("it fits");
    for pool in [&b, &c] {
        let (held, sort) = (fixed("merge", pool), spillable("sort", pool));
        sort.try_grow(100).expect("it fits");
        root.set_limit(world.memory, Some(root.usage(world.memory).current + 9));
        let [refused, spills] = [held.try_grow(10), sort.try_grow(9)].map(|grown| {
            let told = text(grown.expect_err("the root is full"));
            let secrets = ["/a", "777", "877", "below /:", "limit of /:"];
            assert!(secrets.iter().all(|secret| !told.contains(secret)), "{told}");
            told
        });
        assert!(refused.ends_with("would exceed a limit shared with others"), "{refused}");
        assert!(spills.ends_with("others below a limit shared with others"), "{spills}");
        root.set_limit(world.memory, None);
    }
}

/// A reservation that cannot be refused is an overdraft, and blocks others.
#[test]
fn the_irrefusable_is_an_overdraft() {
    let world = World::new();
    let acme = world.tenant("/acme", 1000);
    let pool = query(&TenantPools::new(&acme, world.memory), "q");
    let (join, other) = (fixed("join", &pool), fixed("other", &pool));
    join.shrink(0);
    join.grow(0);
    join.grow(1200);
    let usage = acme.usage(world.memory);
    assert_eq!((usage.current, usage.excess(), usage.overdrafts), (1200, 200, 1));
    assert!(other.try_grow(1).is_err());
    join.grow(0);
    join.shrink(201);
    other.try_grow(1).expect("1 is left");
    assert_eq!(acme.usage(world.memory).overdrafts, 1);
}

/// A lowered limit refuses at once, and a soft one never.
#[test]
fn a_lowered_limit_refuses_at_once() {
    let world = World::new();
    let acme = world.tenant("/acme", 1000);
    let pool = query(&TenantPools::new(&acme, world.memory), "q");
    let join = fixed("join", &pool);
    join.try_grow(600).expect("it fits");
    acme.set_limit(world.memory, Some(500));
    assert!(join.try_grow(1).is_err());
    join.try_grow(0).expect("nothing is no more");
    join.shrink(101);
    join.try_grow(1).expect("499 were left");
    acme.set_limit_mode(world.memory, LimitMode::Soft);
    join.try_grow(1000).expect("a soft limit refuses nothing");
}

#[test]
fn the_pool_tells_its_limit_and_its_name() {
    let world = World::new();
    let acme = world.tree.create("/acme").expect("a new name");
    let pool = query(&TenantPools::new(&acme, world.memory), "q");
    assert!(matches!(pool.memory_limit(), MemoryLimit::Infinite));
    acme.set_limit(world.memory, Some(3 << 20));
    world.tree.root().set_limit(world.memory, Some(4 << 20));
    assert!(matches!(pool.memory_limit(), MemoryLimit::Finite(limit) if limit == 3 << 20));
    let held = fixed("join", &pool);
    held.grow(2 << 20);
    assert_eq!((pool.name(), pool.to_string()), ("group", "group(/acme/q: 2.0 MB)".to_owned()));
    assert_eq!(format!("{pool:?}"), pool.to_string());
}
