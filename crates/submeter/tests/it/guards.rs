//! Guards that end in any order: which group is current, and what the thread keeps for them.

use std::time::Duration;

use fastrand::Rng;
use submeter::switch::{self, Entered};
use submeter::{Group, Killed, Schema, Tree};

const ROUNDS: u32 = if cfg!(miri) { 2 } else { 300 };
/// More guards than one level has bits.
const STEPS: u32 = if cfg!(miri) { 80 } else { 600 };
/// Number of times that one guard replaces another. Fewer in debug builds, which are slow.
const HANDOVERS: u32 = match (cfg!(miri), cfg!(debug_assertions)) {
    (true, _) => 1_000,
    (_, true) => 100_000,
    _ => 10_000_000,
};

fn tree() -> Tree {
    let mut schema = Schema::builder();
    schema.cpu_time("cpu", "CPU time");
    Tree::new(schema.build().expect("valid")).expect("address space")
}

fn groups(tree: &Tree) -> Vec<Group> {
    (0..4).map(|n| tree.create(&format!("/{n}")).expect("new")).collect()
}

/// A model of guards that ignores cost: the latest live guard decides the current group.
struct Oracle<'a> {
    groups: &'a [Group],
    /// Ordered by creation.
    guards: Vec<(Entered, usize)>,
}

impl Oracle<'_> {
    fn step(&mut self, rng: &mut Rng, most: usize) {
        let group = rng.usize(..self.groups.len());
        let any = rng.usize(..self.guards.len().max(1));
        match rng.u8(..8) {
            0..3 if self.guards.len() < most => {
                // Often pick the same group again.
                let last = self.guards.last().map(|(_, group)| *group).filter(|_| rng.bool());
                let group = last.unwrap_or(group);
                self.guards.push((self.groups[group].enter(), group));
            }
            // End the latest, replace one with the next, or end an arbitrary one.
            3 => drop(self.guards.pop()),
            4 if self.guards.len() > 1 => drop(self.guards.swap_remove(self.guards.len() - 2)),
            5 | 6 if !self.guards.is_empty() => drop(self.guards.remove(any)),
            7 if !self.guards.is_empty() => {
                let latest = any + 1 == self.guards.len();
                let (guard, of) = &mut self.guards[any];
                guard.switch_to(&self.groups[group]);
                *of = if latest { group } else { *of };
            }
            _ => {}
        }
    }

    fn current(&self) -> Option<&Group> {
        self.guards.last().map(|(_, group)| &self.groups[*group])
    }

    /// Checks that the thread keeps handles to exactly the groups that its guards are in.
    fn check_handles(&self, killed: &[Killed]) {
        for (group, killed) in killed.iter().enumerate() {
            let entered = self.guards.iter().filter(|(_, of)| *of == group).count();
            let held = killed.holders().references().expect("counted") - 1;
            assert!(held <= entered as i64 && (held > 0) == (entered > 0), "{held} of {entered}");
        }
    }
}

/// The latest guard decides, in whatever order guards end.
#[test]
fn the_latest_guard_decides() {
    let tree = tree();
    for round in 0..ROUNDS {
        let mut rng = Rng::with_seed(round.into());
        let groups = groups(&tree);
        let killed: Vec<Killed> =
            groups.iter().map(|group| group.kill().expect("no children")).collect();
        let mut oracle = Oracle { groups: &groups, guards: Vec::new() };
        let most = 1 << rng.u32(1..9);
        for step in 0..STEPS {
            oracle.step(&mut rng, most);
            assert_eq!(switch::current().as_ref(), oracle.current(), "{round}, {step}");
            if step % 16 == 0 {
                oracle.check_handles(&killed);
            }
        }
        rng.shuffle(&mut oracle.guards);
        oracle.guards.clear();
        assert_eq!(switch::current(), None);
        drop(groups);
        assert!(killed.iter().all(Killed::is_released));
    }
}

/// Guards that overlap the ones before do not take more memory each time.
#[test]
fn overlapping_guards_do_not_take_more_memory() {
    let tree = tree();
    let groups = groups(&tree);
    // With one guard at a time, and with three, of which the earliest ends.
    for (same, width) in [(true, 1), (false, 1), (true, 3), (false, 3)] {
        let group = |n: u32| &groups[if same { 0 } else { n as usize % groups.len() }];
        let mut kept: [Option<Entered>; 3] = [const { None }; 3];
        let mut hand_over = |n: u32| kept[n as usize % width] = Some(group(n).enter());
        // A level has 64 bits. After more guards than that, everything has been allocated.
        (0..200).for_each(&mut hand_over);
        // Begin with few: if guards leaked, the full count would take hours.
        for handovers in [1_000, HANDOVERS] {
            let count = allocation_counter::measure(|| (0..handovers).for_each(&mut hand_over));
            assert_eq!(count.count_total, 0, "same group: {same}, {width} at a time");
        }
        assert_eq!(switch::current().as_ref(), Some(group(HANDOVERS - 1)));
        drop(kept);
        assert_eq!(switch::current(), None);
    }
}

/// A worker that stores the guard of its current request.
struct Worker {
    in_progress: Option<Entered>,
}

/// A group is released once no guard is in it, whichever guards came later.
#[test]
fn a_group_is_released_with_its_last_guard() {
    let tree = tree();
    let (a, b) = (tree.create("/a").expect("new"), tree.create("/b").expect("new"));
    let mut worker = Worker { in_progress: None };
    for _ in 0..3 {
        worker.in_progress = Some(a.enter());
        worker.in_progress = Some(b.enter());
    }
    let killed = a.kill().expect("no children");
    drop(a);
    killed.released_blocking(Duration::ZERO).expect("the worker is in /b");
    assert_eq!(switch::current(), Some(b));
    drop(worker.in_progress);
    assert_eq!(switch::current(), None);
}

/// More guards of one group than a level has bits may end in any order.
#[test]
fn more_guards_than_bits_end_in_any_order() {
    let tree = tree();
    let groups = groups(&tree);
    let mut rng = Rng::with_seed(7);
    let outer = groups[1].enter();
    let mut guards: Vec<Entered> = (0..500).map(|_| groups[0].enter()).collect();
    let reading = || groups[0].read(tree.schema().cpu_time().expect("declared")).max_error;
    tree.flush();
    rng.shuffle(&mut guards);
    for guard in guards.drain(1..) {
        drop(guard);
        assert_eq!(switch::current().as_ref(), Some(&groups[0]));
    }
    assert_eq!(reading(), 0, "no switch, so nothing was charged");
    guards.clear();
    assert_eq!(switch::current().as_ref(), Some(&groups[1]));
    drop(outer);
    assert_eq!(switch::current(), None);
}
