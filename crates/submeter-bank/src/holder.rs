//! A member's side: what it uses, wants, and currently may use.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::budget::check_name;
use crate::{Answer, Budget, RefusedError, Request, Want};

/// Minimum time from one exchange to the next.
const URGENT: Duration = Duration::from_millis(50);

/// How often a member asks before it knows the bank's time to live.
const FIRST_PERIOD: Duration = Duration::from_secs(1);

/// A member's leases.
///
/// Time is an argument, by a clock that never goes back and does not jump. Its driver calls
/// [`tick`](Self::tick) at the time that [`next`](Self::next) returns, sends a
/// [`request`](Self::request) when it must, and passes on the [answer](Self::accept).
/// [`MemoryBank`](crate::MemoryBank) has an example.
pub struct Holder {
    member: String,
    epoch: u64,
    sequence: u64,
    budgets: BTreeMap<Budget, Held>,
    period: Duration,
    /// The request that is waiting for its answer.
    sent: Option<Sent>,
    last_sent: Option<Duration>,
    /// The request that ended the last period of demand.
    measured: Option<Duration>,
    /// When the leases, which were lent together, end.
    ends: Option<Duration>,
    learns: bool,
    urgent: bool,
}

#[derive(Clone, Copy)]
struct Sent {
    sequence: u64,
    at: Duration,
}

struct Held {
    outage: Outage,
    least: u64,
    amount: u64,
    used: u64,
    refused: u64,
    active_at: Option<Duration>,
    /// The most that was wanted since the last period of demand, or in the last period.
    demand: u64,
    /// Whether there was a refusal since the last request, and in this period of demand.
    is_short: bool,
    short_lately: bool,
    /// Whether hurrying is useless unless the last request brings more: there was a refusal before
    /// it, or requests have been fruitless and no period without a refusal has ended. Not only
    /// until a request without a refusal before it: those of another budget may have hurried that
    /// one, and the two would take turns without end.
    in_vain: bool,
    /// Whether hurrying is useless.
    fruitless: bool,
}

/// The policy of a member for a budget while it has no lease, because it has lost the bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// It uses nothing. The fleet never exceeds the limit.
    Strict,
    /// It uses up to this much, and this much in addition to any lease. The fleet never exceeds
    /// the limit if the ledger was told the sum of all floors.
    Floor(u64),
    /// It continues with its last lease, or with this much if that is more. The fleet may exceed
    /// the limit.
    Open(u64),
}

/// The rule by which a member's budget is currently limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InForce {
    /// By a lease.
    Lease,
    /// By [`Outage::Strict`].
    Strict,
    /// By [`Outage::Floor`].
    Floor,
    /// By [`Outage::Open`].
    Open,
}

/// A member's use of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// For a level, the current use; for a rate per second, the use since the last call.
    pub used: u64,
    /// How much was refused since the last call, in the same unit.
    pub refused: u64,
}

/// The member's own limits, to which leases are applied.
pub trait Member {
    /// Limits a budget to `amount`, and returns the use, which was read *after* that: later use
    /// must not exceed the larger of the two.
    fn set(&mut self, budget: &Budget, amount: u64) -> Use;
}

impl Holder {
    /// Makes a holder without budgets. The name must have 1 to 1,024 bytes and no control
    /// characters, or the bank refuses each request; a bank may
    /// [cap](crate::Ledger::set_limit_per_member) what all members of one name have together. The
    /// epoch must be this process's own, such as a random number: two processes with the same name
    /// and epoch would take each other's leases for their own.
    #[must_use]
    pub fn new(member: &str, epoch: u64) -> Self {
        Self {
            member: member.to_owned(),
            epoch,
            sequence: 0,
            budgets: BTreeMap::new(),
            period: FIRST_PERIOD,
            sent: None,
            last_sent: None,
            measured: None,
            ends: None,
            learns: false,
            urgent: false,
        }
    }

    /// Checks a member's name by the rule of all banks.
    ///
    /// # Errors
    /// When it is empty, has more than 1,024 bytes, or has control characters.
    pub fn check_name(member: &str) -> Result<(), RefusedError> {
        check_name("member", member).map_err(RefusedError)
    }

