//! Warnings about unreliable figures, with remedies.

use super::Table;
use super::machine::Machine;
use super::runner::Measured;
use crate::row::Row;

/// If the distance between the quartiles is a larger share of the median, two runs will not agree.
const SPREAD_MAX: f64 = 0.15;
/// If threads were preempted in a larger share of samples, few are left for medians.
const DISTURBED_MAX: f64 = 0.1;
/// If the load average per CPU is higher, other programs run most of the time.
const LOAD_MAX: f64 = 0.5;

/// Returns what is wrong with the machine or the build.
pub(super) fn of_machine(machine: &Machine) -> Vec<String> {
    let mut warnings = Vec::new();
    if machine.debug_build {
        warnings.push(
            "this is a debug build: nothing is optimised, and its figures do not describe \
             submeter. Build with --release."
                .to_owned(),
        );
    }
    if let Some([minute, ..]) =
        machine.load_average.filter(|l| l[0] > LOAD_MAX * machine.cpus as f64)
    {
        warnings.push(format!(
            "the load average was {minute:.1} on {} CPUs at the start: other programs were \
             running. Variants were measured in turns, so ratios still hold; for absolute \
             figures, stop the others or wait.",
            machine.cpus
        ));
    }
    warnings
}

/// Returns what disturbed a table, or makes its figures uncertain.
pub(super) fn of_table(table: &Table, measured: &Measured) -> Vec<String> {
    let mut warnings = Vec::new();
    let disturbed = measured.disturbed as f64 / measured.taken.max(1) as f64;
    if disturbed > DISTURBED_MAX {
        warnings.push(format!(
            "{}: a measuring thread was preempted in {} of {} samples, which are left out. Give it \
             more time with --seconds, or stop other programs.",
            table.name, measured.disturbed, measured.taken
        ));
    }
    let poor = measured.poor.iter().filter_map(|&place| measured.rows.get(place));
    let poor: Vec<String> = poor.map(|row| format!("{} ({})", row.variant, params(row))).collect();
    if !poor.is_empty() {
        warnings.push(format!(
            "{}: every sample of these cells was disturbed by a preempted thread, so their figures mean \
             little: {}. Stop other programs, or give it more time with --seconds.",
            table.name,
            poor.join("; ")
        ));
    }
    if measured.mixed {
        return warnings;
    }
    if let Some((row, spread)) = widest(&measured.rows).filter(|(_, s)| *s > SPREAD_MAX) {
        warnings.push(format!(
            "{}: the middle half of {} ({}) spreads over {:.0} % of its median. Give it more time \
             with --seconds, or stop other programs; changes of the CPU's frequency have the same effect.",
            table.name,
            row.variant,
            params(row),
            spread * 100.0
        ));
    }
    warnings
}

/// Finds the least certain median.
fn widest(rows: &[Row]) -> Option<(&Row, f64)> {
    let medians = rows.iter().filter(|row| row.is_median()).map(|row| (row, row.spread()));
    medians.max_by(|a, b| a.1.total_cmp(&b.1))
}

fn params(row: &Row) -> String {
    let all: Vec<String> =
        row.params.0.iter().map(|(name, value)| format!("{name} {value}")).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::TABLES;
    use super::*;
    use crate::row::{Param, Params};

    fn row(cpus: &'static str, variant: &'static str, samples: &[f64]) -> Row {
        Row {
            table: "rcuref".into(),
            params: Params::from([("cpus", Param::word(cpus))]),
            variant: variant.into(),
            value: samples[samples.len() / 2],
            unit: "pairs/s".into(),
            samples: samples.to_vec(),
        }
    }

    /// A measurement on a quiet machine.
    fn measured(rows: Vec<Row>) -> (Machine, Measured) {
        let machine = Machine {
            load_average: Some([0.1, 9.0, 9.0]),
            cpus: 2,
            debug_build: false,
            ..Machine::gather()
        };
        let measured = Measured {
            rows,
            rounds: 7,
            taken: 100,
            disturbed: 0,
            poor: Vec::new(),
            interrupted: false,
            notes: Vec::new(),
            absent: Vec::new(),
            mixed: false,
        };
        (machine, measured)
    }

    fn warnings((machine, measured): &(Machine, Measured)) -> Vec<String> {
        of_machine(machine).into_iter().chain(of_table(&TABLES[0], measured)).collect()
    }

    #[test]
    fn a_quiet_machine_causes_no_warning() {
        let quiet = measured(vec![row("1", "inc_not_zero", &[1.0, 1.0, 1.0])]);
        assert_eq!(warnings(&quiet), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_noise_is_named_with_its_remedy() {
        let mut noisy = measured(vec![row("1", "inc_not_zero", &[1.0, 2.0, 3.0, 4.0])]);
        noisy.0.load_average = Some([9.5, 0.0, 0.0]);
        noisy.0.debug_build = true;
        noisy.1.disturbed = 40;
        noisy.1.poor = vec![0];
        let warnings = warnings(&noisy);
        for (warning, parts) in warnings.iter().zip([
            ["debug build", "--release"],
            ["load average was 9.5 on 2 CPUs", "stop the others"],
            ["40 of 100 samples", "--seconds"],
            ["was disturbed by a preempted thread", "inc_not_zero (cpus 1)"],
            ["inc_not_zero (cpus 1) spreads over 100 %", "--seconds"],
        ]) {
            assert!(parts.iter().all(|part| warning.contains(part)), "{warning}");
        }
        assert_eq!(warnings.len(), 5);
    }

    #[test]
    fn a_wide_tail_causes_no_warning() {
        let mut tail = row("1", "inc_not_zero", &[1.0, 50.0, 99.0]);
        tail.params.set("quantile", Param::word("p99"));
        assert!(warnings(&measured(vec![tail])).is_empty());
    }
}
