//! The first screen: what metering costs, and what is gained by it, in a few figures.
//!
//! Each names the rows that it is made of. What a record does not have is said to be missing;
//! nothing is taken from elsewhere.

use maud::{Markup, html};

use super::definition::Definition;
use super::format::{amount, difference, times};
use super::record::Record;
use super::{paired, plots, rows};
use crate::row::{Param, Params, Row};

/// A row of a record, by what is known of it when this is written.
struct Place {
    variant: &'static str,
    params: &'static [(&'static str, &'static str)],
}

impl Place {
    fn params(&self) -> Params {
        Params(self.params.iter().map(|&(name, word)| (name.into(), Param::word(word))).collect())
    }
}

/// What a card says of a row, and of the one that it is compared with.
enum Tell {
    /// Its value, and by how much that is more or less than the other's.
    Amount,
    /// How many times the other's value it is.
    Times,
    /// How many times its value the other's is.
    Fewer,
    /// By how much it is above the other, in pairs of samples that were measured together.
    Overhead,
}

/// A figure that readers look for.
struct Wanted {
    title: &'static str,
    /// What the figure is, and what the other row is, in words.
    says: &'static str,
    table: &'static str,
    tell: Tell,
    of: Place,
    against: Option<Place>,
}

const COSTS: [Wanted; 5] = [
    Wanted {
        title: "To count one event",
        says: "for a tenant, on every CPU at once; × a bare increment of a CPU's own word",
        table: "rstat",
        tell: Tell::Amount,
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
        title: "To read exactly",
        says: "for each group that changed; × the lists of Linux before its patches",
        table: "rstat",
        tell: Tell::Amount,
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
        title: "To switch to another tenant",
        says: "with the CPU time and two events of each, six tenants; × one read of the clock",
        table: "perf",
        tell: Tell::Amount,
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
        says: "that the events of six tenants, their parent and the process add to its mean",
        table: "perf",
        tell: Tell::Overhead,
        of: Place { variant: "submeter", params: &[("part", "response")] },
        against: Some(Place { variant: "none", params: &[("part", "response")] }),
    },
    Wanted {
        title: "Memory of an idle tenant",
        says: "that was never used",
        table: "rstat",
        tell: Tell::Amount,
        of: Place {
            variant: "submeter",
            params: &[("workload", "idle"), ("measure", "bytes_per_group")],
        },
        against: None,
    },
];

const GAINS: [Wanted; 5] = [
    Wanted {
        title: "Cheaper than an atomic at each level",
        says: "to count one event for a tenant and all above it, on every CPU at once",
        table: "rstat",
        tell: Tell::Fewer,
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
        says: "and put on one object, on every CPU at once, than with one shared atomic count",
        table: "percpu_ref",
        tell: Tell::Times,
        of: Place { variant: "percpu_ref", params: &[("copy_bytes", "0"), ("cpus", "all")] },
        against: Some(Place { variant: "atomic", params: &[("copy_bytes", "0"), ("cpus", "all")] }),
    },
    Wanted {
        title: "More additions to a counter",
        says: "that crosses its batch each time, on every CPU at once, than with the lock of Linux before its patches",
        table: "percpu_counter",
        tell: Tell::Times,
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
        says: "both count what each tenant does, clients have eight requests under way on each connection",
        table: "end_to_end",
        tell: Tell::Times,
        of: Place { variant: "submeter", params: &[("measure", "throughput"), ("pipeline", "8")] },
        against: Some(Place {
            variant: "memcached_stats",
            params: &[("measure", "throughput"), ("pipeline", "8")],
        }),
    },
    Wanted {
        title: "The same, one request at a time",
        says: "clients wait for each answer, so that each request is a read and a write of its own",
        table: "end_to_end",
        tell: Tell::Times,
        of: Place { variant: "submeter", params: &[("measure", "throughput"), ("pipeline", "1")] },
        against: Some(Place {
            variant: "memcached_stats",
            params: &[("measure", "throughput"), ("pipeline", "1")],
        }),
    },
];

/// Writes both groups of figures; those link to their section whose table is among `tables`.
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
        (group("What is gained", "gains", &GAINS))
        p class="small" {
            "Large figures are medians; what follows ± or “half between” is where the middle half of the samples is. "
            "Every figure is of the record that this report was made of, and leads to its table."
        }
    }
}

/// Returns the report in a sentence: what an event costs, and what that is of the alternative.
/// `None` without the rows.
pub(super) fn answer(record: &Record, tables: &[&str]) -> Option<String> {
    let [cost, gain] = [&COSTS[0], &GAINS[0]].map(|wanted| tell(record, wanted, tables).ok());
    let (cost, gain) = (cost?, gain?);
    let text = format!("To count one event for a tenant and all above it takes {}", cost.text);
    // A loss is said as one.
    Some(match gain.value {
        _ if gain.text == rows::NOISY => {
            format!("{text}; atomics at each level are too noisy to compare.")
        }
        ratio if ratio >= 1.0 => {
            format!(
                "{text}; atomics at each level take {} times as much.",
                gain.text.replace('×', "").trim()
            )
        }
        _ => format!("{text}; atomics at each level take less: {} of it.", gain.text),
    })
}

