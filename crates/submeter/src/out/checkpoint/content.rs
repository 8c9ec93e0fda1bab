//! The content of a checkpoint, as lines of JSON and as a tree's totals.

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::error::Kind;
use super::process_counts::{self, ProcessCounts};
use crate::metric::schema::{Metric, MetricKind, Schema};
use crate::metric::totals::Restored;
use crate::out::totals::counters;
use crate::path;
use crate::{Buckets, Group, Snapshot, Tree};

const FORMAT: &str = "submeter-checkpoint-1";

/// A checkpoint.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) epoch: u64,
    pub(super) sequence: u64,
    unix_ms: u64,
    pub(super) complete: bool,
    metrics: Vec<Kept>,
    /// The counts of processes: those of the process that saved it, then those of earlier ones.
    past: Vec<ProcessCounts>,
    pub(super) groups: Vec<GroupContent>,
}

/// A metric whose values a checkpoint keeps.
#[derive(Debug, PartialEq, Eq)]
struct Kept {
    name: String,
    kind: String,
    unit: String,
    /// A histogram's.
    buckets: Option<Buckets>,
}

/// The counts of the group itself, and those that killed groups left it.
#[derive(Debug)]
pub(super) struct GroupContent {
    path: String,
    /// The nonzero words of each metric, with their indices.
    values: Vec<(String, Vec<(usize, i64)>)>,
}

/// Returns the metrics whose values a checkpoint keeps.
fn kept(schema: &Schema) -> impl Iterator<Item = &Metric> {
    let counted =
        |metric: &&Metric| matches!(metric.kind(), MetricKind::Counter | MetricKind::Histogram);
    schema.metrics().iter().filter(counted)
}

impl Kept {
    fn of(metric: &Metric) -> Kept {
        let (kind, unit) = (metric.kind().to_string(), metric.unit().to_string());
        Kept { name: metric.name().to_owned(), kind, unit, buckets: metric.buckets() }
    }

    /// Returns the number of its words: a histogram's first word is the sum of its values.
    fn words(&self) -> usize {
        1 + self.buckets.map_or(0, Buckets::len)
    }

    fn json(&self) -> Value {
        let Kept { name, kind, unit, .. } = self;
        let mut json = json!({"name": name, "kind": kind, "unit": unit});
        if let Some(buckets) = self.buckets {
            json["buckets"] = bounds(buckets);
        }
        json
    }

    fn parse(json: &Value) -> Option<Kept> {
        let text = |name: &str| json[name].as_str().map(str::to_owned);
        let buckets = match json.get("buckets") {
            None => None,
            Some(bounds) => Some(buckets(bounds)?),
        };
        Some(Kept { name: text("name")?, kind: text("kind")?, unit: text("unit")?, buckets })
    }
}

/// Writes the upper bounds of the first bucket and of the last one that has a bound.
fn bounds(buckets: Buckets) -> Value {
    json!([buckets.upper(0), buckets.upper(buckets.len() - 2)])
}

/// Reads what [`bounds`] wrote.
fn buckets(bounds: &Value) -> Option<Buckets> {
    let [low, high] = bounds.as_array()?.as_slice() else { return None };
    let power = |bound: &Value| {
        let bound = bound.as_u64().filter(|bound| bound.is_power_of_two())?;
        u8::try_from(bound.ilog2()).ok()
    };
    let (low, high) = (power(low)?, power(high)?);
    (2 <= low && low < high && high <= 62).then(|| Buckets::powers(low, high))
}

impl Content {
    pub(super) fn of(tree: &Tree, epoch: u64, sequence: u64, complete: bool) -> Content {
        let (snapshot, mut past) = tree.snapshot_and_past();
        past[0].is_complete = complete;
        let snapshot = &snapshot;
        let metrics: Vec<&Metric> = kept(snapshot.schema()).collect();
        let since = snapshot.system_time().duration_since(UNIX_EPOCH).unwrap_or_default();
        let rests = snapshot.groups().iter().zip(without_children(snapshot));
        let groups = rests.map(|(group, rest)| {
            let of = |metric: &&Metric| {
                let first = group.word(metric.key);
                let words = rest[first..first + metric.words()].iter().copied().enumerate();
                (metric.name().to_owned(), words.filter(|&(_, word)| word != 0).collect())
            };
            let values = metrics.iter().map(of);
            let values = values.filter(|(_, words): &(_, Vec<_>)| !words.is_empty()).collect();
            GroupContent { path: group.path().to_owned(), values }
        });
        let names: Vec<&str> = counters(snapshot.schema()).map(Metric::name).collect();
        Content {
            epoch,
            sequence,
            past: process_counts::kept(&past)
                .iter()
                .map(|totals| ProcessCounts::of(totals, &names))
                .collect(),
            unix_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            complete,
            groups: groups.collect(),
            metrics: metrics.into_iter().map(Kept::of).collect(),
        }
    }

