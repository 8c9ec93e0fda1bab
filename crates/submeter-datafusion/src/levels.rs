//! The room left by the levels from a group up to the root.

use std::iter::successors;

use submeter::{Bytes, Group, LimitMode, Quota, Usage};

/// A reservation below this fraction of a level is not asked to spill.
const SMALL: u64 = 32;

/// The level with the least room left for reservations that can spill.
pub(crate) struct Tightest<'g> {
    pub(crate) group: &'g Group,
    /// The limit, or the usage that callers should stay below.
    pub(crate) ceiling: u64,
    pub(crate) current: u64,
}

impl<'g> Tightest<'g> {
    /// Finds the tightest level; `None` if no level has a limit.
    pub(crate) fn of(group: &'g Group, quota: Quota<Bytes>) -> Option<Tightest<'g>> {
        let level = |group: &'g Group| {
            let usage = group.usage(quota);
            let ceiling = limit(&usage).into_iter().chain(usage.high).min()?;
            Some(Tightest { group, ceiling, current: usage.current })
        };
        levels(group).filter_map(level).min_by_key(Tightest::free)
    }

    /// Returns whether a reservation that holds `held` and can spill should do so rather than hold
    /// `more`, because it would hold more than it leaves free. That much has to be left, because
    /// merging what a sort has in memory takes about as much again, by a reservation that cannot
    /// spill. With less left, a half or a quarter, most sorts were refused at that point.
    pub(crate) fn asks_to_spill(&self, held: u64, more: u64) -> bool {
        let after = held.saturating_add(more);
        let left = self.free().saturating_sub(more);
        after > self.ceiling / SMALL && after > left
    }

    fn free(&self) -> u64 {
        self.ceiling.saturating_sub(self.current)
    }
}

/// Returns the lowest limit on the way to the root, and the room left at the tightest, negative if
/// one is exceeded; `None` without limits.
pub(crate) fn limits(group: &Group, quota: Quota<Bytes>) -> Option<(u64, i128)> {
    let level = |group: &Group| {
        let usage = group.usage(quota);
        limit(&usage).map(|limit| (limit, i128::from(limit) - i128::from(usage.current)))
    };
    levels(group).filter_map(level).reduce(|one, other| (one.0.min(other.0), one.1.min(other.1)))
}

fn levels(group: &Group) -> impl Iterator<Item = &Group> {
    successors(Some(group), |group| group.parent())
}

/// Ignores soft limits: they only show what they would refuse.
fn limit(usage: &Usage) -> Option<u64> {
    usage.limit.filter(|_| usage.mode != LimitMode::Soft)
}

#[cfg(test)]
mod tests {
    use submeter::{Schema, Tree};

    use super::*;

    fn tree() -> (Tree, Quota<Bytes>) {
        let mut schema = Schema::builder();
        let memory = schema.quota::<Bytes>("memory", "Memory reserved");
        (Tree::new(schema.build().expect("a schema")).expect("a tree"), memory)
    }

    #[test]
    fn what_can_spill_grows_to_what_it_leaves() {
        let (tree, memory) = tree();
        tree.root().set_limit(memory, Some(1000));
        let level = |current| Tightest { group: tree.root(), ceiling: 1000, current };
        assert!(!level(499).asks_to_spill(499, 1), "500 of 1000 leave as much");
        assert!(level(500).asks_to_spill(500, 1));
        assert!(!level(665).asks_to_spill(332, 1), "a third, as the other has");
        assert!(level(666).asks_to_spill(333, 1));
        assert!(level(u64::MAX).asks_to_spill(u64::MAX, u64::MAX), "no sum overflows");
    }

    #[test]
    fn what_has_little_to_spill_is_not_asked() {
        let (tree, _) = tree();
        let level = |current| Tightest { group: tree.root(), ceiling: 3200, current };
        assert!(!level(3200).asks_to_spill(99, 1));
        assert!(level(3200).asks_to_spill(100, 1));
    }

    /// The tightest level is the one with the least left below its limit or high.
    #[test]
    fn the_tightest_level_has_the_least_left() {
        let (tree, memory) = tree();
        let query = tree.get_or_create("/acme/query").expect("a group");
        let acme = tree.get("/acme").expect("its parent");
        assert!(Tightest::of(&query, memory).is_none() && limits(&query, memory).is_none());
        let of = || Tightest::of(&query, memory).map(|t| (t.group.path().to_owned(), t.ceiling));

        tree.root().set_limit(memory, Some(1000));
        query.set_limit(memory, Some(2000));
        assert_eq!(of(), Some(("/".to_owned(), 1000)));
        acme.set_limit(memory, Some(900));
        acme.set_high(memory, Some(700));
        assert_eq!(of(), Some(("/acme".to_owned(), 700)));
        let held = tree.root().try_charge(memory, 400).expect("fits");
        assert_eq!(of(), Some(("/".to_owned(), 1000)), "600 are left of it");
        assert_eq!(limits(&query, memory), Some((900, 600)));
        drop(held);
        acme.set_high(memory, None);
        acme.set_limit_mode(memory, LimitMode::Soft);
        assert_eq!(of(), Some(("/".to_owned(), 1000)), "a soft limit refuses nothing");
        let held = tree.root().charge_forced(memory, 1001);
        assert_eq!(limits(&query, memory), Some((1000, -1)));
        drop(held);
    }
}
