//! Random operations on a tree and on a ledger of it, as many as wanted.

use std::collections::{BTreeMap, VecDeque};

use submeter::{Attached, Charge, Collector, Group, Killed, Tree};

use crate::ledger::Ledger;
use crate::meters::{BUCKETS, COUNTERS, Meters};
use crate::oracle::Id;
use crate::random::Random;
use crate::visits::{Visited, Visits};

mod compare;
mod groups;
mod updates;

/// Carries out random operations on a [`Tree`] and on a [`Ledger`], and panics where they differ.
///
/// Other than a [`Twin`](crate::Twin) it costs about the same after a million operations as after ten:
/// each one compares what it touches, and now and then everything is compared. It does not
/// shrink; when it fails it says its seed and the last operations.
///
/// One that owns its tree also checks what only then holds: that a second flush finds nothing,
/// and how many groups exist. Several can share a tree, each with a subtree and a thread of its own: all
/// that one sees below its topmost group must be as if it were alone.
///
/// # Examples
/// ```
/// use submeter_testkit::{Fuzz, Meters};
///
/// let mut fuzz = Fuzz::new(Meters::new(), 1, 50);
/// fuzz.steps(500);
/// assert_eq!(fuzz.finish().operations, 500);
/// ```
pub struct Fuzz {
    meters: Meters,
    tree: Tree,
    visits: Collector<Visits>,
    /// Whether nobody else uses the tree.
    alone: bool,
    seed: u64,
    random: Random,
    ledger: Ledger,
    /// The handles held, in any order; the topmost's is the first.
    held: Vec<Holding>,
    /// Where in `held` a group's handle is.
    places: BTreeMap<Id, usize>,
    charges: Vec<(Id, usize, Charge)>,
    killed: VecDeque<(Id, Killed)>,
    /// The most groups that shall live at once.
    groups_max: usize,
    tally: Tally,
    /// The last operations, for when one fails.
    trace: VecDeque<(&'static str, Id)>,
}

/// Counts what was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations carried out.
    pub operations: u64,
    /// Groups created.
    pub created: u64,
    /// Groups killed.
    pub killed: u64,
    /// Flushes asked for, the exact reads' included.
    pub flushes: u64,
    /// Values compared.
    pub compared: u64,
}

struct Holding {
    id: Id,
    group: Group,
    /// The last values read of the counters, below which none may fall.
    seen: [u64; COUNTERS],
    /// The last collected, likewise.
    visited: Visited,
    /// The handle for visits, once there was one.
    attached: Option<Attached<Visits>>,
}

impl Holding {
    fn new(id: Id, group: Group) -> Holding {
        let visited = Visited::default();
        Holding { id, group, seen: [0; COUNTERS], visited, attached: None }
    }
}

