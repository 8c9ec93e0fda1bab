//! The counts of a tree, for programs that add up the totals of many processes.
//!
//! A tree has a random number, its epoch, and numbers its snapshots while the flushes are locked,
//! so that a higher number has larger totals. Values restored from a checkpoint are subtracted
//! group by group, and the checkpoint's own totals are passed on as a reading of the process that
//! counted them. The file has them beside the sums, along with those of some earlier processes,
//! because a process that restarts again and again may end before it is read.

use std::sync::Arc;

use crate::metric::schema::{Metric, MetricKind, Schema};
use crate::metric::totals::{GroupTotals, Restored, Totals};
use crate::out::snapshot::Words;
use crate::{GroupValues, Snapshot, Tree};

/// Returns the counters of a schema.
pub(crate) fn counters(schema: &Schema) -> impl Iterator<Item = &Metric> {
    schema.metrics().iter().filter(|metric| metric.kind() == MetricKind::Counter)
}

impl Tree {
    /// Returns what this process has counted, followed by what earlier processes had counted as of
    /// their checkpoints, if those were restored.
    ///
    /// No count is in two of them: restored values are subtracted from this process's own. A
    /// group's totals include its descendants'; to get what it counted itself, subtract those of
    /// its children, including killed ones that an earlier reading had.
    ///
    /// Costs a snapshot. Only counters are in it: gauges and quotas may fall.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Count, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.counter::<Count>("requests", "Requests answered");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.get_or_create("/acme")?.add(requests, 3);
    ///
    /// let totals = tree.totals();
    /// let [own] = totals.as_slice() else { panic!("nothing was restored") };
    /// assert_eq!(own.groups[1].counters, [3]);
    /// assert!(tree.totals()[0].sequence > own.sequence);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn totals(&self) -> Vec<Totals> {
        self.snapshot_and_past().1
    }

    /// Takes a [`snapshot`](Tree::snapshot) of this process's own counts, without restored ones,
    /// which were exported by the process that counted them. Gauges and quotas are as in any
    /// snapshot: they are never restored.
    ///
    /// Costs a snapshot, and a subtraction for each value that was restored.
    ///
    /// # Examples
    /// ```
    /// use submeter::checkpoint::CheckpointFile;
    /// use submeter::{Count, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.counter::<Count>("requests", "Requests answered");
    /// let schema = schema.build()?;
    /// # let path = std::env::temp_dir().join(format!("own-{}.checkpoint", std::process::id()));
    /// let former = Tree::new(schema.clone())?;
    /// former.create("/acme")?.add(requests, 3);
    /// former.checkpoint_last(CheckpointFile::open(&path)?)?;
    ///
    /// let tree = Tree::new(schema)?;
    /// tree.restore(&mut CheckpointFile::open(&path)?)?;
    /// tree.get_or_create("/acme")?.add(requests, 4);
    /// let counted = |snapshot: submeter::Snapshot| {
    ///     snapshot.get("/acme").map(|acme| acme.counter(requests))
    /// };
    /// assert_eq!(counted(tree.snapshot()), Some(7));
    /// assert_eq!(counted(tree.snapshot_without_restored()), Some(4));
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn snapshot_without_restored(&self) -> Snapshot {
        let restored = self.restored().read_recursive();
        let mut snapshot = self.snapshot();
        for group in &mut snapshot.groups {
            let mut bases = bases(&restored, group.id()).peekable();
            if bases.peek().is_none() {
                continue;
            }
            let mut words = group.words.unpacked();
            for base in bases {
                for (word, base) in words.iter_mut().zip(base) {
                    *word = word.wrapping_sub(*base);
                }
            }
            group.words = Words::pack(&words);
        }
        snapshot
    }

    /// Takes a snapshot, and separates the totals in it by process: those of this process first.
    pub(crate) fn snapshot_and_past(&self) -> (Snapshot, Vec<Totals>) {
        // Held for the snapshot: a restore adds to one group after the other, and a snapshot in the
        // middle of that would count a part as this process's own. Recursive, because a snapshot
        // may drop users' values, whose code may take another snapshot.
        let restored = self.restored().read_recursive();
        let snapshot = self.snapshot();
        let groups = snapshot.groups();
        let of = |group: &GroupValues| GroupTotals {
            id: group.id(),
            parent: group.parent().map(|parent| groups[parent].id()),
            path: Arc::clone(&group.path),
            counters: own_counters(&snapshot, group, &restored),
        };
        let totals = Totals {
            epoch: snapshot.epoch(),
            sequence: snapshot.sequence(),
            at: snapshot.system_time(),
            follows: restored
                .iter()
                .flat_map(|restored| &restored.past)
                .map(|past| past.epoch)
                .collect(),
            is_complete: false,
            groups: groups.iter().map(of).collect(),
        };
        let before = restored.iter().flat_map(|restored| restored.past.iter().cloned());
        let mut past: Vec<Totals> = std::iter::once(totals).chain(before).collect();
        // No earlier process can have had metrics that were declared after the restore.
        let width = counters(snapshot.schema()).count();
        for group in past.iter_mut().flat_map(|totals| &mut totals.groups) {
            group.counters.resize(width, 0);
        }
        drop(restored);
        (snapshot, past)
    }
}

/// Returns a group's counters without restored values.
fn own_counters(snapshot: &Snapshot, group: &GroupValues, restored: &[Restored]) -> Vec<u64> {
    let own = |metric: &Metric| {
        let word = group.word(metric.key);
        // A metric may have been declared since.
        let bases = bases(restored, group.id()).filter_map(|base| base.get(word));
        bases.fold(group.words.get(word), |own, base| own.wrapping_sub(*base)).cast_unsigned()
    };
    counters(snapshot.schema()).map(own).collect()
}

/// Returns what each restore added to a group, in the form of a snapshot's words.
fn bases(restored: &[Restored], group: u64) -> impl Iterator<Item = &[i64]> {
    restored.iter().filter_map(move |restored| restored.base.get(&group)).map(|base| &**base)
}
