//! What the threads noted, added up, beside what the tree says.

use std::fmt;

use super::worker::{Orphans, Worker};
use super::{Comparison, Ground, Seat, place_of};
use crate::meters::{BUCKETS, COUNTERS, RESOURCES};
use crate::visits::Visited;

/// Says where tree and notes differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The group.
    pub path: String,
    /// The metric.
    pub metric: String,
    /// By the notes.
    pub expected: i128,
    /// In the tree.
    pub found: i128,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { path, metric, expected, found } = self;
        write!(f, "{path}: {metric}: noted {expected}, found {found} ({:+})", found - expected)
    }
}

/// Differences that are kept; one is enough to fail.
const DIFFERENCES_MAX: usize = 20;

/// The metrics of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) counters: [u64; COUNTERS],
    pub(super) gauge: i64,
    recorded: u64,
    buckets: [u64; BUCKETS.len()],
    pub(super) visited: Visited,
}

impl Counts {
    pub(super) fn record(&mut self, value: u64) {
        // By the published bounds, without the arithmetic that finds a value's bucket.
        let inside = |&index: &usize| BUCKETS.upper(index).is_none_or(|upper| value < upper);
        let bucket = (0..BUCKETS.len()).find(inside).expect("the last is open");
        self.buckets[bucket] += 1;
        self.recorded += value;
    }

    fn add(&mut self, other: &Counts) {
        let sum = |mine: &mut [u64], others: &[u64]| {
            mine.iter_mut().zip(others).for_each(|(mine, other)| *mine += other);
        };
        sum(&mut self.counters, &other.counters);
        sum(&mut self.buckets, &other.buckets);
        self.gauge += other.gauge;
        self.recorded += other.recorded;
        self.visited.merge(&other.visited);
    }

    /// What the tree says.
    fn of(ground: &Ground, seat: &Seat) -> Counts {
        let (meters, group) = (&ground.meters, &seat.group);
        let histogram = group.histogram(meters.histogram);
        Counts {
            counters: meters.counters.map(|key| group.read(key).value),
            gauge: group.read(meters.gauge).value,
            recorded: histogram.sum(),
            buckets: histogram.counts().try_into().expect("the schema's buckets"),
            visited: ground.visits.read(group, |seen| *seen.total).expect("no callback panics"),
        }
    }

    /// Each value with its name.
    fn values(&self) -> impl Iterator<Item = (String, i128)> + '_ {
        let named = |name: &str, values: &[u64]| {
            let name = name.to_owned();
            let values: Vec<u64> = values.to_vec();
            values
                .into_iter()
                .enumerate()
                .map(move |(n, value)| (format!("{name} {n}"), i128::from(value)))
        };
        named("counter", &self.counters)
            .chain(named("bucket", &self.buckets))
            .chain(named("sum of values", &[self.recorded]))
            .chain(named("visits and longest", &[self.visited.count, self.visited.longest]))
            .chain([("gauge".to_owned(), i128::from(self.gauge))])
    }
}

/// What one thread counted: by place for the living, by parent for the rest.
pub(super) struct Notes {
    places: Vec<Note>,
    orphans: Orphans,
}

#[derive(Clone, Copy)]
struct Note {
    id: u64,
    parent: u64,
    counts: Counts,
}

impl Notes {
    pub(super) fn new(ground: &Ground) -> Notes {
        let note = |place: usize| {
            let parent = ground.shape.parent(place) as u64;
            Note { id: place as u64, parent, counts: Counts::default() }
        };
        Notes { places: (0..ground.seats.len()).map(note).collect(), orphans: Orphans::new() }
    }

    /// What was counted for `seat` and nobody else, where the notes still tell.
    pub(super) fn alone(&self, seat: &Seat) -> Option<&Counts> {
        let note = &self.places[place_of(seat.id)];
        (note.id == seat.id).then_some(&note.counts)
    }

