//! How queries begin and end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::memory_pool::UnboundedMemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use submeter_datafusion::{GroupPool, TenantPools};

use crate::{World, fixed};

#[test]
fn a_query_ends_with_its_pools_last_reference() {
    let world = World::new();
    let acme = world.tenant("/acme", 1000);
    let pools = TenantPools::new(&acme, world.memory);
    let runtime = pools.query_named("q").expect("a new name");
    let group = GroupPool::of(&runtime).expect("made here").group().clone();
    assert_eq!(group.path(), "/acme/q");
    let held = fixed("join", &runtime.memory_pool);
    held.try_grow(600).expect("it fits");
    drop(runtime);
    assert!(!group.is_killed() && world.current(&acme) == 600, "an operator is at work still");
    drop(held);
    assert!(group.is_killed() && world.tree.get("/acme/q").is_none());
    assert_eq!((world.current(&acme), acme.usage(world.memory).peak), (0, 600));
    pools.query_named("q").expect("the name is free");
}

#[test]
fn queries_are_numbered_and_names_are_checked() {
    let world = World::new();
    let acme = world.tenant("/acme", 1000);
    let pools = TenantPools::new(&acme, world.memory);
    let kept = [pools.query(), pools.query(), pools.query_named("q")];
    let kept = kept.map(|runtime| runtime.expect("a new name"));
    let paths = kept
        .each_ref()
        .map(|runtime| GroupPool::of(runtime).expect("made here").group().path().to_owned());
    assert!(paths[0] != paths[1] && paths.iter().all(|path| path.starts_with("/acme/")));
    for name in ["q", "", "a/b", ".."] {
        let error = pools.query_named(name).expect_err("no new name").to_string();
        assert!(!error.contains('\n'), "{error}");
    }
    acme.kill_subtree().expect("it lives");
    pools.query().expect_err("the tenant was killed");
}

/// A query outlives its tenant's kill, and gives everything back.
#[test]
fn a_query_outlives_its_tenants_kill() {
    let world = World::new();
    world.tree.root().set_limit(world.memory, Some(1000));
    let acme = world.tenant("/acme", 1000);
    let runtime = TenantPools::new(&acme, world.memory).query().expect("the tenant lives");
    let held = fixed("join", &runtime.memory_pool);
    held.try_grow(400).expect("it fits");
    acme.kill_subtree().expect("it lives");
    held.try_grow(400).expect("its limits go on");
    assert!(held.try_grow(400).is_err());
    assert_eq!(world.current(world.tree.root()), 800);
    drop((held, runtime));
    assert_eq!(world.current(world.tree.root()), 0);
}

/// A group that a program made below a query ends with it.
#[test]
fn what_was_made_below_a_query_ends_with_it() {
    let world = World::new();
    let acme = world.tenant("/acme", 1000);
    let runtime = TenantPools::new(&acme, world.memory).query().expect("the tenant lives");
    let group = GroupPool::of(&runtime).expect("made here").group().clone();
    let stage = group.create_child("stage").expect("a new name");
    drop(runtime);
    assert!(stage.is_killed() && group.is_killed());
}

/// The group of a pool that the program made outlives the pool.
#[test]
fn a_programs_own_group_outlives_its_pool() {
    let world = World::new();
    let acme = world.tenant("/acme", 1000);
    drop(GroupPool::new(&acme, world.memory));
    assert!(!acme.is_killed());
}

#[test]
fn a_panic_gives_all_back() {
    let world = World::new();
    let acme = world.tenant("/acme", 1000);
    let pools = TenantPools::new(&acme, world.memory);
    let panics = || {
        let runtime = pools.query().expect("the tenant lives");
        let held = fixed("join", &runtime.memory_pool);
        held.try_grow(600).expect("it fits");
        assert_eq!(held.size(), 0, "it panics, on purpose");
    };
    catch_unwind(AssertUnwindSafe(panics)).expect_err("it panics");
    assert_eq!((world.current(&acme), acme.child_count()), (0, 0));
}

#[test]
fn environments_share_all_but_the_pool() {
    let world = World::new();
    let acme = world.tenant("/acme", 1000);
    let base = RuntimeEnvBuilder::new().with_disk_manager_builder(DiskManagerBuilder::default());
    let base = base.build().expect("an environment");
    let pools = TenantPools::new(&acme, world.memory).runtime(&base);
    let [one, two] = [pools.query(), pools.query()].map(|query| query.expect("a new name"));
    assert!(Arc::ptr_eq(&one.disk_manager, &base.disk_manager));
    assert!(Arc::ptr_eq(&one.cache_manager, &two.cache_manager));
    assert!(Arc::ptr_eq(&one.object_store_registry, &two.object_store_registry));
    assert!(!Arc::ptr_eq(&one.memory_pool, &two.memory_pool));
    let other = RuntimeEnv { memory_pool: Arc::new(UnboundedMemoryPool::default()), ..base };
    assert!(GroupPool::of(&other).is_none());
}
