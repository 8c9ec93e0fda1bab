//! The memory of an export from one scrape to the next, so that counters never fall and their
//! increases add up.
//!
//! A series is not a copy of a group's counter but a sum of the increases at each scrape, and each
//! increase is added to exactly one series: a group's own counts to its own, the counts of groups
//! that are not shown to the `other` of the nearest group above them. Counts between the last
//! scrape of a group and its end are among the latter, because the totals above it have them and no
//! group that is shown does. So all series together grow by as much as the root.
//!
//! Prometheus ignores the value with which a series begins. Therefore a new series stays at its
//! first value, 0, for as many scrapes as there are scrapers; meanwhile its increases go where they
//! went before. And a series that ends is repeated for all scrapers but the last one, because they
//! may have seen an earlier value. Metrics that were declared in the tree since the last scrape
//! begin in the same way, in all series at once: what is counted meanwhile is an increase
//! afterwards.

use std::collections::HashMap;
use std::time::SystemTime;

use super::activity::Activity;
use super::unsummed::Unsummed;
use super::walk::{Ids, Member, subtract};
use crate::metric::schema::{MetricKind, Schema};
use crate::metric::usage::Usage;

/// All series of an export.
#[derive(Debug, Default)]
pub(super) struct SeriesState {
    root: u64,
    /// When the last scrape was.
    last: Option<SystemTime>,
    pub(super) entries: HashMap<Box<str>, Entry>,
    /// The groups that are shown.
    pub(super) ids: Ids,
    /// The beginning of each word of the schema's metrics.
    pub(super) columns: Vec<Column>,
    /// What groups counted lately, by which they are chosen.
    pub(super) activity: Activity,
}

/// The beginning of a metric.
#[derive(Debug)]
pub(super) struct Column {
    /// When it began to count.
    pub(super) created: SystemTime,
    /// The number of scrapes for which it still stays at 0.
    held: u32,
}

/// The settings, which an advance does not change.
pub(super) struct Rules<'a> {
    /// For each word, whether it is a level, which may fall, rather than a count.
    pub(super) levels: &'a [bool],
    pub(super) scrapers: u32,
    pub(super) subtrees: bool,
    /// Whether new series begin with everything counted so far, in every scrape.
    pub(super) exact: bool,
    /// When the tree began to count.
    pub(super) began: SystemTime,
    pub(super) now: SystemTime,
}

/// The beginning of the series that are new in one scrape.
struct Beginning {
    /// Whether they begin with their groups' values, and not with 0.
    with_all: bool,
    /// The number of scrapes for which they stay as they begin.
    held: u32,
    /// When they began to count.
    since: SystemTime,
}

/// The series of one path.
#[derive(Debug)]
pub(super) struct Entry {
    id: u64,
    /// The value at the last scrape.
    total: Box<[i64]>,
    own: Option<Box<[i64]>>,
    /// The group's own counts, or its subtree's at the greatest depth.
    pub(super) shown: Series,
    /// The counts of groups below it that are not shown.
    pub(super) other: Option<Series>,
    /// The values with descendants, if the program asked for them.
    pub(super) subtree: Option<Box<[i64]>>,
    pub(super) usage: Vec<Usage>,
    /// The usage of each quota, less that of the children that are shown.
    pub(super) used: Box<[u64]>,
    /// The same as in [`Member`].
    pub(super) unsummed: Box<[Unsummed]>,
    /// The number of scrapes that still repeat an ended group's counters.
    left: Option<u32>,
}

/// The values of one series of each metric.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) words: Box<[i64]>,
    pub(super) created: SystemTime,
    /// The number of scrapes for which its counters still stay as they are.
    held: u32,
}

/// The changes of a member: for a count its increase, for a level the level itself.
struct News {
    total: Box<[i64]>,
    own: Box<[i64]>,
    /// The values of groups below that are not shown.
    rest: Box<[i64]>,
}

