//! Usage that is not reclaimed.
//!
//! A group's claims (`min` and `low`) are two words beside its limit that charges never look at.
//! The part of its ancestors' protection that it gets is computed from the top down when something
//! asks for it. Rejected: a sum per parent that each charge keeps up to date, as in Linux. It would
//! make all charges share a word.

use std::collections::HashMap;
use std::iter::successors;

use super::Usage;
use crate::metric::schema::{Key, Quota};
use crate::metric::unit::Unit;
use crate::tree::group::Group;
use crate::tree::quotas::{Claim, Quotas};

/// How much of a group's usage is not reclaimed for the sake of an ancestor. Returned by
/// [`Group::protection`].
///
/// # Examples
/// See [`Group::protection`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Protection {
    /// Usage that is not reclaimed, whatever happens.
    pub min: u64,
    /// Usage that is not reclaimed while anything else can be.
    pub low: u64,
}

impl Group {
    /// Sets or removes the usage up to which nothing is reclaimed from this group and its
    /// descendants, whatever happens, and returns the usage at that moment.
    ///
    /// It holds against reclaim on behalf of others. The group's own limit still reclaims from the
    /// group, so set it below that limit. It reserves nothing: every group may use what the
    /// claimant does not. [`protection`](Group::protection) explains how it is reduced below
    /// ancestors that have less.
    ///
    /// `Some(0)` protects nothing, and reads as `None`.
    ///
    /// # Examples
    /// See [`protection`](Group::protection).
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    pub fn set_min<U: Unit>(&self, quota: Quota<U>, min: Option<u64>) -> Usage {
        self.claim(quota.key, Claim::Min, min)
    }

    /// Sets or removes the usage up to which something is reclaimed from this group and its
    /// descendants only when nothing is left elsewhere, and returns the usage at that moment.
    /// Otherwise the same as [`set_min`](Group::set_min).
    ///
    /// # Examples
    /// See [`protection`](Group::protection).
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    pub fn set_low<U: Unit>(&self, quota: Quota<U>, low: Option<u64>) -> Usage {
        self.claim(quota.key, Claim::Low, low)
    }

    /// Returns how much of this group's usage is protected when something is reclaimed for the
    /// ancestor `below`: nothing if that is the group itself, and never more than is used.
    ///
    /// A child of `below` has what [`set_min`](Group::set_min) and [`set_low`](Group::set_low)
    /// claimed. Further down, children share what their parent has. If together they use more of
    /// their claims than that, each gets a part in proportion to its own used claim. If they use
    /// less, the rest goes to what they and their parent use beyond claims, again in proportion: a
    /// sibling's protection is lent until it is used. A group that was killed claims nothing.
    ///
    /// Costs, for each level in between, a look at every child there, and a visit of the tree's
    /// stock if there is any. It is computed here and during reclaim, so that no charge does
    /// anything for it. While others charge, the values that it reads are of different moments.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// let tree = Tree::new(schema.build()?)?;
    /// let acme = tree.create("/acme")?;
    /// let [web, mail] = [acme.create_child("web")?, acme.create_child("mail")?];
    /// acme.set_low(memory, Some(100));
    /// web.set_low(memory, Some(60));
    /// mail.set_low(memory, Some(60));
    ///
    /// let low = |group: &submeter::Group| group.protection(memory, tree.root()).low;
    /// let held = web.try_charge(memory, 200)?;
    /// assert_eq!((low(&acme), low(&web)), (100, 100), "mail uses nothing yet");
    /// let more = mail.try_charge(memory, 90)?;
    /// assert_eq!((low(&acme), low(&web), low(&mail)), (100, 50, 50));
    /// # drop((held, more));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the quota is of another tree's schema, or `below` is neither the group nor an ancestor.
    ///
    /// # Differences from Linux
    /// It works like the mount option `memory_recursiveprot`, which the kernel's documentation
    /// calls what should have been the default. A group may hold something itself beside its
    /// children; that gets its part like a child without a claim.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn protection<U: Unit>(&self, quota: Quota<U>, below: &Group) -> Protection {
        let slot = self.quota_slot(quota.key);
        let is_below = successors(Some(self), |group| group.parent()).any(|group| group == below);
        assert!(is_below, "{below} is not an ancestor of {self}");
        if self == below {
            return Protection::default();
        }
        let [min, low] = Division::of(below, slot).part(self, Held::of(self, slot));
        Protection { min, low }
    }

    /// Returns the [`protection`](Group::protection) of children of this group, each with its
    /// usage, in their order.
    ///
    /// It looks at all children once, not once for each requested child, and at none if nothing is
    /// protected: if the group itself is below `below` and has no protection.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Bytes, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// # let tree = Tree::new(schema.build()?)?;
    /// let children = [tree.create("/web")?, tree.create("/mail")?];
    /// children[0].set_low(memory, Some(60));
    /// let held = children[0].try_charge(memory, 90)?;
    /// let root = tree.root();
    /// let found = root.protection_of_children(memory, root, &children);
    /// let low: Vec<u64> = found.iter().map(|(_, protection)| protection.low).collect();
    /// assert_eq!(low, [60, 0]);
    /// # drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the quota is of another tree's schema, or `below` is neither the group nor an ancestor.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn protection_of_children<'a, U: Unit>(
        &self,
        quota: Quota<U>,
        below: &Group,
        children: impl IntoIterator<Item = &'a Group>,
    ) -> Vec<(Usage, Protection)> {
        let slot = self.quota_slot(quota.key);
        let Protection { min, low } = self.protection(quota, below);
        let shared = match [min, low] {
            _ if self == below => None,
            [0, 0] => Some(Shared::default()),
            own => Some(Shared::of(self, slot, own)),
        };
        let of = |child: &Group| {
            let usage = child.inner.quotas.usage(slot);
            let held = Held::new(child, usage);
            let [min, low] = shared.map_or_else(|| held.claimed(), |shared| shared.part(held));
            (usage, Protection { min, low })
        };
        children.into_iter().map(of).collect()
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn claim(&self, key: Key, claim: Claim, usage: Option<u64>) -> Usage {
        let limits = self.limits(self.quota_slot(key));
        limits.set_claim(claim, usage.unwrap_or(0));
        limits.usage()
    }
}

