//! Operations on charges and limits.

use submeter::{LimitError, LimitMode};
use submeter_sys::barrier;

use super::Differential;
use crate::op::{HUGE, Source, picked};
use crate::oracle::{Id, Limited};

/// Maximum number of charges held at once.
const CHARGES_MAX: usize = 400;

impl Differential {
    pub(super) fn charge(&mut self, id: Id, quota: usize, n: u64) {
        let is_huge = n >= HUGE;
        if is_huge && !self.alone {
            // Charges of other threads could cause a refusal.
            return;
        }
        if self.charges.len() >= CHARGES_MAX {
            return self.drop_charge(id as u32);
        }
        let (charged, late) = or_late(|| self.group(id).try_charge(self.schema.quotas[quota], n));
        let expected = self.oracle.charge(id, quota, n);
        let is_undone =
            self.is_refused_late(charged.as_ref().map(drop), expected, late, (id, quota, n));
        if is_undone {
            self.oracle.uncharge(id, quota, n);
        }
        if let Ok(charge) = charged {
            assert_eq!((charge.amount(), charge.group()), (n, self.group(id)));
            self.oracle.hold(id);
            self.charges.push((id, quota, charge));
            if is_huge && self.source == Source::Stream {
                // Dropped at once, because nothing else would fit while it is held.
                self.drop_charge_at(self.charges.len() - 1);
            }
        }
        self.compare_held_near(id);
    }

    pub(super) fn charge_forced(&mut self, id: Id, quota: usize, n: u64) {
        let fits = |held: u64| held.checked_add(n).is_some();
        if !self.alone || !fits(self.oracle.get(0).held[quota].current) {
            // It would cause charges of other threads to be refused, or charge more than exists.
            return;
        }
        if self.charges.len() >= CHARGES_MAX {
            return self.drop_charge(id as u32);
        }
        let charge = self.group(id).charge_forced(self.schema.quotas[quota], n);
        self.oracle.charge_forced(id, quota, n);
        self.oracle.hold(id);
        self.charges.push((id, quota, charge));
        self.compare_held_near(id);
    }

    /// Charges two quotas, or neither.
    pub(super) fn charge_all(&mut self, id: Id, n: [u64; 2]) {
        if !self.alone || self.charges.len() + 2 > CHARGES_MAX {
            return self.drop_charge(id as u32);
        }
        let amounts = [0, 1].map(|quota| self.schema.quotas[quota].amount(n[quota]));
        let (charged, late) = or_late(|| self.group(id).try_charge_all(amounts));
        let first = self.oracle.charge(id, 0, n[0]);
        let expected = first.map_err(|limited| (0, limited)).and_then(|()| {
            let second = self.oracle.charge(id, 1, n[1]).map_err(|limited| (1, limited));
            second.inspect_err(|_| self.oracle.uncharge(id, 0, n[0]))
        });
        let refusing = expected.err().map_or(0, |(quota, _)| quota);
        let expected = expected.map_err(|(_, limited)| limited);
        let at = (id, refusing, n[refusing]);
        if self.is_refused_late(charged.as_ref().map(drop), expected, late, at) {
            [0, 1].into_iter().for_each(|quota| self.oracle.uncharge(id, quota, n[quota]));
        }
        for (quota, charge) in charged.into_iter().flatten().enumerate() {
            assert_eq!((charge.amount(), charge.group()), (n[quota], self.group(id)));
            self.oracle.hold(id);
            self.charges.push((id, quota, charge));
        }
        self.compare_held_near(id);
    }

    pub(super) fn set_limit_mode(&mut self, id: Id, quota: usize, mode: LimitMode) {
        let usage = self.group(id).set_limit_mode(self.schema.quotas[quota], mode);
        assert_eq!(usage.mode, mode);
        self.oracle.set_limit_mode(id, quota, mode);
        self.compare_held_near(id);
    }

    pub(super) fn set_claims(&mut self, id: Id, quota: usize, claims: [Option<u64>; 2]) {
        let (group, key) = (self.group(id), self.schema.quotas[quota]);
        assert_eq!(group.set_min(key, claims[0]).min, claims[0]);
        assert_eq!(group.set_low(key, claims[1]).low, claims[1]);
        self.oracle.set_claims(id, quota, claims);
        self.compare_held_near(id);
    }

    /// Compares what is protected below an ancestor, at most that many levels up.
    pub(super) fn protection(&mut self, id: Id, quota: usize, levels: u32) {
        let mut above = (self.group(id), id);
        let depth = self.oracle.upward(id).count();
        for _ in 0..levels as usize % depth {
            let parent = self.oracle.get(above.1).parent.expect("there are that many levels");
            above = (above.0.parent().expect("as the oracle says"), parent);
        }
        let found = self.group(id).protection(self.schema.quotas[quota], above.0);
        let truth = [0, 1].map(|which| self.oracle.protection(id, quota, which, above.1));
        assert_eq!([found.min, found.low], truth, "{id} below {}", above.1);
        self.tally.compared += 2;
    }

