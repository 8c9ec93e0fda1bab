//! Charges that wait for room, in order.
//!
//! A thread that gives something back, raises a limit or stops waiting tries the waiting charges in
//! turn. It wakes only charges that are granted or never can be: a granted charge is held before
//! its owner knows. A charge that does not fit holds up every charge behind it whose path shares
//! the level that refused it; others pass. So each charge waits at one level, and only what changes
//! there is a reason to try it: however many groups wait, a release tries those that wait for its
//! own levels.
//!
//! Rejected: waking the first and letting it try itself. Until it runs, charges that do not wait
//! take the room it was woken for, and each release wakes it again. Also rejected: trying all in
//! turn. Each of four thousand groups at its own limit then waits for four thousand tries.

#[cfg(not(loom))]
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

use super::level::{Cause, Effects, Level, LimitMode, Refusal};
use super::path::Path;
use super::tree::decide;
#[cfg(not(loom))]
use crate::process_lock::PerProcess;
#[cfg(not(loom))]
use crate::wake::wake_all;

/// The waiting charges of one tree, the oldest first.
#[derive(Debug)]
pub(crate) struct Queue<P> {
    /// Those that wait, and those whose owners have not asked yet, by their numbers.
    entries: BTreeMap<u64, Entry<P>>,
    /// The numbers of those that wait, by the address of the level that they wait at: the one that
    /// refused them, or at which an earlier one waits. A charge that waits keeps its path.
    waiting: BTreeMap<usize, BTreeSet<u64>>,
    next: u64,
    /// How often a charge was tried.
    #[cfg(test)]
    pub(super) tries: u64,
}

#[derive(Debug)]
struct Entry<P> {
    path: P,
    n: u64,
    waker: Waker,
    /// The address of the level that it waits at.
    behind: usize,
    /// The level at which it announced that it waits.
    at: Option<usize>,
    /// Whether its wait is recorded.
    waits: bool,
    /// Whether its owner is making room for it; meanwhile it holds up no other charge.
    asks: bool,
    outcome: Option<Result<(), Failure>>,
}

/// The reason why a charge is not granted: the index of the level, its own description, and the
/// cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) index: usize,
    pub(crate) refusal: Refusal,
    pub(crate) cause: Cause,
}

impl Failure {
    pub(crate) fn limit((index, refusal): (usize, Refusal)) -> Failure {
        Failure { index, refusal, cause: Cause::Limit }
    }
}

impl<P> Default for Queue<P> {
    fn default() -> Queue<P> {
        Queue {
            entries: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next: 0,
            #[cfg(test)]
            tries: 0,
        }
    }
}

impl<P: Path> Queue<P> {
    /// Adds a charge behind those that wait, unless it can never be granted. Returns its number.
    /// The caller then calls [`serve`](Self::serve).
    pub(crate) fn push(&mut self, path: P, n: u64, waker: Waker) -> u64 {
        let number = self.next;
        self.next += 1;
        let (behind, outcome) = (address(path.level()), None);
        let mut entry =
            Entry { path, n, waker, behind, at: None, waits: false, asks: false, outcome };
        // Checked here, because a charge behind others is not tried.
        if !entry.fail_if_hopeless() {
            self.waiting.entry(behind).or_default().insert(number);
        }
        self.entries.insert(number, entry);
        number
    }

    /// Takes the outcome of a charge. If it still waits, `waker` will be woken later, and is
    /// exchanged for the previous waker: dropping that one may drop another waiting charge, so it
    /// must not happen under the lock.
    pub(crate) fn poll(&mut self, number: u64, waker: &mut Waker) -> Polled {
        let Some(entry) = self.entries.get_mut(&number) else { return Polled::Unknown };
        match entry.outcome {
            None => {
                entry.begin_wait();
                std::mem::swap(&mut entry.waker, waker);
                Polled::Waits
            }
            Some(outcome) => {
                self.entries.remove(&number);
                Polled::Done(outcome)
            }
        }
    }