/// One kind of operation: how often (of the sum of all), what it is called, what it does to the group that
/// was picked.
type Step = (u64, &'static str, fn(&mut Fuzz, Id));

const STEPS: &[Step] = &[
    (160, "add", Fuzz::add),
    (40, "add_by_meter", Fuzz::add_by_meter),
    (70, "adjust", Fuzz::adjust),
    (60, "record", Fuzz::record),
    (30, "record_many", Fuzz::record_many),
    (60, "visit", Fuzz::visit),
    (110, "create", Fuzz::create),
    (20, "get_or_create", Fuzz::get_or_create),
    (50, "find", Fuzz::find),
    (60, "kill", Fuzz::kill),
    (1, "kill_subtree", Fuzz::kill_subtree),
    (50, "drop", Fuzz::drop_handle),
    (20, "released", Fuzz::check_released),
    (80, "charge", Fuzz::charge),
    (15, "resize", Fuzz::resize),
    (10, "split", Fuzz::split),
    (50, "uncharge", Fuzz::drop_charge),
    (15, "limit", Fuzz::set_limit),
    (10, "flush", Fuzz::flush),
    (15, "flush_set", Fuzz::flush_set),
    (20, "flush_below", Fuzz::flush_below),
    (90, "read", Fuzz::read),
    (30, "read_within", Fuzz::read_within),
    (30, "sum", Fuzz::sum),
    (20, "read_visits", Fuzz::read_visits),
    (10, "sum_visits", Fuzz::sum_visits),
];

/// How many operations a failure shows.
const TRACE_LEN: usize = 40;

impl Fuzz {
    /// Starts with a tree of its own, which grows to about `groups_max` live groups.
    ///
    /// # Panics
    /// When the kernel refuses the tree its address space.
    #[must_use]
    pub fn new(meters: Meters, seed: u64, groups_max: usize) -> Fuzz {
        let tree = Tree::new(meters.schema.clone()).expect("a tree");
        let visits = tree.collector("visits", Visits);
        let top = tree.root().clone();
        let mut fuzz = Fuzz::below(&meters, &tree, &visits, top, seed, groups_max);
        fuzz.alone = true;
        fuzz
    }

    /// Starts at the group `top`, which nobody else may use, nor what is below it.
    #[must_use]
    pub fn below(
        meters: &Meters,
        tree: &Tree,
        visits: &Collector<Visits>,
        top: Group,
        seed: u64,
        groups_max: usize,
    ) -> Fuzz {
        let mut ledger = Ledger::new(top.path(), BUCKETS);
        ledger.hold(0);
        Fuzz {
            meters: meters.clone(),
            tree: tree.clone(),
            visits: visits.clone(),
            alone: false,
            seed,
            random: Random::new(seed),
            ledger,
            held: vec![Holding::new(0, top)],
            places: BTreeMap::from([(0, 0)]),
            charges: Vec::new(),
            killed: VecDeque::new(),
            groups_max,
            tally: Tally::default(),
            trace: VecDeque::with_capacity(TRACE_LEN),
        }
    }

    /// Carries out `n` operations.
    ///
    /// # Panics
    /// When the tree differs from the ledger.
    pub fn steps(&mut self, n: u64) {
        let weights: u64 = STEPS.iter().map(|(weight, ..)| weight).sum();
        for _ in 0..n {
            let mut draw = self.random.below(weights);
            let (_, name, step) = STEPS
                .iter()
                .find(|(weight, ..)| {
                    let hit = draw < *weight;
                    draw = draw.saturating_sub(*weight);
                    hit
                })
                .expect("a draw below the sum of weights");
            let id = self.pick();
            if self.trace.len() == TRACE_LEN {
                self.trace.pop_front();
            }
            self.trace.push_back((name, id));
            step(self, id);
            self.tally.operations += 1;
        }
    }

    /// Returns what the ledger says of the topmost group.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns what was done so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Compares everything, lets go of everything, compares what is left, and says what was done.
    ///
    /// # Panics
    /// When the tree differs from the ledger.
    pub fn finish(&mut self) -> Tally {
        self.compare_everything();
        while !self.charges.is_empty() {
            self.drop_charge(0);
        }
        for place in (1..self.held.len()).rev() {
            self.drop_handle_at(place);
        }
        for _ in 0..self.killed.len() {
            self.check_released(0);
        }
        self.compare_everything();
        assert_eq!(self.ledger.existing(), self.ledger.live_len(), "nobody holds the dead");
        self.tally
    }

    // ---- what is held ------------------------------------------------------------------------

    /// A group of which a handle is held. Often one of the last: they are the ones that were not used yet.
    fn pick(&mut self) -> Id {
        let len = self.held.len();
        let window = if self.random.below(4) == 0 { len.min(16) } else { len };
        self.held[len - 1 - self.random.below(window as u64) as usize].id
    }

    fn group(&self, id: Id) -> &Group {
        &self.held[self.places[&id]].group
    }

    /// Keeps a handle, unless one is held; then they must be of the same group.
    fn adopt(&mut self, id: Id, group: Group) {
        assert_eq!(group.path(), self.ledger.get(id).path);
        assert_eq!(group.is_dying(), self.ledger.get(id).dead);
        if let Some(&place) = self.places.get(&id) {
            assert_eq!(self.held[place].group, group, "two groups at {}", group.path());
            return;
        }
        self.ledger.hold(id);
        self.places.insert(id, self.held.len());
        self.held.push(Holding::new(id, group));
    }

    fn drop_handle(&mut self, id: Id) {
        // The topmost's stays, so that there is always one to pick.
        if id != 0 {
            self.drop_handle_at(self.places[&id]);
        }
    }

    fn drop_handle_at(&mut self, place: usize) {
        let holding = self.held.swap_remove(place);
        let id = holding.id;
        self.places.remove(&id);
        if let Some(moved) = self.held.get(place) {
            self.places.insert(moved.id, place);
        }
        drop(holding);
        self.ledger.release(id);
    }
}

impl Drop for Fuzz {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Fuzz { seed, tally, trace, .. } = self;
            eprintln!("seed {seed}, after {tally:?}; the last operations, and on which group:");
            trace.iter().for_each(|(name, id)| eprintln!("  {name} {id}"));
        }
    }
}
