//! The flusher that nobody needs: a thread that flushes so that cached totals stay young.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use submeter_sys::fork;

use crate::reading::Scalar;
use crate::tree::Tree;

/// A thread that flushes a tree every so often, and sooner when too much is pending. Dropping this
/// stops the thread and waits for it, a flush under way included.
///
/// Nothing requires it: exact reads flush for themselves. It is for processes whose readers take
/// what is cached ([`Group::read`](crate::Group::read)) and want it young. It costs what the
/// flushes cost, whether or not anybody reads; where readers are rare,
/// [`Group::read_within`](crate::Group::read_within) costs less.
///
/// No update ever wakes the thread, as that would be a system call: where there is a
/// [threshold](FlusherBuilder::when) it looks by itself, sixteen times a period, but not more often
/// than once a millisecond nor less often than ten times a second. It keeps the tree alive.
///
/// A flush that panics is counted, and the next one comes as if nothing had been. A forked child
/// has no such thread; there the guard does nothing, and a new one can be started.
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
/// while tree.root().read(requests).value == 0 {
///     std::thread::yield_now();
/// }
/// drop(flusher);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// *Differences from Linux*: the kernel flushes every two seconds, from a worker that always
/// exists, and skips a read's flush when little is pending; here a reader says what it accepts.
#[must_use = "the thread stops when this is dropped"]
pub struct Flusher {
    shared: Arc<FlusherState>,
    thread: Option<JoinHandle<()>>,
    /// Of the process that has the thread.
    generation: u32,
}

type Urgent = Box<dyn Fn(&Tree) -> bool + Send>;

/// A builder of a [`Flusher`]; see [`Tree::flusher`].
///
/// # Examples
/// ```
/// # use submeter::{Count, Schema, Tree};
/// # let mut schema = Schema::builder();
/// # let requests = schema.counter::<Count>("requests", "Requests answered");
/// # let tree = Tree::new(schema.build()?)?;
/// use std::time::Duration;
///
/// let period = Duration::from_millis(100);
/// let flusher = tree.flusher().period(period).when(requests, 10_000).start()?;
/// # drop(flusher);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "it does nothing until `start`"]
pub struct FlusherBuilder {
    tree: Tree,
    period: Duration,
    /// Each says whether it cannot wait for the period's end.
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

/// How often the thread looks whether it is urgent.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(100);

impl Tree {
    /// Describes a thread that flushes this tree, for readers of what is cached. Nothing requires
    /// one. See [`Flusher`].
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let flusher = tree.flusher().start()?;
    /// # drop(flusher);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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

    /// Flushes this long after the last flush: two seconds unless told otherwise, as in Linux.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let flusher = tree.flusher().period(std::time::Duration::from_millis(100)).start()?;
    /// # drop(flusher);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn period(self, period: Duration) -> FlusherBuilder {
        FlusherBuilder { period, ..self }
    }

    /// Flushes sooner when the root's cached total of `metric` may be off by more than `error`, in
    /// the metric's unit. Call it once for each metric that matters: any of them suffices.
    ///
    /// The bound counts almost a batch for each line that changed, so that a threshold below that
    /// flushes at every look: see [`Reading::bound`](crate::Reading).
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
        self.urgent.push(Box::new(move |tree| tree.root().read(metric).bound > error));
        self
    }

    /// Runs `also` after each flush, in the flusher's thread: to flush aggregators, say. What
    /// panics is counted, and run again at the next flush.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let flusher = tree.flusher().also(|| println!("flushed")).start()?;
    /// # drop(flusher);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn also(mut self, also: impl FnMut() + Send + 'static) -> FlusherBuilder {
        self.also.push(Box::new(also));
        self
    }

    /// Starts the thread.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let refused = tree.flusher().period(std::time::Duration::ZERO).start();
    /// assert!(refused.is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A period of 0, or no room for a thread: an `io::Error`, as of
    /// [`std::thread::Builder::spawn`], since that is all that can fail at run time.
    ///
    /// # Panics
    /// When a metric is of another tree's schema.
    pub fn start(self) -> io::Result<Flusher> {
        if self.period.is_zero() {
            let what = "a flusher's period is 0: give it a millisecond or more";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        // Here, where the caller sees the panic of a metric that is not the tree's.
        let _ = self.urgent.iter().filter(|urgent| urgent(&self.tree)).count();
        fork::watch();
        let shared = Arc::new(FlusherState::default());
        let work = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("submeter-flush".to_owned())
            .spawn(move || self.run(&work))?;
        Ok(Flusher { shared, thread: Some(thread), generation: fork::generation() })
    }

    fn run(mut self, shared: &FlusherState) {
        let look = (self.period / 16).clamp(LOOK_MIN, LOOK_MAX);
        // None for a period that ends after all time: then only what is urgent is flushed.
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

/// When to look next.
fn earlier(due: Option<Instant>, look: Duration) -> Option<Instant> {
    let look = Instant::now() + look;
    Some(due.map_or(look, |due| due.min(look)))
}

impl FlusherState {
    /// Waits until `at`, or to be stopped; returns whether it was.
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
        // Each apart: who panics is not to keep the next from its turn. Unwind-safe: a flush that
        // panics leaves the tree as it was, and what a closure of the user's leaves is the user's.
        let run = |work: &mut dyn FnMut()| {
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                // Relaxed: a statistic.
                self.panics.fetch_add(1, Ordering::Relaxed);
            }
        };
        run(&mut || {
            tree.flush();
        });
        also.iter_mut().for_each(|also| run(also));
        // Relaxed: a statistic; the totals have orderings of their own.
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }
}

impl Flusher {
    /// Returns how many times it has flushed.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let flusher = tree.flusher().start()?;
    /// println!("{} flushes", flusher.flushes());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn flushes(&self) -> u64 {
        // Relaxed: a statistic.
        self.shared.flushes.load(Ordering::Relaxed)
    }

    /// Returns how many of its flushes, and of what it was told to run after them, panicked.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let flusher = tree.flusher().start()?;
    /// assert_eq!(flusher.panics(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn panics(&self) -> u64 {
        // Relaxed: a statistic.
        self.shared.panics.load(Ordering::Relaxed)
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if fork::generation() != self.generation {
            // A forked child: the thread is the parent's, and so may be the lock. Its handle must
            // not even be dropped, which would release what the C library has taken back.
            std::mem::forget(thread);
            return;
        }
        *self.shared.stop.lock() = true;
        self.shared.stopped.notify_all();
        // Dropped by the thread itself (by a closure of `also`): it ends when it comes to wait.
        if thread.thread().id() != thread::current().id() {
            // It catches what panics; there is nothing to pass on.
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