impl Entry {
    fn grow(&mut self, words: usize) {
        let series = std::iter::once(&mut self.shown).chain(&mut self.other);
        let series = series.map(|series| &mut series.words);
        let others = self.own.iter_mut().chain(&mut self.subtree);
        for all in std::iter::once(&mut self.total).chain(series).chain(others) {
            let mut grown = std::mem::take(all).into_vec();
            grown.resize(words, 0);
            *all = grown.into();
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.left.is_some()
    }
}

impl Series {
    fn new(words: usize, held: u32, created: SystemTime) -> Series {
        Series { words: vec![0; words].into(), created, held }
    }

    fn take(&mut self, news: &[i64], levels: &[bool]) {
        for ((word, &news), &level) in self.words.iter_mut().zip(news).zip(levels) {
            *word = if level { news } else { word.wrapping_add(news) };
        }
    }
}

/// Returns, for each word of a schema, whether it is a level.
pub(super) fn levels(schema: &Schema) -> Vec<bool> {
    let mut levels = vec![false; schema.words()];
    for metric in schema.metrics().iter().filter(|metric| metric.kind == MetricKind::Gauge) {
        let word = schema.word(metric.key).expect("it is the schema's own");
        levels[word] = true;
    }
    levels
}

impl SeriesState {
    /// Learns of the groups that are shown in this scrape.
    pub(super) fn advance(&mut self, mut members: Vec<Member>, rules: &Rules<'_>) {
        let root = members[0].id;
        // The first scrape: no scraper has an earlier one to compare it with, so series begin with
        // everything counted so far.
        let first = self.root != root;
        if first {
            *self = SeriesState { root, ..SeriesState::default() };
        }
        let begins = match self.last {
            _ if first => Beginning { with_all: true, held: 0, since: rules.began },
            Some(last) if rules.exact => Beginning { with_all: true, held: 0, since: last },
            _ => Beginning { with_all: false, held: rules.scrapers, since: rules.now },
        };
        self.last = Some(rules.now);
        self.hold_what_is_new(&mut members, &begins, rules);
        for entry in self.entries.values_mut() {
            let other = entry.other.as_mut().map(|other| &mut other.held);
            let unsummed = entry.unsummed.iter_mut().map(|unsummed| &mut unsummed.held);
            for held in std::iter::once(&mut entry.shown.held).chain(other).chain(unsummed) {
                *held = held.saturating_sub(1);
            }
        }
        let mut news: Vec<News> =
            members.iter().map(|member| self.news(member, &begins, rules)).collect();
        let mut used: Vec<Box<[u64]>> = members.iter().map(current).collect();
        for (at, member) in members.iter().enumerate().rev() {
            let Some(parent) = member.parent else { continue };
            let (above, below) = news.split_at_mut(at);
            subtract(&mut above[parent].rest, &below[0].total);
            // Each group's usage is read separately, so a child's may be newer than its parent's.
            let pairs = used[parent].iter_mut().zip(&member.usage);
            pairs.for_each(|(used, of)| *used = used.saturating_sub(of.current));
        }
        self.ids = members.iter().map(|member| member.id).collect();
        for ((member, news), used) in members.into_iter().zip(news).zip(used) {
            self.put(member, news, used, &begins, rules);
        }
        self.end(rules.scrapers);
    }

    /// Makes room for metrics that were declared since the last scrape, and keeps them at 0 until
    /// all scrapers have seen them begin.
    fn hold_what_is_new(&mut self, members: &mut [Member], begins: &Beginning, rules: &Rules<'_>) {
        for column in &mut self.columns {
            column.held = column.held.saturating_sub(1);
        }
        let words = rules.levels.len();
        if self.columns.len() < words {
            let &Beginning { held, since: created, .. } = begins;
            self.columns.resize_with(words, || Column { created, held });
            self.entries.values_mut().for_each(|entry| entry.grow(words));
        }
        for (at, _) in self.columns.iter().enumerate().filter(|(_, column)| column.held > 0) {
            for member in members.iter_mut().filter(|_| !rules.levels[at]) {
                member.total[at] = 0;
                member.own.iter_mut().for_each(|own| own[at] = 0);
            }
        }
    }

