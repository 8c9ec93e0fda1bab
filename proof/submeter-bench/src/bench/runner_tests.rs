//! Tests of the runner, with measurements that only log their calls.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::row::Param;

type Log = Rc<RefCell<Vec<(usize, &'static str)>>>;

/// A plan of two groups, whose cells log their group and name; a cell called "rough" is disturbed.
fn plan(log: &Log, variants: &[&'static str]) -> Plan {
    let cell = |group: usize, variant: &'static str| {
        let log = Rc::clone(log);
        Cell::new(Params::from([("group", Param::number(group as u64))]), variant, move || {
            log.borrow_mut().push((group, variant));
            let count = log.borrow().len() as f64;
            Ok(Sample::of("1", count, variant == "rough"))
        })
    };
    let groups = (0..2).map(|group| variants.iter().map(|v| cell(group, v)).collect()).collect();
    Plan { rounds_max: 1000, ..Plan::new("test", groups) }
}

fn never() -> bool {
    false
}

/// Variants take turns, and each round starts with a different one.
#[test]
fn variants_take_turns() {
    let log = Log::default();
    let plan = plan(&log, &["a", "b", "c"]);
    let measured = run(plan, Duration::ZERO, &mut never).expect("measured");
    assert_eq!(measured.rounds, ROUNDS_MIN);
    assert!(!measured.interrupted);
    let log = log.borrow();
    // Once per round each, and one more round to warm up.
    assert_eq!(log.len(), 2 * 3 * (ROUNDS_MIN + 1));
    for (group, calls) in log.chunks(3).enumerate() {
        let round = group / 2;
        let order: Vec<usize> =
            calls.iter().map(|call| usize::from(call.1.as_bytes()[0] - b'a')).collect();
        assert!(calls.iter().all(|call| call.0 == group % 2), "{calls:?}");
        assert_eq!(order, [round % 3, (round + 1) % 3, (round + 2) % 3], "round {round}");
    }
}

#[test]
fn the_first_round_is_measured_but_not_kept() {
    let log = Log::default();
    let plan = plan(&log, &["a"]);
    let measured = run(plan, Duration::ZERO, &mut never).expect("measured");
    // Two groups of one: the calls alternate, 1 and 2 are the warm-up.
    assert_eq!(measured.rows[0].samples, [3.0, 5.0, 7.0, 9.0, 11.0]);
    assert_eq!(measured.rows[0].value, 7.0);
    assert_eq!(measured.rows[1].samples, [4.0, 6.0, 8.0, 10.0, 12.0]);
    assert_eq!((measured.taken, measured.disturbed), (10, 0));
}

/// Disturbed samples are taken again, and counted if that does not help.
#[test]
fn disturbed_samples_are_taken_again() {
    let log = Log::default();
    let mut plan = plan(&log, &["rough"]);
    plan.rounds_max = 2;
    let measured = run(plan, Duration::from_secs(3600), &mut never).expect("measured");
    let tries = usize::try_from(TRIES).expect("small");
    assert_eq!(log.borrow().len(), 2 * (1 + 2 * tries), "the warm-up gets no second attempt");
    assert_eq!((measured.taken, measured.disturbed), (4, 4));
}

#[test]
fn disturbed_samples_are_out_if_others_exist() {
    let log = Log::default();
    let mut plan = plan(&log, &["a", "b"]);
    let mut calls = 0;
    plan.groups[0][0].measure = Box::new(move || {
        calls += 1;
        Ok(Sample::of("1", f64::from(calls), calls % 2 == 0))
    });
    plan.groups[1][1].measure = Box::new(|| Ok(Sample::of("1", 7.0, true)));
    let measured = run(plan, Duration::ZERO, &mut never).expect("measured");
    // The first is the warm-up; the deadline has passed, so there is no second attempt.
    assert_eq!(measured.rows[0].samples, [3.0, 5.0]);
    assert_eq!(measured.rows[3].samples, [7.0; ROUNDS_MIN], "better than nothing, and reported");
    assert_eq!((measured.poor, measured.disturbed), (vec![3], 3 + ROUNDS_MIN));
}

#[test]
fn past_the_deadline_a_disturbed_sample_counts() {
    let log = Log::default();
    let plan = plan(&log, &["rough"]);
    let measured = run(plan, Duration::ZERO, &mut never).expect("measured");
    assert_eq!(log.borrow().len(), 2 * (1 + ROUNDS_MIN));
    assert_eq!(measured.disturbed, 2 * ROUNDS_MIN);
}

#[test]
fn a_stopped_run_keeps_its_samples() {
    let log = Log::default();
    let plan = plan(&log, &["a", "b"]);
    let mut asked = 0;
    // The warm-up takes 4 samples, and so does a round; the second round stops half-way.
    let mut ten = || {
        asked += 1;
        asked > 10
    };
    let measured = run(plan, Duration::from_secs(3600), &mut ten).expect("measured");
    assert!(measured.interrupted);
    assert_eq!((measured.rounds, measured.taken), (2, 6));
    let samples: Vec<usize> = measured.rows.iter().map(|row| row.samples.len()).collect();
    assert_eq!(samples, [2, 2, 1, 1]);
    let stopped_at_once = &mut || true;
    let plan = self::plan(&log, &["a", "b"]);
    let measured = run(plan, Duration::ZERO, stopped_at_once).expect("measured");
    assert!(measured.rows.is_empty() && measured.interrupted, "{measured:?}");
}

#[test]
fn quantiles_are_rows_with_the_same_samples() {
    let log = Log::default();
    let mut plan = plan(&log, &["a", "b"]);
    for cell in plan.groups.iter_mut().flatten() {
        let mut count = 0.0;
        cell.measure = Box::new(move || {
            count += 1.0;
            let of = |name, part| {
                Reading::of("1", vec![count, count + 0.5]).with("quantile", name).quantile(part)
            };
            Ok(Sample::kept(vec![of("p50", 0.5), of("max", 1.0)]))
        });
    }
    let rows = run(plan, Duration::ZERO, &mut never).expect("measured").rows;
    assert_eq!(rows.len(), 8);
    let named = |row: &Row| (row.params.0[1].clone(), row.variant.clone());
    assert_eq!(named(&rows[0]), (("quantile".into(), Param::word("p50")), "a".into()));
    assert_eq!(named(&rows[1]), (("quantile".into(), Param::word("p50")), "b".into()));
    assert_eq!(named(&rows[2]), (("quantile".into(), Param::word("max")), "a".into()));
    assert_eq!(rows[0].samples, rows[2].samples);
    assert!(rows[0].value < rows[2].value);
}

#[test]
fn a_cell_measured_once_is_first_and_kept() {
    let log = Log::default();
    let mut plan = plan(&log, &["a"]);
    let mut calls = 0.0;
    let params = Params::from([("measure", Param::word("memory"))]);
    plan.groups.push(vec![Cell::once(params, "a", move || {
        calls += 1.0;
        let notes = vec!["noted".to_owned()];
        Ok(Sample { notes, ..Sample::of("bytes", calls, false) })
    })]);
    let measured = run(plan, Duration::ZERO, &mut never).expect("measured");
    assert_eq!((measured.rows.len(), &measured.rows[2].samples), (3, &vec![1.0]));
    assert_eq!(measured.notes, ["noted"]);
}

#[test]
fn an_error_ends_the_run() {
    let mut plan = plan(&Log::default(), &["a"]);
    plan.groups[0][0].measure = Box::new(|| Err(io::Error::other("no CPU")));
    let error = run(plan, Duration::ZERO, &mut never).expect_err("refused");
    assert_eq!(error.to_string(), "no CPU");
}
