//! Charges that go through several limits: a leaf with stock, and the levels above it.
//!
//! # The protocol
//! What every level of a leaf's path *holds* is compared with that level's limit: what was charged
//! below it and not released, and what lies in stock below it. Stock works as in the module above;
//! a refill raises every level, and so does an opening.
//!
//! - A level is **loose** while there may be stock below it. A charge that it refuses makes it
//!   **tight**: each leaf below is closed, one barrier is issued for all of them, and their stock
//!   is given back. Then it is **drained**: what it holds is what is charged, and a refusal exact.
//! - A leaf opens only while all levels of its path are loose, which it looks at with the list of
//!   open leaves locked. A fold makes the level tight first and visits that list then: whoever
//!   comes second sees the other. An open leaf moves stock with its own lock held, which a fold
//!   takes to close it.
//! - A drained level is loose again where it has room for a leaf's stock twice, and not within
//!   `REST_MS`.

use super::words::{AtomicU32, AtomicU64};
use super::{Inside, Leaf, Phase, REST_MS, Stock};
use crate::sync::atomic::Ordering;

/// What a group and its descendants hold of one quota, and how much they may.
#[derive(Debug)]
pub(crate) struct Level {
    /// Bits: see the invariant. Writers: as of the flat one.
    held: AtomicU64,
    /// `u64::MAX` for none. Writer: whoever sets it.
    limit: AtomicU64,
    /// Bits: a [`Tight`] and how many there were before. Writers: folds, and who loosens, only by
    /// exchange.
    tight: AtomicU32,
    /// When it was drained last. Writer: folds.
    drained_ms: AtomicU32,
    /// Bits: 0..32 leaves below that may be open, 32..64 how many openings there were.
    openings: AtomicU64,
    /// The most that was held.
    peak: AtomicU64,
    /// What was charged at the same time at least, once. Equal to `peak` while no leaf was open.
    peak_low: AtomicU64,
    /// Charges that this level's limit refused.
    refused: AtomicU64,
    /// What lies in stock below, while somebody sums it for many levels at once.
    pub(super) stocked: AtomicU64,
}

/// What a [`Level`] says of itself, without its stock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) limit: u64,
    pub(crate) peak: u64,
    pub(crate) peak_low: u64,
    pub(crate) refused: u64,
}

/// An opening more, and a leaf that is open.
const OPENING: u64 = (1 << 32) + 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tight {
    /// There may be stock below.
    Loose,
    /// Leaves below are being closed, and none opens.
    Tightening,
    /// There is no stock below.
    Drained,
}

/// A refusal of a charge by a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) held: u64,
    pub(crate) limit: u64,
}

enum Look {
    Full(Refusal),
    Room,
    /// There is, or may be.
    Stock,
}

/// How many barriers there were: those of one tree.
#[derive(Debug)]
pub(crate) struct Barriers(AtomicU64);

/// A leaf and its levels.
pub(crate) trait Path: Sized {
    type Stock: Stock;
    fn leaf(&self) -> &Leaf<Self::Stock>;
    /// From the leaf's own to the root's.
    fn levels(&self) -> impl Iterator<Item = &Level>;
    /// Visits the leaves below a level that may be open, in whatever order, while none opens.
    /// Returns false where it visited none: below a signal handler that interrupted such a visit,
    /// and in a forked child where a thread stayed behind in one.
    fn below(&self, level: &Level, each: &mut dyn FnMut(&Self)) -> bool;
    /// Has the leaf among those that may be open if `open` returns true; does not call it where
    /// somebody visits them.
    fn join(&self, open: &mut dyn FnMut() -> bool);
    fn barriers(&self) -> &Barriers;
}

impl Barriers {
    pub(crate) fn new() -> Barriers {
        Barriers(AtomicU64::new(0))
    }

    /// What [`is_after`](Self::is_after) compares, for a gate that was closed before.
    pub(super) fn closed(&self) -> u64 {
        // SeqCst, by exchange: the gate's store is before it for whoever counts a barrier later. A
        // load could overtake the store.
        self.0.fetch_add(0, Ordering::SeqCst)
    }

    /// Counts a barrier that is about to be issued.
    fn begin(&self) -> u64 {
        // SeqCst: see `closed`.
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    /// Returns whether a gate was closed before a barrier began.
    fn is_after(barrier: u64, closed: u64) -> bool {
        closed <= barrier
    }
}

impl Level {
    pub(crate) fn new() -> Level {
        Level {
            held: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            tight: AtomicU32::new(0),
            drained_ms: AtomicU32::new(0),
            openings: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            peak_low: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            stocked: AtomicU64::new(0),
        }
    }

