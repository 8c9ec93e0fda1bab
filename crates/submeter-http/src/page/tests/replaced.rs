//! Groups that are killed and created again between two looks.

use serde_json::Value;

use super::super::gzip::Coding;
use super::super::sampler::Sampler;
use super::super::wire::{Figure, GroupDoc, TreeDoc};
use super::Program;

/// Makes a new group of a path do some jobs.
fn work(program: &Program, jobs: u64) {
    let group = program.tree.create("/a").expect("the name is free");
    group.add(program.jobs, jobs);
    group.record_many(program.waits, 1000, jobs);
}

fn replace(program: &Program, jobs: u64) {
    program.tree.get("/a").expect("alive").kill().expect("no children");
    work(program, jobs);
}

#[test]
fn a_group_made_again_has_counted_since_nothing() {
    let program = Program::new();
    let sampler = Sampler::new(program.shown());
    work(&program, 100);
    sampler.tick();
    for jobs in [40, 140] {
        replace(&program, jobs);
        sampler.tick();
        let detail = sampler.detail("/a").expect("it lives");
        let done = detail.group.overview["jobs_per_s"].0.expect("a rate") * detail.window_s;
        assert_eq!(done.round(), jobs as f64);
        assert_eq!(detail.histograms["waits"].recent.iter().sum::<u64>(), jobs);
    }
}

/// A group that was created again after the sample has no rates yet.
#[tokio::test]
async fn a_group_made_after_the_sample_has_no_rates() {
    let program = Program::new();
    let sampler = Sampler::new(program.shown());
    work(&program, 100);
    sampler.tick();
    replace(&program, 40);
    let tree = sampler.tree(Coding::Plain).await.expect("JSON");
    let json = tree.part(0).expect("not withdrawn");
    let tree: TreeDoc = serde_json::from_slice(&json).expect("JSON, in one part");
    let GroupDoc { overview, rates, .. } = &tree.groups[1];
    assert_eq!((overview["jobs_per_s"], rates.len()), (Figure(Some(0.0)), 0));
}

/// A verdict about a killed group is over, and marks no other.
#[test]
fn what_is_said_of_a_killed_group_is_over() {
    let program = Program::new();
    let sampler = Sampler::new(program.shown());
    let full = || {
        let (_, event) = sampler.full();
        let event = event.part(0).expect("not withdrawn");
        let json = event.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"data: "));
        serde_json::from_slice::<Value>(json.expect("an event")).expect("JSON")
    };
    let group = program.tree.create("/a").expect("room");
    group.set_limit(program.disk, Some(0));
    for _ in 0..2 {
        group.try_charge(program.disk, 1).expect_err("no room at all");
        sampler.tick();
    }
    let said = full();
    assert_eq!(
        (&said["verdicts"][0]["group"], &said["marks"][0][1]),
        (&"/a".into(), &"refused".into())
    );
    group.kill().expect("no children");
    sampler.tick();
    let over = full();
    assert_eq!(
        (&over["marks"], &over["earlier"][0]["group"]),
        (&Value::Array(vec![]), &"/a".into())
    );
}
