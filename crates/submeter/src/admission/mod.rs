//! A queue that is fair to tenants: of those whose work waits, who has used least goes next.
//!
//! An [`Admission`] has a number of places, and lets so much work be in flight. While there is a
//! free one it is anybody's: nothing is kept for those who do not want it. When there is none, work
//! waits *by tenant*: the next place goes to the group that has used least for its weight, at each
//! level of the tree from the root down, however many requests the others have waiting. Within one
//! group those that came first go first.
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
//! // As much at once as there are CPUs; where both want more, three fourths are for the one.
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
//! - **CPU time**, where the schema declares it ([`cpu_time`](crate::SchemaBuilder::cpu_time)): all
//!   that the group is charged while its work is in flight or waits, by the
//!   [switch](crate::switch). Work that is charged to a group below the one that it was let in for
//!   does not count.
//! - Work that **sleeps** in its place costs an eighth of the CPU time that the place could have
//!   been used for, which with more places than CPUs is each one's part of them. A group pays for
//!   this or for what it used, whichever is more: for CPU time alone if it works for an eighth of
//!   its time or more, so that it need not pay for being preempted. One that only sleeps has eight
//!   places for each of one that only works. It pays while it sleeps, and gets no credit for it.
//!   Of a time in which nobody comes to the queue, asks or leaves, it pays for 10 s at most: a
//!   process that was stopped as a whole, for however long, costs each piece that was in flight no
//!   more than 1.25 s of CPU time.
//! - Otherwise, or [as the builder says](AdmissionBuilder::by_reported_cost), **what each
//!   [says](Admitted::set_cost)** that it has cost, or 1.
//!
//! What is in flight counts for what work of its group cost on average until it ends, which
//! corrects it. So groups that have work waiting all the time share by their weights, to within
//! what is in flight. One that comes anew begins where the others are: it has no credit for when it
//! wanted nothing, and waits for one turn of its siblings, whatever that costs on average while it
//! waits. If turns cost a millionth all at once, that is some dozens of them. Nobody starves.
//!
//! # Weights of its own
//! [`Admission::set_weight`] and not [`Group::set_weight`]: that one is of a rate of the schema and
//! divides what it grants; here a program may have several queues, such as one for its CPUs and one
//! for its connections, which weigh alike or not. And a group that nobody weighs has a turn here as
//! in Linux, with 100; with a rate it takes what the others leave.
//!
//! # What it costs
//! - **While nobody waits**, and no group has a limit: one exchange of a word to be let in, one at
//!   the end, and a handle of the group and of the queue, which are moved.
//! - **Otherwise** a lock for some hundreds of nanoseconds, and an allocation or two; O(log) in how
//!   many tenants wait. Where CPU time is the cost, groups that have work in flight move back while
//!   it goes on: the next has got least far to within a sixteenth of a turn, so that an end
//!   need not look at all of them. The first end after a pause may.
//! - No thread, no timer; an idle tenant has nothing here.
//!
//! # Work that takes long
//! Work that is let in keeps its place to its end, also where it yields at a
//! [checkpoint](crate::switch::TimeSlice::checkpoint): that is its thread alone. So a light request
//! may wait for as long as a heavy one takes. A [limit](Admission::set_group_limit) of the heavy
//! group keeps a place for others, which is empty while they want none: on two CPUs, beside work of
//! half a millisecond, requests of a light tenant took 1.24 times as long as alone in the median
//! instead of 1.57 times, and the heavy one did a third less
//! (`proof/submeter-bench/record/x86_64-linux/2026-11-30-admission.md`). Where heavy work could
//! stop, it can give its place back and ask for another:
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
//! Each slice is a turn then: requests of the heavy group itself come between, and it may be
//! refused in the middle, as when too many wait.
//!
//! **Before it asks here** a task waits for its runtime. While all workers of tokio are busy, they
//! look for tasks from outside and for sockets that are ready once in many polls, 61 at first:
//! where polls take a part of a millisecond, set `global_queue_interval` and `event_interval` of
//! its `Builder` to 1.
//!
//! # How long it waits
//! [`Admission::waiting_in`] says how many of a tenant wait now. For how long they did is a counter
//! of the program's own, which the page, `top` and `/metrics` show by tenant as any other:
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
//! web.add(waited, since.elapsed().as_nanos() as u64); // also if it was not let in
//! # drop(admitted?);
//! # assert!(web.sum(waited) > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When not to use it
//! For work that is shorter than some microseconds, or where nothing is ever scarce. For what is
//! held and not worked on, such as memory: that is a [`Quota`](crate::Quota). For how much per
//! time, and not at once: that is a [`RateLimit`](crate::RateLimit). It is for what has not begun:
//! work that runs is not stopped. Not in signal handlers.
//!
//! **Work that is let in and asks again** of the same queue wants a second place, as any other
//! would. If all places are held by such work, it waits for itself; give it a deadline, or hand the
//! first place down.
//!
//! **A kill** ends the waits of its group with an error at once; what is in flight ends by itself,
//! and is all of the queue that a release waits for. **A fork** copies what is in flight, and not
//! what waits: a future that is polled in the child begins to wait there again. A group that the
//! child kills, and that has a weight or a limit here, is released once the child uses the queue.

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

use submeter_percpu::InvalidWeightError;

pub use admitting::{Admitted, Admitting};
pub use error::AdmissionError;
pub use submeter_percpu::slots::SLOTS_MAX;

