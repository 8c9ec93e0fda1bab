//! Charges that pass through several limits: a leaf with stock, and the levels above it, each of
//! which is also a leaf's own level.
//!
//! # The protocol
//! The limit of each level on a leaf's path is compared with the amount that the level *holds*:
//! charges below it that were not released, and stock below it. Stock works as described in the
//! parent module; a refill raises every level, and so does an opening.
//!
//! - A level is **loose** while there may be stock below it. A charge that it refuses makes it
//!   **tight**: each leaf below is closed, one barrier is issued for all of them, and their stock
//!   is given back. Then the level is **drained**: it holds exactly the amount charged, so a
//!   refusal is exact.
//! - A leaf opens only while all levels of its path are loose, which it checks with the list of
//!   open leaves locked. A fold first makes the level tight and then visits that list: whichever
//!   comes later sees the other. An open leaf moves stock with its own lock held, which a fold
//!   takes to close it.
//! - A tight level closes the leaves below it, not those above: every node has stock, as if it were
//!   a leaf. A charge of a closed leaf reserves at the levels below the first open node, and takes
//!   from that node's stock, as a charge of that node would; a release gives back and puts back
//!   likewise. So a charge at the limit of its own group locks one word, however deep the group is.
//!   The stock is taken first: a level below that refuses in the end has held nothing for it, and
//!   the amount taken is put back, or given back if a fold has closed that node in the meantime.
//! - A charge may exceed a soft limit, or every limit if it is forced, but only where the level is
//!   drained: no stock lies below a level that is exceeded, so everything charged there is compared
//!   with the limit.
//! - A charge that will wait announces it at the level that refused it, and tries again. Until it
//!   is granted no leaf opens below that level, so releases there take the cold path, which checks
//!   for waiting charges after it has given back.
//! - A drained level rests for `REST_MS`; then it becomes loose once it has room for two leaves'
//!   stock.

use super::Inside;
use super::fold::{fold, fold_patiently, loosen, settle};
use super::leaf::Phase;
use super::level::{Effects, Level, LimitMode, Look, Refusal, Reserved, after_openings};
use super::path::Path;
use super::stock::Stock;

/// Returns whether a charge waits for a level of this path. Checks the tree's shared count first:
/// walking the levels, after the locked instructions of a charge, would cost a tenth of the charge.
#[inline]
pub(super) fn is_awaited<P: Path>(path: &P) -> bool {
    path.common().is_awaited() && path.levels().any(Level::is_awaited)
}

/// Charges `n` if the running CPU has it in stock, which lies within all limits. It makes no
/// function call, so a caller need not save anything around it.
#[inline(always)]
pub(crate) fn charge_stock<P: Path>(path: &P, n: u64) -> bool {
    let leaf = path.leaf();
    i64::try_from(n).is_ok_and(|n| leaf.stock.add_inline(-n, leaf.cap))
}

/// Releases `n` if there is room for it in the running CPU's stock.
#[inline(always)]
pub(crate) fn release_stock<P: Path>(path: &P, n: u64) -> bool {
    let leaf = path.leaf();
    i64::try_from(n).is_ok_and(|n| leaf.stock.add_inline(n, leaf.cap))
}

/// Charges `n` to every level, or to none. Counts no refusal.
///
/// # Errors
/// The number of levels that granted the charge below the one that refused it, and the refusal.
#[inline]
pub(crate) fn try_charge<P: Path>(path: &P, n: u64) -> Result<(), (usize, Refusal)> {
    if charge_stock(path, n) { Ok(()) } else { charge_levels(path, n, false) }
}

/// Charges `n` to every level, whatever their limits.
///
/// # Panics
/// When a level would hold more than `u64::MAX`.
pub(crate) fn charge_forced<P: Path>(path: &P, n: u64) {
    if !charge_stock(path, n) {
        charge_levels(path, n, true).expect("no more than u64::MAX is charged at once");
    }
}

/// Releases `n`, which was charged.
#[inline]
pub(crate) fn release<P: Path>(path: &P, n: u64) {
    if !release_stock(path, n) {
        release_levels(path, n);
    }
}

/// Sets a level's limit. On return no stock is above it, and no charge is granted until it fits.
pub(crate) fn set_limit<P: Path>(path: &P, level: &Level, limit: u64) {
    level.store_limit(limit);
    enforce(path, level);
}