    /// Returns the amounts waited for at each level of a charge's path, by it and the charges that
    /// hold it up, or `None` if it no longer waits.
    #[cfg(not(loom))]
    pub(crate) fn wanted(&self, number: u64) -> Option<Vec<u64>> {
        let last = self.entries.get(&number).filter(|entry| entry.outcome.is_none())?;
        let before = self.entries.range(..number).map(|(_, entry)| entry);
        let before = before.filter(|entry| entry.outcome.is_none() && !entry.asks);
        let wanted = last.path.levels().map(|level| {
            let has = |path: &P| path.levels().any(|at| std::ptr::eq(at, level));
            let before = before.clone().filter(|entry| has(&entry.path));
            before.map(|entry| entry.n).fold(last.n, u64::saturating_add)
        });
        Some(wanted.collect())
    }

    /// Sets whether the owner of a charge is making room for it. When it stops, the caller must
    /// serve the waiting charges.
    #[cfg(not(loom))]
    pub(crate) fn set_asks(&mut self, number: u64, asks: bool) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.asks = asks;
        }
    }

    /// Stops a charge from waiting. The caller must then serve the charges behind it.
    pub(crate) fn cancel(&mut self, number: u64) -> Cancelled {
        let held_up = self.held_up(number);
        let Some(mut entry) = self.entries.remove(&number) else {
            return Cancelled::Waited(None, Waker::noop().clone());
        };
        forget(&mut self.waiting, number, entry.behind);
        entry.leave();
        entry.end_wait();
        match entry.outcome {
            Some(Ok(())) => Cancelled::Granted,
            Some(Err(failure)) => Cancelled::Waited(Some(failure), entry.waker),
            None => Cancelled::Waited(held_up, entry.waker),
        }
    }

    /// Returns the level at which a charge that would fit by itself is held up behind another, by
    /// the rules of [`serve`](Self::serve).
    fn held_up(&self, number: u64) -> Option<Failure> {
        let entry = self.entries.get(&number)?;
        let is_full =
            |level: &Level| level.mode() == LimitMode::Enforced && !level.has_room(entry.n);
        if entry.path.levels().any(is_full) {
            return None;
        }
        let levels = entry.path.levels().enumerate();
        let (_, index) =
            levels.filter_map(|(at, level)| Some((self.ahead(number, level)?, at))).min()?;
        let refusal = entry.path.levels().nth(index).expect("found there").refusal();
        Some(Failure { index, refusal, cause: Cause::Behind })
    }

    /// Returns the first charge before `number` that waits at a level, and whose owner is not
    /// making room for it.
    fn ahead(&self, number: u64, level: &Level) -> Option<u64> {
        let mut before = self.waiting.get(&address(level))?.range(..number);
        before.find(|before| !self.entries[before].asks).copied()
    }

    /// Does the same as [`serve`](Self::serve) at all levels, after a limit or its mode has changed
    /// or waits of groups end: charges that can never be granted no longer wait, whatever is ahead
    /// of them.
    pub(crate) fn reconsider(&mut self, woken: &mut Vec<Waker>) {
        let mut levels = BTreeSet::new();
        for (&number, entry) in &mut self.entries {
            if entry.outcome.is_some() {
                continue;
            }
            levels.insert(entry.behind);
            if entry.fail_if_hopeless() {
                woken.push(entry.take_waker());
                forget(&mut self.waiting, number, entry.behind);
            }
        }
        self.serve_at(levels.into_iter(), woken);
    }

    /// Tries the charges that wait at the levels of a path, the oldest of all first. Adds to
    /// `woken` the wakers to wake after the lock is released.
    ///
    /// A charge that gives something back, stops waiting or has joined passes its own path: those
    /// that wait elsewhere wait for other charges. The stock that a charge gives back was below no
    /// level that is waited for, whichever leaves it came from.
    pub(crate) fn serve<'a>(
        &mut self,
        levels: impl Iterator<Item = &'a Level>,
        woken: &mut Vec<Waker>,
    ) {
        self.serve_at(levels.map(address), woken);
    }

    /// Tries the charges that wait at these levels, the oldest of all first.
    fn serve_at(&mut self, levels: impl Iterator<Item = usize>, woken: &mut Vec<Waker>) {
        let first = |queue: &Self, level, from| {
            let waiting = queue.waiting.get(&level)?;
            waiting.range(from..).next().map(|&number| (number, level))
        };
        let mut next: BTreeSet<_> = levels.filter_map(|level| first(self, level, 0)).collect();
        while let Some((number, level)) = next.pop_first() {
            let behind = self.attempt(number);
            let entry = self.entries.get_mut(&number).expect("it waits");
            if behind == Some(level) && !entry.asks {
                // Every other one here is behind it.
                continue;
            }
            if behind != Some(level) {
                entry.behind = behind.unwrap_or(level);
                match behind {
                    None => woken.push(entry.take_waker()),
                    Some(other) => _ = self.waiting.entry(other).or_default().insert(number),
                }
                forget(&mut self.waiting, number, level);
            }
            next.extend(first(self, level, number + 1));
        }
    }

    /// Tries a charge, unless it is behind another. Returns the level that it waits at now; `None`
    /// if it has an outcome.
    fn attempt(&mut self, number: u64) -> Option<usize> {
        #[cfg(test)]
        {
            self.tries += 1;
        }
        let entry = &self.entries[&number];
        let ahead = entry.path.levels().find(|level| self.ahead(number, level).is_some());
        if let Some(level) = ahead {
            return Some(address(level));
        }
        let entry = self.entries.get_mut(&number).expect("it waits");
        entry.attempt().map(address)
    }

    /// Forgets the charges that waited when a fork copied this process: their wakers may belong to
    /// a runtime that does not exist here. An owner that does exist polls again. A charge that was
    /// granted and not taken yet stays, and numbers continue, so that no two charges have the same.
    #[cfg(not(loom))]
    pub(crate) fn forget_waiting(&mut self) {
        self.waiting.clear();
        for (number, mut entry) in std::mem::take(&mut self.entries) {
            if entry.outcome.is_some() {
                self.entries.insert(number, entry);
                continue;
            }
            entry.leave();
            entry.end_wait();
            // Only the waker: forgetting the path would leak its tree.
            let Entry { waker, .. } = entry;
            std::mem::forget(waker);
        }
    }
}

