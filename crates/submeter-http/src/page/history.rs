//! The last two minutes of every tenant that was active in them.

use std::collections::HashMap;
use std::time::Instant;

use super::sample::Row;
use super::views::Views;
use super::wire::{Figure, HistoryDoc, Placement, Shape, ViewDoc, round};

/// How many samples are kept.
pub(super) const SAMPLES: usize = 120;

/// How much memory the past may take. Beyond it a tenant simply has no past to show: not growing
/// with what clients can create is worth more than the thousandth sparkline.
const BYTES_MAX: usize = 12 << 20;

/// How many samples a tenant must have been idle before an active one takes its place.
const PAUSE: u64 = 10;

/// A tenant that does this many times as much takes another's place. Of two similar ones, neither
/// does.
const DISPLACES: f64 = 4.0;

/// One tenant's ring of samples, indexed by sample number modulo their count. Each sample has one
/// number for every view that is kept. `f32`: a line in a chart shows no eighth digit. NaN is
/// "nothing".
#[derive(Debug)]
struct Ring {
    points: Box<[f32]>,
    /// The last sample in which the tenant was active.
    active: u64,
}

impl Ring {
    fn new(width: usize, active: u64) -> Ring {
        Ring { points: vec![f32::NAN; SAMPLES * width].into(), active }
    }
}

/// A view whose past is kept.
#[derive(Debug)]
struct Kept {
    key: String,
    shape: Shape,
    /// Its index among the figures of a row.
    at: usize,
}

/// The past of all groups.
#[derive(Debug)]
pub(super) struct History {
    views: Views,
    kept: Vec<Kept>,
    tenants_max: usize,
    /// The number of the newest sample, from 1; 0 is "none yet".
    newest: u64,
    times: Vec<(u64, Instant)>,
    /// Processors that the whole process used, one entry for each of `times`.
    process: Vec<f64>,
    rings: HashMap<u32, Ring>,
}

impl History {
    /// Makes an empty history that keeps the headlines.
    pub(super) fn new(views: Views) -> History {
        let kept = kept(&views);
        let tenants_max = tenants_max(&kept);
        let (times, process, rings) = (Vec::new(), Vec::new(), HashMap::new());
        History { views, kept, tenants_max, newest: 0, times, process, rings }
    }

    /// Keeps other headlines from now on; those that were already kept retain their past. With more
    /// headlines fewer tenants have room for a past: those that did most keep theirs.
    pub(super) fn show(&mut self, views: Views) {
        let kept = kept(&views);
        self.tenants_max = tenants_max(&kept);
        self.trim();
        let before = |key: &str| self.kept.iter().position(|before| before.key == key);
        let places: Vec<_> = kept.iter().map(|kept| before(&kept.key)).collect();
        let width = self.kept.len();
        for ring in self.rings.values_mut() {
            let point = |sample: usize, place: &Option<usize>| {
                place.map_or(f32::NAN, |place| ring.points[sample * width + place])
            };
            let sample = |sample| places.iter().map(move |place| point(sample, place));
            ring.points = (0..SAMPLES).flat_map(sample).collect();
        }
        (self.views, self.kept) = (views, kept);
    }

    /// Forgets the tenants with the least of what divides the server, until there is room for all.
    fn trim(&mut self) {
        let excess = self.rings.len().saturating_sub(self.tenants_max);
        if excess == 0 {
            return;
        }
        let sum = |id| self.views.divided().map(|view| self.line(id, view).flatten().sum::<f32>());
        let mut sums: Vec<_> = self.rings.keys().map(|&id| (sum(id).unwrap_or(0.0), id)).collect();
        sums.select_nth_unstable_by(excess - 1, |a, b| a.0.total_cmp(&b.0));
        for (_, id) in &sums[..excess] {
            self.rings.remove(id);
        }
    }

