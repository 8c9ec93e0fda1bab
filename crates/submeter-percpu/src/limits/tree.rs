//! Charges that go through several limits: a leaf with stock, and the levels above it.
//!
//! # The protocol
//! What every level of a leaf's path *holds* is compared with that level's limit: what was charged
//! below it and not released, and what lies in stock below it. Stock works as the module above
//! says; a refill raises every level, and so does an opening.
//!
//! - A level is **loose** while there may be stock below it. A charge that it refuses makes it
//!   **tight**: each leaf below is closed, one barrier is issued for all of them, and their stock
//!   is given back. Then it is **drained**: what it holds is what is charged, and a refusal exact.
//! - A leaf opens only while all levels of its path are loose, which it looks at with the list of
//!   open leaves locked. A fold makes the level tight first and visits that list then: whoever
//!   comes second sees the other. An open leaf moves stock with its own lock held, which a fold
//!   takes to close it.
//! - A charge may exceed a limit that is soft, or all if it is forced, but only where the level is
//!   drained: no stock lies below a level that is exceeded, so that nothing is charged there that
//!   is not compared with the limit.
//! - A charge that waits says so at the level that refused it, and tries again. Until it is granted
//!   no leaf opens below that level, so that what is released there takes the cold path, which
//!   looks for those that wait after it has given back.
//! - A drained level is loose again where it has room for a leaf's stock twice, and not within
//!   `REST_MS`.

use super::Inside;
use super::common::Common;
use super::leaf::{Leaf, Phase};
use super::level::{Effects, Level, LimitMode, Look, Refusal, Reserved, Tight};
use super::stock::Stock;

/// A leaf and its levels.
pub(crate) trait Path: Sized {
    type Stock: Stock;
    fn leaf(&self) -> &Leaf<Self::Stock>;
    /// From the leaf's own to the root's.
    fn levels(&self) -> impl Iterator<Item = &Level> + Clone;
    /// Shows the leaves below a level that may be open, in whatever order, while none opens and
    /// nobody else sees them. Returns false where it did not: below a signal handler that
    /// interrupted such a visit, and in a forked child where a thread stayed behind in one.
    fn below(&self, level: &Level, visit: &mut dyn FnMut(&mut dyn Iterator<Item = &Self>)) -> bool;
    /// Has the leaf among those that may be open if `open` returns true; does not call it where
    /// somebody visits them.
    fn join(&self, open: &mut dyn FnMut() -> bool);
    fn common(&self) -> &Common;
    /// Has the charges that wait tried again.
    fn serve(&self);
    /// As [`serve`](Self::serve), after a limit or its mode has changed.
    fn reconsider(&self);
    /// Takes note that a charge of this leaf waits from now on, or no longer. With the queue.
    fn note_wait(&self, _begins: bool) {}
    /// Takes note of which levels hold something. With the queue.
    fn note_holders(&self) {}
    /// As [`note_holders`](Self::note_holders), without the queue: while others wait.
    fn note_charge(&self) {}
}

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
        _ = fold(path, level);
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
    let mut effects = Effects::default();
    let decided = decide(path, n, forced, &mut effects);
    if let Ok(room) = decided {
        open_if_far(path, room);
    }
    if (effects.turned || effects.gave_back) && is_awaited(path) {
        if effects.gave_back { path.serve() } else { path.note_charge() }
    }
    decided.map(drop).map_err(|index| (index, effects.refusal()))
}

/// Has the charges tried again that wait for a level of this path: after something was given back.
pub(super) fn serve_if_awaited<P: Path>(path: &P) {
    if is_awaited(path) {
        path.serve();
    }
}

