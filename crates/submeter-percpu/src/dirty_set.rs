//! Dirty bits for state that is not in words: an owner of per-CPU state records here what it
//! changed.
//!
//! The protocol is the half of [`dirty`](crate::dirty) for locked adds: store first, then load the
//! bit. The user stores with any ordering, so fences, one on each side, order the store before the
//! load.

#[cfg(not(loom))]
use crossbeam_utils::CachePadded;
#[cfg(not(loom))]
use submeter_sys::ResolvedHint;

#[cfg(not(loom))]
use crate::backend::locked;
use crate::dirty::DirtyBits;
#[cfg(not(loom))]
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::{Ordering, fence};

/// A dirty bit per thing and row. A row belongs to a CPU, where the kernel tells the CPU cheaply,
/// or is shared by some threads.
///
/// Marking a thing that is already dirty costs a fence and a load; the first time after a
/// [`take`](DirtySet::take) it costs four more locked instructions. Taking costs two loads per row,
/// and one for each 64 things near a dirty one. When the state is a single number, an
/// [`Area`](crate::Area) is cheaper: its sequences need no fence.
///
/// # Examples
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use submeter_percpu::DirtySet;
///
/// let dirty = DirtySet::new(100);
/// let counts: Vec<AtomicU64> = (0..dirty.rows()).map(|_| AtomicU64::new(0)).collect();
///
/// let row = dirty.row();
/// counts[row].fetch_add(1, Relaxed);
/// dirty.mark(row, 42);
///
/// let mut changed = Vec::new();
/// dirty.take(&mut changed);
/// assert_eq!(changed, [(row, 42)]);
/// assert_eq!(counts[row].load(Relaxed), 1);
/// ```
#[cfg(not(loom))]
#[derive(Debug)]
pub struct DirtySet {
    /// Padded to avoid false sharing between CPUs.
    rows: Box<[CachePadded<Row>]>,
    len: usize,
    hint: ResolvedHint,
}

/// The dirty bits of one row.
#[cfg(not(loom))]
#[derive(Debug)]
struct Row {
    /// See [`DirtyBits`] for these four.
    lines: Box<[AtomicU64]>,
    summary: Box<[AtomicU64]>,
    linking: AtomicU64,
    tally: AtomicU64,
}

/// Maximum number of rows. With more CPUs, several share a row.
#[cfg(not(loom))]
const ROWS_MAX: usize = 64;

#[cfg(not(loom))]
impl DirtySet {
    /// Makes bits for `len` things, none of them set.
    #[must_use]
    pub fn new(len: usize) -> DirtySet {
        let probe = submeter_sys::probe();
        let parallel = || std::thread::available_parallelism().map_or(1, usize::from);
        let rows = probe.cpus.unwrap_or_else(parallel).clamp(1, ROWS_MAX);
        let zeroed = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect();
        let row = || {
            CachePadded::new(Row {
                lines: zeroed(len.div_ceil(64)),
                summary: zeroed(len.div_ceil(64 * 64)),
                linking: AtomicU64::new(0),
                tally: AtomicU64::new(0),
            })
        };
        DirtySet {
            rows: (0..rows).map(|_| row()).collect(),
            len,
            hint: probe.row_hint().resolved(),
        }
    }

    /// Returns the number of rows, which is the same for every set of the process.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Returns the row for the calling thread: its CPU's row where the CPU is cheap to determine.
    /// Any other row would also be correct, because the thread may move at any time.
    #[inline]
    #[must_use]
    pub fn row(&self) -> usize {
        locked::row(self.hint, self.rows.len())
    }

    /// Returns the number of things for which there are bits.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no bits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Marks `thing` as changed in `row`. Call it *after* the change. Wait-free, idempotent, and
    /// safe in a signal handler.
    ///
    /// # Panics
    /// When there is no such row or thing.
    ///
    /// # Ordering
    /// A thread that [takes](DirtySet::take) this mark, or took it while this call examined it,
    /// sees all stores before this call, whatever their ordering.
    #[inline]
    pub fn mark(&self, row: usize, thing: usize) {
        assert!(thing < self.len, "no such mark");
        mark_after(&self.rows[row].marks(), thing);
    }

    /// Clears all bits, and appends the rows and things that were marked since the last time.
    ///
    /// # Ordering
    /// Stores before a `mark` that returned are visible afterwards, unless another thread took that
    /// mark.
    pub fn take(&self, out: &mut Vec<(usize, usize)>) {
        for (at, row) in self.rows.iter().enumerate() {
            row.marks().take_lines(self.len, |thing| out.push((at, thing)));
        }
        fence_after_take();
    }

    /// Returns whether anything may be dirty. Costs a load per row.
    #[must_use]
    pub fn any(&self) -> bool {
        self.rows.iter().any(|row| row.marks().count() != 0)
    }
}

#[cfg(not(loom))]
impl Row {
    #[inline]
    fn marks(&self) -> DirtyBits<'_> {
        let Row { lines, summary, linking, tally } = self;
        DirtyBits { lines, summary, linking, tally }
    }
}

/// Does the marking half, after the change.
#[inline]
fn mark_after(marks: &DirtyBits<'_>, thing: usize) {
    // SeqCst: between the caller's stores and the load of the bit; pairs with the fence in
    // `fence_after_take`. Whichever fence comes first, either the taker sees the stores, or this
    // thread sees the bit taken.
    fence(Ordering::SeqCst);
    if !marks.is_dirty(thing) {
        marks.mark(thing);
    }
}

