//! Chapter 4: charging CPU time to the tenant that a thread works for.
//!
//! A counter that you add to needs no context. CPU time does: the library has to know which tenant
//! a thread works for. Entering a group tells it. CPU time is read when a thread switches from one
//! group to another, and charged to the group that it leaves.
//!
//! ```
//! use submeter::{Schema, Tree, switch};
//!
//! let mut schema = Schema::builder();
//! let cpu = schema.cpu_time("cpu", "CPU time used");
//! let tree = Tree::new(schema.build()?)?;
//! let web = tree.get_or_create("/acme/web")?;
//!
//! let answer = web.run(|| {
//!     assert_eq!(switch::current().as_ref(), Some(&web));
//!     (0..1_000_000u64).fold(0, u64::wrapping_add)
//! });
//! assert_eq!(switch::current(), None);
//! assert!(tree.root().sum(cpu) > 0, "{answer}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Group::run`] covers a closure, [`Group::enter`] the life of a guard. Entering the group that a
//! thread is in already writes nothing.
//!
//! **Async code.** A future moves between threads, and a thread between futures. [`InGroup`] enters
//! the group for each poll:
//!
//! ```
//! use submeter::switch::{self, InGroup};
//! # use submeter::{Schema, Tree};
//! # let tree = Tree::new(Schema::builder().build()?)?;
//! # let web = tree.get_or_create("/acme/web")?;
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//!
//! let handler = async { switch::current() }.in_group(&web);
//! assert_eq!(runtime.block_on(handler), Some(web));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A task that such a future spawns is a separate future and starts in no group, unless it is told
//! to stay: `switch::spawn` does, and so does a future that is `in_current_group()` or a function
//! from [`switch::inherit`]. [How the group travels](super::group_travel) lists every kind of work,
//! and what is not followed.
//!
//! **Threads that idle.** A thread that waits inside a group should call [`switch::park`] first, so
//! that the CPU time so far is charged now and not at the next switch: tokio's `on_thread_park` is
//! the place.
//!
//! **What it costs.** A switch reads the CPU's counter; the kernel is asked twice a millisecond, and
//! where a thread may have waited. Containers mostly refuse the perf events that tell of each wait:
//! there every stay of 20 µs or more asks, and a shorter wait in a shorter stay is charged at first
//! and made up for by the next stays. `submeter doctor` says which of the two it is.
//!
//! **Who waits.** [`SchemaBuilder::off_cpu`] declares a second counter, of the time in each group
//! without a CPU: polls that block show in it, and tenants that a busy machine keeps waiting.
//!
//! **What is not covered** is not lost: [`Tree::cpu_balance`] says how much CPU time of the process
//! no group was charged for.
//!
//! Next: [Lifetimes](super::lifetimes).
//!
//! [`Group::enter`]: crate::Group::enter
//! [`Group::bind`]: crate::Group::bind
//! [`Group::run`]: crate::Group::run
//! [`InGroup`]: crate::switch::InGroup
//! [`SchemaBuilder::off_cpu`]: crate::SchemaBuilder::off_cpu
//! [`Tree::cpu_balance`]: crate::Tree::cpu_balance
//! [`switch::inherit`]: crate::switch::inherit
//! [`switch::park`]: crate::switch::park