/// Sets how a level's limit treats a charge that exceeds it. On return no stock is above an
/// enforced limit.
pub(crate) fn set_mode<P: Path>(path: &P, level: &Level, mode: LimitMode) {
    level.set_mode(mode);
    enforce(path, level);
}

/// Applies a limit or a mode that was stored to stock, and to waiting charges.
fn enforce<P: Path>(path: &P, level: &Level) {
    // Even where the limit is soft: a charge that exceeds it may not have done this yet.
    if level.is_exceeded() {
        _ = fold_patiently(path, level);
    }
    // A waiting charge may fit now, or never; it may wait for a level below this one.
    path.reconsider();
}

/// Does the same as [`try_charge`], after [`charge_stock`] returned false; whatever the limits, if
/// `forced`. Inlined into functions that are not inlined themselves.
///
/// # Errors
/// The same as for [`try_charge`].
#[inline(always)]
pub(crate) fn charge_levels<P: Path>(
    path: &P,
    n: u64,
    forced: bool,
) -> Result<(), (usize, Refusal)> {
    let leaf = path.leaf();
    if i64::try_from(n).is_ok_and(|n| leaf.stock.add_slowly(-n, leaf.cap)) {
        return Ok(());
    }
    after_openings();
    let mut effects = Effects::default();
    let decided = decide(path, n, forced, &mut effects);
    // This comes first: a fold may follow, and wait for a barrier.
    if (effects.turned || effects.gave_back) && is_awaited(path) {
        if effects.gave_back { path.serve() } else { path.note_charge() }
    }
    if let Ok(far) = decided {
        open_if_far(path, far);
    }
    decided.map(drop).map_err(|index| (index, effects.refusal()))
}

/// Tries the charges that wait for a level of this path again, after something was given back.
pub(super) fn serve_if_awaited<P: Path>(path: &P) {
    if is_awaited(path) {
        path.serve();
    }
}

/// Charges `n` where there is room, and opens no leaf. Returns the index of the level from which on
/// all have room for stock, or [`NOWHERE`].
///
/// # Errors
/// The index of the level that refuses, with its refusal among the effects.
#[inline(always)]
pub(super) fn decide<P: Path>(
    path: &P,
    n: u64,
    forced: bool,
    effects: &mut Effects,
) -> Result<usize, usize> {
    // Checked before anything else of a refill: near a limit all charges end here.
    if path.leaf().phase() == Phase::Open && refill(path, n, effects) {
        // No charge waits above an open leaf.
        return Ok(NOWHERE);
    }
    let beyond = Beyond { levels: 0, forced };
    match reserve(path, n, beyond, effects) {
        Ok(far) => Ok(far),
        Err(index) => decide_at(path, n, beyond, index, effects),
    }
}

/// The index above the root: no leaf is to be opened.
const NOWHERE: usize = usize::MAX;

/// Does the same as [`decide`], after the level of this index had no room.
///
/// # Errors
/// The same as for [`decide`].
#[inline(always)]
fn decide_at<P: Path>(
    path: &P,
    n: u64,
    mut beyond: Beyond,
    mut index: usize,
    effects: &mut Effects,
) -> Result<usize, usize> {
    let forced = beyond.forced;
    loop {
        let level = path.levels().nth(index).expect("it refused");
        match level.look(n) {
            Look::Full(refusal) => {
                let overflows = refusal.held.checked_add(n).is_none();
                if !beyond.is_open(level) || overflows {
                    effects.set_refusal(refusal);
                    return Err(index);
                }
                beyond.levels = beyond.levels.max(index + 1);
            }
            Look::Room => {}
            Look::Stock if fold(path, level) => {}
            // Leaves cannot be visited, so it is unknown whether it fits.
            Look::Stock if forced => {
                effects.turned = true;
                return force(path, n, effects).map(|()| NOWHERE);
            }
            Look::Stock => {
                effects.is_blind = true;
                effects.set_refusal(level.refusal());
                return Err(index);
            }
        }
        loop {
            match reserve(path, n, beyond, effects) {
                Ok(far) if beyond.levels == 0 => return Ok(far),
                Ok(_) if settle(path) || forced => return Ok(NOWHERE),
                // Leaves opened in the meantime: the next attempt exceeds no limit before they are
                // closed.
                Ok(_) => {
                    give_back(path, n);
                    effects.gave_back = true;
                }
                Err(full) => {
                    index = full;
                    break;
                }
            }
        }
    }
}

