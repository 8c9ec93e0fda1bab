//! Optional background flushing, which bounds the age of cached totals.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use submeter_percpu::contain::contain;
use submeter_sys::process_local::ProcessLocal;

use crate::metric::reading::Scalar;
use crate::tree::tree::Tree;

/// A thread that flushes a tree periodically, and sooner when too much is pending. Dropping it
/// stops the thread and waits for it, including a flush in progress.
///
/// It is optional, because exact reads flush for themselves. It is meant for processes whose
/// readers use cached totals ([`Group::read`](crate::Group::read)) and need them fresh. It flushes
/// even if there are no readers; if reads are rare,
/// [`Group::read_within`](crate::Group::read_within) costs less.
///
/// No update ever wakes the thread, because that would be a system call. With a
/// [threshold](FlusherBuilder::when) the thread checks by itself, sixteen times per period, but at
/// most once per millisecond and at least ten times per second. The thread keeps the tree alive.
///
/// A flush that panics is counted, and the next one runs as usual. A forked child has no such
/// thread; there the guard does nothing, and a new flusher can be started.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter::{Count, Schema, Tree};
///
/// let mut schema = Schema::builder();
/// let requests = schema.counter::<Count>("requests", "Requests answered");
/// let tree = Tree::new(schema.build()?)?;
///
/// let flusher = tree.flusher().period(Duration::from_millis(100)).when(requests, 10_000).start()?;
/// tree.root().add(requests, 1);
/// // A flush is counted once its results are visible.
/// while tree.root().read(requests).value == 0 || flusher.flushes() == 0 {
///     std::thread::yield_now();
/// }
/// assert_eq!(flusher.panics(), 0);
/// drop(flusher);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// *Differences from Linux*: the kernel flushes every two seconds from a worker that always exists,
/// and skips a read's flush when little is pending; here each reader states what it accepts.
#[must_use = "the thread stops when this is dropped"]
pub struct Flusher {
    shared: Arc<FlusherState>,
    thread: ProcessLocal<JoinHandle<()>>,
}

type Urgent = Box<dyn Fn(&Tree) -> bool + Send>;

/// A builder of a [`Flusher`]; see [`Tree::flusher`].
#[must_use = "it does nothing until `start`"]
pub struct FlusherBuilder {
    tree: Tree,
    period: Duration,
    /// Each returns whether a flush cannot wait for the end of the period.
    urgent: Vec<Urgent>,
    also: Vec<Box<dyn FnMut() + Send>>,
}

#[derive(Default)]
struct FlusherState {
    stop: Mutex<bool>,
    stopped: Condvar,
    flushes: AtomicU64,
    panics: AtomicU64,
}

/// Bounds of the time between two checks for urgency.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(100);

impl Tree {
    /// Starts to configure a thread that flushes this tree, for readers of cached totals. It is
    /// optional: see [`Flusher`].
    pub fn flusher(&self) -> FlusherBuilder {
        FlusherBuilder::new(self.clone())
    }
}

impl FlusherBuilder {
    fn new(tree: Tree) -> FlusherBuilder {
        FlusherBuilder {
            tree,
            period: Duration::from_secs(2),
            urgent: Vec::new(),
            also: Vec::new(),
        }
    }

    /// Sets the time from one flush to the next; the default is two seconds, as in Linux.
    pub fn period(self, period: Duration) -> FlusherBuilder {
        FlusherBuilder { period, ..self }
    }

