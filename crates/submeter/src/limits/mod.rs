//! What a group may use: charges of its quotas, and what is taken of its rates.

mod budget;
pub(crate) mod charge;
pub(crate) mod rate;
pub(crate) mod rate_state;
