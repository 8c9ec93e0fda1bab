//! A queue that is fair to tenants: of the tenants whose work waits, the one that has used least
//! goes next.
//!
//! An [`Admission`] has a number of places, which is how much work may be in flight. While a place
//! is free, anyone may take it: none is reserved for tenants that do not want it. When none is
//! free, work waits *by tenant*: the next place goes to the group that has used least for its
//! weight, at each level of the tree from the root down, however many requests the others have
//! waiting. Within a group, work is admitted in order of arrival.
//!
//! ```
//! use submeter::admission::Admission;
//! use submeter::switch::InGroup;
//! use submeter::{Schema, Tree};
//!
//! let mut schema = Schema::builder();
//! let cpu = schema.cpu_time("cpu", "CPU time used");
//! let tree = Tree::new(schema.build()?)?;
//! let [gold, free] = [tree.create("/gold")?, tree.create("/free")?];
//!
//! // As much at once as there are CPUs; when both want more, /gold gets three quarters of it.
//! let admission = Admission::new(4);
//! admission.set_weight(&gold, Some(300))?;
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let answer = async {
//!     let _admitted = admission.acquire(&free).await?;
//!     Ok::<_, submeter::admission::AdmissionError>(6 * 7)
//! };
//! assert_eq!(answer.in_group(&free).await?, 42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! assert!(free.sum(cpu) > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it is fair in
//! - **CPU time**, where the schema declares it ([`cpu_time`](crate::SchemaBuilder::cpu_time)):
//!   everything that the [switch](crate::switch) charges to the group while its work is in flight
//!   or waits. Work charged to a group below the one that it was admitted for does not count.
//! - Work that **sleeps** in its place costs an eighth of the CPU time that the place could have
//!   been used for. With more places than CPUs, that is each place's part of the CPUs. A group pays
//!   for this or for what it used, whichever is more. If it works for an eighth of its time or more
//!   it pays for CPU time alone, so that it need not pay for being preempted. A group that only
//!   sleeps has eight places for each place of a group that only works. It pays while it sleeps,
//!   and earns no credit by it. It pays for at most 10 s of any period in which nothing joins the
//!   queue, polls it or leaves: a process that was stopped as a whole, for however long, costs each
//!   piece that was in flight no more than 1.25 s of CPU time.
//! - Otherwise, or if the [builder says so](AdmissionBuilder::by_reported_cost), **the cost that
//!   each piece of work [reports](Admitted::set_cost)**, or 1.
//!
//! Until it ends, work in flight counts for what work of its group has cost on average; its end
//! corrects that. Groups that always have work waiting therefore share by their weights, to within
//! the work in flight. A group that returns, and has had a turn while others waited, starts where
//! the others are: time in which it wanted nothing earns it no credit, and a light tenant gets the
//! next place that becomes free. A newcomer first waits for one turn of its siblings, which costs
//! whatever their turns cost on average while it waits. If turns suddenly cost a millionth of that,
//! it waits for some dozens of them. Of the groups that have had a turn and left, 16,384 at most
//! are known when they return. If there are more, the branch of the tree that has the most of them
//! forgets the older half of its own, and no other forgets any: a tenant with a group for each
//! request makes no other tenant a newcomer. Nobody starves while places are given back.
//!
//! # A place is for work
//! Not for waiting for a client: do not hold a place while an answer is written. A few clients that
//! do not read would hold all places, and no tenant would be served. Drop the place first, or bound
//! the write by a timeout. What the tenant still has in flight, such as the answer's memory, can
//! stay charged to a [quota](crate::Quota) of its own.
//!
//! # Fewer places than workers
//! On an async runtime, work that never awaits keeps its worker, so that a worker always finds a
//! place where there are as many places as workers: nothing waits, and the runtime's order decides.
//! On two workers, weights of 1 and 3 shared as 50 to 50 with two places, and as 27 to 73 with one.
//! Have more workers than places, or do such work on threads
//! ([`acquire_blocking`](Admission::acquire_blocking), or `spawn_blocking` while the place is held:
//! 25 to 75).
//!
//! # Weights of its own
//! A weight is set by [`Admission::set_weight`], not by [`Group::set_weight`]. The latter belongs
//! to a rate of the schema and divides what that grants, whereas a program may have several queues,
//! such as one for its CPUs and one for its connections, with different weights in each. Moreover,
//! a group without a weight counts as one of weight 100 here, as in Linux; at a rate it gets what
//! the others leave.
//!
//! # What it costs
//! - **While nothing waits**, and no group has a limit: one atomic exchange to be admitted, one at
//!   the end, and a handle of the group and of the queue, which are moved.
//! - **Otherwise** a lock for some hundreds of nanoseconds, and an allocation or two; O(log) in the
//!   number of tenants that wait. Where CPU time is the cost, groups with work in flight move back
//!   continuously. The group that goes next has used least to within a sixteenth of a turn, so that
//!   an end need not look at all of them. The first end after a pause may.
//! - No thread and no timer. Of an idle tenant only its id is kept, of 16,384 groups at most: that
//!   is 1 MB where they are siblings, and 4 MB at most. Where more come and go, one end in some
//!   thousands holds the lock for 0.3 ms to forget thousands of them at once.
//!
//! # Work that takes long
//! Admitted work keeps its place to its end, even where it yields at a
//! [checkpoint](crate::switch::TimeSlice::checkpoint): that gives up its thread alone. A light
//! request may therefore wait for as long as a heavy one takes. A
//! [limit](Admission::set_group_limit) on the heavy group keeps a place for others, which stays
//! empty while they want none. On two CPUs, beside work of half a millisecond, requests of a light
//! tenant then took 1.24 times as long as alone in the median instead of 1.57 times, and the heavy
//! tenant did a third less (`proof/submeter-bench/record/x86_64-linux/2026-11-30-admission.md`).
//! Where heavy work could stop, it can give its place back and ask for another:
//!
//! ```
//! use std::time::Duration;
//!
//! use submeter::admission::{Admission, AdmissionError};
//! use submeter::switch::{InGroup, TimeSlice};
//! use submeter::{Group, Schema, Tree};
//!
//! async fn report(admission: Admission, group: Group) -> Result<u64, AdmissionError> {
//!     let slice = TimeSlice::new(Duration::from_micros(100));
//!     let (mut admitted, mut sum) = (admission.acquire(&group).await?, 0_u64);
//!     for row in 0..3_000_000 {
//!         sum = sum.wrapping_add(row);
//!         if row % 1000 == 0 && slice.should_yield() {
//!             if admission.waiting() > 0 {
//!                 drop(admitted);
//!                 admitted = admission.acquire(&group).await?;
//!             }
//!             slice.checkpoint().await;
//!         }
//!     }
//!     Ok(sum)
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let tree = Tree::new(Schema::builder().build()?)?;
//! let [heavy, light] = [tree.create("/heavy")?, tree.create("/light")?];
//! let admission = Admission::new(1);
//! let long = tokio::spawn(report(admission.clone(), heavy.clone()).in_group(&heavy));
//! tokio::task::yield_now().await; // it has the place
//! let short = admission.acquire(&light).await?;
//! assert!(!long.is_finished(), "it waits for the next");
//! drop(short);
//! assert!(long.await?? > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each slice is then a turn: other requests of the heavy group run in between, and the work may be
//! refused halfway, for example when too many wait.
//!
//! **Before it asks here**, a task waits for its runtime. While all of tokio's workers are busy,
//! they look for tasks from outside and for ready sockets only once in many polls, 61 at first.
//! Where a poll takes a fraction of a millisecond, set `global_queue_interval` and `event_interval`
//! of its `Builder` to 1.
//!
//! # How long it waits
//! [`Admission::waiting_in`] returns how many requests of a tenant wait now. To know how long they
//! waited, declare a counter, which the page, `top` and `/metrics` show by tenant like any other:
//!
//! ```
//! use std::time::Instant;
//!
//! use submeter::admission::Admission;
//! use submeter::{Nanoseconds, Schema, Tree};
//!
//! let mut schema = Schema::builder();
//! let waited = schema.counter::<Nanoseconds>("turn_wait", "Time that work waited for its turn");
//! let tree = Tree::new(schema.build()?)?;
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let (web, admission) = (tree.create("/web")?, Admission::new(4));
//! let since = Instant::now();
//! let admitted = admission.acquire(&web).await;
//! web.add(waited, since.elapsed().as_nanos() as u64); // also if it was refused
//! # drop(admitted?);
//! # assert!(web.sum(waited) > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When not to use it
//! For work of less than about 10 µs, such as a lookup in memory: an admission and its end take 24
//! ns while nothing waits (`proof/submeter-bench/record/x86_64-linux/2026-11-30-admission.md`), but
//! hundreds of nanoseconds and a wake otherwise. A request of a network server, with its system
//! calls, is long enough. Where nothing is ever scarce. For something that is held and not worked
//! on, such as memory: that is a [`Quota`](crate::Quota). For an amount per time rather than at
//! once: that is a [`RateLimit`](crate::RateLimit). To stop work that already runs: only work that
//! has not begun waits here. In signal handlers.
//!
//! **Admitted work that asks again** in the same queue wants a second place, as any other work
//! would. If all places are held by such work, it waits for itself. Give it a deadline, or pass the
//! first place down.
//!
//! **A kill** ends the waits of its group with an error at once. Work in flight ends by itself, and
//! is the only part of the queue that a release waits for. **A fork** copies what is in flight, but
//! not what waits: a future that is polled in the child starts to wait again there. A group with a
//! weight or a limit that the child kills is released once the child uses the queue.

mod admitting;
mod error;
mod fair;
#[cfg(test)]
mod fair_tests;
#[cfg(test)]
mod naive_tests;
mod parts;
mod shared;
#[cfg(test)]
mod shares_tests;
#[cfg(test)]
mod sleep_tests;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use submeter_percpu::{InvalidWeightError, LimitMode};

pub use admitting::{Admitted, Admitting};
pub use error::AdmissionError;
pub use submeter_percpu::slots::SLOTS_MAX;

use crate::tree::group::Group;
use parts::{Bounds, Setting, State};
use shared::Shared;

/// A queue for places that is fair to tenants. See the [module](self).
///
/// A clone is a handle to the same queue. Groups of several trees may share one.
#[derive(Clone)]
pub struct Admission {
    shared: Arc<Shared>,
}

/// Builder of an [`Admission`]. Created by [`Admission::builder`].
#[derive(Clone, Debug)]
#[must_use = "it makes no queue until `build`"]
pub struct AdmissionBuilder {
    limit: u32,
    bounds: Bounds,
    by_reports: bool,
}

/// Default for the number of waiters: some megabytes of them.
const WAITING_MAX: usize = 10_000;

impl Admission {
    /// Makes a queue with at most `limit` pieces of work in flight, or [`SLOTS_MAX`] if that is
    /// less. With 0, everything waits until another limit is [set](Self::set_limit).
    ///
    /// For work that keeps a CPU busy, choose the number of CPUs, and [more
    /// workers](self#fewer-places-than-workers) than that on an async runtime; for work that mostly
    /// waits for other services, as many as those handle best.
    #[must_use]
    pub fn new(limit: u32) -> Admission {
        Admission::builder(limit).build()
    }

    /// Makes a queue for work that keeps a CPU busy, on a runtime with a worker for each CPU, as
    /// tokio has by default. It has one place fewer than there are CPUs, and at least one: with as
    /// many places as workers [nothing would wait](self#fewer-places-than-workers) for its turn.
    #[must_use]
    pub fn for_cpus() -> Admission {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Admission::new(u32::try_from(cpus - 1).unwrap_or(u32::MAX).max(1))
    }

    /// Starts a builder, for queues that need more than a limit.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use submeter::admission::Admission;
    /// use submeter::{Schema, Tree};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let admission = Admission::builder(8).waiting_max(1000).waiting_max_by_group(0).build();
    /// let held: Vec<_> = (0..8).map(|_| admission.try_acquire(tree.root())).collect();
    /// let refused = admission.acquire_blocking(tree.root(), Duration::from_secs(1));
    /// assert!(refused.is_err_and(|error| error.is_full_for_group()), "none may wait");
    /// # drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(limit: u32) -> AdmissionBuilder {
        let bounds = Bounds { all: WAITING_MAX, by_group: usize::MAX };
        AdmissionBuilder { limit, bounds, by_reports: false }
    }

    /// Asks for a place for work of `group`: a future that is ready once the work may begin.
    ///
    /// # Examples
    /// ```
    /// use submeter::admission::Admission;
    /// use submeter::{Schema, Tree};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let (web, admission) = (tree.create("/web")?, Admission::new(1));
    /// let first = admission.acquire(&web).await?;
    /// let second = tokio::spawn(admission.acquire(&web));
    /// tokio::task::yield_now().await; // it waits
    /// assert_eq!(admission.waiting(), 1);
    /// drop(first);
    /// assert_eq!(second.await??.group(), &web);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When too many wait, in this group or in all together; when the group is killed, before or
    /// during the wait; when its [deadline](Admitting::max_wait) passes. In a forked child, when it
    /// would have to wait and another thread of the parent held the lock at the fork.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn acquire(&self, group: &Group) -> Admitting {
        Admitting::new(Arc::clone(&self.shared), group.clone())
    }

    /// The same as [`acquire`](Self::acquire), but blocks the thread until the work may begin, for
    /// at most `timeout`; [`Duration::MAX`] waits as long as it takes. Not in async code.
    ///
    /// A thread that gives up a place keeps running while the next is woken, and the kernel may put
    /// the woken one on the CPU of another that has a place. Tasks that use `acquire` do not
    /// contend for CPUs that way.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// # use submeter::{Schema, Tree};
    /// # let tree = Tree::new(Schema::builder().build()?)?;
    /// let admission = submeter::admission::Admission::new(1);
    /// std::thread::scope(|scope| {
    ///     for _ in 0..3 {
    ///         scope.spawn(|| admission.acquire_blocking(tree.root(), Duration::MAX).map(drop));
    ///     }
    /// });
    /// assert_eq!((admission.in_flight(), admission.waiting()), (0, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The same as `acquire`, and when no place became free in that time.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn acquire_blocking(
        &self,
        group: &Group,
        timeout: Duration,
    ) -> Result<Admitted, AdmissionError> {
        self.acquire(group).wait(timeout)
    }

    /// Takes a place if one is free and nothing waits for it.
    ///
    /// # Errors
    /// When there is none ([`is_late`](AdmissionError::is_late)); when the group was killed.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_acquire(&self, group: &Group) -> Result<Admitted, AdmissionError> {
        self.acquire_blocking(group, Duration::ZERO)
    }

    /// Sets how much may be in flight in all groups together. A higher limit admits waiters at
    /// once; a lower one stops nothing that is in flight, and 0 admits nothing more.
    ///
    /// # Panics
    /// In a forked child in which a thread of the parent held the lock at the fork; the other
    /// setters panic likewise.
    pub fn set_limit(&self, limit: u32) {
        self.change(|shared, _| shared.slots().set_limit(limit));
    }

    /// Returns how much may be in flight in all.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.shared.slots().used().1
    }

    /// Sets or removes the limit on what may be in flight in a group and all below it; 0 admits
    /// nothing more, unless it is [soft](Self::set_group_limit_mode). Work that is in flight when
    /// the queue gets its first such limit does not count.
    ///
    /// As long as any group has a limit, every admission takes the lock. A limit is forgotten when
    /// its group is killed.
    ///
    /// # Examples
    /// ```
    /// use submeter::admission::Admission;
    /// use submeter::{Schema, Tree};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let [web, mail] = [tree.get_or_create("/acme/web")?, tree.get_or_create("/other/mail")?];
    /// let admission = Admission::new(8);
    /// admission.set_group_limit(web.parent().expect("/acme"), Some(1));
    /// let held = [admission.try_acquire(&web)?, admission.try_acquire(&mail)?];
    /// assert!(admission.try_acquire(&web).is_err() && admission.try_acquire(&mail).is_ok());
    /// # drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_group_limit(&self, group: &Group, limit: Option<u32>) {
        self.change(|shared, fair| {
            fair.configure(group, Setting::Limit(limit), &mut |group| shared.watch(group));
            shared.slots().close();
        });
    }

    /// Returns the limit set for a group itself.
    #[must_use]
    pub fn group_limit(&self, group: &Group) -> Option<u32> {
        self.state(group).limit
    }

    /// Sets whether a group's limit holds. A [soft](LimitMode::Soft) limit makes nothing wait: work
    /// beyond it is admitted and [counted](Self::overdrafts), to see first what a limit would hold
    /// up. A mode may be set before the limit; it is forgotten when its group is killed.
    ///
    /// To try out a limit for a whole tree, give its root a soft one, and the queue more places.
    ///
    /// # Examples
    /// ```
    /// use submeter::admission::Admission;
    /// use submeter::{LimitMode, Schema, Tree};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let (acme, admission) = (tree.create("/acme")?, Admission::new(8));
    /// admission.set_group_limit_mode(&acme, LimitMode::Soft);
    /// admission.set_group_limit(&acme, Some(1));
    /// let held = [(); 3].map(|()| admission.try_acquire(&acme));
    /// assert!(held.iter().all(Result::is_ok));
    /// assert_eq!(admission.overdrafts(&acme), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_group_limit_mode(&self, group: &Group, mode: LimitMode) {
        self.change(|shared, fair| {
            fair.configure(group, Setting::Mode(mode), &mut |group| shared.watch(group));
        });
    }

    /// Returns whether the limit set for a group itself holds.
    #[must_use]
    pub fn group_limit_mode(&self, group: &Group) -> LimitMode {
        self.state(group).mode
    }

    /// Returns how much work was admitted beyond a group's own soft limit, including grants that
    /// were given up, since it has a limit: remove the limit to start again from 0.
    #[must_use]
    pub fn overdrafts(&self, group: &Group) -> u64 {
        self.state(group).overdrafts
    }

    /// Sets or removes the weight with which a group contends with its siblings, from 1 to 10,000
    /// ([`WEIGHTS`](crate::WEIGHTS)); groups without one have 100. It applies to everything that
    /// ends from now on, including what already waits or is in flight. A weight is forgotten when
    /// its group is killed.
    ///
    /// # Errors
    /// When the weight is out of range; then nothing changes.
    pub fn set_weight(&self, group: &Group, weight: Option<u32>) -> Result<(), InvalidWeightError> {
        let weight = weight.map(InvalidWeightError::check).transpose()?;
        self.change(|shared, fair| {
            fair.configure(group, Setting::Weight(weight), &mut |group| shared.watch(group));
        });
        Ok(())
    }

    /// Returns the weight set for a group.
    #[must_use]
    pub fn weight(&self, group: &Group) -> Option<u32> {
        self.state(group).weight
    }

    /// Returns how much is in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.shared.slots().used().0
    }

    /// Returns the number of waiters.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.with(|fair| fair.waiting()).unwrap_or(0)
    }

    /// Returns the number of waiters in a group and all below it.
    #[must_use]
    pub fn waiting_in(&self, group: &Group) -> usize {
        self.state(group).waiting
    }

    fn state(&self, group: &Group) -> State {
        self.shared.with(|fair| fair.state(group)).unwrap_or_default()
    }

    fn change(&self, change: impl FnOnce(&Shared, &mut fair::Fair)) {
        let shared = &*self.shared;
        let changed = shared.with(|fair| {
            change(shared, fair);
            shared.slots().serve(fair);
        });
        changed.expect("the queue's lock was held at a fork: exec first");
    }
}

