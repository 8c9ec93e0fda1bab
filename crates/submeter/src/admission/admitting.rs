//! Waiting for a place, and holding one.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;
use submeter_percpu::wake::ThisThread;

use super::error::{AdmissionError, Why};
use super::parts::{Asked, Outcome};
use super::shared::{Begun, Shared};
use crate::switch;
use crate::tree::group::Group;
use crate::until::until;

/// A future that is ready once its work may begin. Created by
/// [`Admission::acquire`](super::Admission::acquire).
///
/// It works on every runtime. Dropped before it is ready, it leaves nothing behind: if it had been
/// given a place by then, the place goes to the next waiter.
#[must_use = "it asks for no place unless polled"]
pub struct Admitting {
    /// `None` once it is ready.
    asks: Option<Asks>,
    deadline: Option<Instant>,
}

struct Asks {
    shared: Arc<Shared>,
    group: Group,
    /// Its number in the line, while it waits there.
    waits: Option<u64>,
}

/// A place, held until this is dropped. Created by
/// [`Admission::acquire`](super::Admission::acquire) and its variants.
///
/// It may be dropped anywhere. Its drop admits the next waiter: one atomic exchange while nothing
/// waits, otherwise a lock and a wake. Drop it in its group, or after the group has been left, so
/// that the next is chosen with this cost included.
///
/// # Examples
/// ```
/// use submeter::admission::Admission;
/// use submeter::{Schema, Tree};
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let admission = Admission::new(8);
/// let admitted = admission.try_acquire(tree.root())?;
/// assert_eq!((admitted.group(), admission.in_flight()), (tree.root(), 1));
/// drop(admitted);
/// assert_eq!(admission.in_flight(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it frees its place"]
pub struct Admitted {
    shared: Arc<Shared>,
    group: Group,
    /// What it counts for until its end, if the line admitted it.
    expected: Option<u64>,
    cost: u64,
}

impl Admitted {
    /// Returns the group that the place is for.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Reports what the work has cost, such as rows read or tokens made; the default is 1. It has
    /// no effect where CPU time is the cost. A cost of 0 counts as 1: a turn is a turn.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Schema, Tree};
    /// # let tree = Tree::new(Schema::builder().build()?)?;
    /// let admission = submeter::admission::Admission::new(8);
    /// let mut admitted = admission.try_acquire(tree.root())?;
    /// let rows = 20_000;
    /// admitted.set_cost(rows);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_cost(&mut self, cost: u64) {
        self.cost = cost;
    }

    /// Waits for the future's end, but holds the place only until the future first has to wait: for
    /// work and the write of its answer in one. A client that does not read then keeps no place.
    ///
    /// Work that waits for something else in its middle loses its place there, also for a contended
    /// async lock, or where the runtime makes it yield because its budget is spent. Hold the place
    /// by hand for such work, and for work whose [cost](Self::set_cost) is known only afterwards.
    ///
    /// # Examples
    /// ```
    /// use submeter::admission::Admission;
    /// use submeter::{Schema, Tree};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let turns = Admission::new(1);
    /// let request = async {
    ///     assert_eq!(turns.in_flight(), 1); // here it works
    ///     tokio::task::yield_now().await; // here its client does not read
    ///     assert_eq!(turns.in_flight(), 0);
    ///     "answered"
    /// };
    /// assert_eq!(turns.acquire(tree.root()).await?.until_pending(request).await, "answered");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn until_pending<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        UntilPending { future, place: Some(self) }
    }
}

pin_project! {
    // Not an async function: that would have room for the future twice.
    #[must_use = "a future does nothing unless it is polled"]
    struct UntilPending<F> {
        #[pin]
        future: F,
        place: Option<Admitted>,
    }
}

impl<F: Future> Future for UntilPending<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let polled = this.future.poll(context);
        *this.place = None;
        polled
    }
}

impl Drop for Admitted {
    #[inline]
    fn drop(&mut self) {
        self.shared.end(&self.group, self.expected, self.cost);
    }
}

impl Admitting {
    pub(super) fn new(shared: Arc<Shared>, group: Group) -> Admitting {
        Admitting { asks: Some(Asks { shared, group, waits: None }), deadline: None }
    }

    /// Waits for at most `timeout`, from now on. With a timeout of zero it is admitted at once or
    /// not at all. The queue keeps the deadline: a place that becomes free later goes to others. A
    /// place that is free when this is first polled, or that was granted in time, is taken by
    /// however late a poll.
    ///
    /// This crate has no timer. A future whose deadline has passed is woken by the next work that
    /// joins the queue or gives up a place. To be woken at the deadline itself, wait
    /// [`until`](Self::until) a runtime's timer as well.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// # use submeter::{Schema, Tree};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// # let tree = Tree::new(Schema::builder().build()?)?;
    /// let admission = submeter::admission::Admission::new(1);
    /// let held = admission.acquire(tree.root()).await?;
    /// let late = admission.acquire(tree.root()).max_wait(Duration::ZERO).await;
    /// assert!(late.expect_err("one is in flight").is_late());
    ///
    /// let ms = Duration::from_millis(1);
    /// let late = admission.acquire(tree.root()).max_wait(ms).until(tokio::time::sleep(ms)).await;
    /// assert!(late.expect_err("still").is_late());
    /// # drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "deadline")]
    #[doc(alias = "timeout")]
    pub fn max_wait(mut self, timeout: Duration) -> Admitting {
        // A deadline too far away for the clock is none.
        self.deadline = Instant::now().checked_add(timeout);
        self
    }

