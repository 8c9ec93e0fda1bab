//! Hierarchical limits: a charge is granted by every level up to the root, or by none.

mod at_once;
mod error;
mod high;
mod nodes;
mod pressure;
mod protect;
mod reclaim;
mod unguarded;
mod wait;

use std::fmt;

use crate::metric::schema::{Key, Quota};
use crate::metric::unit::Unit;
use crate::metric::usage::Usage;
use crate::tree::group::{Group, wrong_schema};

pub use at_once::Amount;
pub use error::LimitError;
pub use protect::Protection;
pub use reclaim::Reclaimable;
use submeter_percpu::LimitNode;
pub use submeter_percpu::{LimitMode, Pressure, Stall};
pub use wait::Charging;

impl Group {
    /// Returns the usage of a quota, including descendants. O(1) near a limit and for a group whose
    /// descendants were never charged far from one. Otherwise it visits the stock of those that
    /// were, and keeps them from moving it meanwhile. For many groups use a
    /// [`Snapshot`](crate::Snapshot), which visits all stock once.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Bytes, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// # let tree = Tree::new(schema.build()?)?;
    /// let held = tree.create("/web")?.try_charge(memory, 60)?;
    /// assert_eq!(tree.root().usage(memory).current, 60);
    /// # drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn usage<U: Unit>(&self, quota: Quota<U>) -> Usage {
        self.inner.quotas.usage(self.quota_slot(quota.key))
    }

    /// The same as [`usage`](Group::usage), but in O(1) whether limits are near or far:
    /// [`current`](Usage::current) counts what CPUs have in stock as held, up to 64 Ki units per
    /// CPU for each charged group. Use it for limits and counts, and for frequent reads in large
    /// trees.
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn usage_at_most<U: Unit>(&self, quota: Quota<U>) -> Usage {
        self.inner.quotas.usage_at_most(self.quota_slot(quota.key))
    }

    /// Sets or removes the limit of a quota, and returns the usage at that moment.
    ///
    /// No charge is granted beyond a limit, unless the limit is [soft](Group::set_limit_mode) or
    /// the charge is [forced](Group::charge_forced). Lowering a limit below the current usage
    /// revokes nothing, but no further charge is granted until the [excess](Usage::excess) has been
    /// released.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// let tree = Tree::new(schema.build()?)?;
    /// let held = tree.root().try_charge(memory, 60)?;
    /// assert_eq!(tree.root().set_limit(memory, Some(50)).excess(), 10);
    /// drop(held);
    /// assert!(tree.root().try_charge(memory, 50).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn set_limit<U: Unit>(&self, quota: Quota<U>, limit: Option<u64>) -> Usage {
        let limits = self.limits(self.quota_slot(quota.key));
        limits.with(limits.node.set_limit(limit.unwrap_or(u64::MAX)))
    }

    /// Charges `n` to this group and every ancestor, or to none. No limit is ever exceeded, and
    /// nothing that fits is refused.
    ///
    /// With its release it costs about three adds far from all limits; near one, a compare-and-swap
    /// for each level up to the first that still has stock, and a clone of the group's handle. For
    /// values without limits use a [`Gauge`](crate::Gauge), which costs no clone.
    ///
    /// A refusal allocates, and so does a group's first charge, even of 0. A signal handler may
    /// therefore charge only groups that were charged before, and only amounts that cannot be
    /// refused. A handler that interrupted a charge, a release or a read of usage by its own thread
    /// may be refused early near a limit, and so may a charge in a child that was forked meanwhile.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.root().set_limit(memory, Some(1000));
    ///
    /// let web = tree.get_or_create("/acme/web")?;
    /// let held = web.try_charge(memory, 600)?;
    /// let refused = web.try_charge(memory, 600).expect_err("beyond the root's limit");
    /// assert_eq!((refused.limiting().path(), refused.metric().name()), ("/", "memory"));
    /// drop(held); // gives it back
    /// assert!(web.try_charge(memory, 600).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When a limit on the way to the root would be exceeded. The error knows the group with that
    /// limit and those of its children that hold the most, but its text tells the tenant nothing
    /// about them. A charge of another thread counts while it is in progress, even if it is refused
    /// in the end.
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_charge<U: Unit>(&self, quota: Quota<U>, n: u64) -> Result<Charge, LimitError> {
        self.try_charge_unguarded(quota, n)?;
        Ok(Charge { group: self.clone(), key: quota.key, amount: n })
    }

    /// Charges `n` for an item that takes the place of another, whose charge is `old`: only the
    /// difference needs room. `old` is then empty, to be dropped with its item. Without one, or if
    /// it is of another group or quota, this is [`try_charge`](Group::try_charge), and `old` stays
    /// as it is. Costs about as much as a charge.
    ///
    /// # Examples
    /// ```
    /// use std::collections::HashMap;
    /// use submeter::{Bytes, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// let tree = Tree::new(schema.build()?)?;
    /// let acme = tree.create("/acme")?;
    /// acme.set_limit(memory, Some(100));
    ///
    /// let mut items = HashMap::new();
    /// for bytes in [60, 90, 10] {
    ///     let old = items.get_mut("key").map(|(_, charge)| charge);
    ///     let charge = acme.try_charge_replacing(memory, bytes, old)?;
    ///     items.insert("key", (vec![0; bytes as usize], charge));
    ///     assert_eq!(acme.usage(memory).current, bytes);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`try_charge`](Group::try_charge); `old` then still holds what it held.
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_charge_replacing<U: Unit>(
        &self,
        quota: Quota<U>,
        n: u64,
        old: Option<&mut Charge>,
    ) -> Result<Charge, LimitError> {
        match old {
            Some(old) if old.group == *self && old.key == quota.key => {
                old.resize(n)?;
                Ok(old.split(n))
            }
            _ => self.try_charge(quota, n),
        }
    }

    /// Charges `n` to this group and every ancestor, whatever their limits: for what has happened
    /// already, and for callers that cannot refuse. While a limit is exceeded nothing else is
    /// granted below it, unless it is [soft](LimitMode::Soft).
    ///
    /// Costs as much as [`try_charge`](Group::try_charge). Each limit that it exceeds counts an
    /// [overdraft](Usage::overdrafts). Do not use it where a refusal could be handled: limits hold
    /// only as far as no caller forces charges.
    ///
    /// Not for signal handlers: a handler that interrupted a move of stock by its own thread leaves
    /// the rest of that stock to charges, although the limit is exceeded.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.root().set_limit(memory, Some(100));
    ///
    /// let mut held = tree.root().try_charge(memory, 60)?;
    /// held.merge(tree.root().charge_forced(memory, 60)); // it was allocated before we were asked
    /// let usage = tree.root().usage(memory);
    /// assert_eq!((usage.current, usage.excess(), usage.overdrafts), (120, 20, 1));
    /// assert!(tree.root().try_charge(memory, 1).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the quota is of another tree's schema, or more than `u64::MAX` would be charged.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn charge_forced<U: Unit>(&self, quota: Quota<U>, n: u64) -> Charge {
        let node = self.quota(self.quota_slot(quota.key));
        if !node.charge_stock(n) {
            node.charge_forced(n);
            count_overdrafts(self, quota.key);
        }
        Charge { group: self.clone(), key: quota.key, amount: n }
    }

    /// Sets what this group's limit does with a charge that exceeds it, and returns the usage at
    /// that moment. Limits are enforced unless they are made soft.
    ///
    /// Other limits on the way to the root keep their own modes: an enforced one refuses what a
    /// soft one below it lets pass.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, LimitMode, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// let tree = Tree::new(schema.build()?)?;
    /// let web = tree.create("/web")?;
    /// web.set_limit(memory, Some(100));
    /// web.set_limit_mode(memory, LimitMode::Soft); // to see first whom it would hit
    ///
    /// let held = web.try_charge(memory, 160)?;
    /// let usage = web.usage(memory);
    /// assert_eq!((usage.excess(), usage.overdrafts, usage.refused), (60, 1, 0));
    ///
    /// web.set_limit_mode(memory, LimitMode::Enforced);
    /// assert!(web.try_charge(memory, 1).is_err());
    /// # drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn set_limit_mode<U: Unit>(&self, quota: Quota<U>, mode: LimitMode) -> Usage {
        let limits = self.limits(self.quota_slot(quota.key));
        limits.with(limits.node.set_mode(mode))
    }

    /// Returns the slot of a quota, which must be of this tree's schema.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn quota_slot(&self, key: Key) -> usize {
        if key.section != self.schema_id() {
            wrong_schema();
        }
        usize::from(key.slot)
    }
}