/// The limits that a charge has found full and may exceed.
#[derive(Clone, Copy)]
struct Beyond {
    /// Number of levels, from the leaf's own on, among which it may exceed limits.
    levels: usize,
    forced: bool,
}

impl Beyond {
    const NONE: Beyond = Beyond { levels: 0, forced: false };

    fn may_exceed(self, index: usize, level: &Level) -> bool {
        index < self.levels && self.is_open(level)
    }

    /// Returns whether it may exceed this limit once the level is known to be full.
    fn is_open(self, level: &Level) -> bool {
        self.forced || level.mode() == LimitMode::Soft
    }
}

/// Holds `n` more at every level, where it is unknown which levels have stock below.
fn force<P: Path>(path: &P, n: u64, effects: &mut Effects) -> Result<(), usize> {
    for (index, level) in path.levels().enumerate() {
        let Some(reserved) = level.force(n) else {
            path.levels().take(index).for_each(|level| _ = level.give_back(n));
            effects.gave_back = true;
            effects.set_refusal(level.refusal());
            return Err(index);
        };
        level.raise_peak(reserved.held, level.openings(), path.leaf().stock_max);
        if reserved.exceeds() {
            level.overdraw();
        }
    }
    Ok(())
}

/// Charges `n` to every level, or to none: to the lowest levels, which have no stock, by raising
/// the amount they hold, and to those above from the stock of the first that has some. Checks every
/// level before changing any: an amount held for a moment below a level that refuses would make
/// others be refused. Returns the same as [`decide`].
///
/// # Errors
/// The index of the level that refuses.
#[inline(always)]
fn reserve<P: Path>(
    path: &P,
    n: u64,
    beyond: Beyond,
    effects: &mut Effects,
) -> Result<usize, usize> {
    let mut stocked = None;
    let mut below = 0;
    for (leaf, level) in path.nodes() {
        // No stock has more than a word holds: fetching it would raise the peaks above before it is
        // known whether the levels below grant it.
        if below > 0 && n <= leaf.cap && leaf.phase() == Phase::Open {
            stocked = path.up().nth(below).filter(|at| take(*at, n, effects));
            if stocked.is_some() {
                break;
            }
        }
        if !(level.has_room(n) || beyond.may_exceed(below, level)) {
            return Err(below);
        }
        below += 1;
    }
    let request = Request::new(path, n, beyond);
    let reserved = reserve_up(path.levels().enumerate().take(below), request, effects);
    if let (Err(_), Some(at)) = (reserved, stocked) {
        put_back(at, n, effects);
    }
    reserved
}

/// Charges `n` to a level above the leaf's own, and to those above it, if there is stock for it.
#[inline(never)]
fn take<P: Path>(path: &P, n: u64, effects: &mut Effects) -> bool {
    let leaf = path.leaf();
    i64::try_from(n).is_ok_and(|n| leaf.stock.add(-n, leaf.cap)) || refill(path, n, effects)
}

/// Undoes a [`take`], for a charge that is refused below.
#[cold]
#[inline(never)]
fn put_back<P: Path>(path: &P, n: u64, effects: &mut Effects) {
    give_back_up(path, n, 0);
    effects.gave_back = true;
}

/// Reserves `n` at every level, or at none: for stock.
///
/// # Errors
/// The index of the level that refuses.
#[inline(never)]
fn reserve_stock<P: Path>(path: &P, n: u64, effects: &mut Effects) -> Result<usize, usize> {
    if let Some(full) = path.levels().position(|level| !level.has_room(n)) {
        return Err(full);
    }
    reserve_up(
        path.levels().enumerate().take(NOWHERE),
        Request::new(path, n, Beyond::NONE),
        effects,
    )
}

/// The amount to reserve.
#[derive(Clone, Copy)]
struct Request {
    n: u64,
    beyond: Beyond,
    stock_max: u64,
    /// The room that must be left for a leaf's stock.
    twice: u64,
}

