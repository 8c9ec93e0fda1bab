//! Limits of a fleet: members lease their budgets, so that together they never exceed one limit.
//!
//! A [`Ledger`] keeps the limits of the fleet and its loans to each member. A [`Holder`] is a
//! member's side: it reports what the member uses, and tells the member's own limits what they
//! currently may be. Both are state machines without clocks, threads and sockets: their driver
//! passes the time and carries the [`Request`]s and [`Answer`]s, by any means that may lose,
//! duplicate, delay and reorder them. The engines are such means: [`MemoryBank`] within one
//! process, with the feature `socket` [`SocketBank`] for the processes of one host, and for many
//! hosts [`RedisBank`] with the feature `redis` and [`EtcdBank`] with the feature `etcd`, which is
//! slower, but which no fail-over makes forget anything. The crate `submeter-fleet` drives a member
//! for a tree of submeter.
//!
//! [`EtcdBank`]: https://docs.rs/submeter-bank/latest/submeter_bank/struct.EtcdBank.html
//! [`RedisBank`]: https://docs.rs/submeter-bank/latest/submeter_bank/struct.RedisBank.html
//! [`SocketBank`]: https://docs.rs/submeter-bank/latest/submeter_bank/struct.SocketBank.html
//!
//! # What is kept
//! For each [`Budget`], what all members may use together is at all times at most the limit:
//! - The ledger never counts less for a member than that member may use. It lowers the count only
//!   when the member reports that it already uses less, or when the lease has ended.
//! - A member's lease ends after 0.8 of the time to live, counted from when it *sent* the request,
//!   by its monotonic clock. The ledger's ends after the whole, counted from when it *received* it.
//!   Delays and pauses therefore only shorten a lease, and clocks may differ in speed by 5 %.
//! - A member accepts only the answer to the last request that it sent.
//! - A restarted ledger has forgotten what it lent. It [learns](Past::Unknown) for one time to
//!   live: members keep what they say they have, and get nothing new.
//!
//! Each limited group is a budget of its own, since submeter's trees already refuse whatever
//! exceeds the limit of any group on the way to the root. A lease of `/acme` therefore serves
//! whichever of its children is busy. Lending along whole paths instead would tie up the parent's
//! budget for idle children.
//!
//! A *level*, such as memory or connections, is leased in its own unit. A *rate* is leased as a
//! share of the rate, for example in requests per second, and the member refills a bucket of its
//! own at that rate. Lending tokens instead would lose them in a crash, and an answer that was sent
//! twice would have to be told from two answers.
//!
//! # What is not kept
//! A limit of a level refuses growth. A program must give back everything that it holds beyond a
//! lease that has ended. If a process is stopped for longer than a lease and then holds memory, it
//! holds that in addition to what others were lent meanwhile. [`Outage::Open`] gives up the limit.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod budget;
#[cfg(feature = "etcd")]
mod etcd;
mod holder;
mod ledger;
mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(all(unix, feature = "socket"))]
mod socket;
#[cfg(any(feature = "etcd", feature = "redis"))]
mod unanswered;

use std::error::Error;
use std::fmt;
use std::time::Duration;

pub use budget::{Budget, BudgetError};
#[cfg(feature = "etcd")]
pub use etcd::{EtcdBank, EtcdError};
pub use holder::{Holder, InForce, Member, Outage, Use};
pub use ledger::{Ledger, Lent, Limit, LimitError, Past};
pub use memory::MemoryBank;
#[cfg(feature = "redis")]
pub use redis::{RedisBank, RedisError};
#[cfg(all(unix, feature = "socket"))]
pub use socket::{SocketBank, SocketError, SocketServer};

/// A member's request: everything that it has and wants. A budget that is not listed is returned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The member's name. Members with the same name are told apart by the epoch, and share the
    /// [cap](Ledger::set_limit_per_member) of that name.
    pub member: String,
    /// A number that this process alone uses, such as a random one.
    pub epoch: u64,
    /// Grows with each request of this epoch. A request that arrives twice is answered once.
    pub sequence: u64,
    /// The budgets, each once.
    pub wants: Vec<Want>,
}

/// A request's line about one budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// The budget that is wanted.
    pub budget: Budget,
    /// The most that the member may use, or does use, when it sends the request.
    pub has: u64,
    /// The amount that it would like to have.
    pub wants: u64,
}

/// The loans of a bank in answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The sequence of the request.
    pub sequence: u64,
    /// How long the ledger counts these leases; the member ends them after 0.8 of it.
    pub ttl: Duration,
    /// Whether the ledger still [learns](Past::Unknown) what was lent before it started, and lends
    /// nothing new.
    pub learns: bool,
    /// A lease for each budget of the request, in the order of the ledger.
    pub leases: Vec<Lease>,
}

/// How much of one budget a member may use until the lease ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The budget that is lent.
    pub budget: Budget,
    /// The amount, in the budget's unit; 0 if the bank knows no limit of that name.
    pub amount: u64,
}

/// An engine that keeps a [`Ledger`], or does what one does.
pub trait Bank {
    /// Why an exchange failed: an error of the transport, or a [`RefusedError`].
    type Error: Error;

    /// Exchanges what a member wants for leases. Failing is always safe: the member then keeps its
    /// leases until they end.
    ///
    /// # Errors
    /// When the engine cannot be reached, or refuses the request.
    fn exchange(&self, request: &Request) -> Result<Answer, Self::Error>;
}

/// The operations of a fleet's operator on an engine, in addition to those of its members.
pub trait Operate: Bank {
    /// Sets what the fleet may use of a budget, replacing the previous limit.
    ///
    /// # Errors
    /// When the engine cannot be reached, refuses the caller, or the floors exceed the limit.
    fn set(&self, limit: &Limit) -> Result<(), Self::Error>;

    /// Sets a limit unless the budget has one, in one step: members that all know a limit must not
    /// undo what an operator has set since they were started.
    ///
    /// # Errors
    /// The same as [`set`](Self::set).
    fn set_if_none(&self, limit: &Limit) -> Result<(), Self::Error>;

    /// Lists the limits, in the order of their budgets.
    ///
    /// # Errors
    /// When the engine cannot be reached, or refuses the caller.
    fn limits(&self) -> Result<Vec<Limit>, Self::Error>;

    /// Lists who has how much of a budget at this moment, ordered by name; nothing if the budget
    /// has no limit.
    ///
    /// # Errors
    /// When the engine cannot be reached, or refuses the caller.
    fn holders(&self, budget: &Budget) -> Result<Vec<Lent>, Self::Error>;

    /// Returns whether the engine currently [learns](Answer::learns), which is then why a member
    /// gets nothing.
    ///
    /// # Errors
    /// The same as [`limits`](Self::limits).
    fn learns(&self) -> Result<bool, Self::Error>;
}

/// The error for a request that a ledger does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedError(pub(crate) String);

impl fmt::Display for RefusedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for RefusedError {}
