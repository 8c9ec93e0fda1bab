//! The views of a program that declares none.

use std::collections::{HashMap, HashSet};

use submeter::{GroupValues, Metric, MetricKind, Schema, UnitKind, Usage, Value};

use super::super::wire::{Placement, Shape};
use super::{Role, Source, Total, View, Views, Worse, level_shape, noun_of, per_s, rate_shape};

/// How many figures fit above the table, and how many in it: more would not fit on a screen.
const HEADLINES: usize = 6;
const COLUMNS: usize = 9;

impl Views {
    /// Shows each metric of a schema as its kind suggests, in the order of declaration: a counter
    /// as a rate, CPU time as processors in use, and a gauge as it is. A quota is shown as what is
    /// held within its limit, with the refusals and stalls, which are trouble. A rate limit is
    /// shown as how often it refuses, which is trouble too, and a histogram as its quantile 0.99.
    /// CPU time is within its [budget](submeter::SchemaBuilder::cpu_budget), and any other counter
    /// within the rate limit of its name and unit. A rate limit whose use nothing counts is in the
    /// detail.
    ///
    /// The first six stand above the table and in it, with refusals, stalls and up to three more in
    /// the table alone; the rest is in the detail of a group.
    #[must_use]
    pub fn of(schema: &Schema) -> Views {
        let (mut views, mut keys, mut first) = (Vec::new(), HashSet::new(), HashMap::new());
        for metric in schema.metrics() {
            first.insert(metric.name(), views.len());
            views.extend(distinct(of(schema, metric), &mut keys));
        }
        for (name, unit) in schema.rate_limits() {
            // The views of a rate limit stand there.
            let limit = first[&*format!("{name}_throttled")] + 1;
            if let Some(used) = used(schema, name, unit) {
                views[limit].doc.place = Placement::Nowhere;
                views[first[used.name()]].doc.limit = Some(views[limit].doc.key.clone());
            }
        }
        // How busy a tenant is, and which processors others lack.
        let mut first = true;
        for view in &mut views {
            let is_rate = matches!(view.source, Source::Rate { .. }) && view.role == Role::None;
            // Other counters of a rate limit belong to refusals.
            let is_rate = is_rate && view.doc.place == Placement::Headline;
            if is_rate && (std::mem::take(&mut first) || view.doc.shape == Shape::Cores) {
                view.role = Role::Contended;
                view.doc.is_contended = true;
            }
        }
        let figures = views.iter_mut().filter(|view| view.doc.place == Placement::Headline);
        for (at, view) in figures.enumerate().skip(HEADLINES) {
            view.doc.place = if at < COLUMNS { Placement::Table } else { Placement::Detail };
        }
        Views::new(views)
    }
}

/// Returns the rate limit that has a counter among its three, its unit, and which of them it is.
fn of_rate_limit<'a>(schema: &'a Schema, name: &'a str) -> Option<(&'a str, UnitKind, &'a str)> {
    schema.rate_limits().find_map(|(limit, unit)| {
        let of = name.strip_prefix(limit)?.strip_prefix('_')?;
        ["throttled", "throttled_time", "overdrafts"].contains(&of).then_some((limit, unit, of))
    })
}

/// Returns the counter of a rate limit's use, if there is one.
fn used<'a>(schema: &'a Schema, limit: &str, unit: UnitKind) -> Option<&'a Metric> {
    let throttled = schema.metric(&format!("{limit}_throttled"))?;
    let is_budget = schema.cpu_budget().is_some_and(|budget| throttled.is(budget.throttled()));
    if let Some(cpu_time) = schema.cpu_time().filter(|_| is_budget) {
        return schema.metrics().iter().find(|metric| metric.is(cpu_time));
    }
    let is_counted =
        |metric: &&Metric| metric.kind() == MetricKind::Counter && metric.unit() == unit;
    schema.metric(limit).filter(is_counted)
}

