//! The arguments that a script can get: amounts and names.

use crate::Budget;

/// The largest amount: scripts have numbers that are whole below 2^53.
pub(super) const AMOUNT_MAX: u64 = (1 << 53) - 1;

/// Returns a budget as the script knows it. No name has a control character.
pub(super) fn name_of(budget: &Budget) -> String {
    format!("{}\n{}", budget.path(), budget.resource())
}
