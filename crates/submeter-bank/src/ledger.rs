//! The bank's side: the limits of the fleet, and the loans to each member.

#[cfg(feature = "etcd")]
pub(crate) mod record;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::{Answer, Budget, Holder, Lease, RefusedError, Request, Want};

/// Maximum number of budgets in one request: bounds what a stranger can make the ledger keep.
const WANTS_MAX: usize = 65_536;

/// Default maximum number of leases that a ledger keeps: a thousand members with a thousand budgets
/// each, in some hundred megabytes, or two gigabytes if all names are as long as allowed.
const LEASES_MAX: usize = 1 << 20;

/// The limits of a fleet, and the loans to each member.
///
/// Time is an argument, counted from any origin. An exchange costs a search for each budget of the
/// request, and a sort of the members that share an oversubscribed budget.
pub struct Ledger {
    ttl: Duration,
    clock: Clock,
    learns_until: Duration,
    pools: BTreeMap<Budget, Pool>,
    holders: BTreeMap<HolderId, Account>,
    /// The sum of what the holders occupy, and its bound.
    leases: usize,
    leases_max: usize,
}

/// What a restarted ledger knows about earlier leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// Nothing was lent: this is the first ledger of these limits.
    None,
    /// An earlier ledger may have lent anything, for at most the same time to live. For that time
    /// members keep what they have, and get nothing new.
    Unknown,
    /// The same, if earlier leases may have lasted longer than current ones: at most this long.
    LentFor(Duration),
}

/// A limit of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The budget of the limit.
    pub budget: Budget,
    /// The most that all members together may use.
    pub most: u64,
    /// The part of it that is never lent, because members fall back to it: the sum of their
    /// [floors](crate::Outage::Floor).
    pub floors: u64,
    /// Maximum that all members of one name have together, if there is such a cap.
    pub per_member: Option<u64>,
}

/// The part of a budget that one member has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lent {
    /// The member's name.
    pub member: String,
    /// The process of that name.
    pub epoch: u64,
    /// Maximum that it may use at this moment.
    pub amount: u64,
    /// The amount that it asked for.
    pub wants: u64,
    /// For how long it has held a lease of the budget without a break, whatever the amount.
    pub held_for: Duration,
    /// When the lease ends unless the member renews it.
    pub ends_in: Duration,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct HolderId {
    member: String,
    epoch: u64,
}

/// The state of a holder in addition to its shares.
struct Account {
    answer: Answer,
    ends: Duration,
}

impl Account {
    /// Returns how many leases to count. A holder without any counts as one, or strangers could
    /// make the ledger keep any number of holders.
    fn occupies(&self) -> usize {
        self.answer.leases.len().max(1)
    }
}

impl Ledger {
    /// Makes a ledger without limits, on a clock that does not jump.
    ///
    /// Members renew three times within `ttl`. If `ttl` is shorter than before a restart, pass
    /// [`Past::LentFor`], or the ledger stops learning while old leases are alive.
    ///
    /// # Panics
    /// When `ttl` is shorter than 200 ms, which no member could renew in time.
    #[must_use]
    pub fn new(ttl: Duration, past: Past) -> Self {
        assert!(ttl >= Duration::from_millis(200), "a ttl of {ttl:?} is shorter than 200 ms");
        let learns_until = match past {
            Past::None => Duration::ZERO,
            Past::Unknown => ttl,
            Past::LentFor(longest) => longest.max(ttl),
        };
        let clock = Clock { seen: None, now: Duration::ZERO, step_max: Duration::MAX };
        Self {
            ttl,
            clock,
            learns_until,
            pools: BTreeMap::new(),
            holders: BTreeMap::new(),
            leases: 0,
            leases_max: LEASES_MAX,
        }
    }

    /// Sets how many leases the ledger keeps at most; the default is 1,048,576. A member without
    /// leases counts as one. Each takes about 200 bytes and its budget's name. Further requests are
    /// refused until leases end, so strangers can keep new members out, but cannot use up the
    /// engine's memory or take what members have.
    #[must_use]
    pub fn with_leases_max(mut self, leases_max: usize) -> Self {
        self.leases_max = leases_max;
        self
    }

