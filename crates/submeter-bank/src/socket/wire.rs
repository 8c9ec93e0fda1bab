//! The messages on the socket: one line of JSON each.

use std::io::{self, BufRead, Read, Write};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Answer, Budget, BudgetError, Lease, Lent, Limit, Request, Want};

/// Maximum length of a message: a thousand times what a process with a thousand budgets sends, or
/// enough for as many budgets as a ledger allows, with names of two hundred bytes.
const MESSAGE_MAX: u64 = 16 << 20;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Asked {
    Exchange(Exchange),
    Set(Term),
    SetIfNone(Term),
    Limits,
    Holders { path: String, resource: String },
    Learns,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Exchange {
    member: String,
    epoch: u64,
    sequence: u64,
    wants: Vec<Line>,
}

/// A budget with what the member has and wants of it.
#[derive(Serialize, Deserialize)]
struct Line {
    path: String,
    resource: String,
    has: u64,
    wants: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Replied {
    Lent(Leases),
    Set,
    Limits(Vec<Term>),
    Holders(Vec<Holding>),
    Learns(bool),
    Refused(String),
}

/// A limit.
#[derive(Serialize, Deserialize)]
pub(super) struct Term {
    path: String,
    resource: String,
    most: u64,
    floors: u64,
    per_member: Option<u64>,
}

/// The part of a budget that one member has.
#[derive(Serialize, Deserialize)]
pub(super) struct Holding {
    member: String,
    epoch: u64,
    amount: u64,
    wants: u64,
    held_for: Duration,
    ends_in: Duration,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Leases {
    sequence: u64,
    ttl: Duration,
    learns: bool,
    leases: Vec<Amount>,
}

#[derive(Serialize, Deserialize)]
struct Amount {
    path: String,
    resource: String,
    amount: u64,
}

impl From<&Request> for Exchange {
    fn from(request: &Request) -> Self {
        let line = |want: &Want| Line {
            path: want.budget.path().to_owned(),
            resource: want.budget.resource().to_owned(),
            has: want.has,
            wants: want.wants,
        };
        Self {
            member: request.member.clone(),
            epoch: request.epoch,
            sequence: request.sequence,
            wants: request.wants.iter().map(line).collect(),
        }
    }
}

impl TryFrom<Exchange> for Request {
    type Error = BudgetError;

    fn try_from(asked: Exchange) -> Result<Self, BudgetError> {
        let want = |line: Line| {
            let budget = Budget::new(&line.path, &line.resource)?;
            Ok(Want { budget, has: line.has, wants: line.wants })
        };
        Ok(Self {
            member: asked.member,
            epoch: asked.epoch,
            sequence: asked.sequence,
            wants: asked.wants.into_iter().map(want).collect::<Result<_, _>>()?,
        })
    }
}

impl From<&Answer> for Replied {
    fn from(answer: &Answer) -> Self {
        let amount = |lease: &Lease| Amount {
            path: lease.budget.path().to_owned(),
            resource: lease.budget.resource().to_owned(),
            amount: lease.amount,
        };
        Replied::Lent(Leases {
            sequence: answer.sequence,
            ttl: answer.ttl,
            learns: answer.learns,
            leases: answer.leases.iter().map(amount).collect(),
        })
    }
}

impl TryFrom<Leases> for Answer {
    type Error = BudgetError;

    fn try_from(lent: Leases) -> Result<Self, BudgetError> {
        let lease = |line: Amount| {
            Ok(Lease { budget: Budget::new(&line.path, &line.resource)?, amount: line.amount })
        };
        Ok(Self {
            sequence: lent.sequence,
            ttl: lent.ttl,
            learns: lent.learns,
            leases: lent.leases.into_iter().map(lease).collect::<Result<_, _>>()?,
        })
    }
}

impl From<&Limit> for Term {
    fn from(limit: &Limit) -> Self {
        Self {
            path: limit.budget.path().to_owned(),
            resource: limit.budget.resource().to_owned(),
            most: limit.most,
            floors: limit.floors,
            per_member: limit.per_member,
        }
    }
}

impl TryFrom<Term> for Limit {
    type Error = BudgetError;

    fn try_from(term: Term) -> Result<Self, BudgetError> {
        let budget = Budget::new(&term.path, &term.resource)?;
        Ok(Self { budget, most: term.most, floors: term.floors, per_member: term.per_member })
    }
}

impl From<Lent> for Holding {
    fn from(lent: Lent) -> Self {
        let Lent { member, epoch, amount, wants, held_for, ends_in } = lent;
        Self { member, epoch, amount, wants, held_for, ends_in }
    }
}

impl From<Holding> for Lent {
    fn from(holding: Holding) -> Self {
        let Holding { member, epoch, amount, wants, held_for, ends_in } = holding;
        Self { member, epoch, amount, wants, held_for, ends_in }
    }
}

/// Writes a message in one piece.
pub(super) fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads a message, or `None` at the end. Memory grows with what has arrived, not with an announced
/// length.
pub(super) fn read<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    from.take(MESSAGE_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        let what = if line.len() as u64 + 1 >= MESSAGE_MAX { "is too long" } else { "was cut off" };
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message {what}")));
    }
    Ok(Some(serde_json::from_slice(&line)?))
}