/// The usage of a group, and the part of it that is claimed to be protected: `min` and `low`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) current: u64,
    claims: [u64; 2],
}

impl Held {
    fn of(group: &Group, slot: usize) -> Held {
        Held::new(group, group.inner.quotas.usage(slot))
    }

    pub(super) fn new(group: &Group, Usage { current, min, low, .. }: Usage) -> Held {
        let killed = group.is_killed();
        let claims = [min, low].map(|claim| claim.filter(|_| !killed).unwrap_or(0));
        Held { current, claims }
    }

    /// Returns the used part of its claims.
    fn claimed(self) -> [u64; 2] {
        self.claims.map(|claim| claim.min(self.current))
    }
}

/// Returns what groups use of their claims.
pub(super) fn claimed<'a>(groups: impl Iterator<Item = (&'a Group, Usage)>) -> [u64; 2] {
    groups
        .map(|(group, usage)| Held::new(group, usage).claimed())
        .fold([0; 2], |sum, one| [0, 1].map(|at: usize| u64::saturating_add(sum[at], one[at])))
}

/// How protection is divided below a group for whose sake something is reclaimed.
pub(super) struct Division<'a> {
    below: &'a Group,
    slot: usize,
    /// By the number of the group that has it. Each is looked at once, however many ask.
    shared: HashMap<u64, Shared>,
}

impl<'a> Division<'a> {
    pub(super) fn of(below: &'a Group, slot: usize) -> Division<'a> {
        Division { below, slot, shared: HashMap::new() }
    }

    /// Returns the part of a group that is below. It recurses once per level.
    pub(super) fn part(&mut self, group: &Group, held: Held) -> [u64; 2] {
        let parent = group.parent().expect("it is below another group");
        if parent == self.below {
            return held.claimed();
        }
        if let Some(shared) = self.shared.get(&parent.id()) {
            return shared.part(held);
        }
        let protection = self.part(parent, Held::of(parent, self.slot));
        let shared = match protection {
            // A share of nothing is nothing, however many there are.
            [0, 0] => Shared::default(),
            _ => Shared::of(parent, self.slot, protection),
        };
        let part = shared.part(held);
        self.shared.insert(parent.id(), shared);
        part
    }
}

/// The protection of a group, which its children share.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shared {
    protection: [u64; 2],
    /// The usage of the group.
    current: u64,
    /// The used part of its children's claims.
    claimed: [u64; 2],
}

impl Shared {
    /// Looks at a group that has `protection`, and at its children.
    fn of(group: &Group, slot: usize, protection: [u64; 2]) -> Shared {
        let children = group.children_unsorted();
        // At once, so that stock is visited once.
        let groups = || std::iter::once(group).chain(&children);
        let mut usages = Quotas::usages(slot, groups().map(|group| &group.inner.quotas));
        let current = usages.next().expect("the group's own").current;
        Shared { protection, current, claimed: claimed(children.iter().zip(usages)) }
    }

    /// Returns a child's part.
    fn part(&self, child: Held) -> [u64; 2] {
        let of_child = child.claimed();
        [0, 1].map(|at| {
            // Both may have changed since the children were looked at.
            let claimed = self.claimed[at].max(of_child[at]);
            let beyond = self.current.saturating_sub(claimed).max(child.current - of_child[at]);
            let protection = self.protection[at];
            match protection.checked_sub(claimed) {
                None => portion(protection, of_child[at], claimed),
                Some(left) => {
                    let lent = portion(left, child.current - of_child[at], beyond);
                    (of_child[at] + lent).min(child.current)
                }
            }
        })
    }
}

/// Returns `all * part / whole`, rounded down, or 0 if `whole` is 0.
fn portion(all: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(all) * u128::from(part);
    // It fits: the part is at most the whole.
    product.checked_div(u128::from(whole)).unwrap_or(0) as u64
}
