//! Reference counts that cost a plain add on the running CPU, until somebody wants to know.
//!
//! [`PercpuRef`] is the kernel's `percpu_ref`: get and put while alive, kill, then learn of the last
//! put. [`PercpuArc`] puts a pointer on top, [`ManagedRef`] one for objects that nobody kills.
//!
//! Trade-offs: while it is alive, the count is not known; it takes a word per CPU and some 150 bytes; a
//! kill interrupts every CPU that runs a thread of this process (some tens of microseconds, however
//! many references one [`kill_many`](PercpuRef::kill_many) kills). For counts that come and go with each request use
//! [`RcuRef`](crate::rcuref::RcuRef) or `Arc`.

#[cfg(not(any(loom, shuttle)))]
mod arc;
#[cfg(not(any(loom, shuttle)))]
mod core;
mod count;
#[cfg(not(any(loom, shuttle)))]
mod error;
#[cfg(not(any(loom, shuttle)))]
mod face;
#[cfg(not(any(loom, shuttle)))]
mod life;
mod lock;
#[cfg(not(any(loom, shuttle)))]
mod managed;
#[cfg(not(any(loom, shuttle)))]
#[expect(unsafe_code, reason = "a value under a lock, and objects that free themselves")]
mod raw;
#[cfg(not(any(loom, shuttle)))]
mod report;
mod rows;
#[cfg(not(any(loom, shuttle)))]
mod sites;
#[cfg(not(any(loom, shuttle)))]
mod slots;
mod switch;

#[cfg(not(any(loom, shuttle)))]
pub use self::{
    arc::{PercpuArc, PercpuOwner},
    error::StillHeld,
    face::{Hold, Options, PercpuRef, Released, Start},
    managed::{ManagedRef, Scan, Scanner, Scanning},
    report::{Event, EventKind, HookAlreadySet, set_event_hook},
};

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, any(loom, shuttle)))]
mod models;
#[cfg(all(test, shuttle, not(loom)))]
mod shuttle_models;
