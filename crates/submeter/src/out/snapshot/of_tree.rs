//! The snapshot of a tree.

use super::Snapshot;
use crate::tree::tree::Tree;

impl Tree {
    /// Flushes, then copies every group's values at one point in time: a [`Snapshot`] is consistent
    /// between parents and children. Costs time and memory in proportion to the tree.
    ///
    /// If the schema has several sections, that holds within each section: one section may include
    /// an update that is later than an update missing in another.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Count, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let requests = schema.counter::<Count>("requests", "Requests answered");
    /// # let tree = Tree::new(schema.build()?)?;
    /// tree.create("/web")?.add(requests, 1);
    /// for group in tree.snapshot().groups() {
    ///     println!("{} {}", group.path(), group.counter(requests));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(self.stats(), self.root(), false)
    }

    /// Takes a [`snapshot`](Tree::snapshot) that also has what each group itself counted, for
    /// [`GroupValues::own`](crate::GroupValues::own).
    ///
    /// In addition to what a snapshot costs, it reads each group's words of each CPU and takes as
    /// much memory again. If you need only totals, `snapshot` is cheaper.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Count, Schema, Tree, Value};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.counter::<Count>("requests", "Requests answered");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.get_or_create("/acme/web")?.add(requests, 3);
    ///
    /// let snapshot = tree.snapshot_with_own();
    /// let metric = &snapshot.schema().metrics()[0];
    /// let own = |path: &str| snapshot.get(path).and_then(|group| group.own(metric));
    /// assert_eq!(own("/acme/web"), Some(Value::Counter(3)));
    /// assert_eq!(own("/acme"), Some(Value::Counter(0)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn snapshot_with_own(&self) -> Snapshot {
        Snapshot::take(self.stats(), self.root(), true)
    }
}
