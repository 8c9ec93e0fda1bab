//! Operations that count: adds, charges and limits.

use submeter::LimitError;

use super::Fuzz;
use crate::oracle::{Id, Limited};

/// Bounds how many charges are held at once.
const CHARGES_MAX: usize = 400;

impl Fuzz {
    /// Small, zero, and too large for 32 bits; a million of the largest still fit in 63.
    fn amount(&mut self) -> u64 {
        match self.random.below(6) {
            0 => 0,
            1 => (1 << 31) + self.random.below(1 << 38),
            _ => self.random.below(50),
        }
    }

    pub(super) fn add(&mut self, id: Id) {
        let (which, n) = (self.random.below(2) as usize, self.amount());
        self.group(id).add(self.meters.counters[which], n);
        self.ledger.add(id, which, n);
    }

    /// The same by a handle that found the word once.
    pub(super) fn add_by_meter(&mut self, id: Id) {
        let (which, n) = (self.random.below(2) as usize, self.amount());
        let meter = self.group(id).meter(self.meters.counters[which]);
        meter.add(n);
        meter.add(1);
        self.group(id).meter(self.meters.gauge).adjust(-3);
        self.ledger.add(id, which, n + 1);
        self.ledger.adjust(id, -3);
    }

    pub(super) fn adjust(&mut self, id: Id) {
        let delta = self.amount().cast_signed();
        let delta = if self.random.below(2) == 0 { -delta } else { delta };
        self.group(id).adjust(self.meters.gauge, delta);
        self.ledger.adjust(id, delta);
    }

    pub(super) fn record(&mut self, id: Id) {
        let value = self.random.below(100);
        self.group(id).record(self.meters.histogram, value);
        self.ledger.record(id, value, 1);
    }

    pub(super) fn record_many(&mut self, id: Id) {
        let (value, n) = (self.random.below(100), self.random.below(5));
        self.group(id).record_many(self.meters.histogram, value, n);
        self.ledger.record(id, value, n);
    }

    pub(super) fn visit(&mut self, id: Id) {
        let length = self.random.below(1_000_000);
        let holding = &mut self.held[self.places[&id]];
        let attached = holding.attached.get_or_insert_with(|| self.visits.attach(&holding.group));
        attached.update(|here| here.visit(length));
        if length.is_multiple_of(4) {
            // A handle that is not kept leaves what it collected behind.
            holding.attached = None;
        }
        self.ledger.visit(id, length);
    }

    pub(super) fn charge(&mut self, id: Id) {
        if self.charges.len() >= CHARGES_MAX {
            return self.drop_charge(id);
        }
        // Mostly near the limits that are set; sometimes such that a sum would overflow.
        let huge = self.alone && self.random.below(12) == 0;
        let n = if huge { u64::MAX - 2 } else { self.random.below(50) };
        let resource = self.random.below(2) as usize;
        let charged = self.group(id).try_charge(self.meters.resources[resource], n);
        match (charged, self.ledger.charge(id, resource, n)) {
            (Ok(charge), Ok(())) => {
                assert_eq!((charge.amount(), charge.group()), (n, self.group(id)));
                self.ledger.hold(id);
                self.charges.push((id, resource, charge));
                if huge {
                    // Gone at once: while it is held nothing else fits.
                    self.drop_charge_at(self.charges.len() - 1);
                }
            }
            (Err(error), Err(limited)) => self.assert_limited(&error, id, resource, n, limited),
            (charged, expected) => panic!("charge {n} to {id}: {charged:?}, ledger {expected:?}"),
        }
        self.compare_usage(id);
    }

    pub(super) fn resize(&mut self, _: Id) {
        let Some(at) = self.any_charge() else { return };
        let amount = self.random.below(60);
        let (id, resource, charge) = &mut self.charges[at];
        let (id, resource, before) = (*id, *resource, charge.amount());
        let resized = charge.resize(amount);
        let more = amount.saturating_sub(before);
        let expected = if more > 0 {
            self.ledger.charge(id, resource, more)
        } else {
            self.ledger.uncharge(id, resource, before - amount);
            Ok(())
        };
        let after = if expected.is_ok() { amount } else { before };
        assert_eq!(charge.amount(), after);
        match (resized, expected) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(limited)) => self.assert_limited(&error, id, resource, more, limited),
            (resized, expected) => panic!("resize in {id}: {resized:?}, ledger {expected:?}"),
        }
        self.compare_usage_of(id, self.charges[at].2.group());
    }

    /// Splits a charge in two, and now and then makes one of them again.
    pub(super) fn split(&mut self, _: Id) {
        let Some(at) = self.any_charge() else { return };
        let part = self.random.below(60);
        let (id, resource, charge) = &mut self.charges[at];
        let (id, resource) = (*id, *resource);
        let part = charge.split(part.min(charge.amount()));
        if self.random.below(2) == 0 {
            self.charges[at].2.merge(part);
        } else {
            self.ledger.hold(id);
            self.charges.push((id, resource, part));
        }
        self.compare_usage_of(id, self.charges[at].2.group());
    }

    pub(super) fn drop_charge(&mut self, _: Id) {
        if let Some(at) = self.any_charge() {
            self.drop_charge_at(at);
        }
    }

    fn any_charge(&mut self) -> Option<usize> {
        let len = self.charges.len() as u64;
        (len > 0).then(|| self.random.below(len) as usize)
    }

    fn drop_charge_at(&mut self, at: usize) {
        let (id, resource, charge) = self.charges.swap_remove(at);
        self.ledger.uncharge(id, resource, charge.amount());
        let group = charge.group().clone();
        drop(charge);
        self.compare_usage_of(id, &group);
        drop(group);
        self.ledger.release(id);
    }

    pub(super) fn set_limit(&mut self, id: Id) {
        let resource = self.random.below(2) as usize;
        // Lifted as often as not: otherwise nothing would fit anywhere after a while.
        let limit = (self.random.below(2) == 0).then(|| self.random.below(400));
        let excess = self.group(id).set_limit(self.meters.resources[resource], limit);
        assert_eq!(excess, self.ledger.set_limit(id, resource, limit), "excess of {id}");
        self.compare_usage(id);
    }

    fn assert_limited(&self, error: &LimitError, id: Id, resource: usize, n: u64, want: Limited) {
        let path = |id| &*self.ledger.get(id).path;
        assert_eq!(
            (error.group().path(), error.limiting().path()),
            (path(id), path(want.limiting))
        );
        let said = (error.requested(), error.current(), error.limit());
        assert_eq!(said, (n, want.current, want.limit));
        let holders = error.holders();
        let holders: Vec<(String, u64)> =
            holders.iter().map(|(group, held)| (group.path().to_owned(), *held)).collect();
        assert_eq!(holders, self.ledger.holders(want.limiting, resource));
    }
}
