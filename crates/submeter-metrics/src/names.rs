//! The names of families and labels, legal and unique for any names that a program gives.

use std::collections::HashSet;

use crate::slots::{Named, Slot};

/// One metric family: its name, what it is, and its metrics.
pub(crate) struct Family<'a> {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) help: &'a str,
    pub(crate) metrics: Vec<&'a Named>,
}

/// Sorts metrics into families by name and kind, in the order of first use. `taken` holds the names
/// of other samples, and receives those of these families.
pub(crate) fn families<'a>(
    metrics: &'a [Named],
    prefix: &str,
    taken: &mut HashSet<String>,
) -> Vec<Family<'a>> {
    let mut families: Vec<Family<'a>> = Vec::new();
    for metric in metrics {
        let kind = kind(metric.slot);
        let known = families
            .iter_mut()
            .find(|f| f.kind == kind && f.metrics.iter().any(|other| other.name == metric.name));
        if let Some(family) = known {
            family.metrics.push(metric);
            continue;
        }
        let name = unique(taken, prefix, stem(&metric.name, kind), suffixes(kind));
        let help = metric.help.as_deref().unwrap_or("");
        families.push(Family { name, kind, help, metrics: vec![metric] });
    }
    families
}

fn kind(slot: Slot) -> &'static str {
    match slot {
        Slot::Counter(_) => "counter",
        Slot::Gauge(_) => "gauge",
        Slot::Histogram(_) => "histogram",
    }
}

/// Returns the suffixes of a family's samples, which must not clash with those of another.
fn suffixes(kind: &str) -> &'static [&'static str] {
    match kind {
        "counter" => &["_total", "_created"],
        "histogram" => &["_bucket", "_sum", "_count", "_created"],
        _ => &[],
    }
}

/// Returns the name without the `_total` that the exposition appends to counters.
fn stem<'a>(name: &'a str, kind: &str) -> &'a str {
    let total = |name: &'a str| name.strip_suffix("_total").or(name.strip_suffix(".total"));
    if kind == "counter" { total(name).unwrap_or(name) } else { name }
}

/// Joins prefix and stem and, if the name or one of its samples is taken, a number.
fn unique(taken: &mut HashSet<String>, prefix: &str, stem: &str, suffixes: &[&str]) -> String {
    let base = legal(&if prefix.is_empty() { stem.into() } else { format!("{prefix}_{stem}") });
    let mut n = 1;
    loop {
        let name = if n == 1 { base.clone() } else { format!("{base}_{n}") };
        let mut all: Vec<String> =
            suffixes.iter().map(|suffix| format!("{name}{suffix}")).collect();
        all.push(name.clone());
        if all.iter().all(|sample| !taken.contains(sample)) {
            taken.extend(all);
            return name;
        }
        n += 1;
    }
}

/// Returns the labels of a metric, `,name="value"` for each. They follow that of the group, whose
/// name none of them may have.
pub(crate) fn labels(metric: &Named) -> String {
    let mut taken = HashSet::from(["group".to_owned(), "le".to_owned()]);
    let mut text = String::new();
    for (name, value) in &metric.labels {
        // Names that begin with `__` are Prometheus' own.
        let base = legal(name).replace(':', "_");
        let base = format!("{}{base}", if base.starts_with("__") { "label" } else { "" });
        let mut name = base.clone();
        let mut n = 1;
        while !taken.insert(name.clone()) {
            n += 1;
            name = format!("{base}_{n}");
        }
        text.push_str(&format!(",{name}=\"{}\"", escaped(value)));
    }
    text
}

/// Makes a name legal: letters, digits, `_` and `:`, no digit first.
fn legal(name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == ':' { c } else { '_' };
    let mut name: String = name.chars().map(legal).collect();
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    name
}

/// Escapes a label's value or a help text.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use submeter::{Count, Schema};

    use super::*;

    fn metric(name: &str, labels: &[(&str, &str)], gauge: bool) -> Named {
        let mut schema = Schema::builder();
        let slot = if gauge {
            Slot::Gauge(schema.gauge::<Count>("x", ""))
        } else {
            Slot::Counter(schema.counter::<Count>("x", ""))
        };
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Named { name: name.to_owned(), labels, help: None, slot }
    }

    #[test]
    fn families_have_legal_and_distinct_names() {
        let metrics = [
            metric("http.requests_total", &[], false),
            metric("http_requests", &[("a", "1")], false),
            metric("http.requests_total", &[("a", "1")], false),
            metric("http.requests", &[], true),
            metric("9 lives", &[], true),
            metric("", &[], true),
            metric("hits_total", &[], true),
            metric("hits", &[], false),
        ];
        let families = families(&metrics, "", &mut HashSet::new());
        let names: Vec<_> = families.iter().map(|f| (f.name.as_str(), f.metrics.len())).collect();
        let expected = [
            ("http_requests", 2),
            ("http_requests_2", 1),
            ("http_requests_3", 1),
            ("_9_lives", 1),
            ("_", 1),
            ("hits_total", 1),
            ("hits_2", 1),
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn labels_are_legal_distinct_and_not_the_groups() {
        let hostile = [("group", "a\"b\\\n"), ("le", "1"), ("a.b", "2"), ("a_b", "3"), ("__x", "")];
        let got = labels(&metric("x", &hostile, false));
        let expected = ",group_2=\"a\\\"b\\\\\\n\",le_2=\"1\",a_b=\"2\",a_b_2=\"3\",label__x=\"\"";
        assert_eq!(got, expected);
    }
}