    /// Records one sample: the row of every live tenant, and how many processors the process used.
    pub(super) fn push(&mut self, at: Instant, rows: &[Row], process: f64) {
        self.newest += 1;
        let newest = self.newest;
        if self.times.len() == SAMPLES {
            self.times.remove(0);
            self.process.remove(0);
        }
        self.times.push((newest, at));
        self.process.push(process);
        let width = self.kept.len();
        let first = (newest % SAMPLES as u64) as usize * width;
        for ring in self.rings.values_mut() {
            ring.points[first..first + width].fill(f32::NAN);
        }
        self.make_room(rows);
        for Row { id, figures, .. } in rows {
            let active = self.views.is_active(figures);
            if active && !self.rings.contains_key(id) && self.rings.len() < self.tenants_max {
                self.rings.insert(*id, Ring::new(width, newest));
            }
            if let Some(ring) = self.rings.get_mut(id) {
                for (point, kept) in ring.points[first..first + width].iter_mut().zip(&self.kept) {
                    *point = figures[kept.at].0.map_or(f32::NAN, |value| value as f32);
                }
                if active {
                    ring.active = newest;
                }
            }
        }
        // An idle tenant's past is a flat line, which needs no memory. This also drops killed
        // groups.
        self.rings.retain(|_, ring| newest - ring.active < SAMPLES as u64);
    }

    /// Where not all have room, those that do most have a past: a tenant that does far more than
    /// one with a past gets its place.
    fn make_room(&mut self, rows: &[Row]) {
        let Some(first) = self.views.divided().filter(|_| self.is_full()) else { return };
        let now = |row: &Row| row.figures[first].0.unwrap_or(0.0);
        let (mut with, mut without): (Vec<_>, Vec<_>) = rows
            .iter()
            .map(|row| (now(row), row.id))
            .partition(|(_, id)| self.rings.contains_key(id));
        without.retain(|(now, _)| *now > 0.0);
        // A tenant that was idle for just this second keeps its place.
        let has_paused = |id: &u32| self.newest - self.rings[id].active >= PAUSE;
        with.retain(|(now, id)| *now > 0.0 || has_paused(id));
        without.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        with.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let pairs = with.into_iter().zip(without);
        for ((_, gone), (_, comes)) in
            pairs.take_while(|(with, comes)| comes.0 > with.0 * DISPLACES)
        {
            self.rings.remove(&gone);
            self.rings.insert(comes, Ring::new(self.kept.len(), self.newest));
        }
    }

    /// Forgets a tenant whose id will be reused.
    pub(super) fn forget(&mut self, id: u32) {
        self.rings.remove(&id);
    }

    /// Returns the whole past of one tenant; a tenant that was idle all along has only times.
    pub(super) fn of(&self, id: u32) -> HistoryDoc {
        let newest = self.times.last().map(|(_, at)| *at);
        let ago = |at: Instant| newest.map_or(0.0, |newest| (newest - at).as_secs_f64());
        let kept = self.kept.iter().enumerate();
        HistoryDoc {
            ago_s: self.times.iter().map(|(_, at)| round(ago(*at), 1)).collect(),
            series: kept.map(|(at, kept)| (kept.key.clone(), self.series(id, at))).collect(),
        }
    }

    /// Returns how many processors the whole process used.
    pub(super) fn process(&self) -> Vec<Figure> {
        self.process.iter().map(|&cores| Figure(Some(cores)).rounded(Shape::Cores)).collect()
    }

    /// Returns the past of a view for some groups: those with the most of it lately.
    pub(super) fn greatest(
        &self,
        view: usize,
        groups: impl Iterator<Item = u32>,
        most: usize,
    ) -> Vec<(u32, Vec<Figure>)> {
        let Some(at) = self.kept.iter().position(|kept| kept.at == view) else { return Vec::new() };
        let sum = |id| self.line(id, view).flatten().sum::<f32>();
        let mut sums: Vec<(f32, u32)> = groups.map(|id| (sum(id), id)).collect();
        sums.retain(|(sum, _)| *sum > 0.0);
        sums.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        sums.truncate(most);
        sums.into_iter().map(|(_, id)| (id, self.series(id, at))).collect()
    }