    /// Tells the ledger that its clock may jump, as the wall clock of a database may.
    ///
    /// Time then passes by at most a tenth of the time to live from one call to the next, so that a
    /// jump cannot end leases that members still use. One jump in each time to live is safe. The
    /// ledger's driver calls [`Ledger::advance`] at least that often, or leases of crashed members
    /// last longer.
    #[must_use]
    pub fn on_wall_clock(mut self) -> Self {
        self.clock.step_max = self.ttl / 10;
        self
    }

    /// Sets the most that all members together may use of a budget. `floors` is the part that is
    /// never lent, because members fall back to it: the sum of their
    /// [floors](crate::Outage::Floor).
    ///
    /// A limit below what is lent takes effect as leases are renewed, within one time to live. In
    /// whatever order they ask, each member keeps what it has up to its part of the new limit, and
    /// no member is lent more until all have come down.
    ///
    /// # Errors
    /// When the floors exceed the limit: a fleet without its bank would exceed it too.
    pub fn set_limit(
        &mut self,
        budget: &Budget,
        limit: u64,
        floors: u64,
    ) -> Result<(), LimitError> {
        let leasable = LimitError::leasable(budget, limit, floors)?;
        let pool = self.pools.entry(budget.clone()).or_default();
        (pool.leasable, pool.floors) = (leasable, floors);
        Ok(())
    }

    pub(crate) fn set(&mut self, limit: &Limit) -> Result<(), RefusedError> {
        let Limit { budget, most, floors, per_member } = limit;
        let set = self.set_limit(budget, *most, *floors);
        set.map_err(|error| RefusedError(error.to_string()))?;
        self.set_limit_per_member(budget, *per_member);
        Ok(())
    }

    pub(crate) fn set_if_none(&mut self, limit: &Limit) -> Result<(), RefusedError> {
        if self.has_limit(&limit.budget) { Ok(()) } else { self.set(limit) }
    }