    pub(super) fn resize(&mut self, charge: u32, amount: u64) {
        let Some(at) = self.picked_charge(charge) else { return };
        let (id, quota, charge) = &mut self.charges[at];
        let (id, quota, before) = (*id, *quota, charge.amount());
        let (resized, late) = or_late(|| charge.resize(amount));
        let more = amount.saturating_sub(before);
        let expected = if more > 0 {
            self.oracle.charge(id, quota, more)
        } else {
            self.oracle.uncharge(id, quota, before - amount);
            Ok(())
        };
        let after = if resized.is_ok() { amount } else { before };
        assert_eq!(charge.amount(), after);
        if self.is_refused_late(resized.as_ref().copied(), expected, late, (id, quota, more)) {
            self.oracle.uncharge(id, quota, more);
        }
        self.compare_charged(at);
    }

    /// Splits a charge in two, and merges the parts again if `merge` is true.
    pub(super) fn split(&mut self, charge: u32, part: u64, merge: bool) {
        let Some(at) = self.picked_charge(charge) else { return };
        let (id, quota, charge) = &mut self.charges[at];
        let (id, quota, before) = (*id, *quota, charge.amount());
        let part = charge.split(part.min(before));
        assert_eq!(part.amount() + charge.amount(), before);
        if merge {
            charge.merge(part);
        } else {
            self.oracle.hold(id);
            self.charges.push((id, quota, part));
        }
        self.compare_charged(at);
    }

    pub(super) fn drop_charge(&mut self, charge: u32) {
        if let Some(at) = self.picked_charge(charge) {
            self.drop_charge_at(at);
        }
    }

    fn picked_charge(&self, charge: u32) -> Option<usize> {
        let len = self.charges.len();
        (len > 0).then(|| picked(charge, len))
    }

    fn drop_charge_at(&mut self, at: usize) {
        let (id, quota, charge) = self.charges.swap_remove(at);
        self.oracle.uncharge(id, quota, charge.amount());
        let group = charge.group().clone();
        drop(charge);
        self.compare_held_of(id, &group);
        drop(group);
        self.oracle.release(id);
        self.compare_held_near(0);
    }

    /// Compares the usage of a charge's group, to which no handle may be left.
    fn compare_charged(&mut self, at: usize) {
        let (id, _, charge) = &self.charges[at];
        self.compare_held_of(*id, charge.group());
        self.compare_held_near(0);
    }

    pub(super) fn set_limit(&mut self, id: Id, quota: usize, limit: Option<u64>) {
        let usage = self.group(id).set_limit(self.schema.quotas[quota], limit);
        assert_eq!(usage.excess(), self.oracle.set_limit(id, quota, limit), "excess of {id}");
        self.compare_held(id);
    }

    /// Compares the answers to a charge of `n` units of `quota` to the group `id`, unless it was
    /// refused, possibly wrongly: `late`. Returns whether the oracle, which granted it, must take
    /// that back.
    pub(super) fn is_refused_late(
        &mut self,
        charged: Result<(), &LimitError>,
        expected: Result<(), Limited>,
        late: bool,
        (id, quota, n): (Id, usize, u64),
    ) -> bool {
        if late && charged.is_err() {
            self.tally.late += 1;
            return expected.is_ok();
        }
        let (error, limited) = match (charged, expected) {
            (Ok(()), Ok(())) => return false,
            (Err(error), Err(limited)) => (error, limited),
            (charged, expected) => panic!("charge {n} to {id}: {charged:?}, not {expected:?}"),
        };
        let Limited { limiting, current, limit } = limited;
        let path = |id| &*self.oracle.get(id).path;
        let paths = (error.group().path(), error.limiting().path());
        assert_eq!(paths, (path(id), path(limiting)));
        let said = (error.requested(), error.current(), error.limit());
        assert_eq!(said, (n, current, limit));
        let holders = error.holders();
        let holders: Vec<(String, u64)> =
            holders.iter().map(|(group, held)| (group.path().to_owned(), *held)).collect();
        assert_eq!(holders, self.oracle.holders(limiting, quota));
        let text = error.detail().to_string();
        for named in holders.iter().map(|(path, _)| path.as_str()).chain([path(limiting)]) {
            assert!(text.contains(named), "{text:?} does not name {named}");
        }
        false
    }
}

/// Returns the result of an operation, and whether any thread gave up a barrier in the meantime.
fn or_late<T>(act: impl FnOnce() -> T) -> (T, bool) {
    let before = barrier::given_up();
    let done = act();
    (done, barrier::given_up() > before)
}