    /// Whether there may be tenants for whose past there is no room.
    pub(super) fn is_full(&self) -> bool {
        self.rings.len() >= self.tenants_max
    }

    /// Returns the past of a view of one tenant, oldest first; empty if it is not kept.
    pub(super) fn line(&self, id: u32, view: usize) -> impl Iterator<Item = Option<f32>> + '_ {
        let kept = self.kept.iter().position(|kept| kept.at == view);
        let kept = kept.and_then(|at| Some((at, self.rings.get(&id)?)));
        kept.into_iter().flat_map(move |(at, ring)| {
            let place =
                move |number: u64| (number % SAMPLES as u64) as usize * self.kept.len() + at;
            let values = self.times.iter().map(move |(number, _)| ring.points[place(*number)]);
            values.map(|value| (!value.is_nan()).then_some(value))
        })
    }

    fn series(&self, id: u32, view: usize) -> Vec<Figure> {
        let ring = self.rings.get(&id);
        let value = |number: u64| {
            let sample = (number % SAMPLES as u64) as usize;
            let value = f64::from(ring?.points[sample * self.kept.len() + view]);
            (!value.is_nan()).then_some(value)
        };
        let shape = self.kept[view].shape;
        self.times.iter().map(|(number, _)| Figure(value(*number)).rounded(shape)).collect()
    }
}

/// Returns the headlines, and the view by which the server is divided.
fn kept(views: &Views) -> Vec<Kept> {
    let divided = views.divided();
    let is_kept =
        |(at, doc): &(usize, &ViewDoc)| doc.place == Placement::Headline || Some(*at) == divided;
    let kept = views.docs().enumerate().filter(is_kept);
    kept.map(|(at, doc)| Kept { key: doc.key.clone(), shape: doc.shape, at }).collect()
}

