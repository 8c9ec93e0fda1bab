//! Slices of time: how long a thread works for its groups before other work on it gets a turn.
//!
//! A slice belongs to a thread, and begins when the thread comes from outside of all groups: with
//! [`InGroup`](crate::switch::InGroup) that is where a runtime polls a task. Further groups entered
//! inside do not matter, as none of that is the runtime's turn.
//!
//! A thread never uses more CPU time than passes on the wall clock. So a checkpoint reads only the
//! CPU's counter, and the thread's clock only after enough time for the slice to be used up.
//! Rejected: counting checkpoints and reading a clock at every nth, which is wrong by however much
//! the steps in between grow; and a deadline set by a timer's signal, which interrupts system calls
//! that sleep.

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

#[cfg(feature = "futures")]
use futures_core::Stream;
use pin_project_lite::pin_project;
use submeter_sys::clock::wall_ns;

use super::{NOW, begin_ns, now_ns, with};

/// How much CPU time work may use before it lets other work on its thread have a turn: measured by
/// the switch's clock, not counted in calls.
///
/// A runtime cannot interrupt a poll, nor a thread pool a job. Long work asks at points where it
/// could stop: in async code by [`checkpoint`](Self::checkpoint), or between the polls of a stream
/// or future by [`between_polls`](Self::between_polls); in `spawn_blocking`, rayon's jobs and loops
/// by [`should_yield`](Self::should_yield).
///
/// ```
/// use std::time::Duration;
///
/// use submeter::switch::{InGroup, TimeSlice};
/// use submeter::{Schema, Tree};
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let reports = tree.create("/reports")?;
/// let slice = TimeSlice::new(Duration::from_micros(200));
/// let report = async {
///     let mut sum = 0_u64;
///     for row in 0..1_000_000 {
///         sum = sum.wrapping_add(row);
///         if row % 1000 == 0 {
///             slice.checkpoint().await;
///         }
///     }
///     sum
/// };
/// let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// assert_eq!(runtime.block_on(report.in_group(&reports)), 499_999_500_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Whose slice it is
/// - **The code with the checkpoint chooses the length** of a slice: neither the schema nor the
///   runtime has a setting for it. It is a plain value: use a shorter one for tenants that must not
///   hold others up.
/// - **A slice begins** when a thread that was in no group enters one: with
///   [`in_group`](crate::switch::InGroup::in_group) at each poll of the task. Groups entered inside
///   that stay, nested or one after the other, use the same slice, because the runtime has had no
///   turn. Put the outermost future of a task in a group, and the checkpoints inside it.
/// - **Outside of all groups** work never yields: nothing tells when the runtime last had a turn.
/// - **A thread that never leaves its groups**, such as one that runs a whole runtime in the root,
///   has one slice after the other: the next begins when a checkpoint that yielded is polled again,
///   or when [`renew`](Self::renew) is called. A task there may yield early because of what others
///   used, at most once per slice.
/// - **If the schema declares no CPU time**, the slice begins at its first checkpoint.
///
/// It works on every runtime, including single-threaded ones: work that yields is woken at once,
/// and queued behind whatever else is ready. Without a runtime it waits for the next poll.
///
/// # What it costs
/// A checkpoint that does not yield reads the CPU's counter: a few nanoseconds. Outside of all
/// groups it is a load and a comparison. Once or twice per slice it also asks the thread's clock,
/// as a switch does. Without a counter of constant rate, each checkpoint asks two system clocks. A
/// checkpoint that yields costs what the runtime takes to poll the task again, and two switches.
///
/// The thread works until the first checkpoint after the end of its slice, so checkpoints should be
/// much closer together than a slice. A slice counts CPU time only: a system call that waits inside
/// a poll still holds up the runtime's thread.
///
/// # Differences from Linux
/// In Linux the scheduler takes the CPU away when a slice (`base_slice_ns`) is over. Here work
/// gives it up, at points of its own choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimeSlice {
    ns: u64,
}

/// Half a millisecond: a light request waits no longer than that for each heavy one, and an extra
/// poll, about a microsecond, is little compared to it.
impl Default for TimeSlice {
    fn default() -> TimeSlice {
        TimeSlice { ns: 500_000 }
    }
}

impl TimeSlice {
    /// Makes a slice of this much CPU time. With a length of 0, every checkpoint in a group yields.
    #[must_use]
    pub const fn new(length: Duration) -> TimeSlice {
        let ns = length.as_nanos();
        TimeSlice { ns: if ns < NEVER_NS as u128 { ns as u64 } else { NEVER_NS } }
    }

