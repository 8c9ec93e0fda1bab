//! A pool that charges a group.

use std::fmt;
use std::sync::Arc;

use datafusion_common::Result;
use datafusion_execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion_execution::runtime_env::RuntimeEnv;
use parking_lot::Mutex;
use submeter::{Bytes, Group, LimitError, Quota};

use crate::consumers::{Held, Queries, Spilling, size};
use crate::levels::{self, Tightest};
use crate::refusal;

/// DataFusion's memory pool for one group, usually that of a query: see
/// [`TenantPools`](crate::TenantPools), which makes both.
///
/// Each reservation costs a lock, which the operators of one query share, a charge and, for
/// operators that can spill, a look at the usage of every level.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool};
/// use submeter::{Bytes, Schema, Tree};
/// use submeter_datafusion::GroupPool;
///
/// let mut schema = Schema::builder();
/// let memory = schema.quota::<Bytes>("memory", "Memory reserved by operators");
/// let tree = Tree::new(schema.build()?)?;
/// let acme = tree.create("/acme")?;
/// acme.set_limit(memory, Some(1000));
///
/// // All queries of the tenant in one group.
/// let pool: Arc<dyn MemoryPool> = Arc::new(GroupPool::new(&acme, memory));
/// let join = MemoryConsumer::new("HashJoinInput").register(&pool);
/// join.try_grow(900)?;
/// assert_eq!((pool.reserved(), acme.usage(memory).current), (900, 900));
///
/// let refused = join.try_grow(200).expect_err("beyond the limit");
/// assert!(refused.to_string().ends_with(
///     "/acme: 200.0 B more of memory for HashJoinInput would exceed the limit of /acme: \
///      900.0 B of 1000.0 B held; most by HashJoinInput 900.0 B"
/// ));
/// drop(join);
/// assert_eq!(acme.usage(memory).current, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct GroupPool {
    group: Group,
    quota: Quota<Bytes>,
    /// Whether the group was made for this pool, and is killed with it.
    is_query: bool,
    held: Arc<Mutex<Held>>,
    /// The pools of the same tenant, for error texts.
    queries: Arc<Queries>,
}

impl GroupPool {
    /// Creates a pool for a group that the program made and will kill.
    ///
    /// # Panics
    /// When the quota belongs to another tree's schema.
    #[must_use]
    pub fn new(group: &Group, quota: Quota<Bytes>) -> GroupPool {
        GroupPool::with(group.clone(), quota, false, Arc::default())
    }

    /// Creates the pool of a query, whose group is killed with it.
    pub(crate) fn of_query(group: Group, quota: Quota<Bytes>, queries: Arc<Queries>) -> GroupPool {
        GroupPool::with(group, quota, true, queries)
    }

    fn with(group: Group, quota: Quota<Bytes>, is_query: bool, queries: Arc<Queries>) -> GroupPool {
        // Checked now, rather than in the middle of a query.
        let _checked = group.usage(quota);
        let held = Arc::default();
        queries.insert(group.path(), &held);
        GroupPool { group, quota, is_query, held, queries }
    }

    /// Returns the pool of an environment, if it belongs to this crate.
    #[must_use]
    pub fn of(runtime: &RuntimeEnv) -> Option<&GroupPool> {
        runtime.memory_pool.downcast_ref()
    }

    /// Returns the group that is charged, for example to set a limit for one query.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Returns the tenant that owns the group: for a query's group, its parent.
    fn tenant(&self) -> &Group {
        self.group.parent().filter(|_| self.is_query).unwrap_or(&self.group)
    }

    /// Charges `more` for a reservation, unless it should spill or a limit refuses.
    fn charge<'g>(&'g self, reservation: &MemoryReservation, more: u64) -> Result<(), Refused<'g>> {
        if more == 0 {
            return Ok(());
        }
        let mut held = self.held.lock();
        let consumer = held.consumer(reservation.consumer());
        if reservation.consumer().can_spill()
            && reservation.size() > 0
            && consumer.spilling == Spilling::No
            && let Some(tightest) = Tightest::of(&self.group, self.quota)
            && tightest.asks_to_spill(reservation.size() as u64, more)
        {
            consumer.spilling = Spilling::Asked;
            return Err(Refused::ToSpill(tightest));
        }
        match &mut held.charge {
            Some(charge) => charge.resize(charge.amount() + more)?,
            none => *none = Some(self.group.try_charge(self.quota, more)?),
        }
        let consumer = held.consumer(reservation.consumer());
        consumer.held += more;
        if consumer.spilling == Spilling::GaveBack {
            consumer.spilling = Spilling::No;
        }
        Ok(())
    }
}