    /// Lists the limits, in the order of their budgets.
    pub fn limits(&self) -> impl Iterator<Item = Limit> + '_ {
        self.pools.iter().map(|(budget, pool)| Limit {
            budget: budget.clone(),
            most: pool.leasable + pool.floors,
            floors: pool.floors,
            per_member: pool.per_member,
        })
    }

    /// Returns whether a budget has a limit.
    #[must_use]
    pub fn has_limit(&self, budget: &Budget) -> bool {
        self.pools.contains_key(budget)
    }

    /// Sets the most that all members of one name have of a budget together, or `None` for no cap.
    /// The cap also applies to what they claim to have, and while the ledger
    /// [learns](Self::learns). Members of one name are served in the order in which they ask.
    ///
    /// The cap is by name over all epochs, since a member could invent epochs. It could also invent
    /// names: to hold against a hostile member, the ledger's driver must have checked that the name
    /// is the member's own.
    ///
    /// A cap below what a member has takes effect as its leases are renewed. A restarted ledger
    /// with a lower cap believes a member only up to that cap.
    ///
    /// Costs each later exchange a look at the member's other epochs.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter_bank::{Budget, Ledger, Past};
    ///
    /// let memory = Budget::new("/acme", "memory")?;
    /// let mut ledger = Ledger::new(Duration::from_secs(15), Past::None);
    /// ledger.set_limit(&memory, 8 << 30, 0)?;
    /// // No server of the fleet takes more than half.
    /// ledger.set_limit_per_member(&memory, Some(4 << 30));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_limit_per_member(&mut self, budget: &Budget, most: Option<u64>) {
        self.pools.entry(budget.clone()).or_default().per_member = most;
    }

    /// Lets time pass: leases that were not renewed end.
    pub fn advance(&mut self, now: Duration) {
        let now = self.clock.advance(now);
        let (pools, leases) = (&mut self.pools, &mut self.leases);
        self.holders.retain(|id, account| {
            let lives = now < account.ends;
            if !lives {
                *leases -= account.occupies();
                for lease in &account.answer.leases {
                    if let Some(pool) = pools.get_mut(&lease.budget) {
                        pool.remove(id);
                    }
                }
            }
            lives
        });
    }

    /// Answers a request that arrived at `now`.
    ///
    /// Repeats the same answer to the same request, as long as the member has sent no newer one.
    ///
    /// # Errors
    /// When a newer request of this member arrived before, the request names a budget twice or has
    /// more than 65,536, the member's name is empty, longer than 1,024 bytes or has control
    /// characters, or the ledger [keeps](Self::with_leases_max) too many leases. Nothing has
    /// changed then.
    pub fn exchange(&mut self, now: Duration, request: &Request) -> Result<Answer, RefusedError> {
        self.advance(now);
        Holder::check_name(&request.member)?;
        let wants = by_budget(request)?;
        let id = HolderId { member: request.member.clone(), epoch: request.epoch };
        if let Some(account) = self.holders.get(&id) {
            let newest = account.answer.sequence;
            if request.sequence == newest {
                return Ok(account.answer.clone());
            }
            if request.sequence < newest {
                return Err(RefusedError(format!(
                    "request {} of {:?} arrived after request {newest}: send a new one",
                    request.sequence, request.member
                )));
            }
        }
        let others = self.leases - self.holders.get(&id).map_or(0, Account::occupies);
        if others + wants.len().max(1) > self.leases_max {
            return Err(RefusedError(format!(
                "request of {:?} for {} leases, besides {others}, exceeds the ledger's maximum of \
                 {}: wait until others end, or raise the maximum",
                request.member,
                wants.len(),
                self.leases_max
            )));
        }
        let answer = self.lend(&id, request.sequence, &wants);
        let ends = self.clock.now + self.ttl;
        let account = Account { answer: answer.clone(), ends };
        self.leases = others + account.occupies();
        if let Some(before) = self.holders.insert(id.clone(), account) {
            // Amounts of budgets that are no longer listed are returned.
            for lease in before.answer.leases {
                if !wants.contains_key(&lease.budget)
                    && let Some(pool) = self.pools.get_mut(&lease.budget)
                {
                    pool.remove(&id);
                }
            }
        }
        Ok(answer)
    }

    fn lend(&mut self, id: &HolderId, sequence: u64, wants: &BTreeMap<&Budget, &Want>) -> Answer {
        let learns = self.learns();
        let mut lent: BTreeMap<Budget, u64> = BTreeMap::new();
        let mut leases = Vec::with_capacity(wants.len());
        for (&budget, want) in wants {
            let amount = self.pools.get_mut(budget).map_or(0, |pool| {
                // More than an ancestor's lease could not be used, and would lie idle here while
                // others want it. Ancestors come first in the order of budgets.
                let above = std::iter::successors(budget.parent(), Budget::parent)
                    .find_map(|ancestor| lent.get(&ancestor).copied());
                let amount = pool.lend(id, want, above.unwrap_or(u64::MAX), learns, self.clock.now);
                lent.insert(budget.clone(), amount);
                amount
            });
            leases.push(Lease { budget: budget.clone(), amount });
        }
        Answer { sequence, ttl: self.ttl, learns, leases }
    }

    /// Returns whether the ledger still learns what an earlier one lent.
    #[must_use]
    pub fn learns(&self) -> bool {
        self.clock.now < self.learns_until
    }

    /// Lists who has how much of a budget, ordered by name; nothing if the budget has no limit.
    pub fn lent(&self, budget: &Budget) -> impl Iterator<Item = Lent> + '_ {
        self.pools.get(budget).into_iter().flat_map(|pool| &pool.shares).map(|(id, share)| {
            let ends = self.holders.get(id).map_or(self.clock.now, |account| account.ends);
            Lent {
                member: id.member.clone(),
                epoch: id.epoch,
                amount: share.counted,
                wants: share.wants,
                held_for: self.clock.now.saturating_sub(share.since),
                ends_in: ends.saturating_sub(self.clock.now),
            }
        })
    }
}

pub(crate) fn by_budget(request: &Request) -> Result<BTreeMap<&Budget, &Want>, RefusedError> {
    if request.wants.len() > WANTS_MAX {
        return Err(RefusedError(format!(
            "request for {} budgets: ask for at most {WANTS_MAX}",
            request.wants.len()
        )));
    }
    let mut wants = BTreeMap::new();
    for want in &request.wants {
        if wants.insert(&want.budget, want).is_some() {
            return Err(RefusedError(format!("{} is listed twice: list it once", want.budget)));
        }
    }
    Ok(wants)
}

/// The amount lent of one budget.
#[derive(Default)]
struct Pool {
    /// The limit less the floors.
    leasable: u64,
    floors: u64,
    /// The most that all holders of one name have.
    per_member: Option<u64>,
    shares: BTreeMap<HolderId, Share>,
    /// The sums over the shares. The sum of counted amounts cannot exceed a u64 as long as limits
    /// only grow; after limits fell it may, and so may the sum of wanted amounts.
    counted: u128,
    wanted: u128,
}

