//! The group switch: which group a thread works for, and what it uses there.
//!
//! A thread enters a group and leaves it; a future enters its group for each poll. Where the schema
//! declares [`cpu_time`](crate::SchemaBuilder::cpu_time), the CPU time between two switches is
//! added to the group that was left, like any other update; ancestors receive it at the next flush.
//! CPU time outside of all groups is charged to none:
//! [`Tree::cpu_balance`](crate::Tree::cpu_balance) returns how much that is. The same holds for
//! events that the schema declares ([`event`](crate::SchemaBuilder::event)): page faults, context
//! switches, cycles.
//!
//! ```
//! use submeter::{Schema, Tree};
//!
//! let mut schema = Schema::builder();
//! let cpu = schema.cpu_time("cpu", "CPU time used");
//! let tree = Tree::new(schema.build()?)?;
//! let web = tree.get_or_create("/acme/web")?;
//!
//! let parsed: u64 = web.run(|| "42".repeat(3).parse())?;
//! assert_eq!(parsed, 424_242);
//! assert!(web.sum(cpu) > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it costs
//! - **Entering the current group**, and leaving it again: a few instructions, no clock, no meter.
//! - **A switch to another group**: one read of the clock ([`clock`]), one update, and a clone and
//!   a drop of the handle. It takes no lock, makes no system call if the clock needs none, and
//!   allocates only when a thread is in more than seven groups at once, and in more than ever
//!   before. The clock needs a system call once a millisecond, and after a stay in which the thread
//!   may have waited.
//! - **Each live guard**: a handle of its group, unless its predecessor is in the same group. Ended
//!   guards leave nothing behind, in whatever order they end.
//! - **A tree whose schema declares no CPU time**: no clock.
//! - **Counts of threads** ([`ThreadMeter`]): a call per switch, and an update for each count that
//!   rose.
//! - **Events** that the schema declares: a descriptor per thread for each, and per switch one
//!   system call for all of the kernel's; [`event`](crate::SchemaBuilder::event) lists the events
//!   without one.
//! - **Each thread** that ever enters a group with CPU time: one page of memory, if the clock uses
//!   perf's.
//! - **Observers** ([`observe`]): a call per switch, on the same read of the clock. Without any: a
//!   load and a comparison.
//!
//! # When not to use it
//! For intervals shorter than a read of the clock. In a signal handler, unless its thread has
//! entered a group of the same schema before: a thread's first switch allocates (the callback for
//! the thread's end, its clock, its events), and in a handler that interrupted the allocator it may
//! hang. Nothing can tell the library that it runs in a handler. Therefore enter a group once where
//! each thread starts, as in `root.run(|| ())`, before a signal may arrive; then a switch in a
//! handler allocates nothing, as long as the thread is in no more than seven groups at once,
//! handlers included. A handler's switch that interrupts another switch has no effect: the thread
//! finds its guards as they were.
//!
//! # Whose time is it
//! - A thread that *waits* in a group uses no CPU time; call [`park`] first, so that what it used
//!   before is visible while it waits.
//! - A thread that *ends* in a group is charged to it until its thread-local values are dropped.
//! - A *forked child* stays in its parent's group, in its own copy of the tree.
//! - A future that is *stolen* by another worker is charged wherever it is polled; a *panic* leaves
//!   the group of the poll.
//! - The latest live guard decides; guards may be dropped in any order.
//! - A *long* poll or job keeps its thread from others: see [`TimeSlice`].
//!
//! # Differences from Linux
//! In Linux the scheduler switches; here the program does, and waiting threads need no switch.
//! Linux charges each level of the hierarchy at a switch; here only the leaf is charged, and the
//! flush propagates it.

mod balance;
#[cfg(feature = "http-body")]
mod body;
#[cfg(feature = "tokio")]
mod counted;
#[cfg(feature = "futures")]
mod futures;
mod grouped;
mod in_group_of;
mod levels;
mod metered;
#[cfg(feature = "perf")]
mod meters;
#[cfg(not(feature = "perf"))]
#[path = "no_meters.rs"]
mod meters;
mod observe;
#[cfg(feature = "rayon")]
mod rayon;
mod thread;
#[cfg(feature = "thread-context")]
pub mod thread_context;
#[cfg(not(feature = "thread-context"))]
#[path = "no_thread_context.rs"]
mod thread_context;
mod thread_meter;
mod updates;

use crate::tree::group::Group;

pub use crate::metric::schema::{THREAD_COUNTS, ThreadMeter};
pub use balance::CpuBalance;
#[cfg(feature = "tokio")]
pub use counted::Counted;
pub use grouped::{Grouped, InGroup};
#[doc(hidden)]
pub use in_group_of::{InGroupOf, Keeper};
pub use observe::{Observation, Observer, observe};
pub use thread::{Checkpoint, Entered, TimeSlice, Yielding};
pub use updates::{add, adjust, record_many, set};