/// Returns the picture to [`answer`]: an event's cost beside all alternatives. `None` without the
/// row.
pub(super) fn picture(record: &Record, definitions: &[Definition]) -> Option<Markup> {
    let cost = &COSTS[0];
    let definition = definitions.iter().find(|definition| definition.table == cost.table)?;
    let row = record.find(cost.table, cost.of.variant, &cost.of.params())?;
    plots::plot_of(definition, record, row)
}

/// A figure as it is shown.
struct Told {
    /// The figure itself, for programs too.
    value: f64,
    text: String,
    spread: String,
    beside: String,
}

fn card(record: &Record, wanted: &Wanted, tables: &[&str]) -> Markup {
    let link = tables.contains(&wanted.table);
    let href = link.then(|| format!("#{}", super::anchor(wanted.table)));
    let body = match tell(record, wanted, tables) {
        Ok(told) => html! {
            span class="big" { data value=(told.value) { (told.text) } }
            @if !told.beside.is_empty() { span class="beside" { (told.beside) } }
            span class="says" { (wanted.says) }
            @if !told.spread.is_empty() { span class="small" { (told.spread) } }
        },
        Err(missing) => html! {
            span class="big missing" { "not in this record" }
            span class="says" { (wanted.says) }
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
/// What is missing, and how it is had.
fn tell(record: &Record, wanted: &Wanted, tables: &[&str]) -> Result<Told, String> {
    let find = |place: &Place| {
        let row = record.find(wanted.table, place.variant, &place.params());
        row.and_then(|row| Some((row, row.figure()?)))
            .ok_or_else(|| missing(record, wanted, place, tables))
    };
    let (of, value) = find(&wanted.of)?;
    let Some(against) = &wanted.against else {
        // A quick run has fewer than a full one.
        let groups = of.params.get("groups").and_then(|groups| groups.parse().ok());
        let among = groups.map(|groups| format!("among {}", submeter_terminal::count(groups)));
        return Ok(Told {
            value,
            text: amount(value, &of.unit),
            spread: half(of),
            beside: among.unwrap_or_default(),
        });
    };
    let (other, base) = match (find(against), &wanted.tell) {
        (Ok(found), _) => found,
        // The value stands alone as well; a ratio does not.
        (Err(missing), Tell::Amount) => {
            return Ok(Told {
                value,
                text: amount(value, &of.unit),
                spread: half(of),
                beside: missing,
            });
        }
        (Err(missing), _) => return Err(missing),
    };
    Ok(match wanted.tell {
        Tell::Amount => Told {
            value,
            text: amount(value, &of.unit),
            spread: half(of),
            beside: format!(
                "{} {}",
                rows::verdict(of, other).unwrap_or_else(|| times(value / base)),
                amount(base, &other.unit)
            ),
        },
        Tell::Times => multiple(of, value, other, base),
        Tell::Fewer => multiple(other, base, of, value),
        Tell::Overhead => overhead(of, value, other, base),
    })
}

fn multiple(of: &Row, value: f64, other: &Row, base: f64) -> Told {
    let spread = match (of.quartiles(), other.quartiles()) {
        (Some((low, high)), Some((base_low, base_high))) => {
            format!("half between {} and {}", times(low / base_high), times(high / base_low))
        }
        _ => String::new(),
    };
    let beside = format!("{} against {}", amount(value, &of.unit), amount(base, &other.unit));
    let text = rows::verdict(of, other).unwrap_or_else(|| times(value / base));
    Told { value: value / base, text, spread, beside }
}

/// How wide an interval that has no difference in it may be for that to be a finding.
const NOTHING_MAX: f64 = 0.02;

/// Tells a difference that is smaller than the noise of either side: by pairs, where there are any.
fn overhead(of: &Row, value: f64, other: &Row, base: f64) -> Told {
    let beside = format!("{} against {}", amount(value, &of.unit), amount(base, &other.unit));
    let (samples, bases) = (&of.samples, &other.samples);
    let pairs = if samples.len() == bases.len() { paired::ratio(samples, bases) } else { None };
    if let Some(paired::Interval { middle, low, high }) = pairs {
        let spread = format!(
            "95 % sure: between {} and {}; median of {} pairs measured one after the other",
            difference(low - 1.0),
            difference(high - 1.0),
            samples.len()
        );
        // Neither more nor less, and no little either: nothing was found.
        let noisy = low < 1.0 && high > 1.0 && high - low > NOTHING_MAX;
        let text = if noisy { rows::NOISY.to_owned() } else { difference(middle - 1.0) };
        return Told { value: middle - 1.0, text, spread, beside };
    }
    let share = value / base - 1.0;
    Told { value: share, text: difference(share), spread: "of medians".to_owned(), beside }
}

/// Says where the middle half of the samples is.
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
        // A command is named only where this version has it.
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

    /// Cards name rows by strings; a name that is in no definition would show "not in this record".
    #[test]
    fn each_card_names_what_its_table_s_definition_has() {
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
