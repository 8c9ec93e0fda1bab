//! Appendix: how the group travels, what it costs, and what is not followed.
//!
//! A thread works for the group that it entered last. Work that is handed to another thread, or
//! polled later, is in that group only if it takes the group along: no stable hook of a runtime
//! would tell. One of two things is done where the work is handed over: `in_group(&group)`
//! names the group, and `in_current_group()` or [`switch::inherit`] takes that of the creator.
//!
//! ```
//! use rayon::prelude::*;
//! use submeter::switch::{self, InGroup};
//! use submeter::{Schema, Tree};
//! use tokio::task::JoinSet;
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let tree = Tree::new(Schema::builder().build()?)?;
//! let web = tree.get_or_create("/acme/web")?;
//! let handler = async {
//!     let mut tasks = JoinSet::new();
//!     tasks.spawn(async { switch::current() }.in_current_group());
//!     tasks.spawn_blocking(switch::inherit(switch::current));
//!     tasks.spawn_blocking(switch::inherit(|| {
//!         let parts = (0..100).into_par_iter().in_current_group();
//!         parts.map(|_| switch::current()).reduce_with(|one, other| one.and(other)).flatten()
//!     }));
//!     tasks.join_all().await
//! };
//! assert_eq!(handler.in_group(&web).await, vec![Some(web); 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | Work | In a group by | Switches | Feature |
//! |---|---|---|---|
//! | a closure, here and now | [`Group::run`], [`Group::enter`] | two | |
//! | a callback | [`Group::bind`] | two for each call | |
//! | a future | `in_group`, `in_current_group` | two for each poll, and for its drop | |
//! | `tokio::spawn` | `switch::spawn`, `switch::spawn_in` | as a future | `tokio` |
//! | `tokio::spawn` as it is | `switch::follow_tasks` | two, and a map, for each poll | unstable |
//! | `spawn_local`, `LocalSet` | `switch::spawn_local` | as a future | `tokio` |
//! | `JoinSet`, `TaskTracker` | `set.spawn(future.in_current_group())` | as a future | |
//! | `spawn_blocking` | `switch::spawn_blocking`, `switch::spawn_blocking_in` | two | `tokio` |
//! | that of a `JoinSet`, `TaskTracker` | `set.spawn_blocking(switch::inherit(work))` | two | |
//! | a thread, a scoped thread | `thread::spawn(switch::inherit(work))` | two | |
//! | a job of rayon or of another pool | `rayon::spawn(switch::inherit(work))` | two | |
//! | rayon's `join`, `scope` | `switch::join_in`, `switch::scope_spawn_in` | two each | `rayon` |
//! | a parallel iterator | `in_group`, `in_current_group` | two for each piece of it | `rayon` |
//! | two that are zipped | the same; what follows is in the second's | two an item | `rayon` |
//! | a `Stream`, a `Sink` | as a future | two for each call | `futures` |
//! | tokio's readers and writers | as a future | two for each call | `tokio` |
//! | a request of a tower service | `switch::GroupLayer` | two, and two for each poll | `tower` |
//! | a request over HTTP, both bodies | `http::MeterLayer` | and two for each frame | `http` |
//! | a body alone | as a future | two for each frame | `http` |
//! | a span of `tracing` | the crate `submeter-tracing` | two for each time it is entered | |
//!
//! "Unstable" is the feature `tokio` in a build with `RUSTFLAGS="--cfg tokio_unstable"`.
//!
//! A switch costs a read of the clock and an update
//! ([What it costs](crate::switch#what-it-costs)); where the thread is in the group already, a few
//! instructions. Whatever carries a group holds a handle of it: a killed group is released when the
//! last of them is dropped.
//!
//! **How it ends.** A panic leaves the group of the poll or call, on the thread that caught it. A
//! future that is cancelled (aborted, dropped, the rest of a `JoinSet`) is dropped in its group, on
//! the thread that drops it, and what its values do then is charged to the group.
//!
//! **What is not followed**
//! - What a runtime or a server does between polls and between requests: its scheduler, timers, the
//!   reading, parsing and writing of hyper. It stays in no group, and
//!   [`Tree::cpu_balance`](crate::Tree::cpu_balance) says how much it is.
//! - A task or thread that a library starts by itself. Give it a future or a function that is in
//!   the group, if it takes one. Tasks of tokio follow by `switch::follow_tasks`.
//! - A connection after its upgrade: put it `in_group`.
//! - A thread of a pool that waits inside of rayon (`join`, `scope`, `install`) runs other jobs
//!   meanwhile. Those that carry a group enter it; those that carry none are charged to the group
//!   of the one that waits.
//! - What another thread does for a group that it was not told of, as the writer thread of a log.
//!
//! [`Group::bind`]: crate::Group::bind
//! [`Group::enter`]: crate::Group::enter
//! [`Group::run`]: crate::Group::run
//! [`switch::inherit`]: crate::switch::inherit
