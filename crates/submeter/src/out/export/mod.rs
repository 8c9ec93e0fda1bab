//! Writes a tree as text for Prometheus and other readers of its formats, with bounds on its size.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::time::SystemTime;

use submeter_percpu::process_lock::ProcessMutex;

use crate::backend::backend;
use crate::metric::schema::{Counter, Gauge, Histogram, Metric, Quota};
use crate::path;
use crate::tree::tree::Tree;

mod activity;
mod format;
mod names;
mod quota_part;
mod series;
mod text;
mod unsummed;
mod walk;

pub use format::Format;
pub use quota_part::QuotaPart;

use series::{Rules, SeriesState};
use text::{Labelled, Style};
use walk::Brakes;

/// The number of groups that an [`Export`] shows unless [`top`](Export::top) says otherwise.
pub const TOP_DEFAULT: usize = 100;

/// An export of one tree. It remembers from one scrape to the next what it needs to keep sums
/// right.
///
/// A group's value is what it counted *itself*, under the metric's plain name, so that
/// `sum(rate(app_requests_total[1m]))` is the rate of the whole tree. The path is the only label,
/// `group="/acme/web"`; the root is `/`.
///
/// Only [`TOP_DEFAULT`] groups are shown, and the groups above them: first those with a limit or a
/// rate of their own, for up to half of the places, then those that counted most lately, in all
/// counters of [`Count`](crate::Count) together, or in the first counter if there are none of that
/// unit. What was counted five minutes ago weighs half. [`top`](Export::top) chooses differently.
/// The counts of all others are in the `other` of the nearest group above them that is shown,
/// `group="/acme//other"`, which cannot be a group's path. So a pattern, `group=~"/acme(/.*)?"`,
/// selects a whole subtree.
///
/// # Sums over time
/// Counters never fall, and their increases over all groups together are what the tree counted,
/// whichever groups come, go, or are created again. Add up increases or rates, not values: the
/// series of a group that ended ends with what it had. In detail:
/// - A new series starts at 0, because Prometheus ignores the value with which a series starts, and
///   stays there until all [`scrapers`](Export::scrapers) have seen it. What its group has counted
///   by then is in the `other` above it, or, if that has just begun too, in the series of the
///   group above. In the very first scrape, and with [`exact`](Export::exact) in every one, series
///   start with everything that their groups have counted.
/// - A metric that was [declared](Tree::declare) since the last scrape stays at 0 in all series
///   until all scrapers have seen it. The next scrape then has the counts in between.
/// - The counts of a group between its last scrape and its end are added to the `other` above it.
///   What it leaves of a gauge is its parent's own, from which later adjustments take it off.
/// - A group that is created again under the same name continues the series.
///
/// # Names
/// Names are `prefix_metric_unit`, with the base unit (`_seconds`, `_bytes`) at the end and
/// `_total` after a counter. A quota has these families: the usage less that of children that are
/// shown, so that the sum is the tree's; `_subtree`, the usage with descendants, for groups with a
/// limit; that `_limit`; the `_peak` with descendants; the counters `_refused` and `_overdrafts` of
/// charges that the group's own limit refused, or granted beyond itself; and `_paused`, the pauses
/// above its `high`. Where charges have waited, `_pressure_some_seconds_total` and
/// `_pressure_full_seconds_total` say for how long: see [`Pressure`](crate::Pressure). A group's
/// stalls include those of its descendants, so their sum over groups means nothing. Where the
/// group's own callbacks gave something back, `_reclaimed` says how much, in the quota's unit, and
/// `_reclaimed_low_total` how often they were asked for what `low` protects. Limits, peaks, stalls
/// and what was reclaimed have no `other`: [`QuotaPart`] lists all parts. Histograms are
/// cumulative; values are integers in the schema's unit, so the bound of a bucket is the largest
/// value in it, `2^k − 1`. Times are written as exact decimals, never converted to floats.
/// `prefix_backend_info` has the process's [backend](crate::backend), and
/// `prefix_barrier_wait_seconds` says how long the oldest barrier has been waiting for a CPU, 0 if
/// none waits. Whole seconds mean that a real-time thread or another cpuset keeps that CPU from the
/// process; until it gets the CPU, nothing that ended is released. Where the schema meters CPU
/// time, `prefix_process_cpu_seconds` is that of the whole process: its excess over all groups
/// together was used in [no group](Tree::cpu_balance).
///
/// Three families make it possible to add up totals of many processes and over restarts.
/// `prefix_tree_info` has the `epoch`, the tree's own number, whose counters began at 0 at
/// `prefix_tree_start_time_seconds`; `prefix_tree_sequence` grows from scrape to scrape. They are
/// the numbers in [`Totals`](crate::Totals), and a forked child has its parent's.
///
/// Totals restored from a checkpoint are left out: the process that counted them was scraped
/// itself, and restored totals would count as new ones.
///
/// # Cost
/// A scrape flushes the tree, looks at what chooses groups in each group down to
/// [`depth`](Export::depth), and copies the values of those that are shown. The memory kept between
/// scrapes is bounded: for each group that is shown, and for one scrape after its end, at most five
/// times 8 bytes for each of [`Schema::words`](crate::Schema::words), and its path; for each other
/// group some 50 bytes, unless [`top`](Export::top) chooses.
///
/// Keep one for each tree, for as long as it is scraped: with a new one for each scrape, counters
/// fall when groups end. For values that the program itself uses, take a [`Tree::snapshot`].
///
/// # Examples
/// ```
/// use submeter::export::Export;
/// use submeter::{Count, Schema, Tree};
///
/// let mut schema = Schema::builder();
/// let requests = schema.counter::<Count>("requests", "Requests answered");
/// let tree = Tree::new(schema.build()?)?;
/// tree.get_or_create("/acme/web")?.add(requests, 3);
/// tree.get_or_create("/acme")?.add(requests, 1);
///
/// let export = Export::new("app").top(100, requests);
/// let mut text = String::new();
/// export.write(&tree, &mut text)?;
/// assert!(text.contains("app_requests_total{group=\"/acme\"} 1\n"));
/// assert!(text.contains("app_requests_total{group=\"/acme/web\"} 3\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Export {
    prefix: String,
    brakes: Brakes,
    subtrees: bool,
    created: bool,
    scrapers: u32,
    exact: bool,
    infos: Vec<Info>,
    state: ProcessMutex<SeriesState>,
}