/// Charges `n` where there is room, and opens no leaf. Returns what is left at the tightest level,
/// or 0 where that does not matter.
///
/// # Errors
/// The index of the level that refuses, with its refusal among the effects.
#[inline(always)]
pub(super) fn decide<P: Path>(
    path: &P,
    n: u64,
    forced: bool,
    effects: &mut Effects,
) -> Result<u64, usize> {
    // Before anything else of a refill: near a limit all charges end here.
    if path.leaf().phase() == Phase::Open && refill(path, n, effects) {
        // Nobody waits above a leaf that is open.
        return Ok(0);
    }
    let beyond = Beyond { levels: 0, forced };
    match reserve(path, n, beyond, effects) {
        Ok(room) => Ok(room),
        Err(index) => decide_at(path, n, beyond, index, effects),
    }
}

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
) -> Result<u64, usize> {
    let forced = beyond.forced;
    loop {
        let level = path.levels().nth(index).expect("it refused");
        match level.look(n) {
            Look::Full(refusal) => {
                let overflows = refusal.held.checked_add(n).is_none();
                if !beyond.may_exceed(level) || overflows {
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
                return force(path, n, effects).map(|()| 0);
            }
            Look::Stock => {
                effects.is_blind = true;
                effects.set_refusal(level.refusal());
                return Err(index);
            }
        }
        loop {
            match reserve(path, n, beyond, effects) {
                Ok(room) if beyond.levels == 0 => return Ok(room),
                Ok(_) if settle(path) || forced => return Ok(0),
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

    fn may_exceed(self, level: &Level) -> bool {
        self.forced || level.mode() == LimitMode::Soft
    }
}

/// Has no stock lie below a level that is exceeded: charges from it are not compared with a limit.
/// Returns false where leaves cannot be visited.
fn settle<P: Path>(path: &P) -> bool {
    path.levels().all(|level| {
        while level.is_exceeded() && !level.is_drained() {
            if !fold(path, level) {
                return false;
            }
        }
        true
    })
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
        level.raise_peak(reserved.held, level.openings(), path.leaf().stock_max());
        if reserved.exceeds() {
            level.overdraw();
        }
    }
    Ok(())
}

/// Reserves `n` at every level, or at none. Looks at every level before any is touched: for what
/// one below that which refuses would hold for a moment, others would be refused. Returns what is
/// left at the tightest.
///
/// # Errors
/// The index of the level that refuses.
#[inline(always)]
fn reserve<P: Path>(path: &P, n: u64, beyond: Beyond, effects: &mut Effects) -> Result<u64, usize> {
    let grants = |(index, level): (usize, &Level)| {
        level.has_room(n) || index < beyond.levels && beyond.may_exceed(level)
    };
    if let Some(full) = path.levels().enumerate().position(|at| !grants(at)) {
        return Err(full);
    }
    let request = Request { n, beyond, stock_max: path.leaf().stock_max() };
    reserve_up(path.levels().enumerate(), request, effects)
}

/// What is to be reserved.
#[derive(Clone, Copy)]
struct Request {
    n: u64,
    beyond: Beyond,
    stock_max: u64,
}

/// Stores nothing of a level of which nothing is to be noted: near a limit, stores that had to
/// reach the cache before the next locked instruction were a quarter of a charge.
#[inline(always)]
fn reserve_up<'a>(
    mut levels: impl Iterator<Item = (usize, &'a Level)> + Clone,
    request: Request,
    effects: &mut Effects,
) -> Result<u64, usize> {
    let Request { n, beyond, stock_max } = request;
    let all = levels.clone();
    let (mut room, mut first) = (u64::MAX, false);
    while let Some((index, level)) = levels.next() {
        let openings = level.openings();
        let may_exceed = || index < beyond.levels && beyond.may_exceed(level);
        let Some(reserved) = level.reserve(n, may_exceed, effects) else {
            undo(all, index, n, effects);
            return Err(index);
        };
        first |= reserved.is_first(n);
        if reserved.exceeds() || level.rises(reserved.held, openings, stock_max) {
            let above = reserve_noted(levels, request, (level, reserved, openings), effects);
            effects.turned |= first;
            return match above {
                Ok(above) => Ok(above.min(room)),
                Err(full) => {
                    undo(all, index, n, effects);
                    Err(full)
                }
            };
        }
        room = room.min(reserved.room());
    }
    effects.turned |= first;
    Ok(room)
}

/// Reserves at the levels above one of which something is to be noted, but only once all have
/// granted it: what a level above refuses was never held.
#[cold]
#[inline(never)]
fn reserve_noted<'a>(
    levels: impl Iterator<Item = (usize, &'a Level)> + Clone,
    request: Request,
    (level, reserved, openings): (&Level, Reserved, u64),
    effects: &mut Effects,
) -> Result<u64, usize> {
    let Request { n, stock_max, .. } = request;
    let above = reserve_up(levels, request, effects).inspect_err(|_| level.undo(n, effects))?;
    level.raise_peak(reserved.held, openings, stock_max);
    if reserved.exceeds() {
        level.overdraw();
    }
    Ok(reserved.room().min(above))
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

/// Followed by a look whether somebody waits for it.
fn give_back<P: Path>(path: &P, n: u64) {
    path.levels().for_each(|level| _ = level.give_back(n));
}

/// Charges `n`, and moves stock to the running CPU, where there is room for both: to a leaf that
/// was open. Returns whether it was done.
#[inline(never)]
fn refill<P: Path>(path: &P, n: u64, effects: &mut Effects) -> bool {
    let leaf = path.leaf();
    let room = path.levels().map(Level::room).min().unwrap_or(0).saturating_sub(n);
    // Of what the leaf holds no more is moved than of what it may hold: few units in use are not to
    // look like many.
    let batch = leaf.batch(path.levels().next().map_or(0, Level::held).min(room));
    let Some(both) = n.checked_add(batch).filter(|_| batch > 0) else { return false };
    let Some(inside) = Inside::new() else { return false };
    let Some(held) = leaf.lock.try_lock() else { return false };
    // Whether a fold has begun or not: it waits for the lock to close this leaf.
    let reserved =
        leaf.phase() == Phase::Open && reserve(path, both, Beyond::NONE, effects).is_ok();
    if reserved && !leaf.stock.add_again(batch.cast_signed(), leaf.cap) {
        give_back(path, batch);
        effects.gave_back = true;
    }
    drop((held, inside));
    reserved
}

/// Opens a leaf that is closed, if its levels have room for all its stock twice and have rested.
/// After a charge, which counts as one that was made while there was no stock.
#[inline(always)]
fn open_if_far<P: Path>(path: &P, room: u64) {
    let leaf = path.leaf();
    let twice = leaf.slack.saturating_mul(2);
    // First: near a limit all charges end here.
    if room >= twice && leaf.cap > 0 && leaf.phase() == Phase::Closed {
        open_if_rested(path, twice);
    }
}

#[inline(never)]
fn open_if_rested<P: Path>(path: &P, twice: u64) {
    let leaf = path.leaf();
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
    // In this order: a charge that waits has found its level tight after it said that it waits.
    if !path.levels().all(Level::is_loose) || is_awaited(path) {
        return false;
    }
    path.levels().for_each(Level::begin_opening);
    let stocked = leaf.stock.sum().cast_unsigned();
    let opens = reserve(path, stocked, Beyond::NONE, &mut Effects::default()).is_ok();
    if opens {
        // In this order: what a fork in between leaves is a gate that a fold finds closed.
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
    let surplus = leaf.cap.div_ceil(2);
    // Before the lock: near a limit all releases end here.
    let open = || leaf.phase() == Phase::Open;
    let inside = if open() { Inside::new() } else { None };
    let held = inside.as_ref().and_then(|_| leaf.lock.try_lock());
    let movable = held.is_some() && open();
    // Half of what the word may hold, so that the next releases find room there.
    let moved = movable && leaf.stock.add_again(-surplus.cast_signed(), leaf.cap);
    // With the lock held: a fold that finds neither in the word nor in what is held what was taken
    // would not be exact.
    if moved {
        give_back(path, surplus);
    }
    drop((held, inside));
    give_back(path, n);
    serve_if_awaited(path);
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
    let (mut closing, mut visit) = (false, 0);
    let closed = path.below(level, &mut |leaves| {
        visit = path.common().begin_visit();
        leaves.for_each(|path| closing |= path.leaf().close(visit));
    });
    if !closed {
        return false;
    }
    if closing {
        path.leaf().stock.barrier();
        if !path.below(level, &mut |leaves| drain(leaves, visit)) {
            return false;
        }
    }
    level.drained(tightening, path.leaf().stock.now_ms());
    true
}

/// The second half of closings, of all leaves that were closed in a visit or before it. Before it
/// as well: whoever closed them may be behind. Not after it: the barrier may have come before.
fn drain<'a, P: Path>(leaves: &mut dyn Iterator<Item = &'a P>, visit: u64) {
    let mut drained: Option<Siblings<'a, P>> = None;
    for path in leaves {
        let Some(stocked) = drain_leaf(path, visit) else { continue };
        let siblings = drained.take().filter(|siblings| siblings.are_of(path));
        let mut siblings = siblings.unwrap_or(Siblings { path, stocked: 0, leaves: 0 });
        siblings.stocked += stocked;
        siblings.leaves += 1;
        drained = Some(siblings);
    }
}

/// Gives a leaf's stock back to its own level, and returns it.
fn drain_leaf<P: Path>(path: &P, visit: u64) -> Option<u64> {
    let leaf = path.leaf();
    // Without its lock: stock that was on its way had arrived when the leaf was closed, and none
    // sets out while it is not open.
    if leaf.phase() != Phase::Closing || leaf.closed() > visit {
        return None;
    }
    let stocked = leaf.stocked();
    // Before what is held is lowered: a fork in between leaks room, and grants none twice.
    leaf.turn_over();
    let own = path.levels().next().expect("its own");
    own.give_back(stocked);
    own.end_openings(1);
    Some(stocked)
}

/// Leaves of one parent that were drained one after another. Dropping it gives their stock back to
/// the levels that they share, at once: a thousand leaves would lock a word of each a thousand
/// times. Until then those hold too much, which nobody takes for what is charged: none of them is
/// drained before this visit is over.
struct Siblings<'a, P: Path> {
    path: &'a P,
    stocked: u64,
    leaves: u64,
}

impl<P: Path> Siblings<'_, P> {
    fn are_of(&self, path: &P) -> bool {
        let parent = |path: &P| path.levels().nth(1).map(std::ptr::from_ref);
        parent(self.path) == parent(path)
    }
}

impl<P: Path> Drop for Siblings<'_, P> {
    fn drop(&mut self) {
        for level in self.path.levels().skip(1) {
            level.give_back(self.stocked);
            level.end_openings(self.leaves);
        }
    }
}
