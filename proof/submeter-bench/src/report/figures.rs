//! The first screen: what metering costs and what it gains, in a few figures.
//!
//! Each figure names the rows that it is made of. A row that the record lacks is reported as
//! missing, never taken from another source.

use maud::{Markup, html};

use super::definition::Definition;
use super::format::{amount, difference, times};
use super::record::Record;
use super::{paired, plots, rows};
use crate::row::{Param, Params, Row};

/// A row of a record, identified by names that are known at compile time.
struct Place {
    variant: &'static str,
    params: &'static [(&'static str, &'static str)],
}

impl Place {
    fn params(&self) -> Params {
        Params(self.params.iter().map(|&(name, word)| (name.into(), Param::word(word))).collect())
    }
}

/// How a card presents a row and the row that it is compared with.
enum Comparison {
    /// The row's value, and its ratio to the other's.
    Amount,
    /// The row's value as a multiple of the other's.
    Times,
    /// The other's value as a multiple of the row's.
    Fewer,
    /// How far the row is above the other, from pairs of samples that were measured together.
    Overhead,
}

/// A figure of the first screen.
struct Wanted {
    title: &'static str,
    /// A description of the figure and of the other row.
    description: &'static str,
    table: &'static str,
    comparison: Comparison,
    of: Place,
    against: Option<Place>,
}

const COSTS: [Wanted; 5] = [
    Wanted {
        title: "Counting one event",
        description: "for a tenant, on every CPU at once; × a bare increment of a CPU's own word",
        table: "rstat",
        comparison: Comparison::Amount,
        of: Place {
            variant: "submeter",
            params: &[
                ("workload", "update"),
                ("cpus", "all"),
                ("leaf", "one"),
                ("measure", "update"),
            ],
        },
        against: Some(Place {
            variant: "rseq_inc",
            params: &[
                ("workload", "update"),
                ("cpus", "all"),
                ("leaf", "one"),
                ("measure", "update"),
            ],
        }),
    },
    Wanted {
        title: "An exact read",
        description: "per group that changed; × the lists of Linux before its patches",
        table: "rstat",
        comparison: Comparison::Amount,
        of: Place {
            variant: "submeter",
            params: &[("workload", "flush"), ("clean_groups", "0"), ("measure", "flush_per_node")],
        },
        against: Some(Place {
            variant: "before",
            params: &[("workload", "flush"), ("clean_groups", "0"), ("measure", "flush_per_node")],
        }),
    },
    Wanted {
        title: "Switching to another tenant",
        description: "with CPU time and two events per tenant, six tenants; × one read of the clock",
        table: "perf",
        comparison: Comparison::Amount,
        of: Place {
            variant: "submeter",
            params: &[("part", "switch"), ("case", "sibling"), ("groups", "6"), ("events", "2")],
        },
        against: Some(Place {
            variant: "submeter",
            params: &[("part", "switch"), ("case", "clock")],
        }),
    },
    Wanted {
        title: "Response time of a server",
        description: "added to its mean by the events of six tenants, their parent and the process",
        table: "perf",
        comparison: Comparison::Overhead,
        of: Place { variant: "submeter", params: &[("part", "response")] },
        against: Some(Place { variant: "none", params: &[("part", "response")] }),
    },
    Wanted {
        title: "Memory of an idle tenant",
        description: "that was never used",
        table: "rstat",
        comparison: Comparison::Amount,
        of: Place {
            variant: "submeter",
            params: &[("workload", "idle"), ("measure", "bytes_per_group")],
        },
        against: None,
    },
];

const GAINS: [Wanted; 5] = [
    Wanted {
        title: "Cheaper than an atomic on each level",
        description: "to count one event for a tenant and its ancestors, on every CPU at once",
        table: "rstat",
        comparison: Comparison::Fewer,
        of: Place {
            variant: "submeter",
            params: &[
                ("workload", "update"),
                ("cpus", "all"),
                ("leaf", "one"),
                ("measure", "update"),
            ],
        },
        against: Some(Place {
            variant: "walk_up",
            params: &[
                ("workload", "update"),
                ("cpus", "all"),
                ("leaf", "one"),
                ("measure", "update"),
            ],
        }),
    },
    Wanted {
        title: "More references taken",
        description: "and dropped on one object, on every CPU at once, than with one shared atomic count",
        table: "percpu_ref",
        comparison: Comparison::Times,
        of: Place { variant: "percpu_ref", params: &[("copy_bytes", "0"), ("cpus", "all")] },
        against: Some(Place { variant: "atomic", params: &[("copy_bytes", "0"), ("cpus", "all")] }),
    },
    Wanted {
        title: "More additions to a counter",
        description: "each of which crosses the batch, on every CPU at once, than with the lock of Linux before its patches",
        table: "percpu_counter",
        comparison: Comparison::Times,
        of: Place {
            variant: "submeter",
            params: &[("test", "1"), ("path", "slow"), ("mmap", "no"), ("cpus", "all")],
        },
        against: Some(Place {
            variant: "lock_fold",
            params: &[("test", "1"), ("path", "slow"), ("mmap", "no"), ("cpus", "all")],
        }),
    },
    Wanted {
        title: "Requests served, as a multiple of memcached's",
        description: "both count by tenant; clients keep eight requests in flight on each connection",
        table: "end_to_end",
        comparison: Comparison::Times,
        of: Place { variant: "submeter", params: &[("measure", "throughput"), ("pipeline", "8")] },
        against: Some(Place {
            variant: "memcached_stats",
            params: &[("measure", "throughput"), ("pipeline", "8")],
        }),
    },
    Wanted {
        title: "The same, one request at a time",
        description: "clients wait for each answer, so every request costs a read and a write of its own",
        table: "end_to_end",
        comparison: Comparison::Times,
        of: Place { variant: "submeter", params: &[("measure", "throughput"), ("pipeline", "1")] },
        against: Some(Place {
            variant: "memcached_stats",
            params: &[("measure", "throughput"), ("pipeline", "1")],
        }),
    },
];