fn address(level: &Level) -> usize {
    std::ptr::from_ref(level).addr()
}

fn forget(waiting: &mut BTreeMap<usize, BTreeSet<u64>>, number: u64, level: usize) {
    if let Some(there) = waiting.get_mut(&level) {
        there.remove(&number);
        if there.is_empty() {
            waiting.remove(&level);
        }
    }
}

/// The state of a waiting charge.
pub(crate) enum Polled {
    Waits,
    Done(Result<(), Failure>),
    /// A fork copied this process; charges that waited in it are forgotten.
    Unknown,
}

/// A charge that has stopped waiting.
pub(crate) enum Cancelled {
    /// It was granted, and must be released.
    Granted,
    /// It was not granted, for this reason; `None` means that there was no room. The waker must be
    /// dropped after the lock is released: see [`Queue::poll`].
    Waited(Option<Failure>, Waker),
}

impl<P: Path> Entry<P> {
    /// Tries the charge. Returns the level that has no room; otherwise there is an outcome.
    fn attempt(&mut self) -> Option<&Level> {
        loop {
            let mut effects = Effects::default();
            let decided = decide(&self.path, self.n, false, &mut effects);
            if effects.turned || effects.gave_back {
                self.path.note_holders();
            }
            let index = match decided {
                // There may be stock that cannot be visited: releases into it are not seen.
                Err(index) if effects.is_blind => {
                    self.decide(Err(Failure::limit((index, effects.refusal()))));
                    return None;
                }
                Err(index) => index,
                Ok(_) => {
                    self.decide(Ok(()));
                    return None;
                }
            };
            if self.at == Some(index) {
                return self.path.levels().nth(index);
            }
            let level = self.path.levels().nth(index).expect("it refused");
            // Then once more: amounts given back before this went unseen.
            self.path.common().await_room(level);
            self.leave();
            self.at = Some(index);
        }
    }