/// Does the taking half, between taking the bits and loading the changed state.
#[inline]
fn fence_after_take() {
    // SeqCst: pairs with the fence in `mark_after`, so that either this thread sees the stores
    // before it, or the marking thread sees the bit taken.
    fence(Ordering::SeqCst);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::witness::Witness;

    #[test]
    fn what_is_marked_is_taken_once() {
        let marks = DirtySet::new(5000);
        assert!(!marks.any());
        let last = marks.rows() - 1;
        for (row, thing) in [(0, 0), (last, 4999), (0, 0), (0, 64)] {
            marks.mark(row, thing);
        }
        assert!(marks.any());
        let mut taken = Vec::new();
        marks.take(&mut taken);
        taken.sort_unstable();
        let mut expected = vec![(0, 0), (0, 64), (last, 4999)];
        expected.sort_unstable();
        assert_eq!(taken, expected);
        assert!(!marks.any());
        taken.clear();
        marks.take(&mut taken);
        assert_eq!(taken, []);
        assert!(marks.row() < marks.rows());
        let beyond = || marks.mark(marks.rows(), 0);
        assert!(std::panic::catch_unwind(beyond).is_err(), "there is no such row");
    }

    #[test]
    fn every_thread_has_a_row_where_there_is_one() {
        let marks = DirtySet::new(64);
        let rows: Box<[_]> = marks.rows.into_iter().take(1).collect();
        assert_eq!(DirtySet { rows, ..marks }.row(), 0);
    }

    /// A set is empty if it has no room, not if nothing is marked.
    #[test]
    fn a_set_is_empty_only_without_room() {
        let sets = [0, 1, 5000].map(DirtySet::new);
        assert_eq!(sets.each_ref().map(DirtySet::len), [0, 1, 5000]);
        assert_eq!(sets.each_ref().map(DirtySet::is_empty), [true, false, false]);
    }

    #[test]
    #[should_panic(expected = "no such mark")]
    fn a_thing_beyond_the_end_is_refused() {
        // 10 is in the same word of marks as 9.
        DirtySet::new(10).mark(0, 10);
    }

    /// Every change is found while marks are taken.
    #[test]
    fn every_change_is_found_stress() {
        use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

        const ROUNDS: u64 = if cfg!(miri) { 50 } else { 20_000 };
        let marks = DirtySet::new(64);
        let counts: Vec<AtomicU64> = (0..marks.rows()).map(|_| AtomicU64::new(0)).collect();
        let (mut taken, mut total) = (Vec::new(), 0);
        let mut collect = || {
            taken.clear();
            marks.take(&mut taken);
            total += taken.iter().map(|&(row, _)| counts[row].swap(0, Relaxed)).sum::<u64>();
            total
        };
        let (witness, changes) = (Witness::new(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let updaters = [7, 8].map(|thing| {
                let (marks, counts, witness, changes) = (&marks, &counts, &witness, &changes);
                scope.spawn(move || {
                    for _ in (0..).take_while(|&n| witness.goes_on(n, ROUNDS)) {
                        changes.fetch_add(1, Relaxed);
                        let row = marks.row();
                        counts[row].fetch_add(1, Relaxed);
                        marks.mark(row, thing);
                    }
                })
            });
            while updaters.iter().any(|updater| !updater.is_finished()) {
                let (before, found) = (changes.load(Relaxed), collect());
                // Some changes were found, and others are being made.
                witness.met(found != 0 && changes.load(Relaxed) != before);
            }
        });
        witness.assert_met();
        assert_eq!(collect(), changes.into_inner());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::atomic::AtomicU64;
    use loom::sync::Arc;
    use loom::thread;

    struct Shared {
        line: AtomicU64,
        summary: AtomicU64,
        linking: AtomicU64,
        count: AtomicU64,
        state: AtomicU64,
    }

    impl Shared {
        /// Makes a state that is already dirty: the case in which an update relies on the fence.
        fn marked() -> Arc<Shared> {
            Arc::new(Shared {
                line: AtomicU64::new(1),
                summary: AtomicU64::new(1),
                linking: AtomicU64::new(0),
                count: AtomicU64::new(1),
                state: AtomicU64::new(0),
            })
        }

        fn row(&self) -> DirtyBits<'_> {
            DirtyBits {
                lines: std::slice::from_ref(&self.line),
                summary: std::slice::from_ref(&self.summary),
                linking: &self.linking,
                tally: &self.count,
            }
        }

        fn is_marked_at_all(&self) -> bool {
            self.line.load(Ordering::Relaxed) != 0
        }
    }

    /// Runs one update and one take concurrently, with the given halves; afterwards either the
    /// taker saw the update, or the update left a mark for the next one.
    fn race(mark: fn(&DirtyBits<'_>), after_take: fn()) {
        crate::models::explore_all(move || {
            let shared = Shared::marked();
            let updater = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // The user's own ordering is the weakest possible.
                    shared.state.store(1, Ordering::Relaxed);
                    mark(&shared.row());
                })
            };
            let mut found = false;
            shared.row().take_lines(64, |_| found = true);
            after_take();
            let seen = found && shared.state.load(Ordering::Relaxed) == 1;
            updater.join().expect("no panic");
            crate::models::witness("a change that is seen", seen);
            crate::models::witness("a change that is not", !seen);
            assert!(seen || shared.is_marked_at_all(), "a change was lost");
        });
    }

    #[test]
    fn loom_a_relaxed_change_is_seen_or_stays_marked() {
        race(|row| mark_after(row, 0), fence_after_take);
    }

    #[test]
    #[should_panic(expected = "a change was lost")]
    fn loom_no_updaters_fence_loses_a_change() {
        let unfenced = |row: &DirtyBits<'_>| {
            if !row.is_dirty(0) {
                row.mark(0);
            }
        };
        race(unfenced, fence_after_take);
    }

    #[test]
    #[should_panic(expected = "a change was lost")]
    fn loom_no_takers_fence_loses_a_change() {
        race(|row| mark_after(row, 0), || ());
    }
}