    pub(crate) fn record(&self) -> Record {
        // Relaxed, all: statistics that need not agree with each other.
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Record {
            limit: load(&self.limit),
            peak: load(&self.peak),
            peak_low: load(&self.peak_low),
            refused: load(&self.refused),
        }
    }

    /// Returns what is held if that is what is charged: no leaf below was open.
    pub(crate) fn exactly(&self) -> Option<u64> {
        let before = self.openings();
        let held = self.held();
        (before as u32 == 0 && self.openings() == before).then_some(held)
    }

    fn openings(&self) -> u64 {
        // SeqCst, and in both functions below: who finds what an opening has reserved finds the
        // opening as well, and who finds none open finds what was given back.
        self.openings.load(Ordering::SeqCst)
    }

    fn begin_opening(&self) {
        // SeqCst: see `openings`.
        self.openings.fetch_add(OPENING, Ordering::SeqCst);
    }

    pub(super) fn end_opening(&self) {
        // SeqCst: see `openings`.
        self.openings.fetch_sub(1, Ordering::SeqCst);
    }

    /// Notes what was held, and what is charged of it at least. Whether leaves were open is known
    /// if none opened since `openings` was loaded.
    fn raise_peak(&self, held: u64, openings: u64, stock_max: u64) {
        let raise = |word: &AtomicU64, to| {
            // Relaxed, both: a statistic. Loaded first, because unless the peak is rising that
            // saves each level a locked instruction.
            if word.load(Ordering::Relaxed) < to {
                word.fetch_max(to, Ordering::Relaxed);
            }
        };
        raise(&self.peak, held);
        let stock = u64::from(openings as u32).saturating_mul(stock_max);
        let low = held.saturating_sub(stock);
        // Relaxed: see `raise`, which would come to the same.
        if self.peak_low.load(Ordering::Relaxed) < low && self.openings() == openings {
            raise(&self.peak_low, low);
        }
    }

    fn refuse(&self) {
        // Relaxed: a statistic.
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn held(&self) -> u64 {
        // SeqCst: a refusal loads `tight`, this, and `tight` again, in one order with folds; and
        // `set_limit` stores the limit, then loads this.
        self.held.load(Ordering::SeqCst)
    }

    fn limit(&self) -> u64 {
        // SeqCst: see `reserve`.
        self.limit.load(Ordering::SeqCst)
    }

    fn room(&self) -> u64 {
        self.limit().saturating_sub(self.held())
    }

    /// Holds `n` more if that stays within the limit. Returns what is held then, and the room left.
    fn reserve(&self, n: u64) -> Option<(u64, u64)> {
        let limit = self.limit();
        let room = |held: u64| held.checked_add(n).filter(|&after| after <= limit);
        // Not an add with an undo: until it is undone, one that is going to be refused would make
        // others be refused. SeqCst, both: see `held`.
        let before = self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, room).ok()?;
        // Again: whoever lowers it stores it first and loads what is held then, so that one of the
        // two sees the other.
        let room = self.limit().checked_sub(before + n);
        if room.is_none() {
            self.give_back(n);
        }
        Some((before + n, room?))
    }

    pub(super) fn give_back(&self, n: u64) {
        // SeqCst: see `held`; Release is what the next holder of the room pairs with.
        let before = self.held.fetch_sub(n, Ordering::SeqCst);
        debug_assert!(before >= n, "gave {n} back of {before}");
    }

    fn tight(&self) -> u32 {
        // SeqCst: see `held`.
        self.tight.load(Ordering::SeqCst)
    }

    fn state(of: u32) -> Tight {
        match of % 3 {
            0 => Tight::Loose,
            1 => Tight::Tightening,
            _ => Tight::Drained,
        }
    }

    pub(super) fn is_loose(&self) -> bool {
        Level::state(self.tight()) == Tight::Loose
    }

    /// Goes on from a state, if it is still the one. Wraps around at a multiple of three.
    fn turn_over(&self, from: u32) {
        const WRAP: u32 = u32::MAX / 3 * 3;
        let next = if from + 1 == WRAP { 0 } else { from + 1 };
        // SeqCst: see `held`. A failure means that somebody else went on.
        _ = self.tight.compare_exchange(from, next, Ordering::SeqCst, Ordering::SeqCst);
    }

