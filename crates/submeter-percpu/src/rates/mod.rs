//! Rate limits: token buckets, one word each.
//!
//! # The protocol
//! A bucket is its **due time**: the time at which everything taken so far will have been earned.
//! It is full once that time has passed. A take advances it by the cost of the tokens, and is
//! refused if it would then be further away than the cost of a full bucket (the generic cell rate
//! algorithm). Between any two takes at most a burst and the earnings of that time are granted,
//! exactly: a full bucket costs whole nanoseconds, and smaller costs are rounded up.
//!
//! - The word is the due time and, in its low bits, the number of times the rate was set. A rate is
//!   in one of two **slots**, chosen by the lowest of these bits; a new one is written to the other
//!   slot before the word is exchanged. A thread that read a slot while it was being written finds
//!   another number in the word: a take by its exchange, a refusal by a second load.
//! - A take from several buckets first checks all of them, so that a refusal hardly ever takes
//!   anything; then it takes from one after the other. If one has become empty in the meantime, the
//!   earlier ones get back their tokens, less what they earned since: a bucket that was full would
//!   have earned nothing, and afterwards the difference is no longer visible.
//!
//! - An amount that was used before it was requested is **spent**: the due time advances, however
//!   far. While it is further away than the cost of a full bucket, the bucket is in debt, and
//!   grants nothing. Keeping a debt and waiting for its end need nothing new.
//!
//! A rate is divided among the levels below it by [weight](share), where they have one.
//!
//! Stock as in [`limits`](crate::limits) was rejected: tokens that lie on a CPU while the bucket
//! fills again would be granted on top of a burst, and keeping room for them would shrink the
//! bursts of users that run on few CPUs. Locks were rejected because of signal handlers, and
//! because a holder that loses its CPU would stop every tenant.

mod bucket;
// Not under Miri: see `share_tests`.
#[cfg(all(test, not(any(loom, miri))))]
mod debt_tests;
#[cfg(all(test, loom))]
mod loom_models;
#[cfg(not(loom))]
mod node;
mod path;
#[cfg(not(loom))]
mod rate;
mod share;
// Not under Miri: it uses one thread and no unsafe code, and seconds of a clock take minutes there.
#[cfg(all(test, not(any(loom, miri))))]
mod share_tests;
#[cfg(not(loom))]
mod test_clock;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(loom))]
pub use node::{Throttled, TokenBucket};
#[cfg(not(loom))]
pub use rate::{InvalidRateError, InvalidWeightError, Rate, WEIGHTS};
#[cfg(not(loom))]
pub use test_clock::TestClock;
