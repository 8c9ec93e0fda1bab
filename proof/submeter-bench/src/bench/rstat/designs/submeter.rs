//! submeter's own tree, used through its public interface.

use std::io;

use submeter::{Count, Gauge, Group, Schema, Tree};
use submeter_percpu::storage::LINE_WORDS;

use super::{Design, Shape};

/// A tree with a group for each of the shape's.
pub(in crate::bench::rstat) struct Submeter {
    tree: Tree,
    /// By number; looked up once, as a program would.
    groups: Vec<Group>,
    /// Gauges rather than counters, because a recording also subtracts; they cost the same.
    metrics: Vec<Gauge<Count>>,
}

impl Submeter {
    /// Returns the tree.
    pub(in crate::bench::rstat) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns a group and one of its metrics, for loops that update only that one.
    pub(in crate::bench::rstat) fn pair(
        &self,
        group: u32,
        metric: usize,
    ) -> (&Group, Gauge<Count>) {
        (&self.groups[group as usize], self.metrics[metric])
    }

    /// Returns the exact total of a group and its descendants, flushed or not.
    pub(in crate::bench::rstat) fn exact(&self, group: u32, metric: usize) -> i64 {
        self.groups[group as usize].sum(self.metrics[metric])
    }
}

impl Design for Submeter {
    type Slot = ();

    /// One bit per line of words.
    fn mark_bytes(shape: &Shape) -> f64 {
        shape.metrics.div_ceil(LINE_WORDS) as f64 / 8.0
    }

    fn new(shape: &Shape) -> io::Result<Submeter> {
        let mut schema = Schema::builder();
        let gauge = |n| schema.gauge(&format!("m{n}"), "A metric of the benchmark");
        let metrics = (0..shape.metrics).map(gauge).collect();
        let schema = schema.build().map_err(io::Error::other)?;
        let tree = Tree::new(schema).map_err(io::Error::other)?;
        let group = |path: &String| tree.get_or_create(path).map_err(io::Error::other);
        let groups = shape.paths.iter().map(group).collect::<io::Result<_>>()?;
        Ok(Submeter { tree, groups, metrics })
    }

    fn register(&self) -> io::Result<()> {
        Ok(())
    }

    #[inline]
    fn update(&self, (): (), group: u32, metric: usize, n: i64) {
        self.groups[group as usize].adjust(self.metrics[metric], n);
    }

    /// Appends no hold time: there is no lock that an update may wait for.
    fn flush(&self, root: u32, _holds_ns: &mut Vec<u64>) -> u64 {
        let group = &self.groups[root as usize];
        // Flushing the whole tree is cheaper.
        let report = if group.parent().is_none() { self.tree.flush() } else { group.flush() };
        report.groups as u64
    }

    fn settle(&self) {
        self.tree.flush();
    }

    fn total(&self, group: u32, metric: usize) -> i64 {
        self.groups[group as usize].read(self.metrics[metric]).value
    }
}
