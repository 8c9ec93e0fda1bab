//! Views: the figures by which people judge a group, declared by the program whose groups they are.
//!
//! The page, its events, `/api/tree` and `submeter top` know no metric by name. They show views,
//! each a number computed from two copies of a group, in the order in which they are declared.

use std::sync::Arc;
use std::time::Duration;

use submeter::{
    Counter, Gauge, GroupValues, Histogram, HistogramSnapshot, Nanoseconds, Quota, Unit, UnitKind,
};

use super::wire::{Figure, Place, Shape, ViewDoc};

/// The views of a program, in the order in which they are shown. Cloning copies a pointer.
#[derive(Clone, Debug)]
pub(crate) struct Views(Arc<[View]>);

/// One figure of every group.
#[derive(Debug)]
pub(crate) struct View {
    doc: ViewDoc,
    source: Source,
}

/// Reads something of a group.
type Read<T> = Box<dyn Fn(&GroupValues) -> T + Send + Sync>;

/// Reads a number that only grows.
type Total = Read<u64>;

/// What a view is computed from.
enum Source {
    /// How fast a total grows: its difference per second, divided by `per`.
    Rate { total: Total, per: f64 },
    /// The part of one total's growth in another's; nothing when that did not grow.
    Ratio { part: Total, whole: Total },
    /// How much there is at the moment.
    Level(Read<Option<f64>>),
    /// A quantile of what was recorded since the sample before.
    Quantile { of: Read<HistogramSnapshot>, q: f64 },
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Source::Rate { .. } => "Rate",
            Source::Ratio { .. } => "Ratio",
            Source::Level(_) => "Level",
            Source::Quantile { .. } => "Quantile",
        })
    }
}

impl View {
    /// Shows how fast the sum of `counters` grows. Of CPU time that is the number of processors in
    /// use: 1.0 is one of them all the time.
    pub(crate) fn rate<U: Unit, const N: usize>(
        key: &str,
        title: &str,
        counters: [Counter<U>; N],
    ) -> View {
        let (shape, per) = match U::KIND {
            UnitKind::Bytes => (Shape::ByteRate, 1.0),
            // Nanoseconds a second.
            UnitKind::Nanoseconds => (Shape::Cores, 1e9),
            _ => (Shape::Rate, 1.0),
        };
        View::new(key, title, shape, Source::Rate { total: sum(counters), per })
    }

    /// Shows which part of the growth of `whole` is that of `part`, as hits are of lookups.
    pub(crate) fn ratio<U: Unit, const N: usize>(
        key: &str,
        title: &str,
        part: Counter<U>,
        whole: [Counter<U>; N],
    ) -> View {
        let source = Source::Ratio { part: sum([part]), whole: sum(whole) };
        View::new(key, title, Shape::Share, source)
    }

    /// Shows a gauge.
    pub(crate) fn gauge<U: Unit>(key: &str, title: &str, gauge: Gauge<U>) -> View {
        let level = move |group: &GroupValues| Some(group.gauge(gauge) as f64);
        View::new(key, title, level_shape(U::KIND), Source::Level(Box::new(level)))
    }

    /// Shows how much of a quota is held.
    pub(crate) fn held<U: Unit>(key: &str, title: &str, quota: Quota<U>) -> View {
        let level = move |group: &GroupValues| Some(group.usage(quota).current as f64);
        View::new(key, title, level_shape(U::KIND), Source::Level(Box::new(level)))
    }

    /// Shows the group's own limit of a quota, if it has one.
    pub(crate) fn limit<U: Unit>(key: &str, title: &str, quota: Quota<U>) -> View {
        let level = move |group: &GroupValues| group.usage(quota).limit.map(|limit| limit as f64);
        View::new(key, title, level_shape(U::KIND), Source::Level(Box::new(level)))
    }

    /// Shows how often the group's own limit of a quota refuses.
    pub(crate) fn refusals<U: Unit>(key: &str, title: &str, quota: Quota<U>) -> View {
        let total: Total = Box::new(move |group| group.usage(quota).refused);
        View::new(key, title, Shape::Rate, Source::Rate { total, per: 1.0 })
    }

    /// Shows a quantile of the times that were recorded since the sample before.
    pub(crate) fn quantile(
        key: &str,
        title: &str,
        histogram: Histogram<Nanoseconds>,
        q: f64,
    ) -> View {
        let of = Box::new(move |group: &GroupValues| group.histogram(histogram));
        View::new(key, title, Shape::Time, Source::Quantile { of, q })
    }