    pub(super) fn at(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_millis(self.unix_ms)).unwrap_or(UNIX_EPOCH)
    }

    // ---- as lines ----------------------------------------------------------------------------

    /// Hands out the lines of the file.
    pub(super) fn lines(&self, mut write: impl FnMut(Value) -> io::Result<()>) -> io::Result<()> {
        write(json!({
            "format": FORMAT, "epoch": self.epoch, "sequence": self.sequence,
            "totals": self.past.iter().map(ProcessCounts::json).collect::<Vec<_>>(),
            "unix_ms": self.unix_ms, "complete": self.complete,
            "metrics": self.metrics.iter().map(Kept::json).collect::<Vec<_>>(),
        }))?;
        for group in &self.groups {
            let value = |(name, words): &(String, Vec<(usize, i64)>)| {
                let is_counter =
                    self.metrics.iter().any(|m| m.name == *name && m.buckets.is_none());
                let value = match words.as_slice() {
                    [(0, word)] if is_counter => json!(word.cast_unsigned()),
                    words => histogram(words),
                };
                (name.clone(), value)
            };
            let values: Map<String, Value> = group.values.iter().map(value).collect();
            write(json!({"path": group.path, "values": values}))?;
        }
        write(json!({"groups": self.groups.len()}))
    }

    /// Reads lines.
    pub(super) fn parse(lines: Vec<Value>) -> Result<Content, Kind> {
        let last = lines.len();
        let [head, groups @ .., tail] = lines.as_slice() else {
            return Err(damaged(1, if last == 0 { "it is empty" } else { "it is truncated" }));
        };
        if head["format"] != FORMAT {
            return Err(damaged(1, &format!("the format is not {FORMAT}")));
        }
        if tail["groups"].as_u64() != Some(groups.len() as u64) {
            return Err(damaged(last, "it was truncated or changed"));
        }
        let number = |name: &str| {
            head[name].as_u64().ok_or_else(|| damaged(1, &format!("{name} is not a number")))
        };
        let metrics =
            head["metrics"].as_array().and_then(|all| all.iter().map(Kept::parse).collect());
        let metrics: Vec<Kept> = metrics.ok_or_else(|| damaged(1, "the metrics are not a list"))?;
        let mut paths = HashSet::new();
        let group = |(index, value): (usize, &Value)| {
            let of = group(value, &metrics).filter(|of| is_next(&of.path, &paths));
            let of = of.ok_or_else(|| {
                damaged(
                    index + 2,
                    "not a group with values of the metrics above, or not after its parent",
                )
            })?;
            paths.insert(of.path.clone());
            Ok(of)
        };
        let is_counter = |name: &str| {
            metrics.iter().any(|metric| metric.name == name && metric.buckets.is_none())
        };
        let past = head["totals"].as_array().and_then(|all| {
            all.iter().map(|totals| ProcessCounts::parse(totals, is_counter)).collect()
        });
        let past = past.ok_or_else(|| damaged(1, "the totals are not a list"))?;
        Ok(Content {
            epoch: number("epoch")?,
            sequence: number("sequence")?,
            past,
            unix_ms: number("unix_ms")?,
            complete: head["complete"] == true,
            groups: groups.iter().enumerate().map(group).collect::<Result<_, _>>()?,
            metrics,
        })
    }

    // ---- as totals ---------------------------------------------------------------------------

    /// Adds the content to the groups of a tree, creating those that are missing.
    pub(super) fn add_to(&self, tree: &Tree) -> Result<(), Kind> {
        for kept in &self.metrics {
            let problem = match tree.schema().metric(&kept.name).map(Kept::of) {
                Some(own) if own == *kept => continue,
                Some(own) if own.kind != kept.kind => format!("which is a {} now", own.kind),
                Some(own) if own.unit != kept.unit => format!("whose unit is {} now", own.unit),
                Some(_) => "which has different buckets now".to_owned(),
                None => "which the tree lacks".to_owned(),
            };
            return Err(Kind::Metric { name: kept.name.clone(), problem });
        }
        // All groups first: after that nothing can fail, so no counts are added in part.
        let groups = self.create(tree)?;
        // Locked until everything is added: a reader of totals would otherwise take a part of the
        // restored counts for this process's own.
        let mut restored = tree.restored().write();
        restored.push(self.restored(tree.schema(), &groups));
        for (group, content) in groups.iter().zip(&self.groups) {
            for (name, words) in &content.values {
                let metric = tree.schema().metric(name).expect("checked above");
                group.add_words(metric, words);
            }
        }
        Ok(())
    }

    /// Returns what earlier processes had counted, and what is added to which group.
    fn restored(&self, schema: &Schema, groups: &[Group]) -> Restored {
        let names: Vec<&str> = counters(schema).map(Metric::name).collect();
        let places: HashMap<&str, usize> =
            self.groups.iter().enumerate().map(|(at, content)| (&*content.path, at)).collect();
        let own = |content: &GroupContent| {
            let mut own = vec![0; schema.words()].into_boxed_slice();
            for (name, words) in &content.values {
                let metric = schema.metric(name).expect("checked above");
                let first = schema.word(metric.key).expect("of this schema");
                words.iter().for_each(|&(place, n)| own[first + place] = n);
            }
            own
        };
        let mut sums: Vec<Box<[i64]>> = self.groups.iter().map(own).collect();
        #[cfg(feature = "export")]
        let own = groups.iter().map(Group::id).zip(sums.iter().cloned()).collect();
        // Children before their parents.
        for (at, content) in self.groups.iter().enumerate().rev() {
            let above = process_counts::parent(&content.path).and_then(|parent| places.get(parent));
            let Some(&above) = above else { continue };
            let own = std::mem::take(&mut sums[at]);
            for (sum, n) in sums[above].iter_mut().zip(&own) {
                *sum = sum.wrapping_add(*n);
            }
            sums[at] = own;
        }
        Restored {
            past: self.past.iter().map(|past| past.totals(&names)).collect(),
            base: groups.iter().map(Group::id).zip(sums).collect(),
            #[cfg(feature = "export")]
            own,
        }
    }

    /// Finds or creates the groups. If one cannot be created, kills those that it created.
    fn create(&self, tree: &Tree) -> Result<Vec<Group>, Kind> {
        let (mut groups, mut created) = (Vec::new(), Vec::new());
        for content in &self.groups {
            let found = match tree.get(&content.path) {
                Some(group) => Ok(group),
                None => tree.create(&content.path).inspect(|group| created.push(group.clone())),
            };
            match found {
                Ok(group) => groups.push(group),
                Err(error) => {
                    drop(groups);
                    // Children before their parents. A group that is in use by now stays.
                    for group in created.into_iter().rev() {
                        let _ = group.kill();
                    }
                    return Err(Kind::Group(error));
                }
            }
        }
        Ok(groups)
    }
}

