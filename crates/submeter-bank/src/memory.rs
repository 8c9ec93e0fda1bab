//! A bank in the memory of one process.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::{
    Answer, Bank, Budget, Ledger, Lent, Limit, LimitError, Operate, Past, RefusedError, Request,
};

/// A bank for the parts of one process: several trees, or the clients of a server.
///
/// An exchange takes a lock, and time in proportion to the budgets of the request and, for an
/// oversubscribed budget, to the members that share it. It is not a bank for several machines.
///
/// # Examples
/// ```
/// use std::time::{Duration, Instant};
/// use submeter_bank::{Bank, Budget, Holder, MemoryBank, Member, Outage, Use};
///
/// let memory = Budget::new("/acme", "memory")?;
/// let bank = MemoryBank::new(Duration::from_secs(15));
/// bank.set_limit(&memory, 100, 0)?;
///
/// /// What the member does with its leases; with a tree it calls `set_limit`.
/// struct Limits(u64);
/// impl Member for Limits {
///     fn set(&mut self, _: &Budget, amount: u64) -> Use {
///         self.0 = amount;
///         Use { used: 0, refused: 0 }
///     }
/// }
///
/// let start = Instant::now();
/// let mut limits = Limits(0);
/// let mut holder = Holder::new("web-1", 4711);
/// holder.add(memory.clone(), 40, Outage::Strict);
/// let request = holder.request(start.elapsed(), &mut limits);
/// let answer = bank.exchange(&request)?;
/// holder.accept(start.elapsed(), &answer, &mut limits);
/// assert_eq!(limits.0, 40);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MemoryBank {
    start: Instant,
    ledger: Mutex<Ledger>,
}

impl MemoryBank {
    /// Makes a bank whose leases end after `ttl`, and that has lent nothing before.
    #[must_use]
    pub fn new(ttl: Duration) -> Self {
        Self::from(Ledger::new(ttl, Past::None))
    }

    /// Sets the limit of a budget, as [`Ledger::set_limit`] does.
    ///
    /// # Errors
    /// When the floors exceed the limit.
    pub fn set_limit(&self, budget: &Budget, limit: u64, floors: u64) -> Result<(), LimitError> {
        self.ledger.lock().set_limit(budget, limit, floors)
    }

    /// Lists who has how much of a budget at this moment, as [`Ledger::lent`] does.
    #[must_use]
    pub fn lent(&self, budget: &Budget) -> Vec<Lent> {
        let mut ledger = self.ledger.lock();
        ledger.advance(self.start.elapsed());
        ledger.lent(budget).collect()
    }

    /// Sets the most that members of one name have together, as [`Ledger::set_limit_per_member`]
    /// does.
    pub fn set_limit_per_member(&self, budget: &Budget, most: Option<u64>) {
        self.ledger.lock().set_limit_per_member(budget, most);
    }
}

/// Takes a ledger for which no time has passed, such as one that [learns](Past::Unknown).
impl From<Ledger> for MemoryBank {
    fn from(ledger: Ledger) -> Self {
        Self { start: Instant::now(), ledger: Mutex::new(ledger) }
    }
}

impl Bank for MemoryBank {
    type Error = RefusedError;

    fn exchange(&self, request: &Request) -> Result<Answer, RefusedError> {
        // The clock is read under the lock, so that the ledger sees it in order.
        let mut ledger = self.ledger.lock();
        ledger.exchange(self.start.elapsed(), request)
    }
}

impl Operate for MemoryBank {
    fn set(&self, limit: &Limit) -> Result<(), RefusedError> {
        self.ledger.lock().set(limit)
    }

    fn set_if_none(&self, limit: &Limit) -> Result<(), RefusedError> {
        self.ledger.lock().set_if_none(limit)
    }

    fn limits(&self) -> Result<Vec<Limit>, RefusedError> {
        Ok(self.ledger.lock().limits().collect())
    }

    fn holders(&self, budget: &Budget) -> Result<Vec<Lent>, RefusedError> {
        Ok(self.lent(budget))
    }

    fn learns(&self) -> Result<bool, RefusedError> {
        let mut ledger = self.ledger.lock();
        ledger.advance(self.start.elapsed());
        Ok(ledger.learns())
    }
}
