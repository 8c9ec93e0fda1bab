//! A tree and its oracle, side by side, under the same operations.

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;
use submeter::{Aggregator, Charge, Group, Killed, Tree};

use crate::op::{Op, Source, picked};
use crate::oracle::{Id, Oracle};
use crate::schema::{COUNTERS, TestSchema};
use crate::update::{Handle, Update};
use crate::visits::{Visited, Visits};

mod charges;
mod compare;
mod groups;
#[cfg(test)]
mod tests;

/// A [`Tree`] and its [`Oracle`] under the same operations; it panics where they differ.
///
/// In a short script everything is compared after each operation. In a stream each operation
/// compares what it touches, and everything is compared only occasionally, so that an operation
/// costs about the same after a million others as after ten. A stream does not shrink; when it
/// fails, it prints its seed and the last operations.
///
/// A `Differential` that owns its tree makes additional checks: that a second flush finds nothing,
/// and how many groups exist. Several can share a tree, each with its own subtree and thread:
/// everything that one sees in its subtree must be as if it were alone.
///
/// # Examples
/// ```
/// use submeter_testkit::{Differential, TestSchema};
///
/// let mut differential = Differential::stream(TestSchema::new(), 1, 50);
/// differential.steps(500);
/// assert_eq!(differential.finish().operations, 500);
/// ```
pub struct Differential {
    schema: TestSchema,
    tree: Tree,
    visits: Aggregator<Visits>,
    oracle: Oracle,
    source: Source,
    /// Whether nothing else uses the tree.
    alone: bool,
    /// Draws a stream's operations, and the parts of a large tree to compare.
    rng: Rng,
    seed: u64,
    /// The handles held, in any order except that the top group's comes first.
    held: Vec<Holding>,
    /// The index of a group's handle in `held`.
    positions: BTreeMap<Id, usize>,
    /// The last values read of existing groups: no counter may fall, whichever handle reads it.
    seen: BTreeMap<Id, Seen>,
    charges: Vec<(Id, usize, Charge)>,
    killed: VecDeque<(Id, Killed)>,
    /// Maximum number of live groups, and of levels below the top group.
    groups_max: usize,
    depth_max: usize,
    tally: Tally,
    /// The last operations and the groups that they picked, to print on a failure.
    trace: VecDeque<(Op, Option<Id>)>,
}

/// Counts of what was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations carried out.
    pub operations: u64,
    /// Groups created.
    pub created: u64,
    /// Groups killed.
    pub killed: u64,
    /// Flushes requested, including those of exact reads.
    pub flushes: u64,
    /// Values compared.
    pub compared: u64,
    /// Refusals that were not compared because a barrier was given up during the charge: it may be
    /// refused although it fits, and its error also counts what is in stock.
    pub late: u64,
}

struct Holding {
    id: Id,
    handle: Handle,
}

/// The last values of one group that were read without a flush.
#[derive(Clone, Copy, Default)]
struct Seen {
    counters: [u64; COUNTERS],
    visited: Visited,
}

/// How many operations a failure shows.
const TRACE_LEN: usize = 40;

/// Levels below the top group in a stream: enough for long walks, few enough to leave many
/// siblings.
const DEPTH_MAX: usize = 7;

/// The same in a script: more than almost any script reaches, and fewer than a tree can have.
const SCRIPT_DEPTH_MAX: usize = 50;

impl Differential {
    /// Runs a whole script, compares everything, then drops the tree and compares what handles
    /// still read.
    ///
    /// # Panics
    /// When the kernel refuses address space for the tree, or the tree differs from the oracle.
    pub fn script(schema: TestSchema, script: &[Op]) {
        let mut differential = Differential::own(schema, Source::Script, 0, usize::MAX);
        for op in script {
            differential.apply(op.clone());
        }
        differential.compare_everything();
        for id in differential.near(0) {
            differential.sum(id);
            differential.sum_visits(id);
        }
        differential.drop_tree();
    }

    /// Starts a stream with a tree of its own, which grows to about `groups_max` live groups.
    ///
    /// # Panics
    /// When the kernel refuses address space for the tree.
    #[must_use]
    pub fn stream(schema: TestSchema, seed: u64, groups_max: usize) -> Differential {
        Differential::own(schema, Source::Stream, seed, groups_max)
    }