impl AdmissionBuilder {
    /// Sets how many may wait in all groups together; the default is 10,000.
    ///
    /// When that many wait already, a newcomer displaces the latest waiter of the child that has
    /// most of them, unless its own branch has as many; so at each level from the root down. A
    /// tenant that fills the queue takes no places from others, by however many groups below it.
    pub fn waiting_max(mut self, waiting_max: usize) -> AdmissionBuilder {
        self.bounds.all = waiting_max;
        self
    }

    /// Sets how many may wait in one group itself, apart from those below it; by default there is
    /// no such bound.
    pub fn waiting_max_by_group(mut self, waiting_max: usize) -> AdmissionBuilder {
        self.bounds.by_group = waiting_max;
        self
    }

    /// Makes work cost what it [reports](Admitted::set_cost), even where CPU time is measured: for
    /// work that uses something else, such as queries to another server.
    pub fn by_reported_cost(mut self) -> AdmissionBuilder {
        self.by_reports = true;
        self
    }

    /// Makes the queue.
    #[must_use]
    pub fn build(self) -> Admission {
        let AdmissionBuilder { limit, bounds, by_reports } = self;
        Admission { shared: Shared::new(limit, bounds, by_reports) }
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (in_flight, limit) = self.shared.slots().used();
        write!(f, "Admission({in_flight} of {limit})")
    }
}