/// Charges the group and its ancestors, or none of them, when no stock is at hand. Returns no
/// guard: a pointer comes back in a register, but if the hot path's guard might come from memory it
/// always goes through memory.
#[cold]
#[inline(never)]
#[cfg_attr(debug_assertions, track_caller)]
fn charge(group: &Group, key: Key, n: u64) -> Result<(), LimitError> {
    let node = group.quota(usize::from(key.slot));
    // Borrowed: moving a refusal would copy it as a whole after it was stored in parts.
    match &node.charge_levels(n) {
        Ok(()) => {
            count_soft(group, key, node);
            Ok(())
        }
        Err(refused) => Err(LimitError::new(group, key, n, refused)),
    }
}

/// Counts what soft limits let pass, in a tree that has some.
fn count_soft(group: &Group, key: Key, node: &LimitNode) {
    if node.may_be_overdrawn() {
        count_overdrafts(group, key);
    }
}

/// Counts the overdrafts of the group and of those above it that were not counted yet. It runs
/// after a charge, so that the totals of groups that end include them. An overdraft that a release
/// grants to a waiting charge is counted when the charge's owner runs again, or with the next one.
#[cold]
fn count_overdrafts(group: &Group, key: Key) {
    for group in std::iter::successors(Some(group), |group| group.parent()) {
        let limits = group.limits(usize::from(key.slot));
        match limits.new_overdrafts() {
            0 => {}
            n => group.add_overdrafts(key, n),
        }
    }
}

