//! One limit for many processes: the limits of a [`Tree`] as leases of a [`Bank`].
//!
//! New to submeter? Its [guide](submeter::guide) has short programs, and says [what a limit
//! is](submeter::guide::limits).
//!
//! A [`Driver`] connects a [`Holder`](submeter_bank::Holder), which knows the protocol, to the
//! process's own tree, which enforces the limits: a lease is [`Group::set_limit`] for a level, such
//! as memory or connections, and [`Group::set_rate`] for a rate. The process asks for the amounts
//! that the tree uses and refuses. Charges notice none of it.
//!
//! # Examples
//! ```
//! use std::time::Duration;
//! use submeter::{Bytes, Schema, Tree};
//! use submeter_bank::{Budget, InForce, MemoryBank, Outage};
//! use submeter_fleet::Driver;
//!
//! // The bank that all processes share; here it is in the same one.
//! let bank = MemoryBank::new(Duration::from_secs(15));
//! let budget = Budget::new("/acme", "memory")?;
//! bank.set_limit(&budget, 1000, 100)?;
//!
//! let mut schema = Schema::builder();
//! let memory = schema.quota::<Bytes>("memory", "Memory held");
//! let tree = Tree::new(schema.build()?)?;
//! let acme = tree.create("/acme")?;
//!
//! let mut driver = Driver::new(&tree, "web-1");
//! // 50 at least unless idle, and 10 while the bank cannot be reached.
//! driver.add_level(&budget, memory, 50, Outage::Floor(10))?;
//! let fleet = driver.start(bank)?;
//! while fleet.status()[0].in_force != InForce::Lease {
//!     std::thread::yield_now();
//! }
//! let held = acme.try_charge(memory, 50)?;
//! # drop(held);
//! fleet.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Threads, or none
//! [`Driver::start`] takes two threads: one keeps the time, and must not wait for a bank that
//! hangs; the other talks to the bank. A program with a loop or a runtime of its own calls
//! [`Driver::look`] and [`Driver::accept`] instead, and carries the messages itself.
//!
//! # What is kept
//! Everything that [`submeter_bank`] keeps, as long as nothing else changes the limits of leased
//! groups:
//! - A limit that the program sets beside the driver is put back at the next look, which is within
//!   50 ms unless [told otherwise](Driver::look_every). A group that is deleted and created again
//!   has its lease, and an empty bucket, before anything finds it.
//! - What a deleted group still holds counts for the leases of its ancestors, not for its own.
//! - A [soft](submeter::LimitMode) limit and forced charges exceed a lease as they exceed a limit.
//! - One second's worth of a rate may be taken at once, and at least one unit. A lease of nothing
//!   grants nothing. Each member saves up what it is lent, and all together are lent at most the
//!   rate: in any span of `t` seconds, wherever it begins, the fleet is granted at most `t + 1`
//!   times the rate. A single second may therefore have up to twice the rate, and has more than the
//!   rate when load moves to a member that was idle; a long span has the rate.
//! - Clocks are those of [`Instant`](std::time::Instant), which on some systems stop while the
//!   machine sleeps. A machine that wakes up has old leases until its next look.
//! - A forked child has its parent's leases without its threads: neither is limited by what the
//!   other uses. Make the driver and its tree after a fork.
//! - A process that is stopped may charge once more when it continues, before the driver looks.
//!
//! # Cost
//! A look reads the usage of each leased group, so that the first refusal asks for more: see
//! [`Group::usage`]. Each exchange flushes the tree if rates are leased. A charge costs nothing
//! extra.
//!
//! [`Bank`]: submeter_bank::Bank
//! [`Group::set_limit`]: submeter::Group::set_limit
//! [`Group::set_rate`]: submeter::Group::set_rate
//! [`Group::usage`]: submeter::Group::usage
//! [`Tree`]: submeter::Tree

#![forbid(unsafe_code)]

mod driver;
mod fleet;
mod limits;

pub use driver::{Driver, Status};
pub use fleet::{Exchanges, Fleet};
