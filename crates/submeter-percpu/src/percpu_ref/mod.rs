//! Reference counts that cost a plain add on the running CPU until they are killed.
//!
//! [`PercpuRef`] is the kernel's `percpu_ref`: get and put while it is alive, kill it, then learn
//! of the last put. [`PercpuArc`] puts a pointer on top.
//!
//! Trade-offs: the count is not known while it is alive; it takes a word per CPU and some 150
//! bytes; a kill interrupts every CPU that runs a thread of this process (some tens of
//! microseconds, however many references one [`kill_many`](PercpuRef::kill_many) kills). For counts
//! that come and go with each request use [`RcuRef`](crate::rcuref::RcuRef) or `Arc`.
//!
//! From the bottom up, each file using only those before it: `rows`, `count` (the word that knows),
//! `switch` (its two modes), `kill`, `raw` (the words), `holders`, `core`, the two interfaces,
//! `api` and `arc`, and `index` and `owner_map`, where owners are found by name.

#[cfg(not(loom))]
mod api;
#[cfg(not(loom))]
mod arc;
#[cfg(not(loom))]
mod core;
mod count;
#[cfg(not(loom))]
mod holders;
#[cfg(any(test, not(loom)))]
mod index;
mod kill;
#[cfg(not(loom))]
mod owner_map;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "words behind a gate")]
mod raw;
mod rows;
mod switch;

#[cfg(not(loom))]
pub use self::{
    api::PercpuRef,
    arc::{PercpuArc, PercpuOwner},
    core::{Options, Released, Start},
    holders::StillHeldError,
    owner_map::{OwnerMap, Reading, Writing},
};

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, loom))]
mod models;
