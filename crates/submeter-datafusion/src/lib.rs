//! DataFusion's memory by tenant and query: each query is a [submeter] group below its tenant, and
//! every limit up to the root applies to what its operators reserve.
//!
//! New to submeter? Its [guide](submeter::guide) has short programs, and says [what a quota
//! is](submeter::guide::limits).
//!
#![doc = concat!("```\n", include_str!("../examples/query.rs"), "```")]
//!
//! # What limits do
//! - Memory that an operator asks for ([`try_grow`]) is granted by every level up to the root, or
//!   by none. It never exceeds limits, which may change at any time.
//! - Memory that an operator has already taken ([`grow`], which cannot refuse) is charged in any
//!   case. If it exceeds a limit, [`Usage::overdrafts`] counts it, and nothing else is granted
//!   until it has been given back.
//! - A refusal is [`ResourcesExhausted`], upon which operators spill if they can. Its text says
//!   whose limit it was, who holds the most below it, and by which operator.
//!
//! # Who spills
//! DataFusion has no call by which a pool could ask an operator to spill: operators spill when they
//! are refused, and only then. A pool can therefore reclaim nothing from an operator that does not
//! ask for more. But it can refuse early, while there is room for others:
//!
//! - A reservation that can spill and has something to spill may grow to as much as it leaves free
//!   at the tightest level. A single one gets half of a limit, two get a third each, and so on; the
//!   rest is for newcomers, and for reservations that cannot spill, such as a sort's own merge.
//! - A level is as tight as its limit, or as its [`high`](submeter::Group::set_high) if that is
//!   lower: the room between the two is for operators that cannot spill, whose query would end.
//! - Only bytes count: an operator that is registered and idle takes nothing from others, while
//!   `FairSpillPool` keeps a share for it that nothing can use.
//! - An early refusal asks an operator to spill, once. Until it has given something back and then
//!   taken something, only limits refuse it, because sorting and writing what it holds takes memory
//!   too. Only limits refuse reservations below a thirty-second of the tightest level, too:
//!   spilling so little makes many small files.
//!
//! What remains: an operator that can spill, holds much and asks for nothing keeps it until its
//! query ends. A query that finds its tenant's room taken by such operators is refused. With any
//! pool, `RepartitionExec` of DataFusion 55.2 may deadlock on itself if two of its inputs spill at
//! the same time (apache/datafusion#24883): give queries a time limit.
//!
//! # What is not counted
//! DataFusion reserves memory for what grows with its input: sorts, joins, aggregates. Batches on
//! their way between operators are not counted: DataFusion advises leaving about a tenth for them,
//! outside the limits. With the feature `arrow`, `GroupBuffers` counts buffers that are claimed for
//! it.
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