/// Writes both groups of figures; a figure whose table is among `tables` links to its section.
pub(super) fn first_screen(record: &Record, tables: &[&str]) -> Markup {
    let group = |heading: &str, id: &str, wanted: &[Wanted]| {
        html! {
            section aria-labelledby=(id) {
                h2 id=(id) { (heading) }
                ul class="figures" { @for wanted in wanted { li { (card(record, wanted, tables)) } } }
            }
        }
    };
    html! {
        (group("What it costs", "costs", &COSTS))
        (group("What you gain", "gains", &GAINS))
        p class="small" {
            "Large figures are medians; ± and “half between” give the range of the middle half of the samples. "
            "Every figure comes from the record that this report was made from, and links to its table."
        }
    }
}

/// Returns the report in one sentence: what an event costs, and how that compares with the
/// alternative. `None` if the rows are missing.
pub(super) fn answer(record: &Record, tables: &[&str]) -> Option<String> {
    let [cost, gain] = [&COSTS[0], &GAINS[0]].map(|wanted| shown(record, wanted, tables).ok());
    let (cost, gain) = (cost?, gain?);
    let text = format!("Counting one event for a tenant and its ancestors takes {}", cost.text);
    // A loss is reported as a loss.
    Some(match gain.value {
        _ if gain.text == rows::NOISY => {
            format!("{text}; atomics on each level are too noisy to compare.")
        }
        ratio if ratio >= 1.0 => {
            format!(
                "{text}; atomics on each level take {} times as long.",
                gain.text.replace('×', "").trim()
            )
        }
        _ => format!("{text}; atomics on each level take less: {} of it.", gain.text),
    })
}

/// Returns the picture that goes with [`answer`]: an event's cost beside all alternatives. `None`
/// if the row is missing.
pub(super) fn picture(record: &Record, definitions: &[Definition]) -> Option<Markup> {
    let cost = &COSTS[0];
    let definition = definitions.iter().find(|definition| definition.table == cost.table)?;
    let row = record.find(cost.table, cost.of.variant, &cost.of.params())?;
    plots::plot_of(definition, record, row)
}

/// A figure as it is shown.
struct Shown {
    /// The figure itself, also for programs that read the page.
    value: f64,
    text: String,
    spread: String,
    beside: String,
}

fn card(record: &Record, wanted: &Wanted, tables: &[&str]) -> Markup {
    let link = tables.contains(&wanted.table);
    let href = link.then(|| format!("#{}", super::anchor(wanted.table)));
    let body = match shown(record, wanted, tables) {
        Ok(shown) => html! {
            span class="big" { data value=(shown.value) { (shown.text) } }
            @if !shown.beside.is_empty() { span class="beside" { (shown.beside) } }
            span class="description" { (wanted.description) }
            @if !shown.spread.is_empty() { span class="small" { (shown.spread) } }
        },
        Err(missing) => html! {
            span class="big missing" { "not in this record" }
            span class="description" { (wanted.description) }
            span class="small" { (missing) }
        },
    };
    html! {
        a href=[href] {
            span class="title" { (wanted.title) }
            (body)
            span class="small source" { "from " (wanted.table) }
        }
    }
}

