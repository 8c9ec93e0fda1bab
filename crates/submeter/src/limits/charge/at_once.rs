//! Charges of several quotas at once.

use super::{Charge, LimitError, charge};
use crate::metric::schema::{Key, Quota};
use crate::metric::unit::Unit;
use crate::tree::group::Group;

/// An amount of a quota, without its unit, so that amounts of several quotas fit in one array.
/// Created by [`Quota::amount`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Amount {
    key: Key,
    n: u64,
}

impl<U: Unit> Quota<U> {
    /// Returns an amount of this quota for [`Group::try_charge_all`], in the quota's unit.
    #[must_use]
    pub fn amount(self, n: u64) -> Amount {
        Amount { key: self.key, n }
    }
}

impl Group {
    /// Charges amounts of several quotas to this group and every ancestor, or none of them.
    ///
    /// Costs as much as the individual charges, which it makes in the given order: until a later
    /// one is decided, others may be refused because of the earlier ones. A quota may occur twice.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Count, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// let slots = schema.quota::<Count>("slots", "Queries that run");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.root().set_limit(memory, Some(1000));
    /// tree.root().set_limit(slots, Some(1));
    ///
    /// let query = [memory.amount(600), slots.amount(1)];
    /// let [held, slot] = tree.root().try_charge_all(query)?;
    /// assert_eq!((held.amount(), slot.amount()), (600, 1));
    ///
    /// let refused = tree.root().try_charge_all([memory.amount(400), slots.amount(1)]);
    /// assert_eq!(refused.expect_err("a query runs").metric().name(), "slots");
    /// assert_eq!(tree.root().usage(memory).current, 600);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The error of the first charge that a limit refuses. Then nothing is charged.
    ///
    /// # Panics
    /// When a quota is of another tree's schema; then nothing is charged.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_charge_all<const N: usize>(
        &self,
        amounts: [Amount; N],
    ) -> Result<[Charge; N], LimitError> {
        amounts.iter().for_each(|amount| _ = self.quota_slot(amount.key));
        let node = |amount: &Amount| self.quota(usize::from(amount.key.slot));
        for (at, amount) in amounts.iter().enumerate() {
            if !node(amount).charge_stock(amount.n)
                && let Err(refused) = charge(self, amount.key, amount.n)
            {
                // In reverse, like dropped guards.
                amounts[..at].iter().rev().for_each(|before| node(before).release(before.n));
                return Err(refused);
            }
        }
        Ok(amounts.map(|Amount { key, n }| Charge { group: self.clone(), key, amount: n }))
    }
}
