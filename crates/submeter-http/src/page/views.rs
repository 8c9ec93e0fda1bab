//! Views: the figures by which people judge a group, declared by the program that owns the groups.
//!
//! The page, its events, `/api/tree` and `submeter top` know no metric by name. They show views,
//! each a number computed from two copies of a group, in the order of declaration. A program that
//! declares none gets the views that its schema suggests.

mod defaults;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use submeter::{
    Counter, Gauge, GroupValues, Histogram, HistogramSnapshot, Quota, Rate, RateLimit, Unit,
    UnitKind,
};

use super::wire::{Figure, Placement, Shape, ViewDoc};

/// The views of a program, in the order in which they are shown. Cloning copies a pointer.
///
/// # Examples
/// ```
/// use submeter::{Bytes, Count, Schema};
/// use submeter_http::wire::Placement;
/// use submeter_http::{View, Views};
///
/// let mut schema = Schema::builder();
/// let (jobs, failed) = (schema.counter::<Count>("jobs", ""), schema.counter("failed", ""));
/// let disk = schema.quota::<Bytes>("disk", "");
/// let views = Views::new(vec![
///     View::rate("jobs_per_s", "Jobs/s", [jobs]).help("Jobs done in the last second"),
///     View::ratio("failures", "Failed", failed, [jobs]).trouble(),
///     View::held("disk", "Disk", disk).within("disk_limit"),
///     View::limit("disk_limit", "Disk limit", disk).place(Placement::Nowhere),
/// ]);
/// # let _ = views;
/// ```
#[derive(Clone, Debug)]
pub struct Views(Arc<[View]>);

/// One figure of every group, with a key of its own.
#[derive(Debug)]
pub struct View {
    doc: ViewDoc,
    source: Source,
    role: Role,
    /// The figure as a noun in a sentence.
    noun: String,
    /// For a wait, the key of the view of the work.
    work: Option<String>,
    /// For something held, the key of the view of how much of it is protected.
    protection: Option<String>,
    /// For refusals, the key of the view of the rate that is exceeded.
    refused_by: Option<String>,
    /// For refusals, the key of the view of what is lacking.
    lacks: Option<String>,
    /// Whether what would be refused waits instead.
    delays: bool,
}

/// What a view means when one tenant harms another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Nothing.
    None,
    /// Others lack what one tenant has of it.
    Contended,
    /// A tenant is harmed that has more, or less, of it than usual.
    WorseHigh,
    WorseLow,
    /// A tenant is harmed if it is many times the tenant's work.
    Wait,
    /// A limit refuses charges, or makes them wait.
    Refusals,
    Pressure,
    /// It determines a tenant's fair part.
    Weight,
}

/// The direction in which a figure gets worse for a tenant: see [`View::worse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worse {
    /// As latency does.
    High,
    /// As a hit ratio does.
    Low,
}

/// Reads something of a group.
type Read<T> = Box<dyn Fn(&GroupValues) -> T + Send + Sync>;

/// Reads a number that only grows.
type Total = Read<u64>;

/// What a view is computed from.
enum Source {
    /// How fast a total grows: its difference per second, divided by `per`.
    Rate { total: Total, per: f64 },
    /// One total's growth divided by another's; nothing if the other did not grow.
    Ratio { part: Total, whole: Total },
    /// The current amount.
    Level(Read<Option<f64>>),
    /// A quantile of the values recorded since the sample before.
    Quantile { of: Read<Option<HistogramSnapshot>>, q: f64 },
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
    /// Shows how fast the sum of `counters` grows. For CPU time that is the number of processors in
    /// use: 1.0 is one processor all the time.
    #[must_use]
    pub fn rate<U: Unit, const N: usize>(
        key: &str,
        title: &str,
        counters: [Counter<U>; N],
    ) -> View {
        let (shape, per) = rate_shape(U::KIND);
        View::new(key, title, shape, Source::Rate { total: sum(counters), per })
    }

