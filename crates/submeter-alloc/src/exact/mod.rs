//! Exact live bytes: how much memory each group's blocks take now, wherever they are freed.
//!
//! [`Exact`] is the allocator, [`Heap`] what brings its books to a tree.
//!
//! # Whose memory it is
//! A block belongs to the group that its thread worked for when it was allocated, however it grows
//! or shrinks, and whichever thread frees it. When a group is killed, what is left of it belongs to
//! the nearest group above it that lives. Blocks that were allocated outside of all groups, in
//! groups of other trees, or before the [`Heap`] began, are nobody's and are not counted: what the
//! process holds besides is what its allocator or the system says, less the root's bytes.
//!
//! # How exact
//! Each block is added once and taken off once. What a thread's blocks gained in the group that it
//! works for *now*, up to 64 KiB, is added when it leaves the group or parks; everything else at
//! once. So once threads have left their groups, the gauges are exact to the byte; before, they are
//! off by at most 64 KiB, either way, for each thread that is in a group. These are totals: the own
//! part that a snapshot has of a group below which tenants have ended is less by what those had
//! when they ended, which is in no group's own part.
//!
//! Sizes are those that the program asked for.
//!
//! # What it costs
//! - **A block**: an owner is stored beside the heap and looked up there again, and a word of the
//!   thread changes, both times. Where another group's thread frees it, a word of the running CPU
//!   changes instead. Nobody's blocks: a look into the map, as they are freed.
//! - **Memory**: a byte for each 16 of the heap, as far as blocks with owners lie: 6.25 %. Blocks
//!   of less than 16 bytes take 16, which is what glibc gives them anyway, and twice what mimalloc
//!   and jemalloc give to 8. Of more than 254 owners, all further ones take 32 bytes for a
//!   block of 16 (24 with glibc, which is what it takes anyway).
//!
//!   A block of 8 bytes cannot have its owner for so little: 6.25 % of it is half a byte, which
//!   names 15 owners. Two blocks would share that byte, and a thread that writes one half would
//!   have to lock it. A byte for each 8 would be 12.5 % of every heap, whatever its sizes.
//!   For many such blocks an allocator that has a heap for each tenant is better.
//! - **A switch**: an [observer](submeter::switch::observe) is called, which reads no clock; and an
//!   update where the blocks of the group that is left grew or shrank. A thread remembers the
//!   numbers of 16 groups; for others a switch looks up what the group has.
//! - **A group**: a line of per-CPU words and an entry, from its first thread on until it has ended
//!   and its last block was freed. 65,534 groups may have them at once: the blocks of more are
//!   nobody's.
//!
//! # Limits
//! [`Heap::set_limit`] says how much a group may hold. An allocation never fails for it: it has no
//! way to say so but to end the program. Instead three looks compare, each with what it leaves
//! over: [`OrOverHeap`] ends the group's own futures, and nobody else's, where a poll leaves it
//! over the limit (one poll); [`check`] asks in the middle of a long one (what lies between two
//! calls); [`admit`] asks before work is begun (what runs already).
//!
//! # When not to use it
//! When it is enough to know who allocates much: [`Volume`](crate::Volume) costs less.
//!
//! # Where it is right
//! As [`Metered`](crate::Metered): it neither locks nor logs nor panics in a call of the allocator,
//! and makes no system call but those of the allocators below. A signal handler may enter groups
//! that some thread has been in, and may allocate if the allocator below permits it. The memory of
//! the allocator below must come back through this one only. A forked child goes on in its own
//! copy, without what threads that it does not have kept;
//! where the fork came in the middle of a [`Heap::flush`], its gauges stay as they are.

pub(crate) mod books;
mod heap;
mod limit;
mod numbers;
pub(crate) mod owners;
mod raw;

pub use heap::{Balance, Heap};
pub use limit::{NoNumber, OrOver, OrOverHeap, OverLimit, admit, check};
pub use raw::Exact;
pub(crate) use raw::{SIZE_MAX, fit};