impl Group {
    /// Makes this group the calling thread's current one until the guard is dropped. Calls nest;
    /// see [`switch`](crate::switch) for the cost.
    ///
    /// The guard stays on its thread. A task may move to another thread at an `.await`, so the
    /// compiler refuses the guard in a future that is sent to other threads; use
    /// [`in_group`](InGroup::in_group) there. Prefer [`run`](Group::run) where a closure will do.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree, switch};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let web = tree.get_or_create("/acme/web")?;
    /// {
    ///     let _entered = web.enter();
    ///     assert_eq!(switch::current().as_ref(), Some(&web));
    /// }
    /// assert_eq!(switch::current(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A guard that is not kept would leave at once:
    /// ```compile_fail
    /// #![deny(unused_must_use)]
    /// # let tree = submeter::Tree::new(submeter::Schema::builder().build()?)?;
    /// tree.root().enter();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    /// A guard that is kept across an `.await` would charge other tasks that run on the thread:
    /// ```compile_fail
    /// fn spawn(future: impl Future<Output = ()> + Send) {}
    /// # let tree = submeter::Tree::new(submeter::Schema::builder().build()?)?;
    /// # let group = tree.root().clone();
    /// spawn(async move {
    ///     let _entered = group.enter();
    ///     std::future::ready(()).await;
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn enter(&self) -> Entered {
        Entered::new(self)
    }

    /// Runs `work` in this group.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree, switch};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let web = tree.create("/web")?;
    /// assert_eq!(web.run(switch::current), Some(web));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = self.enter();
        work()
    }

    /// Makes a function that runs in this group wherever it is called: for callbacks, and for
    /// closures that are handed to other threads one item at a time.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree, switch};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let web = tree.get_or_create("/acme/web")?;
    /// let length = web.wrap(|text: &str| (text.len(), switch::current()));
    /// assert_eq!(length("four"), (4, Some(web.clone())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wrap<A, T>(&self, work: impl Fn(A) -> T) -> impl Fn(A) -> T {
        let group = self.clone();
        move |argument| group.run(|| work(argument))
    }
}

/// Returns the group that the calling thread works for.
///
/// # Examples
/// ```
/// use submeter::{Count, Schema, Tree, switch};
///
/// let mut schema = Schema::builder();
/// let queries = schema.counter::<Count>("queries", "Queries run");
/// let tree = Tree::new(schema.build()?)?;
///
/// // Deep inside, where no group is passed down.
/// let query = || {
///     if let Some(group) = switch::current() {
///         group.add(queries, 1);
///     }
/// };
/// query();
/// tree.root().run(query);
/// assert_eq!(tree.root().sum(queries), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
#[cfg_attr(debug_assertions, track_caller)]
pub fn current() -> Option<Group> {
    let group = thread::current()?;
    // Cloned again here, to record the caller: a closure made the first clone.
    #[cfg(debug_assertions)]
    let group = group.clone();
    Some(group)
}

/// Makes a function that runs in the calling thread's current group, on whichever thread it is
/// called: for new threads and jobs of thread pools. Outside of all groups it returns the function
/// unchanged.
///
/// Call it before the work is handed over, not inside the work, where it would inherit from the
/// pool's thread. For a function that is called more than once, see [`Group::wrap`].
///
/// # Examples
/// ```
/// use std::thread;
/// use submeter::{Schema, Tree, switch};
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let web = tree.create("/web")?;
/// let seen = web.run(|| thread::spawn(switch::inherit(switch::current)).join());
/// assert_eq!(seen.expect("no panic"), Some(web));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg_attr(debug_assertions, track_caller)]
pub fn inherit<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let group = current();
    move || match group {
        Some(group) => group.run(work),
        None => work(),
    }
}

/// Charges the calling thread's CPU time and events since its last switch; it stays in its group.
///
/// For runtimes, before a thread waits (`on_thread_park` of tokio's builder), and for long
/// computations: otherwise that time becomes visible only when the thread leaves the group. It
/// costs as much as a switch. [Observers](Observer) are called too, even on a thread in no group.
///
/// # Examples
/// ```
/// let runtime = tokio::runtime::Builder::new_multi_thread()
///     .on_thread_park(submeter::switch::park)
///     .build()?;
/// # drop(runtime);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn park() {
    thread::park();
}

/// Returns how many guards were forgotten: still alive when their threads ended, for example after
/// `mem::forget` or in a leaked box. (A guard in a thread-local value counts if that value is
/// dropped after the switch's own.) Later work of those threads may have been charged to the wrong
/// group.
///
/// # Examples
/// ```
/// use submeter::{Schema, Tree, switch};
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let group = tree.root().clone();
/// std::thread::spawn(move || std::mem::forget(group.enter())).join().expect("no panic");
/// assert_eq!(switch::forgotten_guards(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn forgotten_guards() -> u64 {
    thread::forgotten_guards()
}

/// Returns how many reads of an event failed at a switch, because a descriptor or a counter was
/// missing. If this is not 0, event counters undercount.
#[cfg(feature = "perf")]
#[must_use]
pub fn lost_events() -> u64 {
    meters::lost_events()
}

/// The source of CPU time, and the CPU time of the process and its threads.
///
/// # Examples
/// ```
/// use submeter::switch::clock;
///
/// let choice = clock::choice();
/// println!("CPU time comes from {:?}, because {}", choice.source, choice.reason);
/// assert!(clock::thread_cpu_ns() <= clock::process_cpu_ns());
/// ```
pub mod clock {
    pub use submeter_sys::clock::{Choice, Source, choice, process_cpu_ns, thread_cpu_ns};
}