    /// Starts a stream on the subtree of `top`, which nothing else may use.
    #[must_use]
    pub fn below(
        schema: &TestSchema,
        tree: &Tree,
        visits: &Aggregator<Visits>,
        top: Group,
        seed: u64,
        groups_max: usize,
    ) -> Differential {
        let mut oracle = Oracle::new(top.path());
        oracle.hold(0);
        Differential {
            schema: schema.clone(),
            tree: tree.clone(),
            visits: visits.clone(),
            oracle,
            source: Source::Stream,
            alone: false,
            rng: Rng::with_seed(seed),
            seed,
            held: vec![Holding { id: 0, handle: Handle::new(top) }],
            positions: BTreeMap::from([(0, 0)]),
            seen: BTreeMap::new(),
            charges: Vec::new(),
            killed: VecDeque::new(),
            groups_max,
            depth_max: DEPTH_MAX,
            tally: Tally::default(),
            trace: VecDeque::with_capacity(TRACE_LEN),
        }
    }

    fn own(schema: TestSchema, source: Source, seed: u64, groups_max: usize) -> Differential {
        let tree = Tree::new(schema.schema.clone()).expect("a tree");
        let visits = tree.aggregator("visits", Visits);
        let top = tree.root().clone();
        let mut own = Differential::below(&schema, &tree, &visits, top, seed, groups_max);
        (own.source, own.alone) = (source, true);
        if source == Source::Script {
            own.depth_max = SCRIPT_DEPTH_MAX;
        }
        own
    }

    /// Applies the next `n` operations of the stream.
    ///
    /// # Panics
    /// When the tree differs from the oracle.
    pub fn steps(&mut self, n: u64) {
        for _ in 0..n {
            let op = Op::random(self.source, &mut self.rng);
            self.apply(op);
        }
    }

    /// Returns the oracle of the top group and its descendants.
    #[must_use]
    pub fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    /// Returns what was done so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Applies one operation to both and compares the results.
    fn apply(&mut self, op: Op) {
        if self.trace.len() == TRACE_LEN {
            self.trace.pop_front();
        }
        self.trace.push_back((op.clone(), None));
        self.tally.operations += 1;
        match op {
            Op::Update { at, update } => self.pick(at, |this, id| this.update(id, update)),
            Op::Create { at, name } => self.pick(at, |this, id| this.create(id, name)),
            Op::GetOrCreate { names } => self.get_or_create(&names),
            Op::Find { at, names } => self.pick(at, |this, id| this.find(id, &names)),
            Op::Descend { turns } => self.descend(&turns),
            Op::Kill { at } => self.pick(at, Self::kill),
            Op::KillSubtree { at } => self.pick(at, Self::kill_subtree),
            Op::DropHandle { at } => self.pick(at, Self::drop_handle),
            Op::CheckReleased => self.check_released(),
            Op::Charge { at, quota, n } => self.pick(at, |this, id| this.charge(id, quota, n)),
            Op::ChargeForced { at, quota, n } => {
                self.pick(at, |this, id| this.charge_forced(id, quota, n));
            }
            Op::ChargeAll { at, n } => self.pick(at, |this, id| this.charge_all(id, n)),
            Op::SetLimitMode { at, quota, mode } => {
                self.pick(at, |this, id| this.set_limit_mode(id, quota, mode));
            }
            Op::SetClaims { at, quota, claims } => {
                self.pick(at, |this, id| this.set_claims(id, quota, claims));
            }
            Op::Protection { at, quota, levels } => {
                self.pick(at, |this, id| this.protection(id, quota, levels));
            }
            Op::Resize { charge, amount } => self.resize(charge, amount),
            Op::Split { charge, part, merge } => self.split(charge, part, merge),
            Op::DropCharge { charge } => self.drop_charge(charge),
            Op::SetLimit { at, quota, limit } => {
                self.pick(at, |this, id| this.set_limit(id, quota, limit));
            }
            Op::Flush => self.flush(),
            Op::FlushSection { section } => self.flush_section(section),
            Op::FlushBelow { at } => self.pick(at, Self::flush_below),
            Op::Read { at } => self.pick(at, Self::read),
            Op::ReadWithin { at, error, fresh } => {
                self.pick(at, |this, id| this.read_within(id, error, fresh));
            }
            Op::Sum { at } => self.pick(at, Self::sum),
            Op::ReadVisits { at } => self.pick(at, Self::read_visits),
            Op::SumVisits { at } => self.pick(at, Self::sum_visits),
            Op::Snapshot => self.compare_everything(),
        }
    }

