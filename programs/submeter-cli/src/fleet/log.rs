//! A bank that logs what it lends, so that the sums can be checked independently of its ledger.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use submeter_bank::{
    Answer, Bank, Budget, Lent, Limit, MemoryBank, Operate, RefusedError, Request,
};

/// A bank with its log.
pub(super) struct Logged {
    bank: MemoryBank,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    first: Option<Instant>,
    exchanges: u64,
    /// What each member may use, and until when the bank counts it.
    held: BTreeMap<Budget, BTreeMap<u64, (u64, Instant)>>,
    most: BTreeMap<Budget, u64>,
}

impl Logged {
    pub(super) fn new(bank: MemoryBank) -> Logged {
        Logged { bank, log: Mutex::default() }
    }

    /// Returns the largest sum of leases at any time, and the number of exchanges.
    pub(super) fn most(&self, budget: &Budget) -> (u64, u64) {
        let log = self.log.lock();
        (log.most.get(budget).copied().unwrap_or(0), log.exchanges)
    }

    /// Returns for how long there have been leases.
    pub(super) fn lends_for(&self) -> Duration {
        self.log.lock().first.map_or(Duration::ZERO, |first| first.elapsed())
    }
}

impl Log {
    fn write(&mut self, request: &Request, answer: &Answer, now: Instant) {
        self.first.get_or_insert(now);
        self.exchanges += 1;
        for held in self.held.values_mut() {
            held.remove(&request.epoch);
        }
        for (want, lease) in request.wants.iter().zip(&answer.leases) {
            let held = self.held.entry(lease.budget.clone()).or_default();
            // Until the answer arrives, the member uses what it has.
            let most =
                if want.budget == lease.budget { want.has.max(lease.amount) } else { u64::MAX };
            held.insert(request.epoch, (most, now + answer.ttl));
            held.retain(|_, (_, ends)| *ends > now);
            let sum = held.values().fold(0_u64, |sum, (n, _)| sum.saturating_add(*n));
            let most = self.most.entry(lease.budget.clone()).or_default();
            *most = sum.max(*most);
        }
    }
}

impl Bank for Logged {
    type Error = RefusedError;

    fn exchange(&self, request: &Request) -> Result<Answer, RefusedError> {
        // Locked throughout, so that the log is in the order of the ledger.
        let mut log = self.log.lock();
        let now = Instant::now();
        let answer = self.bank.exchange(request)?;
        log.write(request, &answer, now);
        Ok(answer)
    }
}

impl Operate for Logged {
    fn set(&self, limit: &Limit) -> Result<(), RefusedError> {
        self.bank.set(limit)
    }

    fn set_if_none(&self, limit: &Limit) -> Result<(), RefusedError> {
        self.bank.set_if_none(limit)
    }

    fn limits(&self) -> Result<Vec<Limit>, RefusedError> {
        self.bank.limits()
    }

    fn holders(&self, budget: &Budget) -> Result<Vec<Lent>, RefusedError> {
        self.bank.holders(budget)
    }

    fn learns(&self) -> Result<bool, RefusedError> {
        self.bank.learns()
    }
}