struct Info {
    name: String,
    help: &'static str,
    labels: Vec<(String, String)>,
}

/// A metric's key by which [`Export::top`] can choose groups.
pub trait RankBy: sealed::RankBy {}

mod sealed {
    use crate::metric::schema::Key;

    pub trait RankBy {
        #[allow(private_interfaces, reason = "the trait is sealed")]
        fn key(self) -> Key;
    }
}

macro_rules! rank_by {
    ($([$($unit:ident)?] $name:ty),*) => {$(
        impl<$($unit)?> RankBy for $name {}
        impl<$($unit)?> sealed::RankBy for $name {
            #[allow(private_interfaces, reason = "the trait is sealed")]
            fn key(self) -> crate::metric::schema::Key {
                self.key
            }
        }
    )*};
}
rank_by!([U] Counter<U>, [U] Gauge<U>, [U] Histogram<U>, [U] Quota<U>, [] &Metric);

impl Export {
    /// Creates an export whose metric names begin with `prefix`. Characters that are not allowed in
    /// metric names become `_`.
    #[must_use]
    pub fn new(prefix: &str) -> Export {
        let backend = backend();
        let labels = [("backend", backend.id()), ("reason", backend.reason())];
        let brakes = Brakes { depth: path::DEPTH_MAX, top: TOP_DEFAULT, by: None, idle: false };
        let export = Export {
            prefix: names::sanitized(prefix),
            brakes,
            subtrees: false,
            created: false,
            scrapers: 2,
            exact: false,
            infos: Vec::new(),
            state: ProcessMutex::default(),
        };
        let name = export.name("backend");
        export.with_info(name, "The backend of updates, and why it is not a better one", &labels)
    }

