//! A member's list of its budgets: all of them, or only those that differ from its last exchange.
//!
//! A thousand budgets cost the server some milliseconds of each exchange, although few of them
//! change from one to the next. A member that has the answer to its last exchange therefore lists
//! only what has changed since, and the script takes the rest as it was. The script does so only if
//! it would lend the same for the rest, and asks for the whole list otherwise; an answer is always
//! one to the whole request.

use std::collections::{BTreeMap, BTreeSet};

use super::said::{AMOUNT_MAX, name_of};
use crate::ledger::by_budget;
use crate::{Budget, Holder, Lease, RefusedError, Request, Want};

/// The last request for a budget, and the loan.
#[derive(Clone, Copy)]
struct Told {
    has: u64,
    wants: u64,
    amount: u64,
}

/// The last exchange that was answered.
pub(super) struct Known {
    holder: String,
    sequence: String,
    all: BTreeMap<Budget, Told>,
    /// The base of its list of changes; empty if it listed all budgets.
    base: String,
    listed: Vec<Budget>,
}

/// A request in the form that the script takes.
pub(super) struct Ask<'a> {
    pub(super) holder: String,
    pub(super) sequence: String,
    wants: BTreeMap<&'a Budget, &'a Want>,
    /// Empty for a list of all budgets.
    base: String,
    /// The budgets that are listed, in order.
    listed: Vec<&'a Budget>,
    /// The amounts lent of those among them that do not differ.
    same: BTreeMap<&'a Budget, u64>,
    /// Budgets of the base that are not in the request.
    returned: Vec<Budget>,
}

fn bounded(want: &Want) -> (u64, u64) {
    (want.has.min(AMOUNT_MAX), want.wants.min(AMOUNT_MAX))
}

fn above(budget: &Budget) -> impl Iterator<Item = Budget> {
    std::iter::successors(budget.parent(), Budget::parent)
}

impl<'a> Ask<'a> {
    /// Lists all budgets.
    ///
    /// # Errors
    /// When the member's name is invalid, or a budget is listed twice.
    pub(super) fn whole(request: &'a Request) -> Result<Ask<'a>, RefusedError> {
        Holder::check_name(&request.member)?;
        let wants = by_budget(request)?;
        // With a fixed width, so that strings have the order of the numbers.
        let holder = format!("{}\0{:016x}", request.member, request.epoch);
        let sequence = format!("{:016x}", request.sequence);
        let listed = wants.keys().copied().collect();
        let (base, same, returned) = (String::new(), BTreeMap::new(), Vec::new());
        Ok(Ask { holder, sequence, wants, base, listed, same, returned })
    }

    /// Lists what differs from the last exchange instead, if that was by the same holder.
    pub(super) fn since(mut self, known: Option<&Known>) -> Ask<'a> {
        let Some(known) = known.filter(|known| known.holder == self.holder) else { return self };
        // A request that is sent again gets the previous answer, whatever the list.
        if known.sequence == self.sequence {
            return self;
        }
        let differs = |budget: &Budget, want: &Want| {
            known.all.get(budget).is_none_or(|told| {
                let (has, wants) = bounded(want);
                // It may now get what it lacks, and gives back what it has in excess.
                (told.has, told.wants) != (has, wants) || told.amount < wants || told.amount < has
            })
        };
        let (mut differing, mut listed) = (BTreeSet::new(), BTreeSet::new());
        // Ancestors come first. A lease is no larger than its nearest ancestor's, which may differ.
        for (budget, want) in &self.wants {
            if differs(budget, want) || above(budget).any(|above| differing.contains(&above)) {
                differing.insert((*budget).clone());
                listed.insert((*budget).clone());
                listed.extend(above(budget));
            }
        }
        self.listed.retain(|budget| listed.contains(budget));
        let same = self.listed.iter().filter(|&&budget| !differing.contains(budget));
        self.same =
            same.filter_map(|&budget| Some((budget, known.all.get(budget)?.amount))).collect();
        let returned = known.all.keys().filter(|budget| !self.wants.contains_key(budget));
        self.returned = returned.cloned().collect();
        self.base.clone_from(&known.sequence);
        self
    }

    /// Returns the script's arguments after the holder's own.
    pub(super) fn arguments(&self) -> Vec<Vec<u8>> {
        let mut arguments = vec![self.base.clone(), self.wants.len().to_string()];
        let places: BTreeMap<_, _> = self.listed.iter().copied().zip(1_u64..).collect();
        for budget in &self.listed {
            let (has, wants) = bounded(self.wants[budget]);
            let above = above(budget).find_map(|above| places.get(&above).copied()).unwrap_or(0);
            let (has, wants) = match self.same.get(budget) {
                Some(amount) => ("=".to_owned(), *amount),
                None => (has.to_string(), wants),
            };
            arguments.extend([name_of(budget), has, wants.to_string(), above.to_string()]);
        }
        for budget in &self.returned {
            arguments.extend([name_of(budget), String::new(), "0".to_owned(), "0".to_owned()]);
        }
        arguments.into_iter().map(String::into_bytes).collect()
    }

    /// Reads the amounts of an answer to a list of changes from `base`, and returns what is known
    /// from then on; `None` if this is not an answer to the request.
    pub(super) fn answered(
        self,
        known: Option<&Known>,
        base: &str,
        amounts: &[u64],
    ) -> Option<Known> {
        let known = known.filter(|known| known.holder == self.holder);
        // A repeated answer belongs to the list that was sent first.
        let again = known.filter(|known| known.sequence == self.sequence && known.base == base);
        let listed: Vec<Budget> = match again {
            Some(known) => known.listed.clone(),
            None if base.is_empty() => self.wants.keys().map(|&budget| budget.clone()).collect(),
            None if base == self.base => {
                self.listed.into_iter().cloned().chain(self.returned).collect()
            }
            None => return None,
        };
        if listed.len() != amounts.len() {
            return None;
        }
        let lent: BTreeMap<_, _> = listed.iter().zip(amounts).collect();
        let told = |(&budget, want): (&&Budget, &&Want)| {
            let (has, wants) = bounded(want);
            let as_before = || Some(known?.all.get(budget)?.amount);
            let amount = lent.get(budget).map(|amount| **amount).or_else(as_before)?;
            Some((budget.clone(), Told { has, wants, amount }))
        };
        let all = self.wants.iter().map(told).collect::<Option<_>>()?;
        let (holder, sequence, base) = (self.holder, self.sequence, base.to_owned());
        Some(Known { holder, sequence, all, base, listed })
    }
}

impl Known {
    /// Returns the loan of each budget, in the order of budgets.
    pub(super) fn leases(&self) -> Vec<Lease> {
        let leases = self.all.iter();
        leases.map(|(budget, told)| Lease { budget: budget.clone(), amount: told.amount }).collect()
    }
}