    /// Says in a sentence what is shown.
    pub(crate) fn help(mut self, help: &str) -> View {
        help.clone_into(&mut self.doc.help);
        self
    }

    /// Says where it is shown; without it, everywhere.
    pub(crate) fn place(mut self, place: Place) -> View {
        self.doc.place = place;
        self
    }

    /// Names the view that is the limit of this one, which a bar is drawn against.
    pub(crate) fn within(mut self, limit: &str) -> View {
        self.doc.limit = Some(limit.to_owned());
        self
    }

    /// Says that anything but zero deserves attention; of what has a limit, that little is left. A
    /// cache is meant to be full, a disk is not.
    pub(crate) fn trouble(mut self) -> View {
        self.doc.is_trouble = true;
        self
    }

    fn new(key: &str, title: &str, shape: Shape, source: Source) -> View {
        let (key, title) = (key.to_owned(), title.to_owned());
        let (help, place, limit) = (String::new(), Place::Headline, None);
        View { doc: ViewDoc { key, title, help, shape, place, limit, is_trouble: false }, source }
    }

    /// `before` is the same group one sample earlier, or `None` for a new one, which then has
    /// counted since nothing: what it did within its first second is this second's rate.
    fn figure(
        &self,
        now: &GroupValues,
        before: Option<&GroupValues>,
        window: Duration,
    ) -> Option<f64> {
        // Saturates: a group that was killed and made again between two samples starts from zero.
        let grown = |total: &Total| total(now).saturating_sub(before.map_or(0, total)) as f64;
        match &self.source {
            Source::Rate { .. } if window.is_zero() => Some(0.0),
            Source::Rate { total, per } => Some(grown(total) / window.as_secs_f64() / per),
            Source::Ratio { part, whole } => {
                let all = grown(whole);
                (all > 0.0).then(|| grown(part) / all)
            }
            Source::Level(level) => level(now),
            Source::Quantile { of, q } => {
                let total = of(now);
                let recent = before.map_or_else(|| total.clone(), |b| total.since(&of(b)));
                recent.quantile(*q).map(|value| value as f64)
            }
        }
    }
}

impl Views {
    /// Takes the views of a program.
    pub(crate) fn new(views: Vec<View>) -> Views {
        Views(views.into())
    }

    /// Describes the views.
    pub(super) fn docs(&self) -> impl Iterator<Item = &ViewDoc> {
        self.0.iter().map(|view| &view.doc)
    }

    /// Returns whether anything happens in a group with these figures: a rate is not zero.
    pub(super) fn is_active(&self, figures: &[Figure]) -> bool {
        let mut rates = self.0.iter().zip(figures);
        rates.any(|(view, figure)| {
            matches!(view.source, Source::Rate { .. }) && figure.0.is_some_and(|rate| rate > 0.0)
        })
    }

    /// Computes the figures of one group.
    pub(super) fn figures(
        &self,
        now: &GroupValues,
        before: Option<&GroupValues>,
        window: Duration,
    ) -> Box<[Figure]> {
        self.0.iter().map(|view| Figure(view.figure(now, before, window))).collect()
    }

    /// Brings what is no rate, and needs no second copy, up to date.
    pub(super) fn freshen(&self, figures: &mut [Figure], now: &GroupValues) {
        for (view, figure) in self.0.iter().zip(figures) {
            if let Source::Level(level) = &view.source {
                *figure = Figure(level(now));
            }
        }
    }
}

fn sum<U: Unit, const N: usize>(counters: [Counter<U>; N]) -> Total {
    Box::new(move |group| counters.iter().map(|&counter| group.counter(counter)).sum())
}

fn level_shape(unit: UnitKind) -> Shape {
    match unit {
        UnitKind::Bytes => Shape::Bytes,
        UnitKind::Nanoseconds => Shape::Time,
        _ => Shape::Count,
    }
}

#[cfg(test)]
mod tests {
    use submeter::{Buckets, Bytes, Count, Group, Schema, Snapshot, Tree};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A program that is no cache.
    struct Program {
        tree: Tree,
        jobs: Counter<Count>,
        failed: Counter<Count>,
        cpu: Counter<Nanoseconds>,
        disk: Quota<Bytes>,
        waits: Histogram<Nanoseconds>,
    }

