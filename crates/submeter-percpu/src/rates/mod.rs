//! Limits of how much per time: token buckets, one word each.
//!
//! # The protocol
//! A bucket is its **due time**: when all that was taken will have been earned, had nothing else
//! been. It is full while that has passed. A take moves it on by what the tokens cost, and is
//! refused if it would be further away than a full bucket costs (the generic cell rate algorithm).
//! Between any two takes at most a burst and the earnings of that time are granted, exactly: a full
//! bucket costs whole nanoseconds, and smaller costs are rounded up.
//!
//! - The word is the due time and, in its low bits, how often the rate was set. A rate is in one of
//!   two **slots**, by the lowest of these bits; a new one is written to the other before the word
//!   is exchanged. A thread that read a slot while it was being written finds another number in the
//!   word: a take by its exchange, a refusal by a second look.
//! - A take of several buckets first looks at all, so that a refusal hardly ever takes anything;
//!   then it takes of one after the other. Where one has become empty meanwhile, those before it
//!   get their tokens back less what they earned since: a bucket that was full would have earned
//!   nothing, and afterwards the difference cannot be seen.
//!
//! - An amount that was used before it was asked for is **spent**: the due time moves on, however
//!   far. While it is further away than a full bucket costs, the bucket owes, and grants nothing.
//!   Nothing new is needed to keep a debt, or to wait for its end.
//!
//! Among the levels below it a rate is divided by [weight](share), where they have one.
//!
//! Stock as of [`limits`](crate::limits) was rejected: tokens that lie on a CPU while the bucket
//! fills again would be granted on top of a burst, and to keep room for them would take bursts away
//! from those that have few CPUs. Locks were rejected for signal handlers, and because a holder
//! that loses its CPU would stop every tenant.

mod bucket;
// Not under Miri: as `share_tests`.
#[cfg(all(test, not(any(loom, miri))))]
mod debt_tests;
#[cfg(all(test, loom))]
mod loom_models;
#[cfg(not(loom))]
mod node;
#[cfg(not(loom))]
mod rate;
mod share;
// Not under Miri: one thread and no unsafe code, and seconds of a clock take minutes there.
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