fn tenants_max(kept: &[Kept]) -> usize {
    BYTES_MAX / (SAMPLES * kept.len().max(1) * size_of::<f32>())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use submeter::{Count, Schema};

    use super::super::views::View;
    use super::*;

    fn history() -> History {
        let mut s = Schema::builder();
        let (jobs, failed) = (s.counter("jobs", "Jobs"), s.counter("failed", "Failures"));
        s.build().expect("distinct names");
        let jobs_per_s = View::rate::<Count, 1>("jobs_per_s", "Jobs/s", [jobs]).contended();
        let failures = View::ratio("failures", "Failed", failed, [jobs]);
        History::new(Views::new(vec![jobs_per_s, failures]))
    }

    fn row(id: u32, rate: f64) -> Row {
        Row { id, parent: None, figures: [Figure(Some(rate)), Figure(None)].into() }
    }

    #[test]
    fn keeps_the_newest_samples_in_order() {
        let mut history = history();
        let start = Instant::now();
        for n in 1..=SAMPLES as u64 + 7 {
            history.push(start + Duration::from_secs(n), &[row(0, n as f64)], 0.0);
        }
        let doc = history.of(0);
        assert_eq!(doc.ago_s.len(), SAMPLES);
        assert_eq!((doc.ago_s[0], doc.ago_s[SAMPLES - 1]), (SAMPLES as f64 - 1.0, 0.0));
        let jobs = &doc.series["jobs_per_s"];
        assert_eq!(jobs[0], Figure(Some(8.0)));
        assert_eq!(jobs[SAMPLES - 1], Figure(Some(SAMPLES as f64 + 7.0)));
        assert_eq!(doc.series["failures"][0], Figure(None));
    }

    /// A late comer has nothing before it came, and an idle one costs nothing.
    #[test]
    fn a_late_comer_has_nothing_before_it_came() {
        let mut history = history();
        let start = Instant::now();
        history.push(start, &[row(0, 1.0), row(1, 0.0)], 0.0);
        history.push(start, &[row(0, 1.0), row(1, 0.0), row(2, 5.0)], 0.0);
        assert_eq!(history.of(2).series["jobs_per_s"], [Figure(None), Figure(Some(5.0))]);
        let past = |history: &History| {
            let past = history.greatest(0, [0, 1, 2].into_iter(), 2).into_iter();
            past.map(|(id, _)| id).collect::<Vec<_>>()
        };
        assert_eq!(past(&history), [2, 0], "the greatest, and none that was idle");
        for _ in 0..SAMPLES {
            history.push(start, &[row(0, 1.0), row(2, 0.0)], 0.0);
        }
        assert_eq!(past(&history), [0], "the other was idle for the whole window");
    }

    #[test]
    fn other_views_leave_those_that_stay_their_past() {
        let mut history = history();
        let start = Instant::now();
        let second = [Figure(Some(3.0)), Figure(Some(0.25))].into();
        history.push(start, &[row(0, 1.0)], 0.0);
        history.push(start, &[Row { id: 0, parent: None, figures: second }], 0.0);
        let mut s = Schema::builder();
        let [failed, jobs, more] = ["failed", "jobs", "more"].map(|name| s.counter(name, ""));
        s.build().expect("distinct names");
        history.show(Views::new(vec![
            View::rate::<Count, 1>("more_per_s", "More/s", [more]),
            View::ratio("failures", "Failed", failed, [jobs]),
            View::rate("jobs_per_s", "Jobs/s", [jobs]),
        ]));
        let third = [Figure(Some(9.0)), Figure(Some(0.5)), Figure(Some(4.0))].into();
        history.push(start, &[Row { id: 0, parent: None, figures: third }], 0.0);
        let figures = |of: [Option<f64>; 3]| of.map(Figure);
        let doc = history.of(0);
        assert_eq!(doc.series["jobs_per_s"], figures([Some(1.0), Some(3.0), Some(4.0)]));
        assert_eq!(doc.series["failures"], figures([None, Some(0.25), Some(0.5)]));
        assert_eq!(doc.series["more_per_s"], figures([None, None, Some(9.0)]));
    }

    #[test]
    fn is_bounded_in_bytes() {
        let mut history = history();
        let rows: Vec<Row> = (0..20_000).map(|id| row(id, 1.0)).collect();
        history.push(Instant::now(), &rows, 0.0);
        let bytes: usize = history.rings.values().map(|ring| size_of_val(&*ring.points)).sum();
        assert!((BYTES_MAX / 2..=BYTES_MAX).contains(&bytes), "{bytes}");
        // The tenant that comes last has no past yet, and does most.
        let mut rows = rows;
        let last = rows.len() - 1;
        let past = |history: &History| history.line(last as u32, 0).flatten().count();
        assert_eq!(past(&history), 0);
        rows[last] = row(last as u32, 3.0);
        history.push(Instant::now(), &rows, 0.0);
        assert_eq!(past(&history), 0, "hardly more than those that have");
        rows[last] = row(last as u32, 1000.0);
        history.push(Instant::now(), &rows, 0.0);
        history.push(Instant::now(), &rows, 0.0);
        assert_eq!(past(&history), 2);
        let after = |history: &History| -> usize {
            history.rings.values().map(|ring| size_of_val(&*ring.points)).sum()
        };
        assert_eq!(after(&history), bytes);
        // With more to keep of each, fewer have room.
        let mut s = Schema::builder();
        let counters: [_; 6] = std::array::from_fn(|n| s.counter(&format!("jobs_{n}"), ""));
        s.build().expect("distinct names");
        let more = counters.iter().enumerate().map(|(n, &jobs)| {
            let view = View::rate::<Count, 1>(&format!("jobs_{n}_per_s"), "Jobs/s", [jobs]);
            if n == 0 { view.contended() } else { view }
        });
        history.show(Views::new(more.collect()));
        assert!((BYTES_MAX / 2..=BYTES_MAX).contains(&after(&history)), "{}", after(&history));
        assert!(history.rings.contains_key(&(last as u32)), "who did most has kept its past");
        assert!(history.is_full());
    }
}
