//! Sets of metrics that are added to an existing tree, and their words.
//!
//! The new metrics of a set become a section, because sections share nothing but the groups. The
//! tree gets another *version*, whose schema begins with the previous one, so that no metric,
//! section or word ever changes its number. Versions are kept as long as the tree. A snapshot, an
//! export and a flush each look at one version. Readers that compare two moments (rates,
//! `/metrics`, OTLP) take zero for metrics that the earlier one lacks.
//!
//! The first update of an added section in a group makes words for it and for every ancestor that
//! lacks them. So idle groups take no more memory than before, and no walk over all groups is
//! needed, which would miss killed groups that are still held. The root's words are made with the
//! section. Quotas, rate limits, CPU time and events stay in the schema that the tree is made with:
//! their words and nodes are laid out there, and a switch copies what it needs to know.

use std::any::Any;
use std::sync::Arc;

use super::{Group, wrong_schema};
use crate::error::Error;
use crate::metric::schema::Metrics;
use crate::stats::rstat::{GroupStats, OtherStats, Rstat};

impl Group {
    /// Adds a set of metrics to the group's tree: see [`Tree::declare`](crate::Tree::declare).
    ///
    /// # Errors
    /// The same as `Tree::declare`.
    pub fn declare<M: Metrics>(&self) -> Result<M, Error> {
        let root = std::iter::successors(Some(self), |group| group.parent()).last();
        let root = root.unwrap_or(self);
        self.inner.tree.declare(|section, stats| root.keep_root_words(section, stats))
    }

    /// Returns the keys of a set of metrics that the tree has, so that code which has a group needs
    /// no other handle. The first call for each type costs as much as
    /// [`declare`](crate::Tree::declare), later ones a few loads.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Charge, Group, LimitError, Metrics, Quota, Tree};
    ///
    /// #[derive(Metrics)]
    /// struct Keys {
    ///     /// Memory held
    ///     memory: Quota<Bytes>,
    /// }
    ///
    /// fn store(tenant: &Group, item: &str) -> Result<Charge, LimitError> {
    ///     tenant.try_charge(tenant.keys::<Keys>().memory, item.len() as u64)
    /// }
    ///
    /// let (tree, keys) = Tree::with_metrics::<Keys>()?;
    /// let held = store(tree.root(), "an item")?;
    /// assert_eq!(tree.root().usage(keys.memory).current, 7);
    /// # drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the tree lacks a metric of the set, and it cannot be added: see
    /// [`Tree::declare`](crate::Tree::declare).
    #[must_use]
    #[track_caller]
    pub fn keys<M: Metrics + Any + Send + Sync>(&self) -> &M {
        let keys = &self.inner.tree.keys;
        let known = keys.iter().find_map(|keys| keys.downcast_ref());
        known.unwrap_or_else(|| {
            let declared = self.declare::<M>().unwrap_or_else(|error| panic!("{error}"));
            let is_same = |one: &Box<dyn Any + Send + Sync>, other: &Box<dyn Any + Send + Sync>| {
                (**one).type_id() == (**other).type_id()
            };
            keys.add(Box::new(declared), is_same).downcast_ref().expect("of this type")
        })
    }

    /// Keeps the root's words of a section that is being added: the root has them from the start,
    /// so that every group has an ancestor with words.
    fn keep_root_words(&self, section: u32, stats: GroupStats) {
        self.inner.extras.add(OtherStats { section_id: section, stats });
    }

    /// Makes this group's words of an added section; if there is no room for them, returns those of
    /// the nearest group above that has some.
    #[cold]
    #[inline(never)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn first_words(&self, section: u32) -> &GroupStats {
        let Some(rstat) = self.inner.tree.added(section) else { wrong_schema() };
        self.make_words(section, rstat).unwrap_or_else(|above| above)
    }

    /// Makes words for this group and those above it, from the top down, because a flush needs the
    /// parent's. If there is no room for the group's own, the `Err` has the nearest words above.
    fn make_words(&self, section: u32, rstat: &Arc<Rstat>) -> Result<&GroupStats, &GroupStats> {
        if let Some(stats) = self.inner.words_of(section) {
            return Ok(stats);
        }
        let parent = self.parent().expect("the root has words of each section");
        let above = parent.make_words(section, rstat)?;
        let make = || GroupStats::new(rstat, Some(above));
        // Groups that ended may free some room. Does not wait for a flush: a caller may hold locks
        // that a snapshot is about to take.
        let made = make().or_else(|_| {
            rstat.try_reclaim();
            make()
        });
        let Ok(stats) = made else { return Err(above) };
        Ok(&self.inner.extras.add(OtherStats { section_id: section, stats }).stats)
    }

    /// Returns whether these words are this group's own, rather than those of a group above.
    pub(crate) fn has(&self, stats: &GroupStats) -> bool {
        let others = self.inner.extras.all().map(|other| &other.stats);
        std::iter::once(&self.inner.stats).chain(others).any(|own| std::ptr::eq(own, stats))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::schema::{Counter, Gauge, Schema, SchemaBuilder};
    use crate::{Count, Tree};

    struct Set {
        n: Counter<Count>,
        level: Gauge<Count>,
    }

    impl Metrics for Set {
        fn declare(schema: &mut SchemaBuilder) -> Set {
            Set { n: schema.counter("n", ""), level: schema.gauge("level", "") }
        }
    }

    #[test]
    fn of_two_threads_that_make_words_one_is_in_time() {
        let schema = Schema::builder().build().expect("valid");
        let tree = Tree::new(schema).expect("address space");
        let Set { n, .. } = tree.declare().expect("new names");
        let web = tree.create("/web").expect("room");
        let (root, rstat) = (tree.root(), tree.stats().added(n.key.section).expect("declared"));
        let add = || {
            let stats = GroupStats::new(rstat, root.counted(n.key)).expect("room");
            web.inner.extras.add(OtherStats { section_id: n.key.section, stats })
        };
        assert!(std::ptr::eq(add(), add()));
        web.add(n, 3);
        assert_eq!((web.sum(n), root.sum(n)), (3, 3));
    }

    #[test]
    fn an_add_of_0_makes_the_words_beforehand() {
        let schema = Schema::builder().build().expect("valid");
        let tree = Tree::new(schema).expect("address space");
        let Set { n, .. } = tree.declare().expect("new names");
        let web = tree.get_or_create("/acme/web").expect("room");
        let has_words = || web.inner.words_of(n.key.section).is_some();
        assert!(!has_words());
        web.add(n, 0);
        assert!(has_words());
    }

    #[test]
    fn a_group_without_room_counts_above() {
        let schema = Schema::builder().build().expect("valid");
        let tree = Tree::new(schema).expect("address space");
        let Set { n, level } = tree.declare().expect("new names");
        let web = tree.get_or_create("/acme/web").expect("room");
        let acme = web.parent().expect("not the root").clone();
        acme.add(n, 1);
        acme.set(level, 7);
        let rstat = tree.stats().added(n.key.section).expect("declared");
        let len = rstat.pretend_len(u32::MAX as usize);
        web.add(n, 2);
        web.add(n, 4);
        web.set(level, 50);
        web.set(level, 60);
        assert_eq!((web.sum(n), acme.sum(n), tree.root().sum(n)), (0, 7, 7));
        assert_eq!((web.sum(level), acme.sum(level)), (0, 7), "not what another group has");
        rstat.pretend_len(len);
        web.add(n, 8);
        web.set(level, 1);
        assert_eq!((web.sum(n), acme.sum(n), tree.root().sum(n)), (8, 15, 15));
        assert_eq!((web.sum(level), acme.sum(level)), (1, 8));
    }
}