/// Returns, for each group, its words without those of its live children: its own counts, and those
/// that killed groups left it.
fn without_children(snapshot: &Snapshot) -> Vec<Vec<i64>> {
    let groups = snapshot.groups();
    let mut rests: Vec<_> = groups.iter().map(|group| group.words.unpacked()).collect();
    for group in groups {
        let Some(parent) = group.parent() else { continue };
        for (rest, word) in rests[parent].iter_mut().zip(group.words.unpacked()) {
            *rest = rest.wrapping_sub(word);
        }
    }
    rests
}

/// Returns whether a group with this path may follow those of `paths`: the root first, each after
/// its parent.
fn is_next(path: &str, paths: &HashSet<String>) -> bool {
    let is_named =
        path::names(path).is_ok_and(|mut names| names.all(|name| path::check_name(name).is_ok()));
    let is_below =
        process_counts::parent(path).map_or(paths.is_empty(), |parent| paths.contains(parent));
    is_named && is_below && !paths.contains(path)
}

/// Writes a histogram's words. The first is the sum of its values.
fn histogram(words: &[(usize, i64)]) -> Value {
    let sum = words.iter().find(|(place, _)| *place == 0).map_or(0, |&(_, sum)| sum);
    let counts = words.iter().filter(|(place, _)| *place > 0);
    let counts: Vec<_> = counts.map(|&(place, n)| json!([place - 1, n.cast_unsigned()])).collect();
    json!({"sum": sum.cast_unsigned(), "counts": counts})
}

fn group(value: &Value, metrics: &[Kept]) -> Option<GroupContent> {
    let values = value["values"].as_object()?.iter().map(|(name, value)| {
        let kept = metrics.iter().find(|metric| metric.name == *name)?;
        let words = match value.as_u64() {
            Some(count) if kept.buckets.is_none() => vec![(0, count.cast_signed())],
            _ => words(value)?,
        };
        words.iter().all(|&(place, _)| place < kept.words()).then(|| (name.clone(), words))
    });
    let path = value["path"].as_str()?.to_owned();
    Some(GroupContent { path, values: values.collect::<Option<_>>()? })
}

/// Reads what [`histogram`] wrote.
fn words(value: &Value) -> Option<Vec<(usize, i64)>> {
    let mut words = vec![(0, value["sum"].as_u64()?.cast_signed())];
    for pair in value["counts"].as_array()? {
        let [place, n] = pair.as_array()?.as_slice() else { return None };
        words.push((usize::try_from(place.as_u64()?).ok()? + 1, n.as_u64()?.cast_signed()));
    }
    Some(words)
}

fn damaged(line: usize, problem: &str) -> Kind {
    Kind::Damaged { line, problem: problem.to_owned() }
}