    /// Goes no deeper than `depth`, where the root is at 0. A group at this depth stands for its
    /// subtree, and the groups below it are not visited.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Count, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let requests = schema.counter::<Count>("requests", "Requests answered");
    /// # let tree = Tree::new(schema.build()?)?;
    /// tree.get_or_create("/acme/web")?.add(requests, 3);
    /// let mut text = String::new();
    /// submeter::export::Export::new("app").depth(1).write(&tree, &mut text)?;
    /// assert!(text.contains("app_requests_total{group=\"/acme\"} 3\n"));
    /// assert!(!text.contains("/acme/web"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn depth(mut self, depth: usize) -> Export {
        self.brakes.depth = depth;
        self
    }

    /// Shows the `groups` groups with the most of a metric, descendants included, and all groups
    /// above them. Counters and histograms are compared by their totals, gauges and quotas by their
    /// current values. A group that is shown stays until another has a quarter more; among equals
    /// the oldest is shown. Groups with nothing in any metric are not shown.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Count, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let requests = schema.counter::<Count>("requests", "Requests answered");
    /// # let tree = Tree::new(schema.build()?)?;
    /// for (name, n) in [("/a", 1), ("/b", 40), ("/c", 2)] {
    ///     tree.get_or_create(name)?.add(requests, n);
    /// }
    /// let mut text = String::new();
    /// submeter::export::Export::new("app").top(1, requests).write(&tree, &mut text)?;
    /// assert!(text.contains("app_requests_total{group=\"/b\"} 40\n"));
    /// assert!(text.contains("app_requests_total{group=\"//other\"} 3\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn top(mut self, groups: usize, metric: impl RankBy) -> Export {
        (self.brakes.top, self.brakes.by) = (groups, Some(metric.key()));
        self
    }

    /// Shows every group, including those with nothing in any metric.
    ///
    /// Without bounds a scrape grows with the tree: several kilobytes for each group.
    #[must_use]
    pub fn every_group(mut self) -> Export {
        (self.brakes.top, self.brakes.idle) = (usize::MAX, true);
        self
    }

    /// Shows [every group](Export::every_group) with exactly what it counted itself, from its first
    /// scrape on, and since when ([`created`](Export::created)). For bills, and for tenants that
    /// live for only a few scrapes. A series starts with everything that its group has counted. A
    /// server that reads `_created` takes that as an increase; a server that does not (Prometheus,
    /// unless configured to) ignores it and needs the default, where increases add up to the
    /// tree's.
    ///
    /// Even so, what a group counts between its last scrape and its end is in the `other` above it,
    /// and so is everything that a group counted if it ends before any scrape.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Count, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let requests = schema.counter::<Count>("requests", "Requests answered");
    /// # let tree = Tree::new(schema.build()?)?;
    /// let export = submeter::export::Export::new("app").exact();
    /// export.write(&tree, &mut String::new())?;
    /// tree.get_or_create("/new")?.add(requests, 3);
    /// let mut text = String::new();
    /// export.write(&tree, &mut text)?;
    /// assert!(text.contains("app_requests_total{group=\"/new\"} 3\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn exact(self) -> Export {
        Export { exact: true, created: true, ..self.every_group() }
    }

    /// Also writes totals with descendants, under names of their own: `app_requests_subtree_total`.
    /// Do not add them up over groups: a count is in the total of each group above it.
    #[must_use]
    pub fn subtrees(mut self) -> Export {
        self.subtrees = true;
        self
    }

    /// In OpenMetrics, writes when each counter and histogram began to count:
    /// `app_requests_created`. That is one more line for each; not all servers use it.
    #[must_use]
    pub fn created(mut self) -> Export {
        self.created = true;
        self
    }

    /// Says how many servers scrape this export; the default is 2. A new series stays at its first
    /// value, and an ended one is repeated, until that many scrapes have seen it.
    ///
    /// Sums are right for each server if they scrape in turns. A number that is too high only keeps
    /// the counts of new groups in `other` for longer.
    ///
    /// # Panics
    /// When `scrapers` is 0.
    #[must_use]
    pub fn scrapers(mut self, scrapers: u32) -> Export {
        assert!(scrapers > 0, "an export for 0 scrapers: use at least 1");
        self.scrapers = scrapers;
        self
    }

    /// Adds `prefix_build_info`, whose labels say what is running: version, commit.
    #[must_use]
    pub fn build_info(self, labels: &[(&str, &str)]) -> Export {
        let name = self.name("build");
        self.with_info(name, "What runs", labels)
    }

    /// Adds `target_info`, whose labels describe the process to OpenTelemetry: `service.name` is
    /// written as `service_name`.
    #[must_use]
    pub fn target_info(self, labels: &[(&str, &str)]) -> Export {
        self.with_info("target".to_owned(), "The process", labels)
    }

    /// Flushes the tree and writes it as OpenMetrics.
    ///
    /// # Errors
    /// Only those of `out`; writing to a `String` never fails. After an error, the next scrape has
    /// everything.
    ///
    /// # Panics
    /// When the metric of [`top`](Export::top) belongs to another tree's schema. Also in a forked
    /// child, if a thread of the parent was writing this export: make a new one there.
    pub fn write<W: Write>(&self, tree: &Tree, out: &mut W) -> fmt::Result {
        self.write_as(Format::OpenMetrics, tree, out)
    }

    /// Flushes the tree and writes it in a format that a client [accepts](Format::accepted).
    ///
    /// # Examples
    /// ```
    /// use submeter::export::{Export, Format};
    ///
    /// # let tree = submeter::Tree::new(submeter::Schema::builder().build()?)?;
    /// let format = Format::accepted("text/plain;version=0.0.4");
    /// let mut text = String::new();
    /// Export::new("app").write_as(format, &tree, &mut text)?;
    /// assert!(text.contains("# TYPE app_backend_info gauge\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Only those of `out`; writing to a `String` never fails. After an error, the next scrape has
    /// everything.
    ///
    /// # Panics
    /// When the metric of [`top`](Export::top) belongs to another tree's schema. Also in a forked
    /// child, if a thread of the parent was writing this export: make a new one there.
    pub fn write_as<W: Write>(&self, format: Format, tree: &Tree, out: &mut W) -> fmt::Result {
        // Scrapes run one after the other. `out` is the caller's code, and is called only after the
        // lock is released.
        out.write_str(&self.text(format, tree)?)
    }

    fn text(&self, format: Format, tree: &Tree) -> Result<String, fmt::Error> {
        let mut locked = self.state.lock();
        let state = &mut *locked;
        // One version for everything that follows, whatever is declared meanwhile. Taken after the
        // lock, so that a scrape never has fewer metrics than the one before.
        let version = tree.stats().version();
        let schema = &version.schema;
        let (members, moment) =
            walk::members(tree, version, &self.brakes, &state.ids, &mut state.activity);
        // Read after the groups, so that it includes everything that they have.
        let process = tree.cpu_balance().map(|balance| balance.process_ns);
        let now = SystemTime::now();
        let began = tree.stats().began();
        let (levels, scrapers, subtrees) = (series::levels(schema), self.scrapers, self.subtrees);
        let exact = self.exact;
        state.advance(members, &Rules { levels: &levels, scrapers, subtrees, exact, began, now });

        let scrapers = (!exact).then_some(scrapers);
        let style = Style { format, created: self.created, scrapers };
        let mut out = String::new();
        for Info { name, help, labels } in &self.infos {
            text::info(style, name, help, labels, &mut out)?;
        }
        let barrier = self.name("barrier_wait_seconds");
        text::barrier(style, &barrier, submeter_sys::barrier::waiting(), &mut out)?;
        let counted = self.name("tree");
        text::tree(style, &counted, began, moment, self.exact, &mut out)?;
        let process_cpu = self.name("process_cpu_seconds");
        if let Some(ns) = process {
            text::process_cpu(style, &process_cpu, ns, &mut out)?;
        }
        let mut groups: Vec<Labelled<'_>> =
            state.entries.iter().map(|(path, entry)| Labelled::new(path, entry)).collect();
        groups.sort_unstable_by(|a, b| path::compare(a.path, b.path));
        let infos = self.infos.iter();
        let taken = infos.flat_map(|info| [format!("{}_info", info.name), info.name.clone()]);
        let taken = taken.chain([barrier, format!("{process_cpu}_total"), process_cpu]);
        let taken = taken.chain(text::tree_names(&counted));
        for family in names::families(schema, &self.prefix, self.subtrees, taken) {
            text::family(style, schema, &family, &state.columns, &groups, &mut out)?;
        }
        if format == Format::OpenMetrics {
            out.push_str("# EOF\n");
        }
        Ok(out)
    }

    fn name(&self, name: &str) -> String {
        let separator = if self.prefix.is_empty() { "" } else { "_" };
        format!("{}{separator}{name}", self.prefix)
    }

    /// Adds an info metric, or adds labels to the existing one of this name.
    fn with_info(mut self, name: String, help: &'static str, labels: &[(&str, &str)]) -> Export {
        let label = |&(label, value): &(&str, &str)| {
            (names::sanitized(label).replace(':', "_"), value.to_owned())
        };
        let labels: HashMap<String, String> = labels.iter().map(label).collect();
        let mut labels: Vec<_> = labels.into_iter().collect();
        labels.sort_unstable();
        self.infos.retain(|info| info.name != name);
        self.infos.push(Info { name, help, labels });
        self
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
