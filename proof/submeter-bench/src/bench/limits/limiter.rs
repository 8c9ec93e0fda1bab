//! The common part of all limiters, the loops that measure them, and the checks on them.

use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use std::thread;

use crossbeam_utils::CachePadded;
use submeter_sys::cpu::set_affinity;

/// The amount of one charge, in bytes.
pub(super) const AMOUNT: u64 = 64;
/// A limit that is never close.
pub(super) const FAR: u64 = 1 << 40;
/// Number of charges that fit below the limit of the limiters that are filled to check them.
pub(super) const FILL: u64 = 256;

/// The levels of a tree and its limits. Levels between the root and the leaves have [`FAR`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Levels from a leaf to the root; with 1, the root is the only leaf.
    pub(super) levels: usize,
    pub(super) leaves: usize,
    pub(super) root_limit: u64,
    pub(super) leaf_limit: u64,
}

impl Shape {
    /// Describes a tree whose limits are far away.
    pub(super) fn far(levels: usize, leaves: usize) -> Shape {
        Shape { levels, leaves, root_limit: FAR, leaf_limit: FAR }
    }

    /// Returns the limit `above` levels above the leaves.
    pub(super) fn limit(&self, above: usize) -> u64 {
        let leaf = if above == 0 { self.leaf_limit } else { FAR };
        let root = if above + 1 == self.levels { self.root_limit } else { FAR };
        leaf.min(root)
    }
}

/// Something that grants charges up to a limit. A charge that is dropped is released.
pub(super) trait Limiter: Send + Sync + 'static {
    /// What a caller looks up once and charges many times.
    type Leaf;
    type Held<'a>
    where
        Self: 'a;

    /// Makes a limiter of this shape.
    ///
    /// # Errors
    /// When there is no memory for it.
    fn new(shape: Shape) -> io::Result<Self>
    where
        Self: Sized;

    /// Returns a leaf; too high a number means the last one.
    fn leaf(&self, number: usize) -> &Self::Leaf;

    /// Charges `n` to a leaf and every level above it, or returns `None`.
    fn charge<'a>(&'a self, leaf: &'a Self::Leaf, n: u64) -> Option<Self::Held<'a>>;

    /// Returns what is held on each level of each leaf.
    fn used(&self) -> Vec<u64>;
}

/// Number of charges that a loop was granted and refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) granted: u64,
    pub(super) refused: u64,
    /// How often a thread held two charges where one fits.
    pub(super) over: u64,
}

/// Charges and releases, as many times.
pub(super) fn pairs<L: Limiter>(limiter: &L, place: usize, times: u32) -> Tally {
    let leaf = limiter.leaf(place);
    let mut tally = Tally::default();
    for _ in 0..times {
        let held = limiter.charge(leaf, AMOUNT);
        // SeqCst, for the compiler only: it must not cancel the charge against its release.
        compiler_fence(Ordering::SeqCst);
        tally.granted += u64::from(held.is_some());
    }
    tally.refused = u64::from(times) - tally.granted;
    tally
}

/// Charges where one charge fits, and again while it is held; `times` charges in all.
pub(super) fn every_second_refused<L: Limiter>(limiter: &L, place: usize, times: u32) -> Tally {
    let leaf = limiter.leaf(place);
    let mut tally = Tally::default();
    for _ in 0..times / 2 {
        let first = limiter.charge(leaf, AMOUNT);
        let second = limiter.charge(leaf, AMOUNT);
        let granted = u64::from(first.is_some()) + u64::from(second.is_some());
        tally.granted += granted;
        tally.refused += 2 - granted;
        tally.over += u64::from(granted == 2);
    }
    tally
}

/// The tallies of all CPUs, from all samples.
pub(super) struct Tallies(Vec<CachePadded<[AtomicU64; 3]>>);

impl Tallies {
    pub(super) fn new(cpus: usize) -> Tallies {
        Tallies((0..cpus).map(|_| CachePadded::default()).collect())
    }

    pub(super) fn add(&self, place: usize, tally: Tally) {
        for (own, n) in self.0[place].iter().zip([tally.granted, tally.refused, tally.over]) {
            // Relaxed: only this place's thread writes it; threads of samples follow each other by
            // joins.
            own.store(own.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        }
    }

    pub(super) fn sum(&self) -> Tally {
        // Relaxed: their writers were joined.
        let all = |n: usize| self.0.iter().map(|own| own[n].load(Ordering::Relaxed)).sum();
        Tally { granted: all(0), refused: all(1), over: all(2) }
    }
}

/// The requirement on the tallies of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// Every charge was granted.
    Granted,
    /// Of two charges one was granted: nothing else charges what is limited.
    Half,
    /// Of two charges at most one was granted: others sometimes hold the only charge that fits.
    AtMostHalf,
}

impl Expected {
    /// Checks a tally.
    ///
    /// # Errors
    /// When it is not what it must be: then no figure of `variant` means anything.
    pub(super) fn check(self, variant: &str, tally: Tally) -> io::Result<()> {
        let Tally { granted, refused, over } = tally;
        let right = match self {
            Expected::Granted => refused == 0,
            Expected::Half => granted == refused,
            Expected::AtMostHalf => granted <= refused,
        };
        if right && over == 0 {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{variant} granted {granted} charges and refused {refused}, {over} times beyond the \
             limit, where {self:?} was expected: it is wrong, which is a bug"
        )))
    }
}

/// Checks that everything was released.
///
/// # Errors
/// When a level still holds something.
pub(super) fn check_empty(variant: &str, used: &[u64]) -> io::Result<()> {
    if used.iter().all(|&used| used == 0) {
        return Ok(());
    }
    let wrong = format!("{variant} holds {used:?} after all was released, which is a bug");
    Err(io::Error::other(wrong))
}

/// Lets a thread on each of `cpus` charge more than [`FILL`] times, and hold what it is granted,
/// from a limiter in which [`FILL`] charges fit: of all threads together if `shared`, otherwise of
/// each.
///
/// # Errors
/// When more charges fit than may, or fewer: no limit must be exceeded, and no charge that fits
/// refused.
pub(super) fn fill<L: Limiter>(
    variant: &str,
    limiter: &L,
    cpus: &[usize],
    shared: bool,
) -> io::Result<()> {
    let step = Barrier::new(cpus.len());
    let run = |place: usize, cpu: usize| -> io::Result<u64> {
        let pinned = set_affinity(&[cpu]);
        let leaf = limiter.leaf(place);
        step.wait();
        let held: Vec<_> = (0..FILL + 8).filter_map(|_| limiter.charge(leaf, AMOUNT)).collect();
        step.wait();
        pinned.map(|()| held.len() as u64)
    };
    let held: io::Result<Vec<u64>> = thread::scope(|scope| {
        let places = cpus.iter().enumerate();
        let threads: Vec<_> =
            places.map(|(place, &cpu)| scope.spawn(move || run(place, cpu))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it panics nowhere")).collect()
    });
    let held = held?;
    let right = match shared {
        true => held.iter().sum::<u64>() == FILL,
        false => held.iter().all(|&held| held == FILL),
    };
    if right {
        return check_empty(variant, &limiter.used());
    }
    let of = if shared { "together" } else { "each" };
    Err(io::Error::other(format!(
        "{variant} granted {held:?} charges to threads for which {FILL} fit {of}, which is a bug"
    )))
}
