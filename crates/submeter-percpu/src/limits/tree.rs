//! Charges that go through several limits: a leaf with stock, and the levels above it, each of
//! which is a leaf's own level as well.
//!
//! # The protocol
//! The limit of each level on a leaf's path is compared with the amount that the level *holds*:
//! charges below it that were not released, and stock below it. Stock works as the module above
//! says; a refill raises every level, and so does an opening.
//!
//! - A level is **loose** while there may be stock below it. A charge that it refuses makes it
//!   **tight**: each leaf below is closed, one barrier is issued for all of them, and their stock
//!   is given back. Then it is **drained**: it holds exactly the amount charged, so that a refusal
//!   is exact.
//! - A leaf opens only while all levels of its path are loose, which it looks at with the list of
//!   open leaves locked. A fold makes the level tight first and then visits that list: of the two,
//!   the later sees the earlier. An open leaf moves stock with its own lock held, which a fold
//!   takes to close it.
//! - A level that is tight closes the leaves below it, not those above: every node has stock, as if
//!   it were a leaf. A charge of a leaf that is closed reserves at the levels below the first node
//!   that is open, and takes from its stock, as a charge of that node would; a release gives back
//!   and puts back likewise. So a charge at the limit of its own group locks one word, however deep
//!   that is. The stock is taken first: a level below that refuses in the end has held nothing for
//!   it, and what was taken is put back, or given back if a fold has closed that node meanwhile.
//! - A charge may exceed a limit that is soft, or all if it is forced, but only where the level is
//!   drained: no stock lies below a level that is exceeded, so that nothing is charged there that
//!   is not compared with the limit.
//! - A charge that waits says so at the level that refused it, and tries again. Until it is granted
//!   no leaf opens below that level, so that what is released there takes the cold path, which
//!   looks for those that wait after it has given back.
//! - A drained level rests for `REST_MS`; then it is loose once it has room for two leaves' stock.

use super::Inside;
use super::fold::{fold, fold_patiently, loosen, settle};
use super::leaf::Phase;
use super::level::{Effects, Level, LimitMode, Look, Refusal, Reserved, after_openings};
use super::path::Path;
use super::stock::Stock;

/// Whether a charge waits for a level of this path. Looks at what the tree has in common first: a
/// walk of the levels, after the locked instructions of a charge, would be a tenth of that.
#[inline]
pub(super) fn is_awaited<P: Path>(path: &P) -> bool {
    path.common().is_awaited() && path.levels().any(Level::is_awaited)
}

/// Charges `n` if the running CPU has it in stock, which lies within all limits. Without a call, so
/// that a caller needs to save nothing around it.
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
/// How many levels below it granted the charge, and the refusal of the one that did not.
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

/// Says what a level's limit does with a charge that exceeds it. On return no stock is above one
/// that is enforced.
pub(crate) fn set_mode<P: Path>(path: &P, level: &Level, mode: LimitMode) {
    level.set_mode(mode);
    enforce(path, level);
}

/// Has a limit or a mode that was stored apply to what lies in stock, and to charges that wait.
fn enforce<P: Path>(path: &P, level: &Level) {
    // Where the limit is soft as well: a charge that exceeds it may not have come to this yet.
    if level.is_exceeded() {
        _ = fold_patiently(path, level);
    }
    // One that waits may fit now, or never; it may wait for a level below this one.
    path.reconsider();
}

/// As [`try_charge`], where [`charge_stock`] returned false; whatever the limits, if `forced`.
/// Inlined into functions that are not.
///
/// # Errors
/// As there.
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
    // First: a fold may follow, and wait for a barrier.
    if (effects.turned || effects.gave_back) && is_awaited(path) {
        if effects.gave_back { path.serve() } else { path.note_charge() }
    }
    if let Ok(far) = decided {
        open_if_far(path, far);
    }
    decided.map(drop).map_err(|index| (index, effects.refusal()))
}

/// Has the charges tried again that wait for a level of this path: after something was given back.
pub(super) fn serve_if_awaited<P: Path>(path: &P) {
    if is_awaited(path) {
        path.serve();
    }
}