    /// Waits until `timer` is ready, at most. The timer may be any future, such as the runtime's
    /// sleep. It is polled only while this waits.
    ///
    /// # Errors
    /// The same as [`acquire`](super::Admission::acquire), and when the timer is ready first.
    #[doc(alias = "timeout")]
    #[doc(alias = "within")]
    pub async fn until(self, timer: impl Future) -> Result<Admitted, AdmissionError> {
        until(self, timer, Self::give_up).await
    }

    fn give_up(&mut self) -> Result<Admitted, AdmissionError> {
        let mut asks = self.asks.take().expect("it waits");
        asks.cancel();
        Err(asks.shared.refusal(&asks.group, Why::Late))
    }

    /// Waits on this thread for at most `timeout`.
    #[inline]
    pub(super) fn wait(mut self, timeout: Duration) -> Result<Admitted, AdmissionError> {
        // Most need not wait: only those that do read a clock and make a waker.
        let asks = self.asks.as_mut().expect("it is new");
        if !asks.group.is_killed() && asks.shared.slots().try_enter() {
            return Ok(self.admitted(None));
        }
        self.max_wait(timeout).park()
    }

    #[cold]
    #[inline(never)]
    fn park(mut self) -> Result<Admitted, AdmissionError> {
        let deadline = self.deadline;
        // What the thread has used so far should not stay uncharged during the wait.
        switch::park();
        let this_thread = ThisThread::new();
        let mut context = Context::from_waker(this_thread.waker());
        loop {
            if let Poll::Ready(admitted) = Pin::new(&mut self).poll(&mut context) {
                return admitted;
            }
            // With no time left, it asks once more: the queue itself reports what is late.
            let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
            this_thread.wait(deadline.map(left));
        }
    }

    fn admitted(&mut self, expected: Option<u64>) -> Admitted {
        // Moved: cloning either would be another write to a line that all threads share.
        let Asks { shared, group, .. } = self.asks.take().expect("it is ready once");
        Admitted { shared, group, expected, cost: 1 }
    }
}

impl Asks {
    fn cancel(&mut self) {
        let Some(number) = self.waits.take() else { return };
        let Asks { shared, group, .. } = self;
        shared.with(|fair| {
            if fair.cancel(group, number).is_some() {
                shared.slots().leave();
            }
            shared.slots().serve(fair);
        });
    }

    fn ask(&self, number: u64, deadline: Option<Instant>, context: &Context<'_>) -> Asked {
        let Asks { shared, group, .. } = self;
        let waker = context.waker().clone();
        let asked = shared.with(|fair| {
            let asked = fair.ask(group, number, waker, deadline);
            shared.slots().serve(fair);
            asked
        });
        asked.unwrap_or(Asked::Done(Outcome::Failed(Why::Abandoned)))
    }
}

impl Future for Admitting {
    type Output = Result<Admitted, AdmissionError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let deadline = this.deadline;
        let asks = this.asks.as_mut().expect("not polled after its end");
        if let Some(number) = asks.waits {
            match asks.ask(number, deadline, context) {
                Asked::Waits => return Poll::Pending,
                // It waited in the parent of a fork, and starts again here.
                Asked::Unknown => asks.waits = None,
                Asked::Done(Outcome::Granted(expected)) => {
                    return Poll::Ready(Ok(this.admitted(Some(expected))));
                }
                Asked::Done(Outcome::Failed(why)) => {
                    asks.waits = None;
                    let refusal = asks.shared.refusal(&asks.group, why);
                    this.asks = None;
                    return Poll::Ready(Err(refusal));
                }
            }
        }
        let asks = this.asks.as_mut().expect("it was there");
        match asks.shared.begin(&asks.group, || context.waker().clone(), deadline) {
            Ok(Begun::In(expected)) => Poll::Ready(Ok(this.admitted(expected))),
            Ok(Begun::Waits(number)) => {
                asks.waits = Some(number);
                Poll::Pending
            }
            Err(error) => {
                this.asks = None;
                Poll::Ready(Err(error))
            }
        }
    }
}

impl Drop for Admitting {
    fn drop(&mut self) {
        if let Some(asks) = &mut self.asks {
            asks.cancel();
        }
    }
}

impl fmt::Debug for Admitting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.asks {
            Some(asks) => write!(f, "Admitting({})", asks.group),
            None => f.write_str("Admitting"),
        }
    }
}

impl fmt::Debug for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Admitted({})", self.group)
    }
}
