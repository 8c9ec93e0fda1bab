//! What a group may use: quotas and their charges, rates and their buckets.

pub(crate) mod buckets;
mod budget;
pub(crate) mod charge;
pub(crate) mod quota;
pub(crate) mod rate;