/// A guard of an amount of a quota, charged to a group and its ancestors. Dropping it releases the
/// amount. Created by [`Group::try_charge`], [`Group::try_charge_all`] and
/// [`Group::charge_forced`].
///
/// It keeps the group's storage: a killed group is released only after its charges.
///
/// # Examples
/// ```
/// # use submeter::{Bytes, Schema, Tree};
/// # let mut schema = Schema::builder();
/// # let memory = schema.quota::<Bytes>("memory", "Memory held");
/// # let tree = Tree::new(schema.build()?)?;
/// let held = tree.root().try_charge(memory, 60)?;
/// assert_eq!((held.group(), held.amount()), (tree.root(), 60));
/// assert_eq!(tree.root().usage(memory).current, 60);
/// drop(held);
/// assert_eq!(tree.root().usage(memory).current, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a charge releases it at once"]
pub struct Charge {
    group: Group,
    key: Key,
    amount: u64,
}

impl Charge {
    /// Returns the amount held.
    #[must_use]
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Returns the charged group.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Changes the amount held to `amount`. Costs as much as a charge or its drop.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let memory = schema.quota::<Bytes>("memory", "Held by a buffer");
    /// let tree = Tree::new(schema.build()?)?;
    /// let mut buffer = tree.root().try_charge(memory, 64)?;
    /// buffer.resize(4096)?;
    /// assert_eq!(tree.root().usage(memory).current, 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When it would grow beyond a limit; the amount held before stays held.
    #[inline]
    pub fn resize(&mut self, amount: u64) -> Result<(), LimitError> {
        let node = self.group.quota(usize::from(self.key.slot));
        let done = match amount.checked_sub(self.amount) {
            Some(more) => node.charge_stock(more),
            None => node.release_stock(self.amount - amount),
        };
        if done {
            self.amount = amount;
            return Ok(());
        }
        self.resize_cold(amount)
    }

    #[cold]
    #[inline(never)]
    fn resize_cold(&mut self, amount: u64) -> Result<(), LimitError> {
        if amount > self.amount {
            charge(&self.group, self.key, amount - self.amount)?;
        } else {
            self.group.quota(usize::from(self.key.slot)).release_levels(self.amount - amount);
        }
        self.amount = amount;
        Ok(())
    }

    /// Takes over the amount of another charge, so that one guard stands for both. Nothing is
    /// released or charged again.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let memory = schema.quota::<Bytes>("memory", "Held by items");
    /// let tree = Tree::new(schema.build()?)?;
    /// let mut held = tree.root().try_charge(memory, 70)?;
    /// held.merge(tree.root().try_charge(memory, 30)?);
    /// assert_eq!((held.amount(), tree.root().usage(memory).current), (100, 100));
    ///
    /// drop(held.split(60));
    /// assert_eq!((held.amount(), tree.root().usage(memory).current), (40, 40));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the other charge is of a different group or quota.
    pub fn merge(&mut self, mut other: Charge) {
        let alike = self.group == other.group && self.key == other.key;
        assert!(alike, "charges of different groups or quotas cannot be merged");
        self.amount += std::mem::take(&mut other.amount);
    }

    /// Splits off `amount` into a separate charge, for a part that is handed on, or for an item
    /// that replaces another, once this charge has its size. Costs a clone of the group's handle.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Bytes, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// # let tree = Tree::new(schema.build()?)?;
    /// let mut buffer = tree.root().try_charge(memory, 100)?;
    /// let sent = buffer.split(40); // goes along with the part that is handed on
    /// assert_eq!((buffer.amount(), sent.amount()), (60, 40));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When less than `amount` is held.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn split(&mut self, amount: u64) -> Charge {
        assert!(amount <= self.amount, "cannot split off {amount}: only {} held", self.amount);
        self.amount -= amount;
        Charge { group: self.group.clone(), key: self.key, amount }
    }
}

impl Drop for Charge {
    #[inline]
    fn drop(&mut self) {
        let node = self.group.quota(usize::from(self.key.slot));
        if self.amount > 0 && !node.release_stock(self.amount) {
            node.release_levels(self.amount);
        }
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Charge({} on {})", self.amount, self.group.path())
    }
}
