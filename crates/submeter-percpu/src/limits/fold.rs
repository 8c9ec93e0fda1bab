//! Folds: all stock below a level is given back, so that a refusal there is exact.

use std::time::Duration;

use submeter_sys::barrier::PATIENCE;

use super::leaf::Phase;
use super::level::{Level, Tight};
use super::path::Path;
use super::stock::Stock;

/// Time for which a granted charge waits for a fold that another thread left unfinished: several
/// times the duration of a barrier on a busy machine. If no barrier completes in that time, charges
/// take the slow path for longer, which is all that the fold would save them.
const MOMENT: Duration = Duration::from_millis(50);

/// Ensures that no stock lies below a level that is exceeded: charges from stock are not compared
/// with a limit. Returns false where [`fold`] does.
pub(super) fn settle<P: Path>(path: &P) -> bool {
    path.levels().all(|level| {
        while level.is_exceeded() && !level.is_drained() {
            if !fold(path, level) {
                return false;
            }
        }
        true
    })
}

/// Gives back the stock of all leaves below a level, behind one barrier. Returns whether it was
/// done, by this or another thread: see [`Path::below`]. Where the barrier takes too long, the
/// leaves stay closed, charges take the slow path, and the next fold or [`loosen`] continues.
#[cold]
pub(super) fn fold<P: Path>(path: &P, level: &Level) -> bool {
    fold_behind(path, level, |stock| stock.try_barrier(PATIENCE))
}

/// Does the same as [`fold`], however long the barrier takes.
pub(super) fn fold_patiently<P: Path>(path: &P, level: &Level) -> bool {
    fold_behind(path, level, barrier)
}

fn barrier(stock: &impl Stock) -> bool {
    stock.barrier();
    true
}

fn fold_behind<P: Path>(path: &P, level: &Level, barrier: impl FnOnce(&P::Stock) -> bool) -> bool {
    let tight = level.tight();
    let tightening = match Level::state(tight) {
        Tight::Loose => {
            level.turn_over_at(tight, path.leaf().stock.now_ms());
            level.tight()
        }
        _ => tight,
    };
    if Level::state(tightening) != Tight::Tightening {
        // Another thread has drained it; the caller checks again.
        return true;
    }
    if !empty(path, level, &|_| true, barrier) {
        return false;
    }
    level.turn_over_at(tightening, path.leaf().stock.now_ms());
    true
}

/// Lets leaves below the levels of a path open again where the levels have `twice` the room of one
/// leaf's stock and have rested. A level whose fold was left half done is drained first: where
/// charges fit, no refusal would ever do that. The charge is already granted, and waits at most
/// [`MOMENT`] for it.
pub(super) fn loosen<P: Path>(path: &P, twice: u64) {
    let now = || path.leaf().stock.now_ms();
    let mut now_ms = now();
    for level in path.levels() {
        if level.was_left(now_ms, now) {
            _ = fold_behind(path, level, |stock| stock.try_barrier(MOMENT));
            now_ms = now();
        }
        level.loosen(twice, now_ms, now);
    }
}

/// Gives back one leaf's stock, behind a barrier, where others may still charge it.
pub(super) fn close<P: Path>(path: &P) {
    empty(path, path.level(), &|at| std::ptr::eq(at.leaf(), path.leaf()), barrier);
}

/// Closes the leaves below a level that `is_meant` selects, and gives back their stock behind one
/// `barrier`. Returns false where leaves cannot be visited, or the barrier returns false.
fn empty<P: Path>(
    path: &P,
    level: &Level,
    is_meant: &dyn Fn(&P) -> bool,
    barrier: impl FnOnce(&P::Stock) -> bool,
) -> bool {
    let (mut closing, mut visit) = (false, 0);
    let closed = path.below(level, &mut |leaves| {
        visit = path.common().begin_visit();
        let meant = leaves.filter(|at| is_meant(at));
        meant.for_each(|at| closing |= at.leaf().close(visit));
    });
    if !closed || !closing {
        return closed;
    }
    barrier(&path.leaf().stock)
        && path.below(level, &mut |leaves| drain(&mut leaves.filter(|at| is_meant(at)), visit))
}

/// Does the second half of closings, for all leaves that were closed in visit number `visit` or
/// before: a thread that closed one earlier may not have got this far. A leaf that was closed later
/// is left alone: the barrier may have preceded its closing.
fn drain<'a, P: Path>(leaves: &mut dyn Iterator<Item = &'a P>, visit: u64) {
    let mut drained: Option<Siblings<'a, P>> = None;
    for path in leaves {
        let Some(stocked) = drain_leaf(path, visit) else { continue };
        let siblings = drained.take().filter(|siblings| siblings.are_of(path));
        // Made only where there are none: each drop locks a word of each level above.
        let mut siblings = siblings.unwrap_or_else(|| Siblings { path, stocked: 0, leaves: 0 });
        siblings.stocked += stocked;
        siblings.leaves += 1;
        drained = Some(siblings);
    }
}

/// Gives back a leaf's stock to its own level, and returns the amount.
fn drain_leaf<P: Path>(path: &P, visit: u64) -> Option<u64> {
    let leaf = path.leaf();
    // Without the leaf's lock: stock in transit had arrived when the leaf was closed, and none is
    // moved while it is not open.
    if leaf.phase() != Phase::Closing || leaf.closed() > visit {
        return None;
    }
    let stocked = leaf.stocked();
    // Before the amount held is lowered: a fork in between leaks room, and grants none twice.
    leaf.turn_over();
    let own = path.levels().next().expect("its own");
    own.give_back(stocked);
    own.end_openings(1);
    Some(stocked)
}

/// Leaves of one parent that were drained one after another. Its drop gives back their stock to
/// their shared levels, all at once: a thousand leaves would lock a word of each level a thousand
/// times. Until then those levels hold too much, but no thread takes that for the amount charged:
/// none of them is drained before this visit is over.
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