    /// Shows the growth of `part` as a part of that of `whole`, such as hits among lookups.
    #[must_use]
    pub fn ratio<U: Unit, const N: usize>(
        key: &str,
        title: &str,
        part: Counter<U>,
        whole: [Counter<U>; N],
    ) -> View {
        let source = Source::Ratio { part: sum([part]), whole: sum(whole) };
        View::new(key, title, Shape::Share, source)
    }

    /// Shows the growth of `total` divided by that of `counters`, such as time per request.
    #[must_use]
    pub fn mean<U: Unit, V: Unit, const N: usize>(
        key: &str,
        title: &str,
        total: Counter<U>,
        counters: [Counter<V>; N],
    ) -> View {
        let source = Source::Ratio { part: sum([total]), whole: sum(counters) };
        View::new(key, title, level_shape(U::KIND), source)
    }

    /// Shows a gauge.
    #[must_use]
    pub fn gauge<U: Unit>(key: &str, title: &str, gauge: Gauge<U>) -> View {
        View::level::<U>(key, title, move |group| Some(group.gauge(gauge) as f64))
    }

    /// Shows what `read` computes from a group's values, or nothing if it returns `None`. An
    /// example is the error of an estimate.
    #[must_use]
    pub fn level<U: Unit>(
        key: &str,
        title: &str,
        read: impl Fn(&GroupValues) -> Option<f64> + Send + Sync + 'static,
    ) -> View {
        View::new(key, title, level_shape(U::KIND), Source::Level(Box::new(read)))
    }

    /// Shows how much of a quota is held.
    #[must_use]
    pub fn held<U: Unit>(key: &str, title: &str, quota: Quota<U>) -> View {
        View::level::<U>(key, title, move |group| Some(group.usage(quota).current as f64))
    }

    /// Shows the group's own limit of a quota, if it has one.
    #[must_use]
    pub fn limit<U: Unit>(key: &str, title: &str, quota: Quota<U>) -> View {
        View::level::<U>(key, title, move |group| group.usage(quota).limit.map(|n| n as f64))
    }

    /// Shows the group's own rate per second, if it has one: the view that a view of use is
    /// [within](View::within).
    #[must_use]
    pub fn rate_limit<U: Unit>(key: &str, title: &str, limit: RateLimit<U>) -> View {
        let (shape, per) = rate_shape(U::KIND);
        let level = move |group: &GroupValues| Some(per_s(group.rate(limit).0?) / per);
        View::new(key, title, shape, Source::Level(Box::new(level)))
    }

    /// Provides the weight with which the group contends for its parent's rate, by which verdicts
    /// decide what is fair. Groups without a weight have 100. It is not shown.
    #[must_use]
    pub fn weight<U: Unit>(key: &str, limit: RateLimit<U>) -> View {
        let level = move |group: &GroupValues| group.rate(limit).1.map(f64::from);
        let mut view = View::new(key, "Weight", Shape::Count, Source::Level(Box::new(level)));
        view.role = Role::Weight;
        view.place(Placement::Nowhere)
    }

    /// Provides how much of a quota is protected from the needs of others: see
    /// [`protected_by`](View::protected_by). It is not shown.
    #[must_use]
    pub fn protection<U: Unit>(key: &str, quota: Quota<U>) -> View {
        let view = View::level::<U>(key, "Protected", move |group| {
            let usage = group.usage(quota);
            usage.low.max(usage.min).map(|own| own as f64)
        });
        view.place(Placement::Nowhere)
    }

    /// Shows how often limits of a quota refuse: the group's own and those of the groups below it.
    /// Like refusals by a rate, they are shown in the group with the limit and in those above.
    #[must_use]
    pub fn refusals<U: Unit>(key: &str, title: &str, quota: Quota<U>) -> View {
        let total: Total = Box::new(move |group| group.refused(quota));
        View::new(key, title, Shape::Rate, Source::Rate { total, per: 1.0 })
    }

