//! The counts of each process whose totals are in a checkpoint, as JSON.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use crate::metric::totals::{GroupTotals, Totals};

/// Number of groups that former processes may have together, unless the tree has more.
const GROUPS: usize = 1000;

/// The counts of one process.
#[derive(Debug)]
pub(super) struct ProcessCounts {
    epoch: u64,
    sequence: u64,
    unix_ms: u64,
    complete: bool,
    follows: Vec<u64>,
    groups: Vec<Counted>,
}

/// The counts of one group and its descendants.
#[derive(Debug)]
struct Counted {
    id: u64,
    path: String,
    /// The counters that are not 0.
    counts: Vec<(String, u64)>,
}

/// Returns the processes that are kept: the newest ones, starting with that of the checkpoint. A
/// process that restarts again and again may end before its totals are read; without its
/// predecessors' totals here, they would be in no reading. But not all can be kept, or the file
/// would grow with each start.
pub(super) fn kept(past: &[Totals]) -> &[Totals] {
    let most = past.first().map_or(0, |own| own.groups.len()).max(GROUPS);
    let mut groups = 0;
    // Always two: its own counts, and those that it restored.
    let fit = past.iter().skip(1).take_while(|totals| {
        groups += totals.groups.len();
        groups <= most
    });
    let fit = fit.count().max(1) + 1;
    &past[..fit.min(past.len())]
}

impl ProcessCounts {
    /// Names the counters of totals.
    pub(super) fn of(totals: &Totals, names: &[&str]) -> ProcessCounts {
        let counted = |group: &GroupTotals| {
            let counts = names.iter().map(|&name| name.to_owned()).zip(group.counters.clone());
            let counts: Vec<_> = counts.filter(|(_, n)| *n != 0).collect();
            // If nothing was counted, the root says so for all groups.
            let is_kept = group.parent.is_none() || !counts.is_empty();
            is_kept.then(|| Counted { id: group.id, path: group.path.to_string(), counts })
        };
        let since = totals.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        ProcessCounts {
            epoch: totals.epoch,
            sequence: totals.sequence,
            unix_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            complete: totals.is_complete,
            follows: totals.follows.clone(),
            groups: totals.groups.iter().filter_map(counted).collect(),
        }
    }

    /// Returns the totals, with counters in the order of `names`.
    pub(super) fn totals(&self, names: &[&str]) -> Totals {
        let ids: HashMap<&str, u64> =
            self.groups.iter().map(|group| (&*group.path, group.id)).collect();
        let of = |group: &Counted| GroupTotals {
            id: group.id,
            parent: parent(&group.path).and_then(|parent| ids.get(parent).copied()),
            path: Arc::from(&*group.path),
            counters: by_name(names, &group.counts),
        };
        Totals {
            epoch: self.epoch,
            sequence: self.sequence,
            at: UNIX_EPOCH
                .checked_add(Duration::from_millis(self.unix_ms))
                .unwrap_or(SystemTime::UNIX_EPOCH),
            follows: self.follows.clone(),
            is_complete: self.complete,
            groups: self.groups.iter().map(of).collect(),
        }
    }

    pub(super) fn json(&self) -> Value {
        let group = |group: &Counted| {
            let counts = group.counts.iter().map(|(name, n)| (name.clone(), json!(n)));
            json!({"id": group.id, "path": group.path, "counts": counts.collect::<Map<_, _>>()})
        };
        json!({
            "epoch": hex(self.epoch), "sequence": self.sequence, "unix_ms": self.unix_ms,
            "complete": self.complete,
            "follows": self.follows.iter().copied().map(hex).collect::<Vec<_>>(),
            "groups": self.groups.iter().map(group).collect::<Vec<_>>(),
        })
    }

    /// Reads what [`json`](ProcessCounts::json) wrote.
    pub(super) fn parse(json: &Value, is_counter: impl Fn(&str) -> bool) -> Option<ProcessCounts> {
        let count = |(name, n): (&String, &Value)| {
            is_counter(name).then(|| Some((name.clone(), n.as_u64()?)))?
        };
        let group = |json: &Value| {
            Some(Counted {
                id: json["id"].as_u64()?,
                path: json["path"].as_str()?.to_owned(),
                counts: json["counts"].as_object()?.iter().map(count).collect::<Option<_>>()?,
            })
        };
        Some(ProcessCounts {
            epoch: unhex(&json["epoch"])?,
            sequence: json["sequence"].as_u64()?,
            unix_ms: json["unix_ms"].as_u64()?,
            complete: json["complete"].as_bool()?,
            follows: json["follows"].as_array()?.iter().map(unhex).collect::<Option<_>>()?,
            groups: json["groups"].as_array()?.iter().map(group).collect::<Option<_>>()?,
        })
    }
}

/// Returns values in the order of names; 0 for those that are missing.
pub(super) fn by_name(names: &[&str], values: &[(String, u64)]) -> Vec<u64> {
    let of = |name: &&str| values.iter().find(|(known, _)| known == name).map_or(0, |&(_, n)| n);
    names.iter().map(of).collect()
}

/// Returns the path of the group above.
pub(super) fn parent(path: &str) -> Option<&str> {
    let (above, name) = path.rsplit_once('/')?;
    (!name.is_empty()).then_some(if above.is_empty() { "/" } else { above })
}

/// Writes the number of a tree as text: as a number it would exceed what many JSON readers keep
/// exact.
fn hex(epoch: u64) -> String {
    format!("{epoch:016x}")
}

/// Reads what [`hex`] wrote.
fn unhex(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The oldest processes are dropped once all together have more groups than the tree may have.
    #[test]
    fn past_processes_are_kept_up_to_groups_max() {
        let of = |groups: usize| Totals {
            epoch: 1,
            sequence: 1,
            at: UNIX_EPOCH,
            follows: Vec::new(),
            is_complete: false,
            groups: vec![
                GroupTotals { id: 1, parent: None, path: "/".into(), counters: vec![] };
                groups
            ],
        };
        for (groups, expected) in [
            (&[5][..], 1),
            (&[5, 2000], 2),
            (&[5, 2000, 1], 2),
            (&[5, 400, 400, 200, 1], 4),
            (&[5000, 2000, 3000, 1], 3),
        ] {
            let past: Vec<Totals> = groups.iter().map(|&n| of(n)).collect();
            assert_eq!(kept(&past).len(), expected, "{groups:?}");
        }
    }
}
