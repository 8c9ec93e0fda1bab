//! Leases as limits of the tree, and the tree's account of their use.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use submeter::{Counter, Error, Group, OnCreate, Quota, Rate, RateLimit, Tree, Unit};
use submeter_bank::{Budget, Member, Use};

/// A leased limit of one group.
pub(crate) trait Limit: Send + Sync {
    /// Limits the group to `amount`, and returns what is used of a level after that.
    fn apply(&self, group: &Group, amount: u64) -> u64;

    /// Returns whether the group's limit is that for `amount`, and a number that changes when it
    /// refuses something, or makes something wait.
    fn look(&self, group: &Group, amount: u64) -> (bool, u64);

    /// Returns how much was used since the tree began, for a rate.
    fn taken(&self, group: &Group) -> Option<u64>;
}

pub(crate) struct Level<U>(pub(crate) Quota<U>);

impl<U: Unit> Limit for Level<U> {
    fn apply(&self, group: &Group, amount: u64) -> u64 {
        group.set_limit(self.0, Some(amount)).current
    }

    fn look(&self, group: &Group, amount: u64) -> (bool, u64) {
        let usage = group.usage(self.0);
        let waited = group.pressure(self.0).some.total.as_nanos();
        let refusals = usage.refused.wrapping_add(u64::try_from(waited).unwrap_or(u64::MAX));
        (usage.limit.unwrap_or(u64::MAX) == amount, refusals)
    }

    fn taken(&self, _: &Group) -> Option<u64> {
        None
    }
}

pub(crate) struct PerSecond<U, C> {
    pub(crate) limit: RateLimit<U>,
    pub(crate) taken: Vec<Counter<C>>,
}

impl<U, C> PerSecond<U, C> {
    fn rate(amount: u64) -> Rate {
        if amount == 0 { Rate::NOTHING } else { Rate::new(amount, Duration::from_secs(1)) }
    }
}

impl<U: Unit, C: Unit> Limit for PerSecond<U, C> {
    fn apply(&self, group: &Group, amount: u64) -> u64 {
        if group.rate(self.limit).is_none() {
            // The first rate grants a burst, which this process has not earned.
            let first = group.set_rate(self.limit, Some(Rate::NOTHING));
            first.expect("a rate that a bucket can keep");
        }
        let set = group.set_rate(self.limit, Some(Self::rate(amount)));
        set.expect("a second's worth at once, which a bucket can keep");
        0
    }

    fn look(&self, group: &Group, amount: u64) -> (bool, u64) {
        let is_applied = group.rate(self.limit) == Some(Self::rate(amount));
        (is_applied, group.read(self.limit.throttled()).value)
    }

    fn taken(&self, group: &Group) -> Option<u64> {
        Some(self.taken.iter().map(|&counter| group.read(counter).value).sum())
    }
}

struct Part {
    limit: Arc<dyn Limit>,
    amount: u64,
    used: u64,
    /// The amount to ask for in addition to the use.
    missing: u64,
    refusals: u64,
    measured: Option<(Duration, u64)>,
}

/// The limits of groups that may yet be created, by path: a group that is deleted and created again
/// is limited to its lease before anything finds it.
#[derive(Default)]
struct Born(Mutex<HashMap<String, Vec<BornTo>>>);

struct BornTo {
    budget: Budget,
    limit: Arc<dyn Limit>,
    amount: u64,
}

impl Born {
    /// Guarantees that a later lookup finds the group, or that the group is created with this
    /// limit.
    fn set(&self, budget: &Budget, limit: &Arc<dyn Limit>, amount: u64) {
        let mut paths = self.0.lock();
        let limits = paths.entry(budget.path().to_owned()).or_default();
        match limits.iter_mut().find(|to| to.budget == *budget) {
            Some(to) => to.amount = amount,
            None => {
                limits.push(BornTo { budget: budget.clone(), limit: Arc::clone(limit), amount })
            }
        }
    }
}

impl OnCreate for Born {
    fn create(&self, group: &Group, publish: &mut dyn FnMut()) {
        let paths = self.0.lock();
        for to in paths.get(group.path()).into_iter().flatten() {
            to.limit.apply(group, to.amount);
        }
        // Still locked here: see `set`.
        publish();
    }
}