    /// Shows the part of the last ten seconds in which a charge of a quota waited for room, as
    /// `some avg10` of Linux' pressure stall information: trouble, which the page calls a stall.
    #[must_use]
    pub fn pressure<U: Unit>(key: &str, title: &str, quota: Quota<U>) -> View {
        View::stalls(key, title, move |group| group.pressure(quota).some.avg10)
    }

    /// `avg10` is in percent.
    fn stalls(
        key: &str,
        title: &str,
        avg10: impl Fn(&GroupValues) -> f64 + Send + Sync + 'static,
    ) -> View {
        let level = Source::Level(Box::new(move |group| Some(avg10(group) / 100.0)));
        let mut view = View::new(key, title, Shape::Share, level).trouble();
        view.doc.is_pressure = true;
        view.role = Role::Pressure;
        view.help("Part of the last ten seconds in which a charge waited for room")
    }

    /// Shows a quantile of the values recorded since the sample before: with `q` 0.99, the value
    /// that 99 of 100 do not exceed.
    #[must_use]
    pub fn quantile<U: Unit>(key: &str, title: &str, histogram: Histogram<U>, q: f64) -> View {
        let of = Box::new(move |group: &GroupValues| Some(group.histogram(histogram)));
        View::new(key, title, level_shape(U::KIND), Source::Quantile { of, q })
    }

    /// Sets the sentence that explains the figure.
    #[must_use]
    pub fn help(mut self, help: &str) -> View {
        help.clone_into(&mut self.doc.help);
        self
    }

    /// Sets where the figure is shown; the default is everywhere.
    #[must_use]
    pub fn place(mut self, place: Placement) -> View {
        self.doc.place = place;
        self
    }

    /// Names the view that is the limit of this one; a bar shows the figure against it.
    #[must_use]
    pub fn within(mut self, limit: &str) -> View {
        self.doc.limit = Some(limit.to_owned());
        self
    }

    /// Declares that anything but zero deserves attention or, for a view with a limit, that little
    /// of it is left. A cache is meant to be full, a disk is not.
    #[must_use]
    pub fn trouble(mut self) -> View {
        self.doc.is_trouble = true;
        if self.role == Role::None && matches!(self.source, Source::Rate { .. }) {
            self.role = Role::Refusals;
            self.doc.is_refusal = true;
        }
        self
    }

    /// Declares that tenants contend for the figure: others lack what one tenant has of it, such as
    /// requests of one server, its CPU time or its memory. Verdicts blame the tenant that has most
    /// of it, or bursts, while another is harmed. The first such view tells how busy a tenant is.
    /// If CPU time is among them, a tenant with little of it keeps no other waiting, however many
    /// requests it makes.
    #[must_use]
    pub fn contended(mut self) -> View {
        self.role = Role::Contended;
        self.doc.is_contended = true;
        self
    }

    /// Declares the direction in which the figure gets worse for a tenant: a tenant whose figure is
    /// worse than usual while another takes most is harmed. Only for headlines, whose past is
    /// known.
    #[must_use]
    pub fn worse(mut self, worse: Worse) -> View {
        self.role = match worse {
            Worse::High => Role::WorseHigh,
            Worse::Low => Role::WorseLow,
        };
        self
    }

    /// Declares that the figure is how long work waited; `work` is the key of the view of how long
    /// the work took. A tenant is harmed if its work waits ten times as long as it takes, and at
    /// least a millisecond. No past is needed to know that. A tenant that does not wait and does
    /// less than usual then has less to do.
    #[must_use]
    pub fn wait_for(mut self, work: &str) -> View {
        self.role = Role::Wait;
        self.work = Some(work.to_owned());
        self
    }

    /// Names the view of how much of this one is protected: a tenant that holds no more is to blame
    /// for nothing.
    #[must_use]
    pub fn protected_by(mut self, protection: &str) -> View {
        self.protection = Some(protection.to_owned());
        self
    }

