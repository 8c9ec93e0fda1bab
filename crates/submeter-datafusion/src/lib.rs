//! DataFusion's memory by tenant and query: each query is a [submeter] group below its tenant, and
//! every limit up to the root holds for what its operators reserve.
//!
//! New to submeter? Its [guide](submeter::guide) has short programs, and says [what a quota
//! is](submeter::guide::limits).
//!
#![doc = concat!("```\n", include_str!("../examples/query.rs"), "```")]
//!
//! # What limits do
//! - What an operator asks for ([`try_grow`]) is granted by every level up to the root, or by none.
//!   Limits are never exceeded by it, and may change at any time.
//! - What an operator has taken already ([`grow`], which cannot refuse) is charged in any case:
//!   where it exceeds a limit, [`Usage::overdrafts`] counts it, and nothing else is granted until
//!   it has been given back.
//! - A refusal is [`ResourcesExhausted`], upon which operators spill that can. Its text says whose
//!   limit it was, who holds the most below it, and by which operator.
//!
//! # Who spills
//! DataFusion has no call by which a pool could ask an operator to spill: operators spill when they
//! are refused, and only then. A pool can therefore reclaim nothing from an operator that does not
//! ask for more. What it can do is to refuse early, while there is room for others:
//!
//! - A reservation that can spill and has something to spill may grow to what it leaves free at the
//!   tightest level. One that is alone gets half of a limit, two get a third each, and so on; what
//!   is left is for those that come, and for those that cannot spill, such as a sort's own merge.
//! - A level is as tight as its limit, or as its [`high`](submeter::Group::set_high) if that is
//!   lower: the room between both is for operators that cannot spill, whose query would end.
//! - Only bytes count: an operator that is registered and idle takes nothing from others, while
//!   `FairSpillPool` keeps a share for it that nobody can use.
//! - An early refusal asks an operator to spill, once. Until it has given something back and taken
//!   some again only limits refuse it, because to sort and write what it holds takes memory too.
//!   Only limits refuse reservations below a thirty-second of the tightest level, too: to spill so
//!   little makes many small files.
//!
//! What remains: an operator that can spill, holds much and asks for nothing keeps it until its
//! query ends. A query that finds its tenant's room taken by such operators is refused. And with
//! whatever pool, `RepartitionExec` of DataFusion 55.2 may wait for itself without end where two of
//! its inputs spill at a time (apache/datafusion#24883): give queries a time limit.
//!
//! # What is not counted
//! DataFusion reserves for what grows with its input: sorts, joins, aggregates. Batches on their
//! way between operators are not counted: DataFusion advises to leave about a tenth for them,
//! outside of the limits. With the feature `arrow`, `GroupBuffers` counts buffers that are claimed
//! for it.
//!
//! [`try_grow`]: datafusion_execution::memory_pool::MemoryPool::try_grow
//! [`grow`]: datafusion_execution::memory_pool::MemoryPool::grow
//! [`Usage::overdrafts`]: submeter::Usage::overdrafts
//! [`ResourcesExhausted`]: datafusion_common::DataFusionError::ResourcesExhausted

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(feature = "arrow")]
mod buffers;
mod consumers;
mod levels;
mod pool;
mod refusal;
mod tenant;

#[cfg(feature = "arrow")]
pub use buffers::GroupBuffers;
pub use pool::GroupPool;
pub use tenant::TenantPools;
