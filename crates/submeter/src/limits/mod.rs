//! Limits of a group: charges of its quotas, and takes of its rates.

mod budget;
pub(crate) mod charge;
pub(crate) mod rate;
pub(crate) mod rate_state;