    /// Names the view of the rate or limit that refuses: sentences mention it.
    #[must_use]
    pub fn refused_by(mut self, rate: &str) -> View {
        self.refused_by = Some(rate.to_owned());
        self
    }

    /// Names the view of what is lacking where something is refused that no limit of its own group
    /// refuses, such as the memory of a full server: verdicts name the tenant that has most of it.
    #[must_use]
    pub fn lacks(mut self, held: &str) -> View {
        self.lacks = Some(held.to_owned());
        self
    }

    /// Declares that whatever is over the limit waits instead of being refused. The figure counts
    /// attempts then, of which one that waits makes several: sentences leave it out.
    #[must_use]
    pub fn delays(mut self) -> View {
        self.delays = true;
        self.doc.is_refusal = false;
        self
    }

    /// Sets the name of the figure in a sentence, as in "87 % of all requests". The default is its
    /// title in lower case, without "/s".
    #[must_use]
    pub fn noun(mut self, noun: &str) -> View {
        noun.clone_into(&mut self.noun);
        self
    }

    fn new(key: &str, title: &str, shape: Shape, source: Source) -> View {
        let (key, title, noun) = (key.to_owned(), title.to_owned(), noun_of(title));
        let (help, place, limit) = (String::new(), Placement::Headline, None);
        let doc = ViewDoc {
            key,
            title,
            help,
            shape,
            place,
            limit,
            is_trouble: false,
            is_pressure: false,
            is_contended: false,
            is_refusal: false,
        };
        View {
            doc,
            source,
            role: Role::None,
            noun,
            work: None,
            protection: None,
            refused_by: None,
            lacks: None,
            delays: false,
        }
    }

    /// `before` is the same group one sample earlier. It is `None` for a new group, which then has
    /// counted from zero: what it did within its first second is the rate of that second.
    fn figure(
        &self,
        now: &GroupValues,
        before: Option<&GroupValues>,
        window: Duration,
    ) -> Option<f64> {
        // Saturates: a total that overflows starts from zero.
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
                let total = of(now)?;
                let recent = match before.and_then(of) {
                    Some(before) => total.since(&before),
                    None => total,
                };
                recent.quantile(*q).map(|value| value as f64)
            }
        }
    }
}

impl Views {
    /// Makes the views of a program.
    ///
    /// # Panics
    /// When two views have the same key.
    #[must_use]
    pub fn new(views: Vec<View>) -> Views {
        for (at, view) in views.iter().enumerate() {
            let key = &view.doc.key;
            let is_taken = views[..at].iter().any(|other| other.doc.key == *key);
            assert!(!is_taken, "two views have the key {key:?}: give each one of its own");
        }
        Views(views.into())
    }

    /// Describes the views.
    pub(super) fn docs(&self) -> impl Iterator<Item = &ViewDoc> {
        self.0.iter().map(|view| &view.doc)
    }

    /// Returns whether a group with these figures is active: some rate is not zero.
    pub(super) fn is_active(&self, figures: &[Figure]) -> bool {
        let mut rates = self.0.iter().zip(figures);
        rates.any(|(view, figure)| {
            matches!(view.source, Source::Rate { .. }) && figure.0.is_some_and(|rate| rate > 0.0)
        })
    }