/// Why a reservation does not grow.
enum Refused<'g> {
    ToSpill(Tightest<'g>),
    BeyondLimit(LimitError),
}

impl From<LimitError> for Refused<'_> {
    fn from(refused: LimitError) -> Self {
        Refused::BeyondLimit(refused)
    }
}

impl MemoryPool for GroupPool {
    fn name(&self) -> &str {
        "group"
    }

    /// Does nothing: an operator counts from its first byte on.
    fn register(&self, _consumer: &MemoryConsumer) {}

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.held.lock().forget(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        if additional == 0 {
            return;
        }
        let more = self.group.charge_forced(self.quota, additional as u64);
        let mut held = self.held.lock();
        held.consumer(reservation.consumer()).held += more.amount();
        match &mut held.charge {
            Some(charge) => charge.merge(more),
            none => *none = Some(more),
        }
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        let less = shrink as u64;
        // Operators also give back nothing, which is no sign of having spilled.
        if less == 0 {
            return;
        }
        let mut held = self.held.lock();
        let consumer = held.consumer(reservation.consumer());
        consumer.held -= less;
        if consumer.spilling == Spilling::Asked {
            consumer.spilling = Spilling::GaveBack;
        }
        let charge = held.charge.as_mut().expect("what is given back was charged");
        charge.resize(charge.amount() - less).expect("less is never refused");
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        // The text of a refusal is made after the lock is released: it asks other pools.
        let (more, tenant) = (additional as u64, self.tenant());
        self.charge(reservation, more).map_err(|refused| match refused {
            Refused::ToSpill(tightest) => {
                refusal::to_spill(&self.group, reservation, more, tenant, &tightest)
            }
            Refused::BeyondLimit(refused) => {
                refusal::beyond_limit(reservation, &refused, tenant, &self.queries)
            }
        })
    }

    fn reserved(&self) -> usize {
        self.held.lock().amount() as usize
    }

    /// Returns the lowest limit on the way to the root, at this moment.
    fn memory_limit(&self) -> MemoryLimit {
        match levels::limits(&self.group, self.quota) {
            Some((limit, _)) => MemoryLimit::Finite(usize::try_from(limit).unwrap_or(usize::MAX)),
            None => MemoryLimit::Infinite,
        }
    }
}

/// Writes `group(/acme/query-1: 12.0 MB)`.
impl fmt::Display for GroupPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({}: {})", self.name(), self.group.path(), size(self.held.lock().amount()))
    }
}

impl fmt::Debug for GroupPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Drop for GroupPool {
    fn drop(&mut self) {
        self.queries.remove(self.group.path());
        if self.is_query {
            // It fails if the tenant was killed with all groups below, or the query by its program.
            let _killed = self.group.kill_subtree();
        }
    }
}

#[cfg(test)]
mod tests {
    use submeter::{Schema, Tree};

    use super::*;

    #[test]
    fn operators_are_known_from_first_byte_to_end() {
        let mut schema = Schema::builder();
        let memory = schema.quota::<Bytes>("memory", "Memory reserved");
        let tree = Tree::new(schema.build().expect("a schema")).expect("a tree");
        let pool = Arc::new(GroupPool::new(tree.root(), memory));
        let shared: Arc<dyn MemoryPool> = Arc::clone(&pool) as _;
        let register = |n: usize| MemoryConsumer::new(format!("sort {n}")).register(&shared);
        let reservations: Vec<MemoryReservation> = (0..100).map(register).collect();
        // Each closure ends its lock: in one expression the second would wait for the first.
        let known = || pool.held.lock().known();
        let sum = || pool.held.lock().sum();
        assert_eq!(known(), 0, "they are idle");
        for (n, reservation) in (1..).zip(&reservations) {
            reservation.grow(n);
            reservation.try_grow(n).expect("there is no limit");
        }
        assert_eq!((known(), sum(), pool.reserved()), (100, 10_100, 10_100));
        drop(reservations);
        assert_eq!((known(), pool.reserved()), (0, 0));
    }
}