    fn update(&mut self, id: Id, update: Update) {
        let handle = &mut self.held[self.positions[&id]].handle;
        update.apply(handle, &self.schema, &self.visits);
        self.oracle.update(id, |totals| update.count_in(totals));
    }

    /// Compares everything, drops everything, compares what is left, and returns the tally.
    ///
    /// # Panics
    /// When the tree differs from the oracle.
    pub fn finish(&mut self) -> Tally {
        self.compare_everything();
        while !self.charges.is_empty() {
            self.drop_charge(0);
        }
        while let [_, .., Holding { id, .. }] = self.held[..] {
            self.drop_handle(id);
        }
        for _ in 0..self.killed.len() {
            self.check_released();
        }
        self.compare_everything();
        assert_eq!(self.oracle.existing(), self.oracle.live_len(), "nothing holds killed groups");
        self.tally
    }

    /// Drops the tree: the handles that are held keep counting, and are released without error.
    fn drop_tree(mut self) {
        let held: Vec<Id> = self.held.iter().map(|holding| holding.id).collect();
        for &id in &held {
            self.update(id, Update::Add { counter: 0, n: 1 });
        }
        self.tree = Tree::new(self.schema.schema.clone()).expect("a tree");
        for &id in &held {
            self.sum(id);
        }
        while !self.charges.is_empty() {
            self.drop_charge(0);
        }
        for id in held {
            assert!(self.oracle.get(id).held.iter().all(|held| held.current == 0));
            self.compare_held(id);
        }
    }

    // ---- handles -----------------------------------------------------------------------------

    /// Calls `act` with one of the groups with a held handle.
    fn pick(&mut self, at: u32, act: impl FnOnce(&mut Self, Id)) {
        let id = self.held[picked(at, self.held.len())].id;
        if let Some((_, picked)) = self.trace.back_mut() {
            *picked = Some(id);
        }
        act(self, id);
    }

    /// Returns the groups to compare after an operation on `id`: in a script all with a held
    /// handle, in a stream the group itself and a few others.
    fn near(&mut self, id: Id) -> Vec<Id> {
        if self.source == Source::Script {
            return self.held.iter().map(|holding| holding.id).collect();
        }
        let others = (0..4).map(|_| self.held[self.rng.usize(..self.held.len())].id);
        [id].into_iter().chain(others).collect()
    }

    fn group(&self, id: Id) -> &Group {
        &self.held[self.positions[&id]].handle.group
    }

    /// Keeps a handle, unless one of the same path is held; then both must refer to the same group.
    fn adopt(&mut self, id: Id, group: Group) {
        let entry = self.oracle.get(id);
        assert_eq!(group.path(), entry.path);
        assert_eq!(group.is_killed(), entry.dead);
        assert_eq!(group.name(), entry.path.rsplit('/').next().expect("one part"));
        let is_root = entry.path == "/";
        assert_eq!(group.depth(), entry.path.matches('/').count() - usize::from(is_root));
        if id != 0 || self.alone {
            let parent = entry.parent.map(|parent| &*self.oracle.get(parent).path);
            assert_eq!(group.parent().map(Group::path), parent);
        }
        if let Some(&position) = self.positions.get(&id) {
            let held = &self.held[position].handle.group;
            assert_eq!(*held, group, "two groups at {}", group.path());
            return;
        }
        self.oracle.hold(id);
        self.positions.insert(id, self.held.len());
        self.held.push(Holding { id, handle: Handle::new(group) });
    }

    fn drop_handle(&mut self, id: Id) {
        // The top group's handle stays, so that there is always one to pick.
        if id == 0 {
            return;
        }
        let position = self.positions.remove(&id).expect("picked among the held");
        drop(self.held.swap_remove(position));
        if let Some(moved) = self.held.get(position) {
            self.positions.insert(moved.id, position);
        }
        self.oracle.release(id);
        if !self.oracle.exists(id) {
            self.seen.remove(&id);
        }
    }
}

impl Drop for Differential {
    fn drop(&mut self) {
        // proptest prints the shrunk script.
        if std::thread::panicking() && self.source == Source::Stream {
            let Differential { seed, tally, trace, .. } = self;
            eprintln!("seed {seed}, after {tally:?}; the last operations, and on which group:");
            for (op, picked) in trace {
                eprintln!("  {op:?} on {picked:?}");
            }
        }
    }
}
