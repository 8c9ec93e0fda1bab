//! Usage that groups give back when a limit has no room.
//!
//! # The order of events
//! A charge that finds no room first looks at every limit on its path that is in the way. If the
//! callbacks below one of them could not free enough, none is asked: evictions would be lost, and
//! the charge still refused. Otherwise callbacks are asked one after another, each for what is
//! still missing, until there is room: see `ask`.
//!
//! Everything here runs after a refusal, on the thread of the refused charge, holding no lock but
//! that of the callback. Other charges and releases do nothing for it.
//!
//! `try_charge` never calls a callback: its callers may hold locks or be signal handlers, so it
//! never runs another tenant's code. Only `charge_reclaiming` and charges that wait do. They
//! queue first; the release that frees room hands it to waiters in order. A charge that asked first
//! and then tried again would find its room taken.
//!
//! Each callback is listed at every level up to the root, so that a limit finds those below it
//! without a look at other groups, and each unit is asked only of the lowest callback above it.
//! Before each call one scan finds the group that uses most beyond its protection, so that
//! protection is checked afresh. Calls of one callback never overlap: other threads wait a tenth of
//! a second for its end, and then pass it over. A charge that a thread makes inside a callback asks
//! none.

mod ask;
mod registry;

use std::cell::Cell;
use std::fmt;
use std::iter::successors;
use std::sync::Arc;
use std::time::Duration;

use submeter_percpu::LimitTurn;

use super::{Charge, LimitError, LimitMode, Usage};
use crate::metric::schema::{Key, Quota};
use crate::metric::unit::Unit;
use crate::tree::callbacks::Registry;
use crate::tree::group::Group;
use ask::{Below, PassedOver};
use registry::{Entry, registry_of};

/// How often a charge checks again whether the callbacks have freed enough, and the maximum number
/// of calls per callback in each round. Others may take the freed amount; Linux gives up after as
/// many attempts.
pub(super) const ATTEMPTS_MAX: usize = 16;

thread_local! {
    /// Whether the thread is in a callback.
    static ASKED: Cell<bool> = const { Cell::new(false) };
}

/// A registration of a callback that frees some of a group's usage when it is asked to. Created by
/// [`Group::on_reclaim`].
///
/// Dropping it ends the registration, and drops what the callback owns. It does not wait for a call
/// under way: that call runs to its end, and the callback's values are dropped then. No call begins
/// later.
///
/// It keeps the group's storage: a killed group is released only after its registrations. Until
/// then its callback is asked like any other, and the group claims no protection.
///
/// # Examples
/// See [`Group::on_reclaim`].
#[must_use = "dropping it ends the registration"]
pub struct Reclaimable {
    entry: Arc<Entry>,
}

impl Group {
    /// Registers `callback`, which is called with an amount when that much of a quota is wanted
    /// back from this group or its descendants. It then drops charges of theirs, for example of
    /// items in a cache.
    ///
    /// Charges that find no room at a limit of this group or an ancestor, and that may ask for
    /// some, call it: [`charge_reclaiming`](Group::charge_reclaiming), [`charge`](Group::charge)
    /// and [`charge_blocking`](Group::charge_blocking). So does [`reclaim`](Group::reclaim).
    /// Charges that it has dropped on return are seen at once. It answers for what the group and
    /// its descendants hold, except those below that have a callback of their own.
    ///
    /// The group that uses most beyond its [protection](Group::protection) is asked first, for the
    /// missing amount, but at most for its usage beyond its protection. Then all are looked at
    /// again, so that usage protected meanwhile is not asked for. A callback that freed less than
    /// requested comes after those that did not, and is asked sixteen times before others lose what
    /// `low` protects. Usage that `low` protects is asked for after all the rest, usage that `min`
    /// protects never.
    ///
    /// It runs on the thread of the charge, which holds none of this library's locks. It may call
    /// everything: charge, release, flush, create and kill groups, register callbacks and end
    /// registrations, including its own. A charge on its thread meanwhile asks no callback.
    ///
    /// Calls of one callback never overlap. Other threads that want something back wait for a call
    /// under way until it has taken 100 ms; from then on they pass the callback over until it
    /// returns. So a callback that blocks stops only the charge that called it. It must not take a
    /// lock that a caller holds while it charges in one of those ways. A panic is contained, and
    /// counted in [`UsageCounts::panics`](crate::UsageCounts::panics). A callback that frees
    /// nothing is passed over by the charge that asked it.
    ///
    /// Costs a lock and an allocation for each level up to the root. Not for signal handlers. In a
    /// forked child, a callback that was being called is passed over, and none is asked any longer
    /// if another thread was registering one.
    ///
    /// # Examples
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use submeter::{Bytes, Charge, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.root().set_limit(memory, Some(100));
    ///
    /// let (cache, web) = (tree.create("/cache")?, tree.create("/web")?);
    /// let items = Arc::new(Mutex::new(Vec::<Charge>::new()));
    /// for _ in 0..10 {
    ///     items.lock().unwrap().push(cache.try_charge(memory, 10)?);
    /// }
    /// let evictable = Arc::clone(&items);
    /// let registered = cache.on_reclaim(memory, move |wanted| {
    ///     let mut items = evictable.lock().unwrap();
    ///     let mut freed = 0;
    ///     while let Some(item) = items.pop_if(|_| freed < wanted) {
    ///         freed += item.amount();
    ///     }
    /// });
    /// cache.set_min(memory, Some(50));
    ///
    /// let held = web.charge_reclaiming(memory, 25)?;
    /// assert_eq!((held.amount(), cache.usage(memory).current), (25, 70));
    /// // More than 50 could be had only below what is protected.
    /// assert!(web.charge_reclaiming(memory, 26).is_err());
    /// assert_eq!(cache.usage(memory).current, 70);
    /// # drop(registered);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn on_reclaim<U: Unit>(
        &self,
        quota: Quota<U>,
        callback: impl FnMut(u64) + Send + 'static,
    ) -> Reclaimable {
        let slot = self.quota_slot(quota.key);
        self.limits(slot);
        let entry = Arc::new(Entry::new(self.clone(), slot, Box::new(callback)));
        // Made first: it takes back what it can if a lock cannot be taken.
        let registered = Reclaimable { entry };
        for registry in registered.registries() {
            let callback = Arc::<Entry>::clone(&registered.entry);
            registry.insert(registered.entry.number(), callback);
        }
        registered
    }