use crate::tree::group::Group;
use parts::{Bounds, Setting, State};
use shared::Shared;

/// A queue for places, which goes by tenants. See the [module](self).
///
/// A clone is of the same queue. Groups of several trees may share one.
#[derive(Clone)]
pub struct Admission {
    shared: Arc<Shared>,
}

/// Makes an [`Admission`]. Created by [`Admission::builder`].
#[derive(Clone, Debug)]
#[must_use = "it makes no queue until `build`"]
pub struct AdmissionBuilder {
    limit: u32,
    bounds: Bounds,
    by_reports: bool,
}

/// How many may wait, if nothing else is said: some megabytes of them.
const WAITING_MAX: usize = 10_000;

impl Admission {
    /// Makes a queue that has `limit` pieces of work in flight at most, [`SLOTS_MAX`] if that is
    /// less. With 0 all wait until another limit is [set](Self::set_limit).
    ///
    /// For work that keeps a CPU busy, as many as there are CPUs; for work that mostly waits for
    /// others, as many as those do best with.
    #[must_use]
    pub fn new(limit: u32) -> Admission {
        Admission::builder(limit).build()
    }

    /// Begins to make one of which more is said.
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
    /// When too many wait, of this group or of all together; when the group was killed before, or
    /// is while it waits; when its [deadline](Admitting::max_wait) passes. In a forked child, when
    /// it would have to wait and another thread of the parent stayed behind with the lock.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn acquire(&self, group: &Group) -> Admitting {
        Admitting::new(Arc::clone(&self.shared), group.clone())
    }

    /// As [`acquire`](Self::acquire), and blocks the thread until the work may begin, for `timeout`
    /// at most: of [`Duration::MAX`], as long as it takes. Not in async code.
    ///
    /// A thread that leaves a place runs on while the next is woken, and the kernel may put that
    /// one on the CPU of another that has a place. With `acquire`, on a runtime that has a worker
    /// for each CPU, there are never more threads to run than CPUs.
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
    /// As those of `acquire`, and when no place came free in that time.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn acquire_blocking(
        &self,
        group: &Group,
        timeout: Duration,
    ) -> Result<Admitted, AdmissionError> {
        self.acquire(group).wait(timeout)
    }

    /// Takes a place if there is one that nobody waits for.
    ///
    /// # Errors
    /// When there is none, which [`is_late`](AdmissionError::is_late); when the group was killed.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_acquire(&self, group: &Group) -> Result<Admitted, AdmissionError> {
        self.acquire_blocking(group, Duration::ZERO)
    }

    /// Sets how much may be in flight in all. A higher limit lets in those that wait; a lower one
    /// stops nothing that is in flight, and with 0 nothing more is let in.
    ///
    /// # Panics
    /// In a forked child in which a thread stayed behind with the lock, as do the other setters.
    pub fn set_limit(&self, limit: u32) {
        self.change(|shared, _| shared.slots().set_limit(limit));
    }

    /// Returns how much may be in flight in all.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.shared.slots().used().1
    }

    /// Sets or removes how much may be in flight in a group and all below it; 0 lets nothing more
    /// in. What is in flight when the queue gets its first such limit does not count.
    ///
    /// As long as any group has a limit, every admission takes the lock. Forgotten when the group
    /// is killed.
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

    /// Returns the limit of a group of its own.
    #[must_use]
    pub fn group_limit(&self, group: &Group) -> Option<u32> {
        self.state(group).limit
    }

    /// Sets or removes the weight with which a group contends with its siblings, from 1 to 10,000
    /// ([`WEIGHTS`](crate::WEIGHTS)); groups without one have 100. It counts for what ends from now
    /// on, also for what waits or is in flight. Forgotten when the group is killed.
    ///
    /// # Errors
    /// When the weight is out of range; nothing changes then.
    pub fn set_weight(&self, group: &Group, weight: Option<u32>) -> Result<(), InvalidWeightError> {
        let weight = weight.map(InvalidWeightError::check).transpose()?;
        self.change(|shared, fair| {
            fair.configure(group, Setting::Weight(weight), &mut |group| shared.watch(group));
        });
        Ok(())
    }

    /// Returns the weight that was set for a group.
    #[must_use]
    pub fn weight(&self, group: &Group) -> Option<u32> {
        self.state(group).weight
    }

    /// Returns how much is in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.shared.slots().used().0
    }

    /// Returns how many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.with(|fair| fair.waiting()).unwrap_or(0)
    }

    /// Returns how many of a group and all below it wait.
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
        changed.expect("a thread stayed behind at a fork with the queue's lock: exec first");
    }
}

impl AdmissionBuilder {
    /// Sets how many may wait, of all groups together: 10,000 if nothing is said.
    ///
    /// One that comes when so many wait takes the place of the latest of the group that has most of
    /// them, unless its own has as many: who fills the queue takes no places of others.
    pub fn waiting_max(mut self, waiting_max: usize) -> AdmissionBuilder {
        self.bounds.all = waiting_max;
        self
    }

    /// Sets how many of one group may wait: no bound of its own if nothing is said.
    pub fn waiting_max_by_group(mut self, waiting_max: usize) -> AdmissionBuilder {
        self.bounds.by_group = waiting_max;
        self
    }

    /// Has work cost what it [says](Admitted::set_cost), even where CPU time is measured: for what
    /// uses something else, such as queries to another server.
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