    /// Compares a member with the last scrape. If the member was not shown then, or its series is
    /// held, its counts are not its own increases: they go to the groups above it.
    fn news(&self, member: &Member, begins: &Beginning, rules: &Rules<'_>) -> News {
        let entry = self.entries.get(&member.path);
        let counts = begins.with_all || entry.is_some_and(|e| !e.has_ended() && e.shown.held == 0);
        // A group that was created again under its name has counted everything since the last
        // scrape.
        let same = entry.filter(|entry| entry.id == member.id);
        let new = |now: &[i64], last: Option<&[i64]>| -> Box<[i64]> {
            let word = |(at, (&now, &level)): (usize, (&i64, &bool))| match last {
                _ if level => now,
                _ if !counts => 0,
                Some(last) => now.wrapping_sub(last[at]),
                None => now,
            };
            now.iter().zip(rules.levels).enumerate().map(word).collect()
        };
        let total = new(&member.total, same.map(|entry| &*entry.total));
        let Some(own) = &member.own else {
            let none = vec![0; total.len()].into();
            return News { own: total.clone(), total, rest: none };
        };
        let own = new(own, same.and_then(|entry| entry.own.as_deref()));
        let mut rest = total.clone();
        subtract(&mut rest, &own);
        News { total, own, rest }
    }

    /// Adds the changes of a member to its series.
    fn put(
        &mut self,
        member: Member,
        mut news: News,
        used: Box<[u64]>,
        begins: &Beginning,
        rules: &Rules<'_>,
    ) {
        let Member { path, id, has_children, total, own, usage, unsummed, .. } = member;
        let &Beginning { with_all, held, since: created } = begins;
        let words = total.len();
        let entry = self.entries.entry(path).or_insert_with(|| Entry {
            id: 0,
            total: vec![0; words].into(),
            own: None,
            shown: Series::new(words, held, created),
            other: None,
            subtree: rules.subtrees.then(|| vec![0; words].into()),
            usage: Vec::new(),
            used: Box::default(),
            unsummed: unsummed.iter().map(|now| Unsummed::new(*now, with_all)).collect(),
            left: None,
        });
        let same = entry.id == id;
        let is_new = entry.usage.is_empty() && entry.used.is_empty();
        for (series, now) in entry.unsummed.iter_mut().zip(unsummed) {
            series.take(now, same || is_new, held, created);
        }
        if let Some(subtree) = &mut entry.subtree {
            let last = same.then_some(&*entry.total);
            for (at, word) in subtree.iter_mut().enumerate() {
                let new = total[at].wrapping_sub(last.map_or(0, |last| last[at]));
                *word = if rules.levels[at] { total[at] } else { word.wrapping_add(new) };
            }
        }
        if entry.other.is_none() && (has_children || news.rest.iter().any(|&word| word != 0)) {
            entry.other = own.is_some().then(|| Series::new(words, held, created));
        }
        if let Some(other) = &mut entry.other {
            if other.held > 0 {
                // Until all scrapers have seen it begin.
                for ((own, rest), &level) in
                    news.own.iter_mut().zip(&mut news.rest).zip(rules.levels)
                {
                    if !level {
                        *own = own.wrapping_add(std::mem::take(rest));
                    }
                }
            }
            other.take(&news.rest, rules.levels);
        }
        entry.shown.take(&news.own, rules.levels);
        (entry.id, entry.total, entry.own) = (id, total, own);
        (entry.usage, entry.used, entry.left) = (usage, used, None);
    }

    /// Ends the series of groups that are no longer shown, and forgets those whose end every
    /// scraper has seen.
    fn end(&mut self, scrapers: u32) {
        let ids = &self.ids;
        self.entries.retain(|_, entry| {
            if !ids.contains(&entry.id) {
                entry.left = Some(entry.left.unwrap_or(scrapers) - 1);
            }
            entry.left != Some(0)
        });
    }
}

fn current(member: &Member) -> Box<[u64]> {
    member.usage.iter().map(|usage| usage.current).collect()
}
