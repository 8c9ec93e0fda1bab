//! Compares the tree with an oracle that is filled from the threads' notes.

use std::iter;

use super::notes::living;
use super::shared_tree::{Occupant, SharedTree};
use super::worker::{Difference, Worker};
use crate::oracle::Oracle;
use crate::schema::{BUCKETS, COUNTERS, QUOTAS, Totals};

/// Maximum number of differences that are kept; one is enough to fail.
const DIFFERENCES_MAX: usize = 20;

/// The result of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Groups compared.
    pub groups: usize,
    /// Values compared.
    pub values: u64,
    /// The first few differences.
    pub differences: Vec<Difference>,
}

/// Compares every value of every group with the notes, after a flush.
pub(super) fn compare(shared: &SharedTree, workers: &mut [Worker]) -> Comparison {
    let occupants = shared.occupants();
    let oracle = oracle(shared, &occupants, workers);
    shared.tree.flush();
    shared.visits.flush().expect("not from a callback");
    let mut comparison = Comparison { groups: occupants.len(), ..Comparison::default() };
    for worker in workers {
        comparison.differences.append(&mut worker.differences);
    }
    for (place, occupant) in occupants.iter().enumerate() {
        let expected = oracle.get(place);
        let held = expected.held.map(|held| held.current);
        compare_group(shared, occupant, &expected.totals, held, &mut comparison);
    }
    comparison
}

/// Makes an oracle in which each ID is a place, with everything that the threads counted and hold.
/// It has no limits: every granted charge is charged again.
fn oracle(shared: &SharedTree, occupants: &[Occupant], workers: &mut [Worker]) -> Oracle {
    let mut oracle = Oracle::new("/");
    for place in 1..occupants.len() {
        let id = oracle.create(shared.shape.parent(place), &place.to_string());
        assert_eq!(id, Ok(place));
    }
    for worker in workers {
        worker.notes.by_place(shared, occupants, |place, noted| {
            oracle.update(place, |totals| totals.merge(noted));
        });
        for held in &worker.charges {
            let place = living(shared, occupants, &held.ids);
            let charged = oracle.charge(place, held.quota, held.charge.amount());
            charged.expect("it has no limits");
        }
    }
    oracle
}

fn compare_group(
    shared: &SharedTree,
    occupant: &Occupant,
    expected: &Totals,
    expected_held: [u64; QUOTAS],
    comparison: &mut Comparison,
) {
    let group = &occupant.group;
    let visited = shared.visits.read(group, |seen| *seen.total).expect("no callback panics");
    let found = Totals { sums: shared.schema.cached(group), visited };
    let found_held = shared.schema.held(group).map(|held| held.current);
    comparison.values += (COUNTERS + BUCKETS.len() + 4 + QUOTAS) as u64;
    if found == *expected && found_held == expected_held {
        return;
    }
    let expected = values(expected, expected_held);
    let found = values(&found, found_held);
    for ((metric, expected), (_, found)) in iter::zip(expected, found) {
        if expected != found && comparison.differences.len() < DIFFERENCES_MAX {
            let path = group.path().to_owned();
            comparison.differences.push(Difference { path, metric, expected, found });
        }
    }
}

/// Each value with its name.
fn values(totals: &Totals, held: [u64; QUOTAS]) -> Vec<(String, i128)> {
    let Totals { sums, visited } = totals;
    let named: [(&str, &[u64]); 5] = [
        ("counter", &sums.counters),
        ("bucket", &sums.buckets),
        ("sum of values", &[sums.recorded]),
        ("visits and longest", &[visited.count, visited.longest]),
        ("quota", &held),
    ];
    let each = |(name, values): (&str, &[u64])| -> Vec<(String, i128)> {
        let name = |n| format!("{name} {n}");
        values.iter().enumerate().map(|(n, &value)| (name(n), value.into())).collect()
    };
    let gauge = ("gauge".to_owned(), sums.gauge.into());
    named.into_iter().flat_map(each).chain([gauge]).collect()
}
