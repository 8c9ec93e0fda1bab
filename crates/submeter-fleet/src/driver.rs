//! A process's side of the leases, without threads.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use submeter::{Counter, Error, Quota, RateLimit, Tree, Unit};
use submeter_bank::{Answer, Budget, Holder, InForce, Outage, Request};

use crate::limits::{Level, Limit, Limits, PerSecond};

/// A holder of leases whose limits are those of a tree.
///
/// # Examples
/// A program with a loop of its own needs no thread:
/// ```
/// use std::time::Duration;
/// use submeter::{Count, Schema, Tree};
/// use submeter_bank::{Bank, Budget, MemoryBank, Outage};
/// use submeter_fleet::Driver;
///
/// let bank = MemoryBank::new(Duration::from_secs(15));
/// let budget = Budget::new("/", "requests")?;
/// bank.set_limit(&budget, 5000, 0)?;
///
/// let mut schema = Schema::builder();
/// let answered = schema.counter::<Count>("answered", "Requests answered");
/// let requests = schema.rate_limit::<Count>("requests", "Requests");
/// let tree = Tree::new(schema.build()?)?;
/// let mut driver = Driver::new(&tree, "web-1");
/// driver.add_rate(&budget, requests, [answered], 100, Outage::Strict)?;
/// assert!(tree.root().try_take(requests, 1).is_err(), "nothing is lent yet");
///
/// // In the loop, and again after `driver.next_look()` at the latest:
/// if let Some(request) = driver.look() {
///     match bank.exchange(&request) {
///         Ok(answer) => drop(driver.accept(&answer)),
///         Err(_) => driver.failed(),
///     }
/// }
/// assert_eq!(tree.root().rate(requests).map(|rate| rate.amount), Some(100));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Driver {
    holder: Holder,
    limits: Limits,
    budgets: Vec<Budget>,
    start: Instant,
    look_every: Duration,
    /// Whether a request is in flight.
    asked: bool,
}

/// The state of one limit of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The budget of the limit.
    pub budget: Budget,
    /// The rule by which it is limited.
    pub in_force: InForce,
    /// The lease and the floor together, in the budget's unit.
    pub limit: u64,
    /// Its use when the bank was last asked, or when the limit last changed; that of a rate is for
    /// a whole period, of which a lease has three.
    pub used: u64,
    /// The time until the lease ends unless renewed, if one is in force.
    pub ends_in: Option<Duration>,
}

impl Driver {
    /// Makes a driver without leases for a tree. The name is the process's, or the host's: a bank
    /// may cap what all processes of one name have together. Processes that share a name are told
    /// apart by a random number.
    ///
    /// A forked child has the same number: make drivers after forks.
    #[must_use]
    pub fn new(tree: &Tree, member: &str) -> Self {
        // The keys of a hash map are the standard library's random numbers.
        let epoch = RandomState::new().build_hasher().finish();
        Self {
            holder: Holder::new(member, epoch),
            limits: Limits::new(tree),
            budgets: Vec::new(),
            start: Instant::now(),
            look_every: Duration::from_millis(50),
            asked: false,
        }
    }

    /// Sets how often the driver looks for refusals; the default is every 50 ms. Refusals cause
    /// requests to the bank at most that often.
    #[must_use]
    pub fn look_every(mut self, time: Duration) -> Self {
        self.look_every = time.max(Duration::from_millis(1));
        self
    }

    /// Leases the limit of a level, such as memory or connections, for the group of the budget. The
    /// group is created if need be, and immediately limited as `outage` declares, until the bank
    /// has answered.
    ///
    /// `least` is the amount that the process wants unless it is idle: with 0, the first charge
    /// after a pause is always refused.
    ///
    /// # Errors
    /// When the group cannot be created. Nothing is leased then.
    ///
    /// # Panics
    /// When the budget was added before, or the quota is of another tree's schema.
    pub fn add_level<U: Unit>(
        &mut self,
        budget: &Budget,
        quota: Quota<U>,
        least: u64,
        outage: Outage,
    ) -> Result<(), Error> {
        self.add(budget, Arc::new(Level(quota)), least, outage)
    }