    /// Returns the indices of the views with a role.
    pub(super) fn with(&self, role: Role) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len()).filter(move |&at| self.0[at].role == role)
    }

    /// Returns whether a view shows how fast something happens, rather than what is held.
    pub(super) fn is_rate(&self, at: usize) -> bool {
        matches!(self.0[at].source, Source::Rate { .. })
    }

    /// Returns the index of the view by which the server is divided among tenants: their CPU time,
    /// or else the first view that they contend for.
    pub(super) fn divided(&self) -> Option<usize> {
        let mut contended = self.with(Role::Contended);
        let cpu = |&at: &usize| self.0[at].doc.shape == Shape::Cores;
        self.with(Role::Contended).find(cpu).or_else(|| contended.find(|&at| self.is_rate(at)))
    }

    /// Returns the name of a view's figure in a sentence.
    pub(super) fn noun(&self, at: usize) -> &str {
        &self.0[at].noun
    }

    /// Returns the index of the view of a wait's work.
    pub(super) fn work(&self, wait: usize) -> Option<usize> {
        self.place(self.0[wait].work.as_ref()?)
    }

    /// Returns the index of the view that is the limit of another.
    pub(super) fn limit(&self, of: usize) -> Option<usize> {
        self.place(self.0[of].doc.limit.as_ref()?)
    }

    /// Returns the index of the view of how much of another is protected.
    pub(super) fn protection(&self, held: usize) -> Option<usize> {
        self.place(self.0[held].protection.as_ref()?)
    }

    /// Returns the index of the view of the rate by which something is refused.
    pub(super) fn refusing(&self, refusals: usize) -> Option<usize> {
        self.place(self.0[refusals].refused_by.as_ref()?)
    }

    /// Returns the index of the view of what a group lacks to which something is refused, if no
    /// limit of the group refuses it.
    pub(super) fn lacked(&self, refusals: usize) -> Option<usize> {
        self.place(self.0[refusals].lacks.as_ref()?)
    }

    /// Returns the index of the view that is within the limit that refuses.
    pub(super) fn refused(&self, refusals: usize) -> Option<usize> {
        let limit = self.0[refusals].refused_by.as_ref()?;
        self.0.iter().position(|view| view.doc.limit.as_ref() == Some(limit))
    }

    /// Returns whether what a view of refusals counts waits instead.
    pub(super) fn delays(&self, refusals: usize) -> bool {
        self.0[refusals].delays
    }

    /// Returns how a view's figures are written.
    pub(super) fn shape(&self, at: usize) -> Shape {
        self.0[at].doc.shape
    }

    pub(super) fn place(&self, key: &str) -> Option<usize> {
        self.0.iter().position(|view| view.doc.key == *key)
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

    /// Updates the figures that are not rates and need no second copy.
    pub(super) fn freshen(&self, figures: &mut [Figure], now: &GroupValues) {
        for (view, figure) in self.0.iter().zip(figures) {
            if let Source::Level(level) = &view.source {
                *figure = Figure(level(now));
            }
        }
    }
}

/// Makes a noun from a title: words in capitals stay so.
fn noun_of(title: &str) -> String {
    let title = title.strip_suffix("/s").unwrap_or(title);
    let is_word = |word: &str| !word.chars().skip(1).any(char::is_uppercase);
    let lower = |word| if is_word(word) { word.to_lowercase() } else { word.to_owned() };
    title.split(' ').map(lower).collect::<Vec<_>>().join(" ")
}

fn sum<U: Unit, const N: usize>(counters: [Counter<U>; N]) -> Total {
    // Each counter wraps on overflow too.
    let add = |sum: u64, n| sum.wrapping_add(n);
    Box::new(move |group| counters.iter().map(|&counter| group.counter(counter)).fold(0, add))
}

/// A rate of nothing has no period.
fn per_s(rate: Rate) -> f64 {
    match rate.amount {
        0 => 0.0,
        amount => amount as f64 / rate.per.as_secs_f64(),
    }
}

/// A total in nanoseconds is CPU time: a nanosecond per nanosecond is one processor.
fn rate_shape(unit: UnitKind) -> (Shape, f64) {
    match unit {
        UnitKind::Bytes => (Shape::ByteRate, 1.0),
        UnitKind::Nanoseconds => (Shape::Cores, 1e9),
        _ => (Shape::Rate, 1.0),
    }
}

fn level_shape(unit: UnitKind) -> Shape {
    match unit {
        UnitKind::Bytes => Shape::Bytes,
        UnitKind::Nanoseconds => Shape::Time,
        _ => Shape::Count,
    }
}