    /// Adds a budget, of which the member wants at least `least` unless it is idle: with 0, the
    /// first use after a pause is always refused. An existing budget is not replaced.
    pub fn add(&mut self, budget: Budget, least: u64, outage: Outage) {
        let amount = match outage {
            Outage::Strict | Outage::Floor(_) => 0,
            Outage::Open(amount) => amount,
        };
        let held = Held {
            outage,
            least,
            amount,
            used: 0,
            refused: 0,
            active_at: None,
            demand: 0,
            is_short: false,
            short_lately: false,
            in_vain: false,
            fruitless: false,
        };
        self.budgets.entry(budget).or_insert(held);
        self.urgent = true;
    }

    /// Limits a budget that was just added to its current allowance, instead of at the next
    /// exchange: until then a new group would have no limit.
    pub fn limit(&mut self, budget: &Budget, member: &mut impl Member) {
        if let Some(held) = self.budgets.get_mut(budget) {
            held.apply(budget, member);
        }
    }

    /// Reports a refusal of a budget. The first refusal makes the holder ask the bank at once;
    /// later ones wait for the next exchange, if the last brought nothing more of this budget.
    pub fn refused(&mut self, budget: &Budget) {
        if let Some(held) = self.budgets.get_mut(budget) {
            held.is_short = true;
            self.urgent |= !held.fruitless;
        }
    }

    /// Returns when to call [`tick`](Self::tick) next.
    #[must_use]
    pub fn next(&self) -> Duration {
        let exchange = self.next_exchange();
        self.ends.map_or(exchange, |ends| ends.min(exchange))
    }

    fn next_exchange(&self) -> Duration {
        let Some(last) = self.last_sent else {
            return Duration::ZERO;
        };
        if self.sent.is_some() {
            return last + (self.period / 4).max(URGENT);
        }
        if self.urgent {
            return last + URGENT;
        }
        // A bank on a wall clock counts at most a tenth of a lease between two exchanges: if asked
        // less often, it learns for longer than necessary.
        let period = if self.learns { self.period / 4 } else { self.period };
        // Up to a tenth earlier, so that members that started together do not ask together.
        let spread = (self.epoch ^ self.sequence).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
        last + period - period / 10_240 * u32::try_from(spread).unwrap_or(0)
    }

    /// Ends leases whose time has come, and returns whether it is time to send a
    /// [`request`](Self::request).
    pub fn tick(&mut self, now: Duration, member: &mut impl Member) -> bool {
        if self.ends.is_some_and(|ends| ends <= now) {
            self.end(member);
        }
        self.next_exchange() <= now
    }

    fn end(&mut self, member: &mut impl Member) {
        self.ends = None;
        for (budget, held) in &mut self.budgets {
            held.amount = match held.outage {
                Outage::Strict | Outage::Floor(_) => 0,
                Outage::Open(least) => held.amount.max(least),
            };
            held.apply(budget, member);
        }
    }

    /// Returns whether a request at `now` ends a period of demand. The use of a rate is what was
    /// used from one such request to the next: a shorter time tells nothing about a member that
    /// uses it in bursts.
    #[must_use]
    pub fn measures(&self, now: Duration) -> bool {
        self.is_a_period(self.measured, now)
    }

    fn is_a_period(&self, from: Option<Duration>, to: Duration) -> bool {
        // A period may be a tenth shorter.
        from.is_none_or(|from| to.saturating_sub(from) >= self.period * 9 / 10)
    }

    /// Makes the request to send at `now`. Budgets of which the member wanted less for a whole
    /// [period](Self::measures) are lowered before they are returned; requests in between, which
    /// some refusal or other has hurried, return nothing.
    pub fn request(&mut self, now: Duration, member: &mut impl Member) -> Request {
        self.tick(now, member);
        let measures = self.measures(now);
        if measures {
            self.measured = Some(now);
        }
        let forgets = self.is_a_period(self.last_sent, now);
        self.sequence += 1;
        self.sent = Some(Sent { sequence: self.sequence, at: now });
        self.last_sent = Some(now);
        self.urgent = false;
        // Two periods, each of which may be a tenth shorter.
        let idle_after = self.period * 9 / 5;
        // An allowance for the time without the bank is not returned.
        let is_leased = self.ends.is_some();
        let wants = self.budgets.iter_mut().map(|(budget, held)| {
            let was_short = std::mem::take(&mut held.is_short);
            held.short_lately |= was_short;
            let was_calm = measures && !held.short_lately;
            held.in_vain = was_short || (held.fruitless && !was_calm);
            held.short_lately &= !measures;
            held.apply(budget, member);
            let before = if forgets { 0 } else { held.demand };
            held.demand = held.wants(now, idle_after).max(before);
            let mut wants = held.demand;
            if measures {
                held.demand = 0;
            } else if is_leased {
                wants = wants.max(held.amount);
            }
            if is_leased && wants < held.amount {
                held.amount = wants;
                held.apply(budget, member);
            }
            Want { budget: budget.clone(), has: held.has(), wants }
        });
        let wants = wants.collect();
        self.asks(wants)
    }