    /// Charges `n` to this group and every ancestor, or to none, as
    /// [`try_charge`](Group::try_charge) does, and asks [callbacks](Group::on_reclaim) to make room
    /// if there is none.
    ///
    /// With room it costs as much as `try_charge`. Without, it costs what the callbacks do, and for
    /// each call a look at all callbacks below the limit in the way, and at the children of
    /// protected groups in between. Callbacks are code of others, so this is a method of its own:
    /// not for signal handlers, nor while holding a lock that a callback takes.
    ///
    /// Room that is freed for it goes to no other charge that waits or asks, except those that
    /// waited before. So room is made for these as well, or not at all.
    ///
    /// # Examples
    /// See [`on_reclaim`](Group::on_reclaim).
    ///
    /// # Errors
    /// The same as `try_charge`. If `n` alone exceeds a limit, or the callbacks that may be asked
    /// could not free enough at one, none was asked.
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn charge_reclaiming<U: Unit>(
        &self,
        quota: Quota<U>,
        n: u64,
    ) -> Result<Charge, LimitError> {
        let (key, slot) = (quota.key, self.quota_slot(quota.key));
        if self.quota(slot).charge_uncounted(n).is_ok() {
            return Ok(Charge { group: self.clone(), key, amount: n });
        }
        // In the queue, so that what is freed for it goes to no other.
        self.charge_blocking(quota, n, Duration::ZERO)
    }

    /// Asks the [callbacks](Group::on_reclaim) of this group and its descendants for up to
    /// `wanted`, and returns by how much the usage of those asked fell: for amounts that should be
    /// free before they are charged, and after a limit was lowered.
    ///
    /// The group's own protection does not count; that of its descendants does. Costs as much as a
    /// [`charge_reclaiming`](Group::charge_reclaiming) that finds no room. Inside a callback it
    /// asks none.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// let tree = Tree::new(schema.build()?)?;
    /// let cache = tree.create("/cache")?;
    /// let mut held = cache.try_charge(memory, 100)?;
    /// let registered = cache.on_reclaim(memory, move |wanted| drop(held.split(wanted)));
    ///
    /// assert_eq!(tree.root().reclaim(memory, 30), 30);
    /// let over = cache.set_limit(memory, Some(50)).excess();
    /// assert_eq!((cache.reclaim(memory, over), cache.usage(memory).current), (20, 50));
    /// # drop(registered);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    ///
    /// # Differences from Linux
    /// `memory.reclaim` fails if it reclaims less than was wanted.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn reclaim<U: Unit>(&self, quota: Quota<U>, wanted: u64) -> u64 {
        ask_for(&Below::new(self, self.quota_slot(quota.key), &|_| 0), wanted)
    }

    /// The same as [`reclaim`](Group::reclaim) without the callbacks of the group's descendants,
    /// for limits that do not cover these.
    #[doc(hidden)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn reclaim_own<U: Unit>(&self, quota: Quota<U>, wanted: u64) -> u64 {
        ask_for(&Below::new(self, self.quota_slot(quota.key), &|_| 0).only_own(), wanted)
    }

    /// Counts a charge that was granted after the limit so many levels above had no room.
    pub(super) fn count_postponed(&self, key: Key, levels: usize) {
        let limiting = up(self).nth(levels).expect("a limit of the group or an ancestor");
        limiting.limits(usize::from(key.slot)).count_postponed();
    }
}