    /// Where to count for who sits, or sat, there.
    pub(super) fn of(&mut self, seat: &Seat) -> &mut Counts {
        let note = &mut self.places[place_of(seat.id)];
        if note.id > seat.id {
            // A successor was met already: this one is dead, and counts for its parent.
            return self.orphans.entry(seat.parent).or_default();
        }
        if note.id < seat.id {
            let orphan = std::mem::replace(
                note,
                Note { id: seat.id, parent: seat.parent, counts: Counts::default() },
            );
            self.orphans.entry(orphan.parent).or_default().add(&orphan.counts);
        }
        &mut note.counts
    }
}

/// Adds up what is expected, leaves first, and compares it with the tree after a flush.
pub(super) fn compare(ground: &Ground, workers: &mut [Worker]) -> Comparison {
    let seats: Vec<Seat> = (0..ground.seats.len()).map(|place| ground.seat(place)).collect();
    let mut expected = vec![Counts::default(); seats.len()];
    let mut held = vec![[0u64; RESOURCES]; seats.len()];
    for worker in workers.iter_mut() {
        for place in 0..seats.len() {
            // Who was replaced since becomes an orphan; then the notes are of who sits there.
            expected[place].add(worker.notes.of(&seats[place]));
        }
        adopt_up(ground, &seats, &mut worker.notes.orphans);
        for (parent, counts) in &worker.notes.orphans {
            expected[place_of(*parent)].add(counts);
        }
        for held_by in &worker.charges {
            let mut place = living(ground, &seats, held_by.id, held_by.parent);
            held[place][held_by.resource] += held_by.charge.amount();
            while place != 0 {
                place = ground.shape.parent(place);
                held[place][held_by.resource] += held_by.charge.amount();
            }
        }
    }
    for place in (1..seats.len()).rev() {
        let counts = expected[place];
        expected[ground.shape.parent(place)].add(&counts);
    }
    ground.tree.flush();
    ground.visits.flush().expect("not from a callback");
    let mut comparison = Comparison { groups: seats.len(), ..Comparison::default() };
    for worker in workers {
        comparison.differences.append(&mut worker.differences);
    }
    for (place, seat) in seats.iter().enumerate() {
        compare_group(ground, seat, &expected[place], held[place], &mut comparison);
    }
    comparison
}

/// The group of `id` if it lives, or else the lowest of its ancestors that does.
fn living(ground: &Ground, seats: &[Seat], id: u64, parent: u64) -> usize {
    if seats[place_of(id)].id == id {
        place_of(id)
    } else if seats[place_of(parent)].id == parent {
        place_of(parent)
    } else {
        // Only middles have parents that live for ever, and only leaves have others.
        ground.shape.parent(place_of(parent))
    }
}

/// Hands what the dead left behind to the lowest ancestor that lives.
fn adopt_up(ground: &Ground, seats: &[Seat], orphans: &mut Orphans) {
    let dead: Vec<u64> =
        orphans.keys().copied().filter(|&parent| seats[place_of(parent)].id != parent).collect();
    for parent in dead {
        let counts = orphans.remove(&parent).expect("just listed");
        // Tops are never replaced: their ids are their places.
        let top = ground.shape.parent(place_of(parent)) as u64;
        orphans.entry(top).or_default().add(&counts);
    }
}

fn compare_group(
    ground: &Ground,
    seat: &Seat,
    expected: &Counts,
    held: [u64; RESOURCES],
    comparison: &mut Comparison,
) {
    let found = Counts::of(ground, seat);
    let usage = ground.meters.resources.map(|key| seat.group.usage(key).current);
    comparison.values += (COUNTERS + BUCKETS.len() + 4 + RESOURCES) as u64;
    if found == *expected && usage == held {
        return;
    }
    let usages = |values: [u64; RESOURCES]| {
        (0..).zip(values).map(|(n, value): (usize, u64)| (format!("resource {n}"), value.into()))
    };
    let expected = expected.values().chain(usages(held));
    let found = found.values().chain(usages(usage));
    for ((metric, expected), (_, found)) in expected.zip(found) {
        if expected != found && comparison.differences.len() < DIFFERENCES_MAX {
            let path = seat.group.path().to_owned();
            comparison.differences.push(Difference { path, metric, expected, found });
        }
    }
}
