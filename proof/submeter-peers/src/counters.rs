//! Counters without names: one for each counted thing, shared by all threads.

use std::array;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use contatori::counters::Observable;
use contatori::counters::unsigned::Unsigned;
use fast_counter::ConcurrentCounter;
use thread_local::ThreadLocal;

use crate::{Case, LEVELS, Peer};

/// A counter that all threads share.
trait Counter: Send + Sync + 'static {
    fn new() -> Self;
    fn add_one(&self);
    fn total(&self) -> u64;
}

/// Returns each counter, once alone and once with one per level.
pub(crate) fn peers() -> Vec<Peer> {
    let mut peers = Vec::new();
    peers.extend(both::<ConcurrentCounter>("fast_counter"));
    peers.extend(both::<Unsigned>("contatori"));
    peers.extend(both::<PerThread>("thread_local"));
    peers
}

fn both<C: Counter>(variant: &'static str) -> [Peer; 2] {
    let held = Arc::new(C::new());
    let count = Arc::clone(&held);
    let levels: Arc<[C; LEVELS]> = Arc::new(array::from_fn(|_| C::new()));
    let charge = Arc::clone(&levels);
    [
        Peer::new(
            variant,
            Case::Held,
            move |requests| requests.iter().for_each(|_| count.add_one()),
            move |_| vec![held.total()],
        ),
        Peer::new(
            variant,
            Case::Levels,
            move |requests| {
                requests.iter().for_each(|_| charge.iter().for_each(Counter::add_one));
            },
            move |_| levels.iter().map(Counter::total).collect(),
        ),
    ]
}

impl Counter for ConcurrentCounter {
    fn new() -> Self {
        // As its documentation advises: as many cells as counting threads.
        ConcurrentCounter::new(thread::available_parallelism().map_or(1, usize::from))
    }

    #[inline]
    fn add_one(&self) {
        self.add(1);
    }

    fn total(&self) -> u64 {
        self.sum().unsigned_abs() as u64
    }
}

impl Counter for Unsigned {
    fn new() -> Self {
        Unsigned::new()
    }

    #[inline]
    fn add_one(&self) {
        self.add(1);
    }

    fn total(&self) -> u64 {
        self.value().as_u64()
    }
}

/// A counter for each thread, found through the crate `thread_local`, which never frees one: a
/// later thread takes it over.
struct PerThread(ThreadLocal<AtomicU64>);

impl Counter for PerThread {
    fn new() -> Self {
        PerThread(ThreadLocal::new())
    }

    #[inline]
    fn add_one(&self) {
        let own = self.0.get_or_default();
        // Relaxed: only this thread writes it, and readers want any recent value. The crate orders
        // the handover of an exited thread's counter.
        own.store(own.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn total(&self) -> u64 {
        // Relaxed: a statistic, exact once the counting threads were joined.
        self.0.iter().map(|own| own.load(Ordering::Relaxed)).sum()
    }
}