impl Request {
    fn new<P: Path>(path: &P, n: u64, beyond: Beyond) -> Request {
        let leaf = path.leaf();
        Request { n, beyond, stock_max: leaf.stock_max, twice: leaf.twice() }
    }
}

/// Reserves at each of `levels`. Stores nothing for a level that has nothing to record: near a
/// limit, stores that had to reach the cache before the next locked instruction cost a quarter of a
/// charge.
#[inline(always)]
fn reserve_up<'a>(
    mut levels: impl Iterator<Item = (usize, &'a Level)> + Clone,
    request: Request,
    effects: &mut Effects,
) -> Result<usize, usize> {
    let Request { n, beyond, stock_max, twice } = request;
    let all = levels.clone();
    let (mut far, mut first) = (0, false);
    while let Some((index, level)) = levels.next() {
        let openings = level.openings();
        let may_exceed = || beyond.may_exceed(index, level);
        let Some(reserved) = level.reserve(n, may_exceed, effects) else {
            undo(all, index, n, effects);
            return Err(index);
        };
        first |= reserved.is_first(n);
        if reserved.room() < twice {
            far = index + 1;
        }
        if reserved.exceeds() || level.rises(reserved.held, openings, stock_max) {
            let above = reserve_noted(levels, request, (level, reserved, openings), effects);
            effects.turned |= first;
            return match above {
                Ok(above) => Ok(above.max(far)),
                Err(full) => {
                    undo(all, index, n, effects);
                    Err(full)
                }
            };
        }
    }
    effects.turned |= first;
    Ok(far)
}

/// Reserves at the levels above one that has a peak or an overdraft to record, and records it only
/// once all have granted: a charge that a level above refuses was never held.
#[cold]
#[inline(never)]
fn reserve_noted<'a>(
    levels: impl Iterator<Item = (usize, &'a Level)> + Clone,
    request: Request,
    (level, reserved, openings): (&Level, Reserved, u64),
    effects: &mut Effects,
) -> Result<usize, usize> {
    let Request { n, stock_max, .. } = request;
    let far = reserve_up(levels, request, effects).inspect_err(|_| level.undo(n, effects))?;
    level.raise_peak(reserved.held, openings, stock_max);
    if reserved.exceeds() {
        level.overdraw();
    }
    Ok(far)
}

/// Gives back the reservations of levels below this index.
#[cold]
#[inline(never)]
fn undo<'a>(
    levels: impl Iterator<Item = (usize, &'a Level)>,
    index: usize,
    n: u64,
    effects: &mut Effects,
) {
    let below = levels.take_while(|(at, _)| *at < index);
    below.for_each(|(_, level)| level.undo(n, effects));
}

/// Gives back `n` at every level. The caller must then check for waiting charges.
fn give_back<P: Path>(path: &P, n: u64) {
    path.levels().for_each(|level| _ = level.give_back(n));
}

/// Charges `n`, and moves stock to the running CPU's word of an open leaf, where there is room for
/// both. Returns whether it was done. It never is for a charge larger than the amount moved at
/// once: the stock would not cover the next such charge, and the release would find no room in the
/// word.
#[inline(never)]
fn refill<P: Path>(path: &P, n: u64, effects: &mut Effects) -> bool {
    let leaf = path.leaf();
    let room = path.levels().map(Level::room).min().unwrap_or(0).saturating_sub(n);
    // Moves at most the amount that the leaf's level holds, whatever the room: a few units in use
    // must not look like many.
    let batch = leaf.batch(path.levels().next().map_or(0, Level::held).min(room));
    let moves = batch > 0 && n <= leaf.surplus();
    let Some(both) = n.checked_add(batch).filter(|_| moves) else { return false };
    let Some(inside) = Inside::new() else { return false };
    let Some(held) = leaf.lock.try_lock() else { return false };
    // Regardless of whether a fold has begun: it waits for the lock to close this leaf.
    let reserved = leaf.phase() == Phase::Open && reserve_stock(path, both, effects).is_ok();
    if reserved && !leaf.stock.add_again(batch.cast_signed(), leaf.cap) {
        give_back(path, batch);
        effects.gave_back = true;
    }
    drop((held, inside));
    reserved
}