    /// Ends its wait if a limit refuses it however much is released, or the waits of its group have
    /// ended. Returns whether it did.
    fn fail_if_hopeless(&mut self) -> bool {
        let failed = if self.path.waits_have_ended() {
            let refusal = self.path.level().refusal();
            Some(Failure { index: 0, refusal, cause: Cause::Ended })
        } else {
            let mut levels = self.path.levels().enumerate();
            let found = levels.find(|(_, level)| level.never_fits(self.n));
            found.map(|(index, level)| Failure::limit((index, level.refusal())))
        };
        failed.inspect(|failed| self.decide(Err(*failed))).is_some()
    }

    fn decide(&mut self, outcome: Result<(), Failure>) {
        self.outcome = Some(outcome);
        self.leave();
        self.end_wait();
    }

    fn take_waker(&mut self) -> Waker {
        std::mem::replace(&mut self.waker, Waker::noop().clone())
    }

    /// Records its wait. Not when it enters the queue: a charge that is granted at once has not
    /// waited.
    fn begin_wait(&mut self) {
        if !std::mem::replace(&mut self.waits, true) {
            self.path.note_wait(true);
        }
    }

    fn end_wait(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.path.note_wait(false);
        }
    }

    fn leave(&mut self) {
        if let Some(index) = self.at.take() {
            let level = self.path.levels().nth(index).expect("it waited there");
            self.path.common().end_await(level);
        }
    }
}

/// A queue that threads, forks and signal handlers share.
#[cfg(not(loom))]
pub(crate) struct SharedQueue<P> {
    waiting: PerProcess<Queue<P>>,
}

/// What the calling thread holds of a queue.
#[cfg(not(loom))]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Has {
    Nothing,
    Lock,
    /// The lock, and a handler on top of it has given something back.
    Missed,
}

#[cfg(not(loom))]
thread_local! {
    static HAS: Cell<Has> = const { Cell::new(Has::Nothing) };
}

/// Ensures that, if this use of a queue panics, the thread's next use is not taken for a handler's.
#[cfg(not(loom))]
struct LetsGo;

#[cfg(not(loom))]
impl Drop for LetsGo {
    fn drop(&mut self) {
        HAS.set(Has::Nothing);
    }
}

#[cfg(not(loom))]
impl<P: Path> SharedQueue<P> {
    pub(crate) fn new() -> SharedQueue<P> {
        SharedQueue { waiting: PerProcess::new(Queue::default()) }
    }

    /// Calls `change` with the queue, which is empty in a forked child at first: the parent's
    /// waiting charges do not exist here.
    ///
    /// `None` where the lock cannot be taken: in a forked child whose fork left another thread
    /// behind with it, and in a signal handler that interrupted this function, which then serves
    /// the waiting charges itself.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Queue<P>) -> T) -> Option<T> {
        if HAS.get() != Has::Nothing {
            HAS.set(Has::Missed);
            return None;
        }
        HAS.set(Has::Lock);
        let lets_go = LetsGo;
        let changed = self.waiting.with(Queue::forget_waiting, change);
        let missed = HAS.get() == Has::Missed;
        drop(lets_go);
        if missed {
            self.change(Queue::reconsider);
        }
        changed
    }

    /// Calls `change` with the queue, and wakes the wakers that it adds.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Queue<P>, &mut Vec<Waker>)) {
        let mut woken = Vec::new();
        self.with(|queue| change(queue, &mut woken));
        // After the lock is released: a woken task may poll its charge at once.
        wake_all(woken);
    }
}