#[derive(Clone, Copy, Default)]
struct Share {
    /// Maximum that the holder may use.
    counted: u64,
    wants: u64,
    /// When the holder first asked for it.
    since: Duration,
}

impl Pool {
    /// Lends at most `most`, and returns how much.
    fn lend(&mut self, id: &HolderId, want: &Want, most: u64, learns: bool, now: Duration) -> u64 {
        let since = self.shares.get(id).map_or(now, |share| share.since);
        let before = self.remove(id);
        let cap = self.cap(id);
        // Wanting more than the cap would keep from others a part that this member never gets.
        let wants = want.wants.min(most).min(cap);
        self.insert(id, Share { counted: 0, wants, since });
        let room = u128::from(self.leasable).saturating_sub(self.counted);
        let room = u64::try_from(room).unwrap_or(u64::MAX);
        // After a limit was lowered there is no room until others have given back. A member keeps
        // what it has, up to its part: otherwise the first to ask would pay for the whole excess of
        // the others.
        let keeps = want.has.min(before.counted);
        let mut amount = self.fair(id, wants).min(room.max(keeps));
        if learns {
            amount = amount.min(want.has);
        }
        // Until the answer arrives, and if it is lost, the member uses what it has. That is
        // therefore what counts, even if the member is asked to go below. A ledger that lent the
        // amount knows that it is true; one that forgot, or never lent it, believes it as far as
        // there is room below the limit and the cap.
        let counted = amount.max(want.has.min(room.min(cap).max(before.counted)));
        self.remove(id);
        self.insert(id, Share { counted, wants, since });
        amount
    }

    /// Returns how much of the cap of the holder's name its other holders leave.
    fn cap(&self, id: &HolderId) -> u64 {
        let Some(most) = self.per_member else { return u64::MAX };
        let epoch = |epoch| HolderId { member: id.member.clone(), epoch };
        let others = self.shares.range(epoch(0)..=epoch(u64::MAX));
        others.fold(most, |left, (_, share)| left.saturating_sub(share.counted))
    }

    /// Returns the holder's part by max-min fairness: members that want little get it, and the rest
    /// is divided among those that want more. With equal parts a member would wait for amounts that
    /// another does not want; with parts in proportion to wanted amounts it would gain by asking
    /// for more. Here neither happens.
    fn fair(&self, id: &HolderId, wants: u64) -> u64 {
        if self.wanted <= u128::from(self.leasable) {
            return wants;
        }
        let mut wishes: Vec<_> = self.shares.iter().map(|(id, share)| (share.wants, id)).collect();
        wishes.sort_unstable();
        let mut rest = self.leasable;
        let mut waiting = wishes.len() as u64;
        for (wish, holder) in wishes {
            // Rounded up, so that the odd unit goes to the smaller wish, for which it is the larger
            // part. Either way everything is lent, because the last one gets the remainder.
            let part = wish.min(rest.div_ceil(waiting));
            if holder == id {
                return part;
            }
            rest -= part;
            waiting -= 1;
        }
        0
    }

    fn insert(&mut self, id: &HolderId, share: Share) {
        self.counted += u128::from(share.counted);
        self.wanted += u128::from(share.wants);
        self.shares.insert(id.clone(), share);
    }

    fn remove(&mut self, id: &HolderId) -> Share {
        let share = self.shares.remove(id).unwrap_or_default();
        self.counted -= u128::from(share.counted);
        self.wanted -= u128::from(share.wants);
        share
    }
}

/// Time as the ledger counts it, which starts at zero and only grows.
struct Clock {
    seen: Option<Duration>,
    now: Duration,
    step_max: Duration,
}

impl Clock {
    fn advance(&mut self, to: Duration) -> Duration {
        let passed = self.seen.map_or(Duration::ZERO, |seen| to.saturating_sub(seen));
        self.seen = Some(to);
        self.now += passed.min(self.step_max);
        self.now
    }
}

/// The error for floors that exceed their limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitError(String);

impl LimitError {
    /// Returns the part of a limit that is left by the floors.
    pub(crate) fn leasable(budget: &Budget, limit: u64, floors: u64) -> Result<u64, Self> {
        limit.checked_sub(floors).ok_or_else(|| {
            Self(format!(
                "{budget}: floors of {floors} in total exceed the limit of {limit}: raise the \
                 limit or lower the floors"
            ))
        })
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for LimitError {}
