//! The last reading of each epoch, and what follows from it.

use std::collections::{BTreeMap, BTreeSet};

use submeter_http::wire::totals::{GroupTotalsDoc, ReadingDoc};

use super::invoice::{Invoice, Line, Run, State};
use super::record::Record;

/// What was read of all members.
///
/// Readings of one epoch grow with their sequence, group by group, and a group never outlives its
/// parent. The last totals of each group, including deleted ones, less the last totals of its
/// children are therefore what it counted itself; and these add up to the last totals of the root.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    epochs: BTreeMap<String, Epoch>,
}

#[derive(Clone, Debug)]
struct Epoch {
    member: String,
    units: BTreeMap<String, String>,
    /// The last reading, without groups.
    last: ReadingDoc,
    /// The groups by id, as last read.
    groups: BTreeMap<u64, GroupTotalsDoc>,
}

impl Ledger {
    /// Takes a reading; returns whether it is newer than those before. An older reading says less,
    /// one with the same sequence says the same.
    pub(super) fn add(&mut self, record: Record) -> bool {
        if !self.is_new(&record.reading) {
            return false;
        }
        let Record { member, units, mut reading } = record;
        let groups = std::mem::take(&mut reading.groups);
        let known = self.epochs.remove(&reading.epoch);
        let mut all = BTreeMap::new();
        if let Some(known) = known {
            // A successor does not know when its predecessor began.
            reading.started_ms = reading.started_ms.or(known.last.started_ms);
            all = known.groups;
        }
        all.extend(groups.into_iter().map(|group| (group.id, group)));
        let epoch = reading.epoch.clone();
        self.epochs.insert(epoch, Epoch { member, units, last: reading, groups: all });
        true
    }

    /// Returns whether a reading is newer than those before.
    pub(super) fn is_new(&self, reading: &ReadingDoc) -> bool {
        let known = self.epochs.get(&reading.epoch);
        known.is_none_or(|known| reading.sequence > known.last.sequence)
    }

    /// Returns whether a group was last read as it is in this reading.
    pub(super) fn has(&self, epoch: &str, group: &GroupTotalsDoc) -> bool {
        self.epochs.get(epoch).and_then(|known| known.groups.get(&group.id)) == Some(group)
    }

