//! The last two minutes of every tenant that did something in them.

use std::collections::HashMap;
use std::time::Instant;

use super::wire::{HistoryDoc, Overview};

/// How many samples are kept.
pub(super) const SAMPLES: usize = 120;

/// The most tenants whose past is kept: 12 MB. Beyond it a tenant simply has no past to show;
/// refusing to grow with what clients can create is worth more than the thousandth sparkline.
const TENANTS_MAX: usize = 4096;

/// What is kept of each sample. `f32`: a line in a chart shows no eighth digit. NaN is "nothing".
#[derive(Clone, Copy, Debug)]
struct Point {
    requests: f32,
    hit: f32,
    memory: f32,
    p99: f32,
    cpu: f32,
    evictions: f32,
}

impl Point {
    const NONE: Point = Point {
        requests: f32::NAN,
        hit: f32::NAN,
        memory: f32::NAN,
        p99: f32::NAN,
        cpu: f32::NAN,
        evictions: f32::NAN,
    };

    fn new(row: &Overview) -> Point {
        Point {
            requests: row.requests_per_s as f32,
            hit: row.hit_ratio.map_or(f32::NAN, |v| v as f32),
            memory: row.memory_bytes as f32,
            p99: row.p99_ns.map_or(f32::NAN, |v| v as f32),
            cpu: row.cpu_cores as f32,
            evictions: row.evictions_per_s as f32,
        }
    }
}

/// One tenant's ring, indexed by sample number modulo its length.
#[derive(Debug)]
struct Ring {
    points: Box<[Point; SAMPLES]>,
    /// The last sample in which anything happened.
    active: u64,
}

/// The past of all groups.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The number of the newest sample, from 1; 0 is "none yet".
    newest: u64,
    times: Vec<(u64, Instant)>,
    rings: HashMap<u32, Ring>,
}

impl History {
    /// Takes the sample of one moment: every live tenant's row by its id.
    pub(super) fn push(&mut self, at: Instant, rows: impl Iterator<Item = (u32, Overview)>) {
        self.newest += 1;
        let newest = self.newest;
        if self.times.len() == SAMPLES {
            self.times.remove(0);
        }
        self.times.push((newest, at));
        let slot = (newest % SAMPLES as u64) as usize;
        for ring in self.rings.values_mut() {
            ring.points[slot] = Point::NONE;
        }
        for (id, row) in rows {
            let active = row.requests_per_s > 0.0 || row.evictions_per_s > 0.0;
            if active && !self.rings.contains_key(&id) && self.rings.len() < TENANTS_MAX {
                let points = Box::new([Point::NONE; SAMPLES]);
                self.rings.insert(id, Ring { points, active: newest });
            }
            if let Some(ring) = self.rings.get_mut(&id) {
                ring.points[slot] = Point::new(&row);
                if active {
                    ring.active = newest;
                }
            }
        }
        // An idle tenant's past is a flat line, which needs no memory. This also drops the killed.
        self.rings.retain(|_, ring| newest - ring.active < SAMPLES as u64);
    }

    /// Forgets a tenant whose id will be another's.
    pub(super) fn forget(&mut self, id: u32) {
        self.rings.remove(&id);
    }

    /// Returns the whole past of one tenant; one that was idle all along has only times.
    pub(super) fn of(&self, id: u32) -> HistoryDoc {
        let newest = self.times.last().map(|(_, at)| *at);
        let ago = |at: Instant| newest.map_or(0.0, |newest| (newest - at).as_secs_f64());
        HistoryDoc {
            ago_s: self.times.iter().map(|(_, at)| round(ago(*at), 1)).collect(),
            requests_per_s: self.series(id, |p| p.requests, 1),
            hit_ratio: self.series(id, |p| p.hit, 4),
            memory_bytes: self.series(id, |p| p.memory, 0),
            p99_ns: self.series(id, |p| p.p99, 0),
            cpu_cores: self.series(id, |p| p.cpu, 4),
            evictions_per_s: self.series(id, |p| p.evictions, 1),
        }
    }

    /// Returns the two lines that a row shows, requests and p99, or `None` for an idle tenant.
    pub(super) fn lines(&self, id: u32) -> Option<[Vec<Option<f64>>; 2]> {
        self.rings
            .contains_key(&id)
            .then(|| [self.series(id, |p| p.requests, 1), self.series(id, |p| p.p99, 0)])
    }

    fn series(&self, id: u32, of: impl Fn(&Point) -> f32, digits: i32) -> Vec<Option<f64>> {
        let ring = self.rings.get(&id);
        self.times
            .iter()
            .map(|(number, _)| {
                let value = f64::from(of(&ring?.points[(number % SAMPLES as u64) as usize]));
                (!value.is_nan()).then(|| round(value, digits))
            })
            .collect()
    }
}

/// Rounds for the wire: the digits after these are noise that costs bytes.
pub(super) fn round(value: f64, digits: i32) -> f64 {
    let factor = 10f64.powi(digits);
    (value * factor).round() / factor
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn row(requests_per_s: f64) -> Overview {
        Overview { requests_per_s, ..Overview::default() }
    }

    #[test]
    fn keeps_the_newest_samples_in_order() {
        let mut history = History::default();
        let start = Instant::now();
        for n in 1..=SAMPLES as u64 + 7 {
            history.push(start + Duration::from_secs(n), [(0, row(n as f64))].into_iter());
        }
        let doc = history.of(0);
        assert_eq!(doc.ago_s.len(), SAMPLES);
        assert_eq!((doc.ago_s[0], doc.ago_s[SAMPLES - 1]), (SAMPLES as f64 - 1.0, 0.0));
        assert_eq!(doc.requests_per_s[0], Some(8.0));
        assert_eq!(doc.requests_per_s[SAMPLES - 1], Some(SAMPLES as f64 + 7.0));
        assert_eq!(doc.hit_ratio[0], None);
    }

    #[test]
    fn a_late_comer_has_nothing_before_it_came_and_an_idle_one_costs_nothing() {
        let mut history = History::default();
        let start = Instant::now();
        history.push(start, [(0, row(1.0)), (1, row(0.0))].into_iter());
        history.push(start, [(0, row(1.0)), (1, row(0.0)), (2, row(5.0))].into_iter());
        assert_eq!(history.of(2).requests_per_s, [None, Some(5.0)]);
        assert!(history.lines(1).is_none());
        for _ in 0..SAMPLES {
            history.push(start, [(0, row(1.0)), (2, row(0.0))].into_iter());
        }
        assert!(history.lines(0).is_some());
        assert!(history.lines(2).is_none(), "idle for the whole window");
    }

    #[test]
    fn is_bounded() {
        let mut history = History::default();
        history.push(Instant::now(), (0..TENANTS_MAX as u32 + 9).map(|id| (id, row(1.0))));
        assert_eq!(history.rings.len(), TENANTS_MAX);
    }
}