/// Asks callbacks for up to `wanted`, and returns the amount freed.
fn ask_for(below: &Below<'_>, wanted: u64) -> u64 {
    let (mut freed, mut passed_over) = (0, PassedOver::default());
    for _ in 0..ATTEMPTS_MAX {
        if freed >= wanted || ASKED.get() {
            break;
        }
        let still = |more: u64| wanted.saturating_sub(freed + more);
        match below.ask(still, &mut passed_over) {
            0 => break,
            more => freed += more,
        }
    }
    freed
}

/// The attempts to make room for one charge that waits.
pub(super) struct MakeRoom<'a> {
    group: &'a Group,
    slot: usize,
    passed_over: PassedOver,
    left: usize,
}

impl<'a> MakeRoom<'a> {
    pub(super) fn new(group: &'a Group, slot: usize) -> MakeRoom<'a> {
        MakeRoom { group, slot, passed_over: PassedOver::default(), left: ATTEMPTS_MAX }
    }

    /// Asks callbacks to make room for a waiting charge and for those before it. Returns whether to
    /// look again: something was freed, here or by others. Asks none unless enough can be freed at
    /// every level.
    pub(super) fn attempt(&mut self, turn: &LimitTurn) -> bool {
        if self.left == 0 || !self.may_ask() {
            return false;
        }
        self.left -= 1;
        let node = self.group.quota(self.slot);
        // Its callbacks may block.
        node.set_asks(turn, true);
        let look_again = self.ask(turn);
        node.set_asks(turn, false);
        look_again
    }

    fn ask(&mut self, turn: &LimitTurn) -> bool {
        let (group, slot, node) = (self.group, self.slot, self.group.quota(self.slot));
        // Each time: other waiters may have got it.
        let wanted = |level: usize| node.wanted(turn).map_or(0, |wanted| wanted[level]);
        let waiting = |victim: &Group| up(group).position(|at| at == victim).map_or(0, wanted);
        let full: Vec<_> = up(group)
            .enumerate()
            .map(|(level, at)| (at, move || missing(at.inner.quotas.usage(slot), wanted(level))))
            .filter(|(_, missing)| missing() > 0)
            .collect();
        let below = |limiting| Below::new(limiting, slot, &waiting);
        let has_enough = |limiting, missing| below(limiting).most(&self.passed_over) >= missing;
        if !full.iter().all(|(limiting, missing)| has_enough(limiting, missing())) {
            return false;
        }
        // From the lowest: room freed there is also free above.
        let (mut freed, failed) = (0, self.passed_over.len());
        for (limiting, missing) in full {
            freed += below(limiting).ask(|_| missing(), &mut self.passed_over);
        }
        freed > 0 || self.passed_over.len() == failed
    }

    /// Whether there are callbacks, and this thread is not in one.
    fn may_ask(&self) -> bool {
        let root = up(self.group).last().expect("at least the group itself");
        !ASKED.get() && registry_of(root, self.slot).is_some()
    }
}

/// Returns how many levels up the first limit without room for a charge is, if there is one.
pub(super) fn first_full(group: &Group, slot: usize, n: u64) -> Option<usize> {
    up(group).position(|limiting| missing(limiting.inner.quotas.usage(slot), n) > 0)
}

/// Iterates over a group and all above it.
fn up(group: &Group) -> impl Iterator<Item = &Group> {
    successors(Some(group), |group| group.parent())
}

/// Returns how much must be released before `wants` more fit.
fn missing(usage: Usage, wants: u64) -> u64 {
    match usage.limit {
        Some(limit) if usage.mode == LimitMode::Enforced => {
            usage.current.saturating_add(wants).saturating_sub(limit)
        }
        _ => 0,
    }
}

impl Reclaimable {
    /// Returns the group whose callback it is.
    #[must_use]
    pub fn group(&self) -> &Group {
        self.entry.group()
    }

    /// Iterates over the registries of the group and all above it.
    fn registries(&self) -> impl Iterator<Item = &Registry> {
        up(self.group()).map(|group| group.limits(self.entry.slot()).make_registry())
    }
}

impl Drop for Reclaimable {
    fn drop(&mut self) {
        self.entry.end();
        for registry in self.registries() {
            registry.remove(self.entry.number());
        }
    }
}

impl fmt::Debug for Reclaimable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reclaimable({})", self.group().path())
    }
}