fn of(schema: &Schema, metric: &Metric) -> Vec<View> {
    let (name, title) = (metric.name(), title(metric.name()));
    let own = metric.clone();
    let views = match metric.kind() {
        MetricKind::Counter => {
            let total: Total = Box::new(move |group| match group.value(&own) {
                Value::Counter(n) => n,
                _ => 0,
            });
            let (shape, per) = rate_shape(metric.unit());
            let (key, title) = match shape {
                Shape::Cores => (format!("{name}_cores"), title),
                _ => (format!("{name}_per_s"), format!("{title}/s")),
            };
            let view = View::new(&key, &title, shape, Source::Rate { total, per });
            // They accompany the CPU time, and others lack nothing by them.
            let beside = [schema.off_cpu(), schema.cpu_error()];
            match of_rate_limit(schema, name) {
                Some((limit, unit, "throttled")) => rate_limit(limit, unit, view),
                Some(_) => vec![view.place(Placement::Detail)],
                None if beside.into_iter().flatten().any(|beside| metric.is(beside)) => {
                    vec![view.place(Placement::Detail)]
                }
                None => vec![view],
            }
        }
        MetricKind::Gauge => {
            let level = move |group: &GroupValues| match group.value(&own) {
                Value::Gauge(n) => Some(n as f64),
                _ => None,
            };
            let source = Source::Level(Box::new(level));
            vec![View::new(name, &title, level_shape(metric.unit()), source)]
        }
        MetricKind::Histogram => {
            let of = move |group: &GroupValues| match group.value(&own) {
                Value::Histogram(recorded) => Some(recorded),
                _ => None,
            };
            let source = Source::Quantile { of: Box::new(of), q: 0.99 };
            let (key, title) = (format!("{name}_p99"), format!("{title} p99"));
            let view = View::new(&key, &title, level_shape(metric.unit()), source);
            // More of anything else may be better.
            let is_time = metric.unit() == UnitKind::Nanoseconds;
            vec![if is_time { view.worse(Worse::High) } else { view }]
        }
        MetricKind::Quota => quota(metric, &title),
        // A kind that is newer than this crate is in the detail's table of values.
        _ => Vec::new(),
    };
    let help = |view: View| if view.doc.help.is_empty() { view.help(metric.help()) } else { view };
    views.into_iter().map(help).collect()
}

/// Shows how often a rate limit refuses, and the limit.
fn rate_limit(name: &str, unit: UnitKind, refusals: View) -> Vec<View> {
    let (key, title) = (format!("{name}_limit"), format!("{} limit", title(name)));
    let (shape, per) = rate_shape(unit);
    let name = name.to_owned();
    let level = move |group: &GroupValues| Some(per_s(group.rate_of(&name)?.0?) / per);
    let noun = format!("over its {}", noun_of(&title));
    vec![
        refusals.noun(&noun).refused_by(&key).place(Placement::Table).trouble(),
        View::new(&key, &title, shape, Source::Level(Box::new(level))).place(Placement::Detail),
    ]
}

fn quota(metric: &Metric, title: &str) -> Vec<View> {
    let name = metric.name();
    let usage = |read: fn(Usage) -> Option<u64>| {
        let own = metric.clone();
        move |group: &GroupValues| match group.value(&own) {
            Value::Quota(usage) => read(usage),
            _ => None,
        }
    };
    let level = |read: fn(Usage) -> Option<u64>| {
        let read = usage(read);
        Source::Level(Box::new(move |group| read(group).map(|amount| amount as f64)))
    };
    let shape = level_shape(metric.unit());
    let limit = format!("{name}_limit");
    let own = metric.clone();
    let total: Total = Box::new(move |group| group.refused_of(&own).unwrap_or(0));
    let refusals = Source::Rate { total, per: 1.0 };
    let own = metric.clone();
    vec![
        View::new(name, title, shape, level(|usage| Some(usage.current))).within(&limit),
        View::new(&limit, &format!("{title} limit"), shape, level(|usage| usage.limit))
            .place(Placement::Nowhere),
        View::new(
            &format!("{name}_refused_per_s"),
            &format!("{title} refused/s"),
            Shape::Rate,
            refusals,
        )
        .noun(&format!("over its {} limit", noun_of(title)))
        .refused_by(&limit)
        .place(Placement::Table)
        .trouble(),
        View::stalls(&format!("{name}_pressure"), &format!("{title} stalls"), move |group| {
            group.pressure_of(&own).unwrap_or_default().some.avg10
        })
        .place(Placement::Table),
    ]
}

/// Renames the keys of one metric's views if another metric has a name that a view would have. The
/// views refer to each other by key.
fn distinct(mut views: Vec<View>, keys: &mut HashSet<String>) -> Vec<View> {
    let mut named = HashMap::new();
    for View { doc, .. } in &mut views {
        let was = doc.key.clone();
        while !keys.insert(doc.key.clone()) {
            doc.key.push('_');
        }
        named.insert(was, doc.key.clone());
    }
    for View { doc, refused_by, .. } in &mut views {
        for key in [&mut doc.limit, refused_by].into_iter().flatten() {
            key.clone_from(&named[key]);
        }
    }
    views
}

/// Words that are always written in capitals.
const INITIALS: [&str; 8] = ["cpu", "gpu", "http", "io", "rpc", "sql", "tcp", "udp"];

/// Makes words from a name.
fn title(name: &str) -> String {
    let mut words: Vec<String> = name.split('_').map(str::to_owned).collect();
    if let Some(first) = words[0].get_mut(..1) {
        first.make_ascii_uppercase();
    }
    for word in &mut words {
        if INITIALS.iter().any(|initials| word.eq_ignore_ascii_case(initials)) {
            word.make_ascii_uppercase();
        }
    }
    words.join(" ")
}