/// The leased limits of a tree.
pub(crate) struct Limits {
    tree: Tree,
    born: Arc<Born>,
    parts: BTreeMap<Budget, Part>,
    rates: bool,
}

impl Limits {
    pub(crate) fn new(tree: &Tree) -> Self {
        let born = Arc::default();
        tree.on_create(&born);
        Self { tree: tree.clone(), born, parts: BTreeMap::new(), rates: false }
    }

    pub(crate) fn contains(&self, budget: &Budget) -> bool {
        self.parts.contains_key(budget)
    }

    /// Adds a limit, of nothing until it is set, and creates its group if need be.
    pub(crate) fn add(&mut self, budget: &Budget, limit: Arc<dyn Limit>) -> Result<(), Error> {
        let group = self.tree.get_or_create(budget.path())?;
        self.rates |= limit.taken(&group).is_some();
        let (_, refusals) = limit.look(&group, 0);
        let part = Part { limit, amount: 0, used: 0, missing: 0, refusals, measured: None };
        self.parts.insert(budget.clone(), part);
        Ok(())
    }

    /// Restores limits that differ from the leases, and returns of which budgets something was
    /// refused since the last look.
    pub(crate) fn look(&mut self) -> impl Iterator<Item = Budget> + use<> {
        if self.rates {
            // Refusals of rates are counted in the tree. A flush costs no system call if nothing
            // changed.
            self.tree.flush();
        }
        let mut short = Vec::new();
        for (budget, part) in &mut self.parts {
            let Some(group) = self.tree.get(budget.path()) else { continue };
            let (is_applied, refusals) = part.limit.look(&group, part.amount);
            if !is_applied {
                part.limit.apply(&group, part.amount);
            }
            if std::mem::replace(&mut part.refusals, refusals) != refusals {
                // Only the number of refusals is counted, not the amount. Doubling reaches any
                // amount in a few exchanges, and the next one returns whatever turns out not to be
                // used.
                let twice = part.amount.max(1).saturating_mul(2);
                // Counters that include refused takes show more use than there was.
                short.push((budget.clone(), twice - part.used.min(part.amount)));
            }
        }
        for (budget, amount) in &short {
            // A lease is no larger than that of an ancestor, so ancestors have to grow with it.
            for above in std::iter::successors(Some(budget.clone()), Budget::parent) {
                if let Some(part) = self.parts.get_mut(&above) {
                    part.missing = part.missing.max(*amount);
                }
            }
        }
        short.into_iter().map(|(budget, _)| budget)
    }

    /// Measures the use of rates from the last call to the last look.
    pub(crate) fn measure(&mut self, now: Duration) {
        for (budget, part) in &mut self.parts {
            let group = self.tree.get(budget.path());
            let Some(taken) = group.and_then(|group| part.limit.taken(&group)) else { continue };
            let (at, before) = *part.measured.get_or_insert((now, taken));
            let time = now.saturating_sub(at);
            if !time.is_zero() {
                // A group that was created again has less than before.
                let taken_since = u128::from(taken.checked_sub(before).unwrap_or(taken));
                let per_second = (taken_since * 1_000_000_000).div_ceil(time.as_nanos());
                part.used = u64::try_from(per_second).unwrap_or(u64::MAX);
                part.measured = Some((now, taken));
            }
        }
    }

    /// Returns the limit of a budget, and how much of it is used.
    pub(crate) fn standing(&self, budget: &Budget) -> (u64, u64) {
        self.parts.get(budget).map_or((0, 0), |part| (part.amount, part.used))
    }
}

impl Member for Limits {
    fn set(&mut self, budget: &Budget, amount: u64) -> Use {
        let Some(part) = self.parts.get_mut(budget) else { return Use::default() };
        part.amount = amount;
        self.born.set(budget, &part.limit, amount);
        let group = self.tree.get(budget.path());
        let used = group.map_or(0, |group| {
            let held = part.limit.apply(&group, amount);
            // A burst is no use beyond the rate: what was earned earlier was lent earlier.
            if part.measured.is_some() { part.used.min(amount) } else { held }
        });
        if part.measured.is_none() {
            part.used = used;
        }
        Use { used, refused: std::mem::take(&mut part.missing) }
    }
}