    /// Returns the slice's length, in CPU time.
    #[must_use]
    pub const fn length(self) -> Duration {
        Duration::from_nanos(self.ns)
    }

    /// Lets others have a turn if the slice is used up; otherwise the future is ready at once.
    ///
    /// The task is woken at once, behind whatever is ready now. Do not await this while holding a
    /// lock for which others spin or block.
    #[inline]
    pub fn checkpoint(self) -> Checkpoint {
        Checkpoint { slice: self, ended: None }
    }

    /// Returns whether the slice is used up, for code that is not a future: a job of
    /// `spawn_blocking` or rayon that queues itself again, or a loop that runs others in between.
    ///
    /// It stays true until the thread has left its last group, or the slice is
    /// [renewed](Self::renew). While a rayon thread waits inside a job, it may run other jobs: they
    /// use the same slice.
    ///
    /// # Examples
    /// ```
    /// use submeter::switch::TimeSlice;
    /// use submeter::{Schema, Tree};
    ///
    /// /// Returns where to continue, if there is more to do.
    /// fn scan(rows: &[u64], from: usize, found: &mut Vec<u64>) -> Option<usize> {
    ///     for (at, row) in rows.iter().enumerate().skip(from) {
    ///         if at > from && at % 64 == 0 && TimeSlice::default().should_yield() {
    ///             return Some(at);
    ///         }
    ///         found.extend((row % 7 == 0).then_some(*row));
    ///     }
    ///     None
    /// }
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let web = tree.create("/web")?;
    /// let rows: std::sync::Arc<[u64]> = (0..100_000).collect();
    /// let (mut next, mut found) = (Some(0), Vec::new());
    /// while let Some(from) = next {
    ///     // Jobs of others that wait for a thread of the pool run in between.
    ///     let (rows, web) = (rows.clone(), web.clone());
    ///     let scanned = tokio::task::spawn_blocking(move || {
    ///         let next = web.run(|| scan(&rows, from, &mut found));
    ///         (next, found)
    ///     });
    ///     (next, found) = scanned.await?;
    /// }
    /// assert_eq!(found.len(), 14_286);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn should_yield(self) -> bool {
        self.used_up().is_some()
    }

    /// Starts a slice on this thread: for code that has let others have a turn in its own way,
    /// without leaving its groups. It has no effect outside of all groups.
    ///
    /// # Examples
    /// ```
    /// use submeter::switch::TimeSlice;
    /// use submeter::{Schema, Tree};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// tree.root().run(|| {
    ///     for _ in 0..10_000 {
    ///         if TimeSlice::default().should_yield() {
    ///             rayon::yield_now();
    ///             TimeSlice::renew();
    ///         }
    ///     }
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn renew() {
        if is_inside() {
            begin(cpu_ns());
        }
    }

    /// Makes a future or stream that lets others have a turn before a poll of `value`, if the slice
    /// is used up: for streams that always have an item, and the many futures of one task.
    ///
    /// Put it inside the group, as in `slice.between_polls(stream)` within a future that is
    /// [`in_group`](crate::switch::InGroup::in_group); a stream that is in a group itself, read
    /// from outside, has a slice for each item. In a tower service, place it below the layer that
    /// enters the group, such as `submeter_http::GroupLayer`, by `map_future`.
    ///
    /// # Examples
    /// ```
    /// use futures_util::{StreamExt, stream};
    /// use submeter::switch::{InGroup, TimeSlice};
    /// use submeter::{Schema, Tree};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let rows = TimeSlice::default().between_polls(stream::iter(0..100_000_u64));
    /// let sum = rows.fold(0, |sum, row| async move { sum + row }).in_group(tree.root());
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// assert_eq!(runtime.block_on(sum), 4_999_950_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn between_polls<T>(self, value: T) -> Yielding<T> {
        Yielding { value, checkpoint: self.checkpoint() }
    }

    /// Returns the used-up slice, if the thread's slice is.
    #[inline]
    fn used_up(self) -> Option<u64> {
        if !is_inside() {
            return None;
        }
        let now_ns = wall_ns();
        let since_ns = RUNNING.with(|running| running.get().since_ns);
        if now_ns.wrapping_sub(since_ns) < self.ns { None } else { self.ask(now_ns) }
    }

    #[cold]
    #[inline(never)]
    fn ask(self, wall_ns: u64) -> Option<u64> {
        // After the thread's values are gone, or during a switch, nothing is known.
        let cpu_ns = cpu_ns()?;
        let mut running = RUNNING.get();
        let used_up = running.ask(self.ns, wall_ns, cpu_ns);
        RUNNING.set(running);
        used_up
    }
}