    /// Flushes sooner if the root's cached total of `metric` may be off by more than `error`, in
    /// the metric's unit. Call it once for each metric that matters: any one of them triggers a
    /// flush.
    ///
    /// The bound includes almost a batch for each line that changed, so a threshold below that
    /// causes a flush at every check: see [`Reading::max_error`](crate::Reading).
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Count, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let requests = schema.counter::<Count>("requests", "Requests answered");
    /// # let tree = Tree::new(schema.build()?)?;
    /// let flusher = tree.flusher().when(requests, 10_000).start()?;
    /// # drop(flusher);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn when<M: Scalar + Send + 'static>(mut self, metric: M, error: u64) -> FlusherBuilder {
        self.urgent.push(Box::new(move |tree| tree.root().read(metric).max_error > error));
        self
    }

    /// Runs `also` after each flush on the flusher's thread, for example to flush aggregators. If
    /// it panics, that is counted, and it runs again after the next flush.
    pub fn also(mut self, also: impl FnMut() + Send + 'static) -> FlusherBuilder {
        self.also.push(Box::new(also));
        self
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// When the period is 0, or the thread cannot be started. It is an `io::Error`, like that of
    /// [`std::thread::Builder::spawn`], because nothing else can fail at run time.
    ///
    /// # Panics
    /// When a metric belongs to another tree's schema.
    pub fn start(self) -> io::Result<Flusher> {
        if self.period.is_zero() {
            let what = "the flusher's period is 0: use a millisecond or more";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        // Evaluated here, so that a metric of another tree panics in the caller.
        let _ = self.urgent.iter().filter(|urgent| urgent(&self.tree)).count();
        let shared = Arc::new(FlusherState::default());
        let work = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("submeter-flush".to_owned())
            .spawn(move || self.run(&work))?;
        Ok(Flusher { shared, thread: ProcessLocal::new(thread) })
    }

    fn run(mut self, shared: &FlusherState) {
        let look = (self.period / 16).clamp(LOOK_MIN, LOOK_MAX);
        // `None` for a period too long to represent: then only urgent flushes run.
        let mut due = Instant::now().checked_add(self.period);
        while !shared.wait(if self.urgent.is_empty() { due } else { earlier(due, look) }) {
            let urgent = || self.urgent.iter().any(|urgent| urgent(&self.tree));
            if due.is_some_and(|due| due <= Instant::now()) || urgent() {
                shared.flush(&self.tree, &mut self.also);
                due = Instant::now().checked_add(self.period);
            }
        }
    }
}

/// Returns when to check next.
fn earlier(due: Option<Instant>, look: Duration) -> Option<Instant> {
    let look = Instant::now() + look;
    Some(due.map_or(look, |due| due.min(look)))
}

impl FlusherState {
    /// Waits until `at`, or until stopped; returns whether it was stopped.
    fn wait(&self, at: Option<Instant>) -> bool {
        let mut stop = self.stop.lock();
        while !*stop {
            match at {
                None => self.stopped.wait(&mut stop),
                Some(at) => {
                    if self.stopped.wait_until(&mut stop, at).timed_out() {
                        break;
                    }
                }
            }
        }
        *stop
    }

    fn flush(&self, tree: &Tree, also: &mut [Box<dyn FnMut() + Send>]) {
        // Caught separately, so that a panic does not keep the next one from running. Unwind-safe:
        // a flush that panics leaves the tree consistent, and the state of a user's closure is the
        // user's responsibility.
        let run = |work: &mut dyn FnMut()| {
            if contain(work).is_err() {
                // Relaxed: a statistic.
                self.panics.fetch_add(1, Ordering::Relaxed);
            }
        };
        run(&mut || {
            tree.flush();
        });
        also.iter_mut().for_each(|also| run(also));
        // Release: after the totals and the effects of the closures; pairs with the Acquire in
        // `flushes`.
        self.flushes.fetch_add(1, Ordering::Release);
    }
}

impl Flusher {
    /// Returns how many times it has flushed. Once a flush is counted, its totals are visible to
    /// the caller, and so is what the closures of [`also`](FlusherBuilder::also) did, unless it
    /// [panicked](Flusher::panics).
    #[must_use]
    pub fn flushes(&self) -> u64 {
        // Acquire: pairs with the Release in `flush`.
        self.shared.flushes.load(Ordering::Acquire)
    }

    /// Returns how many of its flushes, and of the closures of `also`, panicked.
    #[must_use]
    pub fn panics(&self) -> u64 {
        // Relaxed: a statistic.
        self.shared.panics.load(Ordering::Relaxed)
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        // In a forked child the thread does not exist, and the parent may have held the lock.
        let Some(thread) = self.thread.take() else { return };
        *self.shared.stop.lock() = true;
        self.shared.stopped.notify_all();
        // If the thread itself drops the flusher (in a closure of `also`), it ends at its next
        // wait.
        if thread.thread().id() != thread::current().id() {
            // The thread catches panics; there is none to propagate.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Flusher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Flusher");
        debug.field("flushes", &self.flushes()).field("panics", &self.panics()).finish()
    }
}

impl fmt::Debug for FlusherBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlusherBuilder").field("period", &self.period).finish_non_exhaustive()
    }
}