/// Opens the lowest leaf from this level on that may be open: one whose levels have room for twice
/// all its stock and have rested. Called after a charge, which counts as made while there was no
/// stock.
#[inline(always)]
fn open_if_far<P: Path>(path: &P, far: usize) {
    // Checked first: at the root's limit all charges end here.
    let Some(at) = path.up().nth(far) else { return };
    if at.leaf().phase() != Phase::Open {
        open_lowest(at);
    }
}

#[inline(never)]
fn open_lowest<P: Path>(path: &P) {
    let Some(twice) = path.up().map(|at| at.leaf().twice()).find(|&twice| twice > 0) else {
        return;
    };
    if !path.levels().all(Level::is_loose) {
        loosen(path, twice);
    }
    // From the root's end: checking each node separately would read the time for each.
    let is_far = |at: &P| at.level().is_loose() && at.level().room() >= twice;
    let near = path.up().enumerate().filter(|(_, at)| !is_far(at)).last();
    let far = near.map_or(0, |(index, _)| index + 1);
    let Some(at) = path.up().skip(far).find(|at| at.leaf().cap > 0) else { return };
    let leaf = at.leaf();
    // Before the lock is taken: another leaf may be open while this one rests.
    if leaf.phase() != Phase::Closed {
        return;
    }
    let Some(inside) = Inside::new() else { return };
    let Some(held) = leaf.lock.try_lock() else { return };
    if leaf.phase() == Phase::Closed {
        at.join(&mut || open(at));
    }
    drop((held, inside));
}

/// Opens a leaf. Called while no thread visits leaves: a fold that tightens a level now finds this
/// one.
fn open<P: Path>(path: &P) -> bool {
    let leaf = path.leaf();
    // In this order: a waiting charge has found its level tight after announcing its wait.
    if !path.levels().all(Level::is_loose) || is_awaited(path) {
        return false;
    }
    path.levels().for_each(Level::begin_opening);
    let stocked = leaf.stock.sum().cast_unsigned();
    let opens = reserve_stock(path, stocked, &mut Effects::default()).is_ok();
    if opens {
        // In this order: a fork in between leaves a gate that a fold finds closed.
        leaf.turn_over();
        leaf.stock.open();
    } else {
        path.levels().for_each(|level| level.end_openings(1));
    }
    opens
}

/// Releases `n` after [`release_stock`] returned false.
#[cold]
#[inline(never)]
pub(crate) fn release_levels<P: Path>(path: &P, n: u64) {
    let leaf = path.leaf();
    if i64::try_from(n).is_ok_and(|n| leaf.stock.add_slowly(n, leaf.cap)) {
        return;
    }
    if leaf.phase() == Phase::Open {
        give_surplus(path, n);
    }
    give_back_up(path, n, 1);
    serve_if_awaited(path);
}

/// Gives back `n` to the lowest levels, which have no stock, and puts it into the stock of the
/// first level that has some, which the levels above also hold. Only levels from this index on
/// count as having stock.
#[inline(always)]
fn give_back_up<P: Path>(path: &P, n: u64, from: usize) {
    for (index, (leaf, level)) in path.nodes().enumerate() {
        if index >= from
            && leaf.phase() == Phase::Open
            && path.up().nth(index).is_some_and(|at| put(at, n))
        {
            break;
        }
        level.give_back(n);
    }
}

/// Puts `n` into stock. Returns whether there was room for it; makes some if not.
#[inline(never)]
fn put<P: Path>(path: &P, n: u64) -> bool {
    let leaf = path.leaf();
    if i64::try_from(n).is_ok_and(|n| leaf.stock.add(n, leaf.cap)) {
        return true;
    }
    give_surplus(path, n);
    false
}

/// Gives back half of the running CPU's cap, if that makes room for releases of `n`.
#[inline(never)]
fn give_surplus<P: Path>(path: &P, n: u64) {
    let leaf = path.leaf();
    let surplus = leaf.surplus();
    if n > surplus {
        return;
    }
    let Some(inside) = Inside::new() else { return };
    let Some(held) = leaf.lock.try_lock() else { return };
    // With the lock held: otherwise a fold could find the taken amount neither in the word nor in
    // the amount held, and would not be exact.
    if leaf.phase() == Phase::Open && leaf.stock.add_again(-surplus.cast_signed(), leaf.cap) {
        give_back(path, surplus);
    }
    drop((held, inside));
}