    /// Adds up the readings.
    pub(super) fn invoice(&self) -> Invoice {
        let mut sums: BTreeMap<(&str, &str, &str), i128> = BTreeMap::new();
        for epoch in self.epochs.values() {
            for group in epoch.groups.values() {
                let above = group.parent.and_then(|parent| epoch.groups.get(&parent));
                for (metric, &n) in &group.totals {
                    let unit = epoch.units.get(metric).map_or("unknown", String::as_str);
                    let n = i128::from(n);
                    *sums.entry((&group.path, metric, unit)).or_default() += n;
                    if let Some(above) = above {
                        *sums.entry((&above.path, metric, unit)).or_default() -= n;
                    }
                }
            }
        }
        let line = |((path, metric, unit), total): ((&str, &str, &str), i128)| Line {
            path: path.to_owned(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            total,
        };
        let lines = sums.into_iter().filter(|(_, total)| *total != 0).map(line).collect();
        Invoice {
            lines,
            runs: self.epochs.values().map(|epoch| self.run(epoch)).collect(),
            unread: self.unread(),
        }
    }

    fn run(&self, epoch: &Epoch) -> Run {
        let ReadingDoc { started_ms, at_ms, complete, .. } = epoch.last;
        let mut others = self.epochs.values().filter(|other| other.last.epoch != epoch.last.epoch);
        let is_followed = others.any(|other| {
            // A later process of the same name that began after this one was last read.
            let began = other.member == epoch.member && other.last.started_ms > Some(at_ms);
            began || other.last.follows.contains(&epoch.last.epoch)
        });
        let state = match (complete, is_followed) {
            (true, _) => State::Complete,
            (false, true) => State::Unknown,
            (false, false) => State::Open,
        };
        let (member, epoch) = (epoch.member.clone(), epoch.last.epoch.clone());
        Run { member, epoch, started_ms, read_ms: at_ms, state }
    }

    /// Returns the epochs that are known only through their successors.
    fn unread(&self) -> Vec<String> {
        let follows = self.epochs.values().flat_map(|epoch| &epoch.last.follows);
        let unread = follows.filter(|epoch| !self.epochs.contains_key(*epoch)).cloned();
        unread.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(id: u64, parent: Option<u64>, path: &str, n: u64) -> GroupTotalsDoc {
        let totals = BTreeMap::from([("requests".to_owned(), n)]);
        GroupTotalsDoc { id, parent, path: path.to_owned(), totals }
    }

    fn record(epoch: &str, sequence: u64, groups: Vec<GroupTotalsDoc>) -> Record {
        Record {
            member: "web".to_owned(),
            units: BTreeMap::from([("requests".to_owned(), "count".to_owned())]),
            reading: ReadingDoc {
                epoch: epoch.to_owned(),
                sequence,
                started_ms: Some(1),
                at_ms: 10 + sequence,
                follows: Vec::new(),
                complete: false,
                groups,
            },
        }
    }

    fn lines(ledger: &Ledger) -> Vec<(String, i128)> {
        ledger.invoice().lines.into_iter().map(|line| (line.path, line.total)).collect()
    }

    fn of(lines: &[(&str, i128)]) -> Vec<(String, i128)> {
        lines.iter().map(|&(path, n)| (path.to_owned(), n)).collect()
    }

    /// What deleted groups counted stays theirs, and sums equal the root's.
    #[test]
    fn deleted_groups_keep_their_counts() {
        let mut ledger = Ledger::default();
        let first =
            vec![group(1, None, "/", 10), group(2, Some(1), "/a", 9), group(3, Some(2), "/a/b", 4)];
        assert!(ledger.add(record("e", 1, first.clone())));
        // Both were deleted with 2 more counts that were never read, and one came back.
        let second = vec![group(1, None, "/", 17), group(9, Some(1), "/a", 3)];
        assert!(ledger.add(record("e", 5, second)));
        assert_eq!(lines(&ledger), of(&[("/", 5), ("/a", 8), ("/a/b", 4)]));
        // Duplicates and late readings change nothing.
        for sequence in [5, 4, 1] {
            assert!(!ledger.add(record("e", sequence, first.clone())));
        }
        assert_eq!(lines(&ledger), of(&[("/", 5), ("/a", 8), ("/a/b", 4)]));
        // Another process of the same name begins at 0.
        assert!(ledger.add(record("f", 1, first)));
        assert_eq!(lines(&ledger), of(&[("/", 6), ("/a", 13), ("/a/b", 8)]));
    }

    #[test]
    fn what_is_unknown_is_said() {
        let mut ledger = Ledger::default();
        let mut states = |record: Record| {
            assert!(ledger.add(record));
            let invoice = ledger.invoice();
            (invoice.runs.into_iter().map(|run| run.state).collect::<Vec<_>>(), invoice.unread)
        };
        let groups = vec![group(1, None, "/", 1)];
        assert_eq!(states(record("a", 1, groups.clone())), (vec![State::Open], Vec::new()));
        let mut later = record("b", 1, groups.clone());
        (later.reading.started_ms, later.reading.at_ms) = (Some(20), 21);
        later.reading.follows = vec!["a".to_owned(), "0".to_owned()];
        let unknown = vec![State::Unknown, State::Open];
        assert_eq!(states(later), (unknown, vec!["0".to_owned()]));
        let mut last = record("a", 7, groups);
        (last.reading.complete, last.reading.started_ms) = (true, None);
        assert_eq!(states(last).0, [State::Complete, State::Open]);
    }
}
