//! A ledger as text, for an engine that keeps text.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Account, HolderId, Ledger, Past, Pool, Share};
use crate::{Answer, Budget, Lease};

/// Limits and shares. The times at which leases end are left out: the engine knows which holders
/// are alive.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Path and resource of each budget named below, by its index here.
    budgets: Vec<(String, String)>,
    pools: Vec<PoolRecord>,
    holders: Vec<HolderRecord>,
}

#[derive(Serialize, Deserialize)]
struct PoolRecord {
    budget: usize,
    leasable: u64,
    floors: u64,
    per_member: Option<u64>,
    /// For each share, the holder's index, the counted and the wanted amount, and its start in
    /// milliseconds.
    shares: Vec<(usize, u64, u64, u64)>,
}

#[derive(Serialize, Deserialize)]
struct HolderRecord {
    member: String,
    epoch: u64,
    sequence: u64,
    learnt: bool,
    /// Budget and amount of each lease of the last answer.
    leases: Vec<(usize, u64)>,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Record {
    /// Returns whether no holder is alive.
    pub(crate) fn is_idle(&self, lives: impl Fn(&str, u64) -> bool) -> bool {
        !self.holders.iter().any(|holder| lives(&holder.member, holder.epoch))
    }

    /// Returns the name and the epoch of each holder.
    pub(crate) fn holders(&self) -> BTreeSet<(&str, u64)> {
        self.holders.iter().map(|holder| (holder.member.as_str(), holder.epoch)).collect()
    }

    pub(crate) fn of(ledger: &Ledger) -> Record {
        let mut record = Record::default();
        let mut places: BTreeMap<&Budget, usize> = BTreeMap::new();
        let place = |budget: &Budget, known: &mut Vec<(String, String)>| {
            known.push((budget.path().to_owned(), budget.resource().to_owned()));
            known.len() - 1
        };
        for (id, account) in &ledger.holders {
            let leases = account.answer.leases.iter().map(|lease| {
                let known = &mut record.budgets;
                let at =
                    *places.entry(&lease.budget).or_insert_with(|| place(&lease.budget, known));
                (at, lease.amount)
            });
            record.holders.push(HolderRecord {
                member: id.member.clone(),
                epoch: id.epoch,
                sequence: account.answer.sequence,
                learnt: account.answer.learns,
                leases: leases.collect(),
            });
        }
        let holders: BTreeMap<_, _> = ledger.holders.keys().zip(0..).collect();
        for (budget, pool) in &ledger.pools {
            let known = &mut record.budgets;
            let at = *places.entry(budget).or_insert_with(|| place(budget, known));
            let share = |(id, share): (&HolderId, &Share)| {
                // Each share belongs to a holder.
                let holder = holders.get(id)?;
                Some((*holder, share.counted, share.wants, millis(share.since)))
            };
            record.pools.push(PoolRecord {
                budget: at,
                leasable: pool.leasable,
                floors: pool.floors,
                per_member: pool.per_member,
                shares: pool.shares.iter().filter_map(share).collect(),
            });
        }
        record
    }

    /// Makes the ledger of this record, without the holders that have died, or `None` if the record
    /// is invalid. `now` is a time that only tells since when something is held.
    pub(crate) fn ledger(
        &self,
        ttl: Duration,
        learns: bool,
        now: Duration,
        lives: impl Fn(&str, u64) -> bool,
    ) -> Option<Ledger> {
        let mut ledger = Ledger::new(ttl, Past::None);
        ledger.clock.now = now;
        if learns {
            ledger.learns_until = Duration::MAX;
        }
        let budget = |(path, resource): &(String, String)| Budget::new(path, resource).ok();
        let budgets: Vec<Budget> = self.budgets.iter().map(budget).collect::<Option<_>>()?;
        let mut ids = Vec::new();
        for holder in &self.holders {
            if !lives(&holder.member, holder.epoch) {
                ids.push(None);
                continue;
            }
            let lease = |&(at, amount): &(usize, u64)| {
                Some(Lease { budget: budgets.get(at)?.clone(), amount })
            };
            let leases = holder.leases.iter().map(lease).collect::<Option<_>>()?;
            let (sequence, learns) = (holder.sequence, holder.learnt);
            let answer = Answer { sequence, ttl, learns, leases };
            let account = Account { answer, ends: Duration::MAX };
            ledger.leases += account.occupies();
            let id = HolderId { member: holder.member.clone(), epoch: holder.epoch };
            ledger.holders.insert(id.clone(), account);
            ids.push(Some(id));
        }
        for kept in &self.pools {
            let mut pool = Pool {
                leasable: kept.leasable,
                floors: kept.floors,
                per_member: kept.per_member,
                ..Pool::default()
            };
            for &(at, counted, wants, since) in &kept.shares {
                if let Some(id) = ids.get(at)? {
                    let since = Duration::from_millis(since);
                    pool.insert(id, Share { counted, wants, since });
                }
            }
            ledger.pools.insert(budgets.get(kept.budget)?.clone(), pool);
        }
        Some(ledger)
    }
}