    /// Leases a rate per second, as [`add_level`](Self::add_level) leases a level. The sum of
    /// `taken` shows what was taken; it may include what was refused.
    ///
    /// # Errors
    /// When the group cannot be created. Nothing is leased then.
    ///
    /// # Panics
    /// When the budget was added before, or a key is of another tree's schema.
    pub fn add_rate<U: Unit, C: Unit>(
        &mut self,
        budget: &Budget,
        limit: RateLimit<U>,
        taken: impl IntoIterator<Item = Counter<C>>,
        least: u64,
        outage: Outage,
    ) -> Result<(), Error> {
        let taken = taken.into_iter().collect();
        self.add(budget, Arc::new(PerSecond { limit, taken }), least, outage)
    }

    fn add(
        &mut self,
        budget: &Budget,
        limit: Arc<dyn Limit>,
        least: u64,
        outage: Outage,
    ) -> Result<(), Error> {
        assert!(!self.limits.contains(budget), "{budget} was already added");
        self.limits.add(budget, limit)?;
        self.holder.add(budget.clone(), least, outage);
        self.holder.limit(budget, &mut self.limits);
        self.budgets.push(budget.clone());
        Ok(())
    }

    /// Ends leases whose time has come, puts limits back that were changed beside the driver, and
    /// returns a request when it is time to ask the bank and no other request is under way. Reads
    /// the usage of each leased group.
    pub fn look(&mut self) -> Option<Request> {
        for budget in self.limits.look() {
            self.holder.refused(&budget);
        }
        let now = self.start.elapsed();
        let due = self.holder.tick(now, &mut self.limits);
        (due && !self.asked).then(|| {
            self.asked = true;
            if self.holder.measures(now) {
                self.limits.measure(now);
            }
            self.holder.request(now, &mut self.limits)
        })
    }

    /// Applies the bank's answer, and returns whether it was of use: one that came too late is not.
    pub fn accept(&mut self, answer: &Answer) -> bool {
        self.asked = false;
        let taken = self.holder.accept(self.start.elapsed(), answer, &mut self.limits);
        // The process may have been stopped in between.
        self.holder.tick(self.start.elapsed(), &mut self.limits);
        taken
    }

    /// Says that the last request has failed, so that there may be another.
    pub fn failed(&mut self) {
        self.asked = false;
    }

    /// Returns how long to wait for the next [`look`](Self::look).
    #[must_use]
    pub fn next_look(&self) -> Duration {
        let due = if self.asked { self.holder.ends() } else { Some(self.holder.next()) };
        let left = due.map(|due| due.saturating_sub(self.start.elapsed()));
        left.unwrap_or(Duration::MAX).min(self.look_every)
    }

    /// Ends all leases, and returns the request by which the process returns them: others have them
    /// at once. Limits fall to what [`Outage`] says.
    pub fn release(&mut self) -> Request {
        self.asked = false;
        self.holder.release(self.start.elapsed(), &mut self.limits)
    }

    /// Lists how the limits stand, in the order in which they were added.
    #[must_use]
    pub fn status(&self) -> Vec<Status> {
        let now = self.start.elapsed();
        let ends_in = self.holder.ends().map(|ends| ends.saturating_sub(now));
        let status = |budget: &Budget| {
            let (limit, used) = self.limits.standing(budget);
            let in_force = self.holder.in_force(budget)?;
            Some(Status { budget: budget.clone(), in_force, limit, used, ends_in })
        };
        self.budgets.iter().filter_map(status).collect()
    }

    /// Returns whether the bank has been started again and lends nothing new for the moment: see
    /// [`Answer::learns`].
    #[must_use]
    pub fn learns(&self) -> bool {
        self.holder.learns()
    }
}
