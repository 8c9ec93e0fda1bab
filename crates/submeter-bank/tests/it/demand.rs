//! A member that uses what it wants, as far as its lease goes.

use submeter_bank::{Budget, Member, Use};

/// A member with this much demand, of a rate per second.
#[derive(Default)]
pub(crate) struct Demand {
    pub(crate) wished: u64,
    pub(crate) limit: u64,
    pub(crate) refused: u64,
}

impl Member for Demand {
    fn set(&mut self, _: &Budget, amount: u64) -> Use {
        self.limit = amount;
        Use { used: self.wished.min(amount), refused: std::mem::take(&mut self.refused) }
    }
}