/// Charges `n` where there is room, and opens no leaf. Returns from which level on all have room
/// for stock, or [`NOWHERE`].
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
    // Before anything else of a refill: near a limit all charges end here.
    if path.leaf().phase() == Phase::Open && refill(path, n, effects) {
        // No charge waits above a leaf that is open.
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

/// As [`decide`], where the level of this index has no room.
///
/// # Errors
/// As there.
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
            // Leaves cannot be visited: there is no telling.
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
                // Leaves opened meanwhile: the next attempt exceeds nothing before they are closed.
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

/// Which limits a charge has found full and may exceed.
#[derive(Clone, Copy)]
struct Beyond {
    /// This many from the leaf's own, of those that it may.
    levels: usize,
    forced: bool,
}

impl Beyond {
    const NONE: Beyond = Beyond { levels: 0, forced: false };

    fn may_exceed(self, index: usize, level: &Level) -> bool {
        index < self.levels && self.is_open(level)
    }

    /// Whether it may once that is known to be full.
    fn is_open(self, level: &Level) -> bool {
        self.forced || level.mode() == LimitMode::Soft
    }
}

/// Holds `n` more at every level, where it cannot be known which have stock below.
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

/// Charges `n` to every level, or to none: to the lowest ones that have no stock by what they hold,
/// and to those above from the stock of the first that has some. Looks at every level before any is
/// touched: for what one below that which refuses would hold for a moment, others would be refused.
/// Returns as [`decide`].
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
        // More than a word holds is in no stock: to fetch it would raise the peaks above before it
        // is known whether the levels below grant it.
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

/// Charges `n` to a level above the leaf's own, and to those above that, if there is stock for it.
#[inline(never)]
fn take<P: Path>(path: &P, n: u64, effects: &mut Effects) -> bool {
    let leaf = path.leaf();
    i64::try_from(n).is_ok_and(|n| leaf.stock.add(-n, leaf.cap)) || refill(path, n, effects)
}

/// Undoes that, for a charge that is refused below.
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
    /// Where so much is left there is room for a leaf's stock.
    twice: u64,
}

impl Request {
    fn new<P: Path>(path: &P, n: u64, beyond: Beyond) -> Request {
        let leaf = path.leaf();
        Request { n, beyond, stock_max: leaf.stock_max, twice: leaf.twice() }
    }
}

/// Stores nothing of a level of which nothing is to be noted: near a limit, stores that had to
/// reach the cache before the next locked instruction were a quarter of a charge.
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

/// Reserves at the levels above one that has a peak or an overdraft to note, and notes it only once
/// all have granted: a charge that a level above refuses was never held.
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

/// Gives back what levels below this index have reserved.
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

/// Must be followed by a look for waiting charges.
fn give_back<P: Path>(path: &P, n: u64) {
    path.levels().for_each(|level| _ = level.give_back(n));
}

/// Charges `n`, and moves stock to the running CPU, where there is room for both: to a leaf that
/// was open. Returns whether it was done. It never is for more than is moved at once: the stock
/// would not cover the next such charge, and the release would find no room in the word.
#[inline(never)]
fn refill<P: Path>(path: &P, n: u64, effects: &mut Effects) -> bool {
    let leaf = path.leaf();
    let room = path.levels().map(Level::room).min().unwrap_or(0).saturating_sub(n);
    // Moves at most as much as the leaf's level holds, whatever the room: a few units in use must
    // not look like many.
    let batch = leaf.batch(path.levels().next().map_or(0, Level::held).min(room));
    let moves = batch > 0 && n <= leaf.surplus();
    let Some(both) = n.checked_add(batch).filter(|_| moves) else { return false };
    let Some(inside) = Inside::new() else { return false };
    let Some(held) = leaf.lock.try_lock() else { return false };
    // Whether a fold has begun or not: it waits for the lock to close this leaf.
    let reserved = leaf.phase() == Phase::Open && reserve_stock(path, both, effects).is_ok();
    if reserved && !leaf.stock.add_again(batch.cast_signed(), leaf.cap) {
        give_back(path, batch);
        effects.gave_back = true;
    }
    drop((held, inside));
    reserved
}

/// Opens the lowest leaf from this level on that may be: one whose levels have room for all its
/// stock twice and have rested. After a charge, which counts as one that was made while there was
/// no stock.
#[inline(always)]
fn open_if_far<P: Path>(path: &P, far: usize) {
    // First: at the root's limit all charges end here.
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
    // From the root's end: a look at each node by itself would read the time for each.
    let is_far = |at: &P| at.level().is_loose() && at.level().room() >= twice;
    let near = path.up().enumerate().filter(|(_, at)| !is_far(at)).last();
    let far = near.map_or(0, |(index, _)| index + 1);
    let Some(at) = path.up().skip(far).find(|at| at.leaf().cap > 0) else { return };
    let leaf = at.leaf();
    // Before the lock: another may be open where this one rests.
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

/// Called while no thread visits leaves: a fold that tightens a level now finds this one.
fn open<P: Path>(path: &P) -> bool {
    let leaf = path.leaf();
    // In this order: a charge that waits has found its level tight after it said that it waits.
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

/// Releases `n`, where [`release_stock`] returned false.
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

/// Gives `n` back to the lowest levels that have no stock, and puts it into the stock of the first
/// that has some, which those above hold: of those from this index on.
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

/// Puts `n` into stock. Returns whether there was room for it; otherwise makes some.
#[inline(never)]
fn put<P: Path>(path: &P, n: u64) -> bool {
    let leaf = path.leaf();
    if i64::try_from(n).is_ok_and(|n| leaf.stock.add(n, leaf.cap)) {
        return true;
    }
    give_surplus(path, n);
    false
}

/// Gives back half of what the running CPU's word may hold, if that makes room for releases of `n`.
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
