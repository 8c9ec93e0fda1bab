//! Random operations compared with a naive count, and many threads.

use std::sync::Arc;
use std::thread;

use datafusion::execution::memory_pool::{MemoryPool, MemoryReservation};
use submeter::Group;
use submeter_datafusion::{GroupPool, TenantPools};

use crate::{World, fixed, spillable};

const ROOT: u64 = 10_000;
const TENANT: u64 = 6_000;

/// A query and what its operators hold.
struct Query {
    pool: Arc<dyn MemoryPool>,
    group: Group,
    tenant: usize,
    held: Vec<MemoryReservation>,
}

impl Query {
    fn new(pools: &TenantPools, tenant: usize) -> Query {
        let pool = Arc::clone(&pools.query().expect("the tenant lives").memory_pool);
        let group_pool = pool.downcast_ref::<GroupPool>().expect("made by this crate");
        let group = group_pool.group().clone();
        Query { pool, group, tenant, held: Vec::new() }
    }

    fn sum(&self) -> u64 {
        self.held.iter().map(|reservation| reservation.size() as u64).sum()
    }
}

/// Whatever operators do, usage is the sum of reservations at every level; what fits is granted
/// unless the operator is asked to spill, and what does not fit is refused.
#[test]
fn usage_is_the_sum_of_reservations() {
    for seed in 0..10 {
        let mut random = fastrand::Rng::with_seed(seed);
        let world = World::new();
        world.tree.root().set_limit(world.memory, Some(ROOT));
        let tenants = [world.tenant("/a", TENANT), world.tenant("/b", TENANT)];
        let pools = [0, 1].map(|at| TenantPools::new(&tenants[at], world.memory));
        let mut queries: Vec<Query> =
            [0, 0, 1, 1].map(|tenant: usize| Query::new(&pools[tenant], tenant)).into();
        for step in 0..2_000 {
            let at = random.usize(..queries.len());
            if random.u32(..200) == 0 {
                let tenant = queries[at].tenant;
                queries[at] = Query::new(&pools[tenant], tenant);
            }
            let sums = |queries: &[Query]| {
                let of = |tenant| {
                    queries.iter().filter(|q| q.tenant == tenant).map(Query::sum).sum::<u64>()
                };
                [of(0), of(1)]
            };
            let before = sums(&queries);
            let tenant = queries[at].tenant;
            let left = TENANT
                .saturating_sub(before[tenant])
                .min(ROOT.saturating_sub(before.iter().sum::<u64>()));
            act(&mut queries[at], left, &mut random);

            let now = sums(&queries);
            for query in &queries {
                assert_eq!(world.current(&query.group), query.sum(), "{seed}, {step}");
                assert_eq!(query.pool.reserved() as u64, query.sum(), "{seed}, {step}");
            }
            assert_eq!([0, 1].map(|at| world.current(&tenants[at])), now, "{seed}, {step}");
            assert_eq!(world.current(world.tree.root()), now.iter().sum::<u64>());
        }
        drop(queries);
        assert_eq!(world.current(world.tree.root()), 0);
        assert_eq!(tenants.iter().map(Group::child_count).sum::<usize>(), 0, "queries have ended");
    }
}

/// One operation of an operator.
fn act(query: &mut Query, left: u64, random: &mut fastrand::Rng) {
    if query.held.is_empty() || random.u32(..10) == 0 {
        let reservation = match random.bool() {
            true => spillable("sort", &query.pool),
            false => fixed("join", &query.pool),
        };
        query.held.push(reservation);
    }
    let at = random.usize(..query.held.len());
    let bytes = random.usize(..2_000);
    let reservation = &mut query.held[at];
    let before = reservation.size();
    match random.u32(..12) {
        0 => reservation.grow(bytes / 8),
        1 => reservation.shrink(before.min(bytes)),
        2 => assert_eq!(reservation.free(), before),
        3 => {
            let part = reservation.split(before / 2);
            query.held.push(part);
        }
        4 => {
            let all = reservation.take();
            query.held.push(all);
        }
        5 => {
            let empty = reservation.new_empty();
            query.held.push(empty);
        }
        6 => drop(query.held.swap_remove(at)),
        7 => reservation.resize(bytes / 8),
        _ => {
            let granted = reservation.try_grow(bytes);
            let fits = bytes as u64 <= left;
            let may_spill = reservation.consumer().can_spill() && before > 0;
            match granted {
                Ok(()) => assert!(fits || bytes == 0, "{bytes} of {left} left"),
                Err(error) => {
                    assert!(!fits || may_spill, "{error}");
                    assert_eq!(reservation.size(), before);
                }
            }
        }
    }
}

/// Threads of several queries at their limits never exceed any limit, and everything is given back.
#[test]
fn no_limit_is_exceeded_by_many_threads() {
    let world = World::new();
    world.tree.root().set_limit(world.memory, Some(ROOT));
    let tenants = [world.tenant("/a", TENANT), world.tenant("/b", TENANT)];
    let pools = [0, 1].map(|at| TenantPools::new(&tenants[at], world.memory));
    thread::scope(|scope| {
        for seed in 0..8 {
            let pools = &pools[seed as usize % 2];
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..20 {
                    let pool = Arc::clone(&pools.query().expect("the tenant lives").memory_pool);
                    let held = [spillable("sort", &pool), fixed("join", &pool)];
                    for _ in 0..200 {
                        let reservation = &held[random.usize(..2)];
                        if reservation.try_grow(random.usize(..1_500)).is_err() {
                            reservation.free();
                        }
                    }
                }
            });
        }
    });
    let mut refused = 0;
    for group in tenants.iter().chain([world.tree.root()]) {
        let usage = group.usage(world.memory);
        assert!(usage.peak <= usage.limit.expect("it was set"), "{usage:?}");
        assert_eq!((usage.current, usage.overdrafts), (0, 0));
        refused += usage.refused;
    }
    // Each thread alone asks for more than its tenant may have; which level refuses is not
    // determined.
    assert!(refused > 0, "no limit was reached");
    assert_eq!(tenants.map(|tenant| tenant.child_count()), [0, 0]);
}

/// Threads of one query share its pool.
#[test]
fn operators_of_one_query_run_on_many_threads() {
    let world = World::new();
    let pools = TenantPools::new(&world.tenant("/a", 1 << 40), world.memory);
    let pool = Arc::clone(&pools.query().expect("the tenant lives").memory_pool);
    let shared = spillable("sort", &pool);
    let kept: Vec<MemoryReservation> = thread::scope(|scope| {
        let work = || {
            let own = shared.new_empty();
            for bytes in 1..500 {
                own.try_grow(bytes).expect("far from the limit");
                own.grow(bytes);
                own.shrink(bytes);
            }
            own
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
    });
    assert_eq!(pool.reserved(), 8 * (1..500).sum::<usize>());
    drop(kept);
    assert_eq!(pool.reserved(), 0);
}