/// A future that lets others have a turn when it is time. Created by [`TimeSlice::checkpoint`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Checkpoint {
    slice: TimeSlice,
    /// The slice that was used up when it yielded.
    ended: Option<u64>,
}

impl Future for Checkpoint {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(ended) = self.ended.take() else {
            self.ended = self.slice.used_up();
            if self.ended.is_none() {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            return Poll::Pending;
        };
        come_back(ended);
        Poll::Ready(())
    }
}

pin_project! {
    /// A future or stream that lets others have a turn between its polls. Created by
    /// [`TimeSlice::between_polls`]. With the feature `futures` it is a `Stream`.
    #[must_use = "it does nothing unless it is polled"]
    pub struct Yielding<T> {
        #[pin]
        value: T,
        checkpoint: Checkpoint,
    }
}

impl<T> Yielding<T> {
    /// Returns the polled value, once it is its turn.
    #[inline]
    fn turn(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Pin<&mut T>> {
        let this = self.project();
        // After it has yielded it is new, and ready: each turn makes progress by at least one poll.
        Pin::new(this.checkpoint).poll(context).map(|()| this.value)
    }

    /// Returns the polled value.
    pub fn get_ref(&self) -> &T {
        &self.value
    }

    /// Returns the polled value, which no longer yields.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<F: Future> Future for Yielding<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        std::task::ready!(self.turn(context)).poll(context)
    }
}

#[cfg(feature = "futures")]
impl<S: Stream> Stream for Yielding<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        std::task::ready!(self.turn(context)).poll_next(context)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.value.size_hint()
    }
}

impl<T> fmt::Debug for Yielding<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Yielding").field("slice", &self.checkpoint.slice).finish_non_exhaustive()
    }
}

/// The slice of a thread.
#[derive(Clone, Copy, Debug)]
struct Running {
    /// The thread's CPU time at the beginning, which also identifies the slice. `None` until the
    /// first checkpoint, if the time was not known before.
    began_ns: Option<u64>,
    /// The wall-clock time at which it would have begun if the thread had had a CPU ever since:
    /// until the length of a slice has passed since then, no such slice is used up.
    since_ns: u64,
}

/// Longer than any slice in use; also used for a moment that long ago.
const NEVER_NS: u64 = 1 << 62;

thread_local! {
    static RUNNING: Cell<Running> = const { Cell::new(Running::begin(None)) };
}

impl Running {
    /// Starts a slice without reading the wall clock: the first checkpoint asks in any case.
    const fn begin(cpu_ns: Option<u64>) -> Running {
        Running { began_ns: cpu_ns, since_ns: NEVER_NS.wrapping_neg() }
    }

    /// Returns which slice is used up, if a slice of `length_ns` is at these moments.
    fn ask(&mut self, length_ns: u64, wall_ns: u64, cpu_ns: u64) -> Option<u64> {
        let began_ns = *self.began_ns.get_or_insert(cpu_ns);
        let used_ns = cpu_ns.saturating_sub(began_ns);
        self.since_ns = wall_ns.wrapping_sub(used_ns);
        (used_ns >= length_ns).then_some(began_ns)
    }
}

/// Starts a slice of the calling thread at this CPU time; if unknown, at the first checkpoint.
#[inline]
pub(super) fn begin(cpu_ns: Option<u64>) {
    RUNNING.set(Running::begin(cpu_ns));
}

/// Starts a new slice where the used-up one would continue, as the thread has not left its groups.
/// It does so once per slice: when several futures of a task yielded for the same one, the others
/// continue in the slice that the first started. Otherwise each poll of the task would have a slice
/// for each.
#[cold]
fn come_back(ended: u64) {
    if RUNNING.get().began_ns == Some(ended) {
        TimeSlice::renew();
    }
}

/// Returns whether the calling thread is in a group.
#[inline]
fn is_inside() -> bool {
    NOW.with(|now| now.group.get()) != 0
}

/// Returns the calling thread's CPU time in its groups.
fn cpu_ns() -> Option<u64> {
    with(|thread| {
        let clock = &mut thread.time.clock;
        // If no switch reads it, time before the slice is in no interval of the clock.
        let in_interval =
            thread.time.metered.cpu_time.is_some() || RUNNING.get().began_ns.is_some();
        if in_interval { now_ns(clock) } else { begin_ns(clock) }
    })
}

#[cfg(test)]
#[path = "slice_tests.rs"]
mod tests;
