//! Tests of what people see, on made-up figures.

use super::super::runner::Absent;
use super::*;
use crate::bench::machine::Machine;
use crate::bench::{Mode, TABLES};

fn row(cpus: &'static str, variant: &'static str, samples: &[f64]) -> Row {
    Row {
        table: "rcuref",
        params: vec![("cpus", Param::Word(cpus))],
        variant,
        value: samples[samples.len() / 2],
        unit: "pairs/s",
        samples: samples.to_vec(),
    }
}

/// A quiet machine that measured `rows`.
fn outcome(rows: Vec<Row>) -> Outcome {
    let machine = Machine {
        load_average: Some([0.1, 9.0, 9.0]),
        cpus: 2,
        debug_build: false,
        ..Machine::gather()
    };
    let notes = vec!["something is missing".to_owned()];
    let absent = vec![Absent { variant: "peer", reason: "no \"compiler\" here".to_owned() }];
    let (taken, disturbed, poor, interrupted) = (100, 0, Vec::new(), false);
    let (rounds, human) = (7, None);
    let measured =
        Measured { rows, rounds, taken, disturbed, poor, interrupted, notes, absent, human };
    Outcome { machine, tables: vec![(&TABLES[0], measured)], mode: Mode::Quick }
}

fn shown(outcome: &Outcome) -> String {
    let warnings = warnings(outcome);
    anstream::adapter::strip_str(&human(outcome, &warnings)).to_string()
}

#[test]
fn a_line_has_values_and_ratios_to_the_baseline() {
    let text = shown(&outcome(vec![
        row("1", "rcuref", &[80e6, 81e6, 82e6]),
        row("1", "inc_not_zero", &[60e6, 60e6, 60e6]),
        row("all", "rcuref", &[24e6, 25e6, 26e6]),
        row("all", "inc_not_zero", &[10e6, 10e6, 11e6]),
    ]));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "rcuref  A get and a put on one shared count that never drops to zero.",
            "cpus      rcuref  inc_not_zero  spread",
            "1     81.0 1.35×          60.0    ±1 %",
            "all   25.0 2.50×          10.0    ±5 %",
            "million pairs/s, × inc_not_zero; 7 rounds; spread: half of the middle half, of the worst",
            "something is missing",
            "not measured: peer: no \"compiler\" here",
            "",
        ]
    );
}

#[test]
fn a_record_says_what_is_absent() {
    let json = crate::bench::json(&outcome(Vec::new()), &[]).expect("JSON");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let absent = &json["absent"][0];
    assert_eq!(absent["table"], "rcuref");
    assert_eq!(absent["variant"], "peer");
    assert_eq!(absent["reason"], "no \"compiler\" here");
}

#[test]
fn what_was_not_measured_is_a_dash_or_said() {
    let mut partial = outcome(vec![
        row("1", "rcuref", &[80e6]),
        row("1", "inc_not_zero", &[60e6]),
        row("all", "rcuref", &[20e6]),
    ]);
    partial.tables[0].1.interrupted = true;
    let text = shown(&partial);
    assert!(text.contains("all         20.0             –"), "{text}");
    assert!(text.contains("interrupted: "), "{text}");
    let text = shown(&outcome(Vec::new()));
    assert!(text.contains("nothing was measured"), "{text}");
}

#[test]
fn other_parameters_have_a_heading_of_their_own() {
    let mut other = row("8", "inc_not_zero", &[30e6]);
    other.params[0].0 = "simulated_cpus";
    let text = shown(&outcome(vec![row("1", "inc_not_zero", &[60e6]), other]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("cpus  ") && lines[2].starts_with("1  "), "{text}");
    assert!(lines[3].starts_with("simulated_cpus  ") && lines[4].starts_with("8  "), "{text}");
}

#[test]
fn no_variant_is_without_a_column() {
    let text = shown(&outcome(vec![
        row("1", "rcuref", &[80e6]),
        row("1", "inc_not_zero", &[60e6]),
        row("2", "inc_not_zero", &[50e6]),
        row("all", "inc_not_zero", &[40e6]),
        row("all", "arc", &[10e6]),
    ]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("cpus      rcuref  inc_not_zero"), "{text}");
    assert!(lines[3].starts_with("2              –          50.0"), "{text}");
    assert!(lines[4].starts_with("cpus  inc_not_zero         arc"), "{text}");
    assert!(lines[5].starts_with("all           40.0  10.0 0.25×"), "{text}");
}

#[test]
fn a_quiet_machine_is_not_warned_of() {
    let quiet = outcome(vec![row("1", "inc_not_zero", &[1.0, 1.0, 1.0])]);
    assert_eq!(warnings(&quiet), Vec::<String>::new());
}

#[test]
fn each_kind_of_noise_is_named_with_its_remedy() {
    let mut noisy = outcome(vec![row("1", "inc_not_zero", &[1.0, 2.0, 3.0, 4.0])]);
    noisy.machine.load_average = Some([9.5, 0.0, 0.0]);
    noisy.machine.debug_build = true;
    noisy.tables[0].1.disturbed = 40;
    noisy.tables[0].1.poor = vec![0];
    let warnings = warnings(&noisy);
    for (warning, parts) in warnings.iter().zip([
        ["debug build", "--release"],
        ["load average was 9.5 on 2 CPUs", "stop the others"],
        ["40 of 100 samples", "--seconds"],
        ["only samples with a thread off its CPU", "inc_not_zero (cpus 1)"],
        ["inc_not_zero (cpus 1) spreads over 100 %", "--seconds"],
    ]) {
        assert!(parts.iter().all(|part| warning.contains(part)), "{warning}");
    }
    assert_eq!(warnings.len(), 5);
}

#[test]
fn the_tail_s_spread_is_nobody_s_fault() {
    let mut tail = row("1", "inc_not_zero", &[1.0, 50.0, 99.0]);
    tail.params.push(("quantile", Param::Word("p99")));
    assert!(warnings(&outcome(vec![tail.clone()])).is_empty());
    assert!(shown(&outcome(vec![tail])).contains(" –\n"));
}

#[test]
fn figures_have_three_digits() {
    for (value, text) in [
        (0.00188, "0.002"),
        (0.0482, "0.048"),
        (0.25, "0.25"),
        (1.004, "1.00"),
        (9.99, "9.99"),
        (81.5, "81.5"),
        (3571.4, "3571"),
    ] {
        assert_eq!(three(value), text);
    }
}