    impl Program {
        fn new() -> Program {
            let mut s = Schema::builder();
            let (jobs, failed) = (s.counter("jobs", "Jobs"), s.counter("failed", "Failures"));
            let cpu = s.cpu_time("cpu", "CPU time");
            let disk = s.quota("disk", "Disk");
            let waits = s.histogram("waits", "Waits", Buckets::LATENCY_NS);
            let tree = Tree::new(s.build().expect("distinct names")).expect("a tree");
            Program { tree, jobs, failed, cpu, disk, waits }
        }

        fn views(&self) -> Views {
            Views::new(vec![
                View::rate("jobs", "Jobs/s", [self.jobs, self.failed]),
                View::ratio("failures", "Failed", self.failed, [self.jobs, self.failed]),
                View::rate("cpu", "CPU", [self.cpu]),
                View::held("disk", "Disk", self.disk).within("limit"),
                View::limit("limit", "Limit", self.disk).place(Place::Nowhere),
                View::refusals("refused", "Refused/s", self.disk).trouble(),
                View::quantile("wait", "p50", self.waits, 0.5),
            ])
        }

        fn group(&self) -> Group {
            self.tree.get_or_create("/a").expect("a legal path")
        }
    }

    fn figures(
        views: &Views,
        now: &Snapshot,
        before: Option<&Snapshot>,
        window: Duration,
    ) -> Vec<Option<f64>> {
        let group = |snapshot: &Snapshot| snapshot.get("/a").expect("it lives").clone();
        let before = before.map(group);
        views.figures(&group(now), before.as_ref(), window).iter().map(|figure| figure.0).collect()
    }

    #[test]
    fn figures_are_of_what_happened_between_two_samples() {
        let program = Program::new();
        let (views, group) = (program.views(), program.group());
        group.add(program.jobs, 6);
        group.add(program.cpu, 500_000_000);
        group.set_limit(program.disk, Some(100));
        let held = group.try_charge(program.disk, 60).expect("it fits");
        let first = program.tree.snapshot();
        let new = figures(&views, &first, None, SECOND);
        let expected = [Some(6.0), Some(0.0), Some(0.5), Some(60.0), Some(100.0), Some(0.0), None];
        assert_eq!(new, expected);

        group.add(program.jobs, 3);
        group.add(program.failed, 1);
        group.record(program.waits, 1000);
        group.try_charge(program.disk, 60).expect_err("the limit");
        let second = program.tree.snapshot();
        drop(held);
        let next = figures(&views, &second, Some(&first), 2 * SECOND);
        assert_eq!(next[..6], [2.0, 0.25, 0.0, 60.0, 100.0, 0.5].map(Some));
        assert!(next[6].is_some_and(|wait| (500.0..2000.0).contains(&wait)), "{next:?}");
    }

    #[test]
    fn a_group_that_does_nothing_is_idle_whatever_it_holds() {
        let program = Program::new();
        let (views, group) = (program.views(), program.group());
        let held = group.try_charge(program.disk, 60).expect("no limit");
        let first = program.tree.snapshot();
        group.add(program.failed, 1);
        let second = program.tree.snapshot();
        drop(held);
        let at = |snapshot: &Snapshot| snapshot.get("/a").expect("it lives").clone();
        let idle = views.figures(&at(&first), Some(&at(&first)), SECOND);
        let busy = views.figures(&at(&second), Some(&at(&first)), SECOND);
        assert_eq!((views.is_active(&idle), views.is_active(&busy)), (false, true));
        let no_time = views.figures(&at(&second), None, Duration::ZERO);
        assert_eq!(no_time[0], Figure(Some(0.0)), "the first sample has no rates");
    }

    #[test]
    fn levels_are_brought_up_to_date_and_rates_stay() {
        let program = Program::new();
        let (views, group) = (program.views(), program.group());
        group.add(program.jobs, 4);
        let first = program.tree.snapshot();
        let mut figures = views.figures(first.get("/a").expect("it lives"), None, SECOND);
        let held = group.try_charge(program.disk, 60).expect("no limit");
        group.add(program.jobs, 4);
        let second = program.tree.snapshot();
        drop(held);
        views.freshen(&mut figures, second.get("/a").expect("it lives"));
        assert_eq!((figures[0], figures[3]), (Figure(Some(4.0)), Figure(Some(60.0))));
    }
}
