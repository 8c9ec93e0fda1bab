//! The arguments that a script can take: amounts and names.

use crate::Budget;

/// Maximum amount: numbers in scripts are exact integers below 2^53.
pub(super) const AMOUNT_MAX: u64 = (1 << 53) - 1;

/// Returns a budget's name in the script. Names have no control characters.
pub(super) fn name_of(budget: &Budget) -> String {
    format!("{}\n{}", budget.path(), budget.resource())
}