/// Makes a figure.
///
/// # Errors
/// One line that says what is missing, and how to get it.
fn shown(record: &Record, wanted: &Wanted, tables: &[&str]) -> Result<Shown, String> {
    let find = |place: &Place| {
        let row = record.find(wanted.table, place.variant, &place.params());
        row.and_then(|row| Some((row, row.figure()?)))
            .ok_or_else(|| missing(record, wanted, place, tables))
    };
    let (of, value) = find(&wanted.of)?;
    let Some(against) = &wanted.against else {
        // A quick run has fewer groups than a full one.
        let groups = of.params.get("groups").and_then(|groups| groups.parse().ok());
        let among = groups.map(|groups| format!("among {}", submeter_terminal::count(groups)));
        return Ok(Shown {
            value,
            text: amount(value, &of.unit),
            spread: half(of),
            beside: among.unwrap_or_default(),
        });
    };
    let (other, base) = match (find(against), &wanted.comparison) {
        (Ok(found), _) => found,
        // A value can stand alone; a ratio cannot.
        (Err(missing), Comparison::Amount) => {
            return Ok(Shown {
                value,
                text: amount(value, &of.unit),
                spread: half(of),
                beside: missing,
            });
        }
        (Err(missing), _) => return Err(missing),
    };
    Ok(match wanted.comparison {
        Comparison::Amount => Shown {
            value,
            text: amount(value, &of.unit),
            spread: half(of),
            beside: format!(
                "{} {}",
                rows::verdict(of, other).unwrap_or_else(|| times(value / base)),
                amount(base, &other.unit)
            ),
        },
        Comparison::Times => multiple(of, value, other, base),
        Comparison::Fewer => multiple(other, base, of, value),
        Comparison::Overhead => overhead(of, value, other, base),
    })
}

fn multiple(of: &Row, value: f64, other: &Row, base: f64) -> Shown {
    let spread = match (of.quartiles(), other.quartiles()) {
        (Some((low, high)), Some((base_low, base_high))) => {
            format!("half between {} and {}", times(low / base_high), times(high / base_low))
        }
        _ => String::new(),
    };
    let beside = format!("{} against {}", amount(value, &of.unit), amount(base, &other.unit));
    let text = rows::verdict(of, other).unwrap_or_else(|| times(value / base));
    Shown { value: value / base, text, spread, beside }
}

/// How wide an interval around no difference may be and still show that there is none.
const NOTHING_MAX: f64 = 0.02;

/// Shows a difference that is smaller than the noise of either side, from pairs of samples if there
/// are any.
fn overhead(of: &Row, value: f64, other: &Row, base: f64) -> Shown {
    let beside = format!("{} against {}", amount(value, &of.unit), amount(base, &other.unit));
    let (samples, bases) = (&of.samples, &other.samples);
    let pairs = if samples.len() == bases.len() { paired::ratio(samples, bases) } else { None };
    if let Some(paired::Interval { middle, low, high }) = pairs {
        let spread = format!(
            "95 % confidence: between {} and {}; median of {} pairs measured one after the other",
            difference(low - 1.0),
            difference(high - 1.0),
            samples.len()
        );
        // The interval includes both a gain and a loss, and it is wide: the result is inconclusive.
        let noisy = low < 1.0 && high > 1.0 && high - low > NOTHING_MAX;
        let text = if noisy { rows::NOISY.to_owned() } else { difference(middle - 1.0) };
        return Shown { value: middle - 1.0, text, spread, beside };
    }
    let share = value / base - 1.0;
    Shown { value: share, text: difference(share), spread: "of medians".to_owned(), beside }
}

/// Returns the range of the middle half of the samples.
fn half(row: &Row) -> String {
    row.quartiles().map_or_else(String::new, |(low, high)| {
        format!("half between {} and {}", amount(low, &row.unit), amount(high, &row.unit))
    })
}

fn missing(record: &Record, wanted: &Wanted, place: &Place, tables: &[&str]) -> String {
    let table = wanted.table;
    let absent = record.absent.iter().find(|a| a.table == table && a.variant == place.variant);
    if let Some(absent) = absent {
        return format!("{} was not measured: {}", place.variant, absent.reason);
    }
    if record.table(table).next().is_none() {
        // A command is suggested only if this version has it.
        let how = if tables.contains(&table) {
            format!(": submeter-bench {table}")
        } else {
            String::new()
        };
        return format!("the table {table} was not measured{how}");
    }
    format!("the table {table} has no such row of {}", place.variant)
}

#[cfg(test)]
mod tests {
    use super::super::definition::definition;
    use super::*;

    /// Cards name rows by strings; a name that no definition has would show "not in this record".
    #[test]
    fn each_card_refers_to_names_in_its_table_s_definition() {
        for Wanted { title, table, of, against, .. } in COSTS.iter().chain(&GAINS) {
            let definition = definition(table);
            for place in [Some(of), against.as_ref()].into_iter().flatten() {
                let variant = definition.variants.contains_key(place.variant);
                assert!(variant, "{title}: {table} has no variant {}", place.variant);
                for (name, _) in place.params {
                    let param = definition.params.contains_key(*name);
                    assert!(param, "{title}: {table} has no parameter {name}");
                }
            }
        }
    }
}
