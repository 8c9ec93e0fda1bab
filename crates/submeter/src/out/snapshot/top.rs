//! The groups with the most.

use std::cmp::Reverse;

use super::{GroupValues, Snapshot};
use crate::metric::reading::Scalar;

impl Snapshot {
    /// Returns the `n` groups with the most of a counter or gauge, largest first, among those
    /// without children: a parent's value includes its children's, so parents would always come
    /// first. Groups with the same amount are in the order of the snapshot.
    ///
    /// It sorts the groups and is meant for pages and logs. An [`Export`](crate::export::Export)
    /// has a `top` of its own, which copies no other groups.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Count, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.counter::<Count>("requests", "Requests answered");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.get_or_create("/acme/web")?.add(requests, 7);
    /// tree.get_or_create("/acme/mail")?.add(requests, 2);
    /// tree.get_or_create("/bigcorp")?.add(requests, 5);
    ///
    /// let snapshot = tree.snapshot();
    /// let most = snapshot.top(2, requests);
    /// assert_eq!([most[0].path(), most[1].path()], ["/acme/web", "/bigcorp"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the metric is of another schema.
    #[must_use]
    pub fn top<M>(&self, n: usize, metric: M) -> Vec<&GroupValues>
    where
        M: Scalar,
        M::Value: Ord,
    {
        let mut has_children = vec![false; self.groups.len()];
        for parent in self.groups.iter().filter_map(|group| group.parent) {
            has_children[parent] = true;
        }
        let groups = self.groups.iter().zip(has_children);
        let mut leaves: Vec<_> = groups.filter(|(_, is_above)| !is_above).map(|(g, _)| g).collect();
        let key = metric.key();
        leaves.sort_by_key(|group| Reverse(M::value(group.words.get(group.word(key)))));
        leaves.truncate(n);
        leaves
    }
}