    fn asks(&self, wants: Vec<Want>) -> Request {
        let member = self.member.clone();
        Request { member, epoch: self.epoch, sequence: self.sequence, wants }
    }

    /// Applies an answer, and returns whether it was useful: only the answer to the last request
    /// is, and only before its leases end.
    pub fn accept(&mut self, now: Duration, answer: &Answer, member: &mut impl Member) -> bool {
        // An older answer may lend what a newer request returned.
        let Some(sent) = self.sent.filter(|sent| sent.sequence == answer.sequence) else {
            return false;
        };
        // An engine that is not a ledger may answer anything.
        let ends = sent.at.saturating_add(answer.ttl.saturating_mul(4) / 5);
        if ends <= now {
            return false;
        }
        self.sent = None;
        self.ends = Some(ends);
        self.learns = answer.learns;
        self.period = (answer.ttl / 3).max(URGENT);
        for lease in &answer.leases {
            let Some(held) = self.budgets.get_mut(&lease.budget) else { continue };
            let before = std::mem::replace(&mut held.amount, lease.amount);
            held.apply(&lease.budget, member);
            held.fruitless = held.in_vain && lease.amount <= before;
            // Others wait for what was taken from this member until it reports that it is free.
            self.urgent |= lease.amount < before;
        }
        true
    }

    /// Makes the last request, which returns everything that the member does not use: when a
    /// process ends, its leases are free for others at once. Limits fall to what [`Outage`]
    /// declares, and what the member still holds of a level beyond that counts until the lease
    /// would have ended.
    ///
    /// The answer is useless; a holder that continues sends a new request.
    pub fn release(&mut self, now: Duration, member: &mut impl Member) -> Request {
        self.end(member);
        self.sequence += 1;
        self.last_sent = Some(now);
        self.sent = None;
        let wants = self.budgets.iter().filter(|(_, held)| held.has() > 0);
        let wants =
            wants.map(|(budget, held)| Want { budget: budget.clone(), has: held.has(), wants: 0 });
        self.asks(wants.collect())
    }

    /// Returns when the leases end unless they are renewed, or `None` if there are none.
    #[must_use]
    pub fn ends(&self) -> Option<Duration> {
        self.ends
    }

    /// Returns whether the leases come from a bank that [learns](Answer::learns).
    #[must_use]
    pub fn learns(&self) -> bool {
        self.ends.is_some() && self.learns
    }

    /// Returns the rule by which a budget is limited, or `None` if it was not added.
    #[must_use]
    pub fn in_force(&self, budget: &Budget) -> Option<InForce> {
        let held = self.budgets.get(budget)?;
        Some(match (self.ends, held.outage) {
            (Some(_), _) => InForce::Lease,
            (None, Outage::Strict) => InForce::Strict,
            (None, Outage::Floor(_)) => InForce::Floor,
            (None, Outage::Open(_)) => InForce::Open,
        })
    }
}

impl Held {
    fn floor(&self) -> u64 {
        match self.outage {
            Outage::Floor(floor) => floor,
            Outage::Strict | Outage::Open(_) => 0,
        }
    }

    fn apply(&mut self, budget: &Budget, member: &mut impl Member) {
        let seen = member.set(budget, self.floor().saturating_add(self.amount));
        self.used = seen.used;
        self.refused = self.refused.saturating_add(seen.refused);
    }

    /// Returns the most that the member may use, or does use: a level may still exceed its lease.
    fn has(&self) -> u64 {
        self.amount.max(self.used.saturating_sub(self.floor()))
    }

    fn wants(&mut self, now: Duration, idle_after: Duration) -> u64 {
        let refused = std::mem::take(&mut self.refused);
        let active_at = *self.active_at.get_or_insert(now);
        if self.used > 0 || refused > 0 {
            self.active_at = Some(now);
        } else if now.saturating_sub(active_at) >= idle_after {
            return 0;
        }
        // A quarter extra, to grow into until the next exchange.
        let wants = self.used.saturating_add(self.used.div_ceil(4)).saturating_add(refused);
        wants.max(self.least).saturating_sub(self.floor())
    }
}
