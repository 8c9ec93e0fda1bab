//! Exact live bytes: how much memory each group's blocks take now, wherever they are freed.
//!
//! [`Exact`] is the allocator; [`Heap`] transfers its books to a tree.
//!
//! # Whose memory it is
//! A block belongs to the group that its thread worked for when it was allocated, however it grows
//! or shrinks, and whichever thread frees it. When a group is killed, its remaining memory belongs
//! to the nearest living group above it. Blocks allocated outside all groups, in groups of other
//! trees, or before the [`Heap`] was started have no owner and are not counted. To learn how much
//! that is, subtract the root's bytes from what the allocator or the system reports for the
//! process.
//!
//! # How exact
//! Each block is added once and taken off once. What a thread gained in the group that it works for
//! *now*, up to 64 KiB, is added when it leaves the group or parks; everything else is added at
//! once. Once threads have left their groups, the gauges are exact to the byte. Until then they are
//! off by at most 64 KiB, either way, for each thread in a group. This is true of totals. A group's
//! own part in a snapshot lacks what killed groups below it still hold until the last handles to
//! them are gone.
//!
//! Sizes are those that the program asked for.
//!
//! # What it costs
//! - **A block**: its owner is compared with what lies beside the heap when it is allocated, and
//!   stored there if it is another one; it is looked up when the block is freed; and each time a
//!   word of the thread changes. If a thread of another group frees it, a word of the running CPU
//!   changes instead. A block without an owner costs the two lookups.
//! - **Memory**: one byte for each 16 of the heap, wherever blocks with owners lie: 6.25 %. Blocks
//!   of less than 16 bytes take 16, which is what glibc gives them anyway, and twice what mimalloc
//!   and jemalloc use for 8. Beyond 254 owners, each further owner's block of 16 bytes takes 32 (24
//!   with glibc, which it takes anyway).
//!
//!   An owner for each block of 8 bytes cannot be had at that price: 6.25 % of the block is half a
//!   byte, which can name 15 owners. Two blocks would share that byte, and a thread that writes one
//!   half would need a lock. A byte for each 8 would be 12.5 % of every heap, whatever its block
//!   sizes. For many such blocks, an allocator with one heap per tenant is better.
//! - **A switch**: an [observer](submeter::switch::observe) is called, which reads no clock, and
//!   there is an update if the blocks of the group being left grew or shrank. A thread remembers
//!   the numbers of 16 groups; for others, a switch looks the number up in the group.
//! - **A group**: a line of per-CPU words and an entry, from the first thread in it or below it
//!   until it has ended and its last block is freed. A [`Heap::flush`] finds out, or in programs
//!   that never flush, a later group. 65,534 groups may have them at once; blocks of further groups
//!   have no owner.
//!
//! # Limits
//! [`Heap::set_limit`] says how much a group may hold. An allocation never fails because of it: its
//! only way to report that would be to end the program. Instead there are three checks, here with
//! the excess that each allows. [`OrOverHeap`] ends the group's own futures, and no others, if a
//! poll leaves the group over its limit (excess: one poll); it can [ask caches
//! first](OrOver::reclaiming). [`check`] tests in the middle of a long poll (excess: what is
//! allocated between two calls). [`admit`] tests before work starts (excess: what already runs).
//! Single containers can be refused by a `GroupAlloc` (excess: none).
//!
//! # When not to use it
//! When it is enough to know who allocates much: [`Volume`](crate::Volume) costs less.
//!
//! # Where it is safe to use
//! The same as [`Metered`](crate::Metered): within a call of the allocator it does not lock, log or
//! panic, and calls nothing but the allocator below and, once for each GiB of addresses where
//! blocks lie, the kernel for a part of the map. A signal handler may enter groups that some thread
//! has been in, and may allocate if the allocator below permits it. Memory must be returned to the
//! allocator below only through this one. A forked child continues
//! in its own copy, without what its missing threads had not posted; if the fork came in the middle
//! of a [`Heap::flush`], the child's gauges stay as they are.

pub(crate) mod books;
mod heap;
mod left;
mod limit;
mod numbers;
pub(crate) mod owners;
mod raw;

pub use heap::{Balance, Heap};
pub use limit::{OrOver, OrOverHeap, OverLimit, admit, check};
pub use numbers::NoNumber;
pub use raw::Exact;
pub(crate) use raw::{SIZE_MAX, disown, fit};