    fn look(&self, n: u64) -> Look {
        loop {
            let tight = self.tight();
            if Level::state(tight) != Tight::Drained {
                return Look::Stock;
            }
            let refusal = Refusal { held: self.held(), limit: self.limit() };
            if refusal.held.checked_add(n).is_some_and(|after| after <= refusal.limit) {
                return Look::Room;
            }
            // In between no leaf below was open, nor opening.
            if self.tight() == tight {
                return Look::Full(refusal);
            }
        }
    }

    /// Lets leaves below open again, where there is room and it has rested.
    fn loosen(&self, twice: u64, now_ms: u32) {
        let tight = self.tight();
        // Relaxed: the state publishes it.
        let rested = now_ms.wrapping_sub(self.drained_ms.load(Ordering::Relaxed)) >= REST_MS;
        if Level::state(tight) == Tight::Drained && rested && self.room() >= twice {
            self.turn_over(tight);
        }
    }
}

/// Charges `n` to every level, or to none.
///
/// # Errors
/// How many levels below it granted the charge, and the refusal of the one that did not.
pub(crate) fn try_charge<P: Path>(path: &P, n: u64) -> Result<(), (usize, Refusal)> {
    let leaf = path.leaf();
    match i64::try_from(n) {
        Ok(n) if leaf.stock.add(-n, leaf.cap) => Ok(()),
        _ => try_charge_cold(path, n),
    }
}

/// Releases `n`, which was charged.
pub(crate) fn release<P: Path>(path: &P, n: u64) {
    let leaf = path.leaf();
    match i64::try_from(n) {
        Ok(more) if leaf.stock.add(more, leaf.cap) => {}
        _ => release_cold(path, n),
    }
}

/// Sets a level's limit. On return no stock is above it, and no charge is granted until it fits.
pub(crate) fn set_limit<P: Path>(path: &P, level: &Level, limit: u64) {
    // SeqCst: see `Level::reserve`.
    level.limit.store(limit, Ordering::SeqCst);
    if level.held() > limit {
        _ = fold(path, level);
    }
}

#[cold]
#[inline(never)]
fn try_charge_cold<P: Path>(path: &P, n: u64) -> Result<(), (usize, Refusal)> {
    if refill(path, n) {
        return Ok(());
    }
    loop {
        let index = match reserve(path, n) {
            Ok(room) => {
                open_if_far(path, room);
                return Ok(());
            }
            Err(index) => index,
        };
        let level = path.levels().nth(index).expect("it refused");
        let refusal = match level.look(n) {
            Look::Full(refusal) => refusal,
            Look::Room => continue,
            Look::Stock if fold(path, level) => continue,
            // Leaves cannot be visited: there is no telling.
            Look::Stock => Refusal { held: level.held(), limit: level.limit() },
        };
        level.refuse();
        return Err((index, refusal));
    }
}

/// Reserves `n` at every level, or at none. Returns the room that is left at the tightest.
///
/// # Errors
/// The index of the level that refuses.
fn reserve<P: Path>(path: &P, n: u64) -> Result<u64, usize> {
    reserve_up(&mut path.levels().enumerate(), n, path.leaf().stock_max())
}

/// Recurses as often as there are levels, so that what each holds is noted where it was reserved,
/// but only once all have granted it: what a level above refuses was never held.
fn reserve_up<'a>(
    levels: &mut impl Iterator<Item = (usize, &'a Level)>,
    n: u64,
    stock_max: u64,
) -> Result<u64, usize> {
    let Some((index, level)) = levels.next() else { return Ok(u64::MAX) };
    let openings = level.openings();
    let (held, room) = level.reserve(n).ok_or(index)?;
    let above = reserve_up(levels, n, stock_max).inspect_err(|_| level.give_back(n))?;
    level.raise_peak(held, openings, stock_max);
    Ok(room.min(above))
}

fn give_back<P: Path>(path: &P, n: u64) {
    path.levels().for_each(|level| level.give_back(n));
}

/// Charges `n`, and moves stock to the running CPU, where there is room for both. Returns whether
/// it was done.
fn refill<P: Path>(path: &P, n: u64) -> bool {
    let leaf = path.leaf();
    // Before the lock: near a limit all charges end here.
    if leaf.phase() != Phase::Open {
        return false;
    }
    let room = path.levels().map(Level::room).min().unwrap_or(0).saturating_sub(n);
    // Of what the leaf holds no more is moved than of what it may hold: few units in use are not to
    // look like many.
    let batch = leaf.batch(path.levels().next().map_or(0, Level::held).min(room));
    let Some(both) = n.checked_add(batch).filter(|_| batch > 0) else { return false };
    let Some(inside) = Inside::new() else { return false };
    let Some(held) = leaf.lock.try_lock() else { return false };
    // Whether a fold has begun or not: it waits for the lock to close this leaf.
    let done = leaf.phase() == Phase::Open && reserve(path, both).is_ok();
    if done && !leaf.stock.add_again(batch.cast_signed(), leaf.cap) {
        give_back(path, batch);
    }
    drop((held, inside));
    done
}

/// Opens a leaf that is closed, if its levels have room for all its stock twice and have rested.
/// After a charge, which counts as one that was made while there was no stock.
fn open_if_far<P: Path>(path: &P, room: u64) {
    let leaf = path.leaf();
    let twice = leaf.slack.saturating_mul(2);
    // First: near a limit all charges end here.
    if room < twice || leaf.cap == 0 || leaf.phase() != Phase::Closed {
        return;
    }
    let is_loose = || path.levels().all(Level::is_loose);
    if !is_loose() {
        let now = leaf.stock.now_ms();
        path.levels().for_each(|level| level.loosen(twice, now));
    }
    if !is_loose() {
        return;
    }
    let Some(inside) = Inside::new() else { return };
    let Some(held) = leaf.lock.try_lock() else { return };
    if leaf.phase() == Phase::Closed {
        path.join(&mut || open(path));
    }
    drop((held, inside));
}

/// Called while nobody visits leaves: a fold that tightens a level now finds this one.
fn open<P: Path>(path: &P) -> bool {
    let leaf = path.leaf();
    if !path.levels().all(Level::is_loose) {
        return false;
    }
    path.levels().for_each(Level::begin_opening);
    let opens = reserve(path, leaf.stock.sum().cast_unsigned()).is_ok();
    if opens {
        // In this order: what a fork in between leaves is a gate that a fold finds closed.
        leaf.turn_over();
        leaf.stock.open();
    } else {
        path.levels().for_each(Level::end_opening);
    }
    opens
}

#[cold]
#[inline(never)]
fn release_cold<P: Path>(path: &P, n: u64) {
    let leaf = path.leaf();
    let surplus = leaf.cap.div_ceil(2);
    // Before the lock: near a limit all releases end here.
    let open = || leaf.phase() == Phase::Open;
    let inside = if open() { Inside::new() } else { None };
    let held = inside.as_ref().and_then(|_| leaf.lock.try_lock());
    let movable = held.is_some() && open();
    // Half of what the word may hold, so that the next releases find room there.
    if movable && leaf.stock.add_again(-surplus.cast_signed(), leaf.cap) {
        // With the lock held: a fold that finds neither in the word nor in what is held what was
        // taken would not be exact.
        give_back(path, surplus);
    }
    drop((held, inside));
    give_back(path, n);
}

/// Gives the stock of all leaves below a level back, behind one barrier. Returns whether it was
/// done, by whomever: see [`Path::below`].
#[cold]
fn fold<P: Path>(path: &P, level: &Level) -> bool {
    let tight = level.tight();
    let tightening = match Level::state(tight) {
        Tight::Loose => {
            level.turn_over(tight);
            level.tight()
        }
        _ => tight,
    };
    if Level::state(tightening) != Tight::Tightening {
        // Somebody else has drained it; the caller looks again.
        return true;
    }
    let mut closing = false;
    if !path.below(level, &mut |path| closing |= path.leaf().close(path.barriers())) {
        return false;
    }
    // Not counted without being issued: a leaf that another fold closed meanwhile would pass for
    // one that a barrier came after.
    if closing {
        let barrier = path.barriers().begin();
        path.leaf().stock.barrier();
        if !path.below(level, &mut |path| drain(path, barrier)) {
            return false;
        }
    }
    // Relaxed: the state publishes it.
    level.drained_ms.store(path.leaf().stock.now_ms(), Ordering::Relaxed);
    level.turn_over(tightening);
    true
}

/// The second half of a leaf's closing, if a barrier came in between.
fn drain<P: Path>(path: &P, barrier: u64) {
    let leaf = path.leaf();
    let _held = leaf.lock.lock();
    if leaf.phase() == Phase::Closing && Barriers::is_after(barrier, leaf.closed()) {
        let stocked = leaf.stocked();
        // Before what is held is lowered: a fork in between leaks room, and grants none twice.
        leaf.turn_over();
        give_back(path, stocked);
        path.levels().for_each(Level::end_opening);
    }
}
