//! Every interleaving of charges of two leaves below one root.

use std::task::Waker;

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::common::Common;
use super::cpus_loom::{CPU, Cpus, Mistake, forget, note, sections, seen};
use super::leaf::Leaf;
use super::level::{Level, REST_MS};
use super::path::Path;
use super::tree::{charge_forced, release, set_limit, try_charge};
use super::wait::{Polled, Queue};
use crate::models::{Note, witness};

const LIMIT: u64 = 200;
/// The amount that both leaves hold at first; 3 more lie in stock, and 6 are free.
const CHARGED: u64 = 191;

struct Tree {
    root: Level,
    own: [Level; 2],
    leaves: [Leaf<Cpus>; 3],
    common: Common,
    /// Held by a thread that visits leaves, or opens one.
    open: Mutex<()>,
    queue: Mutex<Queue<At>>,
}

/// A leaf below the root, or the root.
struct At(Model, usize, Option<Box<At>>);

/// The root's place.
const ROOT: usize = 2;

fn at(tree: &Model, leaf: usize) -> At {
    let root = (leaf < ROOT).then(|| Box::new(At(Arc::clone(tree), ROOT, None)));
    At(Arc::clone(tree), leaf, root)
}

impl Path for At {
    type Stock = Cpus;
    fn leaf(&self) -> &Leaf<Cpus> {
        &self.0.leaves[self.1]
    }
    fn level(&self) -> &Level {
        self.0.own.get(self.1).unwrap_or(&self.0.root)
    }
    fn up(&self) -> impl Iterator<Item = &At> + Clone {
        std::iter::successors(Some(self), |at| at.2.as_deref())
    }
    fn below(&self, level: &Level, visit: &mut dyn FnMut(&mut dyn Iterator<Item = &Self>)) -> bool {
        let _visit = self.0.open.lock().unwrap();
        let leaves = [0, 1, ROOT].map(|leaf| at(&self.0, leaf));
        let below = |at: &&At| at.levels().any(|above| std::ptr::eq(level, above));
        visit(&mut leaves.iter().filter(below));
        true
    }
    fn join(&self, open: &mut dyn FnMut() -> bool) {
        if let Ok(_free) = self.0.open.try_lock()
            && !open()
        {
            note(|seen| seen.called_off += 1);
        }
    }
    fn common(&self) -> &Common {
        &self.0.common
    }
    fn serve(&self) {
        self.0.queue.lock().unwrap().serve(self.levels(), &mut Vec::new());
    }
    fn reconsider(&self) {
        self.0.queue.lock().unwrap().reconsider(&mut Vec::new());
    }
}

type Model = Arc<Tree>;

fn explore(mistake: Mistake, tick: u32, model: impl Fn(&Model) + Sync + Send + 'static) {
    explore_from(open_leaves, mistake, tick, model);
}

/// Opens both leaves.
fn open_leaves(tree: &Model) {
    // Open and refill both, by 2 and by 1; the last leaves too little room for a refill.
    for (leaf, n) in [(0, 64), (0, 2), (1, 32), (1, 2), (0, 91)] {
        try_charge(&at(tree, leaf), n).expect("it fits");
    }
    assert_eq!([0, 1, ROOT].map(|leaf| tree.leaves[leaf].stocked()), [2, 1, 0]);
}

/// Brings the first leaf near its own limit, and opens the root instead.
fn open_root(tree: &Model) {
    set_limit(&at(tree, 0), &tree.own[0], 40);
    try_charge(&at(tree, 0), 40).expect("it fits");
    release(&at(tree, 0), 3);
    // Leaves too little room for a refill, and for opening the second leaf.
    try_charge(&at(tree, 1), CHARGED - 37).expect("it fits");
    assert_eq!([0, 1, ROOT].map(|leaf| tree.leaves[leaf].stocked()), [0, 0, 3]);
}

fn explore_from(
    start: fn(&Model),
    mistake: Mistake,
    tick: u32,
    model: impl Fn(&Model) + Sync + Send + 'static,
) {
    // One preemption is enough to show each of the mistakes.
    crate::models::explore_briefly(1, move || {
        let sections = sections();
        let leaf = || Leaf::new(Cpus::new(&sections, mistake, tick), 4, 2);
        let tree = Arc::new(Tree {
            root: Level::new(),
            own: [Level::new(), Level::new()],
            leaves: [leaf(), leaf(), leaf()],
            common: Common::new(),
            open: Mutex::new(()),
            queue: Mutex::new(Queue::default()),
        });
        set_limit(&at(&tree, 0), &tree.root, LIMIT);
        start(&tree);
        assert_eq!(tree.root.held(), CHARGED + 3);
        forget();
        model(&tree);
    });
}

/// Witnesses a fold of stock that another charge wants at the same time.
fn witness_a_fold_beside_a_charge_from_stock() {
    witness("a fold that finds the stock taken", seen().taken > 0 && seen().closed > 0);
    witness("a fold that gives it back", seen().taken == 0 && seen().closed > 0);
}

fn charges(tree: &Model, cpu: usize, leaf: usize, all: &'static [u64]) -> thread::JoinHandle<u64> {
    let tree = Arc::clone(tree);
    thread::spawn(move || {
        CPU.with(|own| own.set(cpu));
        all.iter().filter(|&&n| try_charge(&at(&tree, leaf), n).is_ok()).sum()
    })
}

/// One charge takes stock that the other's fold of the root gives back: 9 are free.
fn a_fold_beside_a_charge_of_another_leaf(tree: &Model) {
    let both = [charges(tree, 0, 0, &[2]), charges(tree, 1, 1, &[7])];
    let granted: u64 = both.map(|charges| charges.join().unwrap()).iter().sum();
    witness_a_fold_beside_a_charge_from_stock();
    assert!(granted <= 9, "the limit is exceeded by {}", granted - 9);
    let held = tree.root.held();
    let charged = CHARGED + granted;
    assert!(held >= charged, "{charged} are charged, but {held} held");
    assert_eq!((granted, held), (9, LIMIT), "something was refused that fits, or room is lost");
    let own = [0, 1].map(|leaf| tree.own[leaf].held());
    assert_eq!(own, [159, 41]);
}

#[test]
fn loom_tree_a_fold_finds_all_leaves_stock() {
    explore(Mistake::None, 0, a_fold_beside_a_charge_of_another_leaf);
}

/// Finds that a fold without the barrier grants stock twice.
#[test]
#[should_panic(expected = "are charged, but")]
fn loom_tree_finds_a_fold_without_the_barrier() {
    explore(Mistake::NoBarrier, 0, a_fold_beside_a_charge_of_another_leaf);
}

/// Finds that a gate read outside the sequence grants stock twice.
#[test]
#[should_panic(expected = "are charged, but")]
fn loom_tree_finds_a_gate_outside_the_sequence() {
    explore(Mistake::GateOutside, 0, a_fold_beside_a_charge_of_another_leaf);
}

/// Two concurrent folds of the root give stock back once.
#[test]
fn loom_tree_two_folds_give_stock_back_once() {
    explore(Mistake::None, REST_MS, |tree| {
        let both = [charges(tree, 0, 0, &[9]), charges(tree, 1, 1, &[9])];
        let granted: u64 = both.map(|charges| charges.join().unwrap()).iter().sum();
        witness("two folds at once", seen().waiting_max > 1);
        assert_eq!(granted, 9, "one of two that do not both fit");
        assert_eq!(tree.root.held(), LIMIT);
    });
}

#[test]
fn loom_tree_a_lowered_limit_grants_no_stock() {
    explore(Mistake::None, 0, |tree| {
        let other = charges(tree, 0, 0, &[1]);
        let lowered = Arc::clone(tree);
        set_limit(&at(&lowered, 1), &lowered.root, CHARGED - 10);
        witness_a_fold_beside_a_charge_from_stock();
        let refused = try_charge(&at(tree, 1), 1).is_err();
        other.join().unwrap();
        assert!(refused, "10 more than the limit are held");
        release(&at(tree, 0), 20);
        try_charge(&at(tree, 1), 9).expect("it fits");
    });
}

/// A forced charge leaves no stock below the limit that it exceeds.
#[test]
fn loom_tree_a_forced_charge_leaves_no_stock() {
    explore(Mistake::None, REST_MS, |tree| {
        let other = charges(tree, 0, 0, &[1, 2]);
        charge_forced(&at(tree, 1), 30);
        let granted = other.join().unwrap();
        witness_a_fold_beside_a_charge_from_stock();
        assert_eq!(tree.root.held(), CHARGED + 30 + granted, "what lies in stock may be charged");
        try_charge(&at(tree, 0), 1).expect_err("the limit is exceeded");
    });
}

/// A refusal is exact although a neighbour's opening and refill meet the fold of the root in the
/// middle.
#[test]
fn loom_tree_refusal_beside_an_opening_is_exact() {
    explore(Mistake::None, REST_MS, |tree| {
        try_charge(&at(tree, 0), 10).expect_err("one too many, so that it folds");
        release(&at(tree, 0), 51);
        forget();
        // There is room for twice all stock again. The first opens, takes the rest of its word, and
        // fills the word again.
        let both = [charges(tree, 0, 0, &[1, 2, 1]), charges(tree, 1, 1, &[56])];
        let granted: u64 = both.map(|charges| charges.join().unwrap()).iter().sum();
        witness("an opening and a fold", seen().opened > 0 && seen().closed > 0);
        witness("a refill", seen().refilled > 0);
        assert_eq!(granted, 60, "all of it fits");
        assert_eq!(tree.root.held() - tree.leaves.iter().map(|l| l.stocked()).sum::<u64>(), LIMIT);
    });
}

/// A refusal beside a refill is exact: an amount reserved but not yet in its word would make it
/// inexact.
#[test]
fn loom_tree_a_refusal_beside_a_refill_is_exact() {
    explore(Mistake::None, 0, |tree| {
        release(&at(tree, 0), 64);
        // The 1 comes from stock; then 2, for which its word must be filled again, by 2 at most.
        let rest = &[LIMIT - CHARGED + 64 - 3];
        let both = [charges(tree, 0, 0, &[1, 2]), charges(tree, 1, 1, rest)];
        let granted: u64 = both.map(|charges| charges.join().unwrap()).iter().sum();
        witness("a refill and a fold", seen().refilled > 0 && seen().closed > 0);
        assert_eq!(granted, LIMIT - CHARGED + 64, "both fit");
        assert_eq!(tree.root.held() - tree.leaves.iter().map(|l| l.stocked()).sum::<u64>(), LIMIT);
    });
}

/// A charge of the first leaf waits for `n`, of which `before` is free already, while another
/// thread frees exactly the rest. The whole tree is dropped at the end, with the contents of its
/// queue.
fn a_charge_that_waits_beside(n: u64, before: u64, other: fn(&Model)) -> impl Fn(&Model) {
    move |tree| {
        release(&at(tree, 1), before);
        let (beside, done) = (Arc::clone(tree), Note::default());
        let released = done.clone();
        let other = thread::spawn(move || {
            CPU.with(|own| own.set(1));
            other(&beside);
            released.take();
        });
        let push = |queue: &mut Queue<At>| queue.push(at(tree, 0), n, Waker::noop().clone());
        let number = push(&mut tree.queue.lock().unwrap());
        at(tree, 0).serve();
        witness("a release before it tries", done.is_taken());
        witness("a release that finds it waiting", !done.is_taken());
        other.join().unwrap();
        let polled = tree.queue.lock().unwrap().poll(number, &mut Waker::noop().clone());
        assert!(matches!(polled, Polled::Done(Ok(()))), "it waits, and there is room");
        assert_eq!(tree.root.held() - tree.leaves.iter().map(|l| l.stocked()).sum::<u64>(), LIMIT);
    }
}

/// A charge that begins to wait does not miss a release.
#[test]
fn loom_tree_a_new_wait_misses_no_release() {
    let release_all = |tree: &Model| release(&at(tree, 0), CHARGED + 60 - LIMIT);
    explore(Mistake::None, REST_MS, a_charge_that_waits_beside(60, 0, release_all));
}

/// A leaf that opens withholds nothing from a waiting charge.
///
/// The last release is so small that an open leaf would keep it.
#[test]
fn loom_tree_an_opening_keeps_nothing_from_waits() {
    let open_and_release = |tree: &Model| {
        try_charge(&at(tree, 1), 1).expect("it fits");
        release(&at(tree, 1), 1);
        release(&at(tree, 1), 1);
    };
    let waits = a_charge_that_waits_beside(LIMIT - CHARGED + 29 + 1, 29, open_and_release);
    explore(Mistake::None, REST_MS, move |tree| {
        waits(tree);
        witness("an opening that is called off", seen().called_off > 0);
    });
}

/// One charge, at its leaf's limit, takes stock of the root that the other's fold gives back.
fn a_fold_beside_a_charge_at_a_leafs_limit(tree: &Model) {
    let both = [charges(tree, 0, 0, &[2]), charges(tree, 1, 1, &[7])];
    let granted: u64 = both.map(|charges| charges.join().unwrap()).iter().sum();
    let (charged, held) = (CHARGED + granted, tree.root.held());
    assert!(held >= charged, "{charged} are charged, but {held} held");
    witness_a_fold_beside_a_charge_from_stock();
    assert_eq!((granted, held), (9, LIMIT), "something was refused that fits, or room is lost");
    assert_eq!([0, 1].map(|leaf| tree.own[leaf].held()), [39, 161]);
}

/// A fold finds the stock from which a leaf at its limit takes.
#[test]
fn loom_tree_a_fold_finds_stock_used_at_a_limit() {
    explore_from(open_root, Mistake::None, 0, a_fold_beside_a_charge_at_a_leafs_limit);
}

#[test]
#[should_panic(expected = "are charged, but")]
fn loom_tree_finds_a_leafs_limit_without_barrier() {
    explore_from(open_root, Mistake::NoBarrier, 0, a_fold_beside_a_charge_at_a_leafs_limit);
}

#[test]
#[should_panic(expected = "are charged, but")]
fn loom_tree_finds_a_leafs_limit_without_gate() {
    explore_from(open_root, Mistake::GateOutside, 0, a_fold_beside_a_charge_at_a_leafs_limit);
}

/// Stock of the root goes back if two charges have taken it and the leaf's limit grants only one of
/// them.
#[test]
fn loom_tree_what_a_leaf_refuses_goes_back() {
    explore_from(open_root, Mistake::None, 0, |tree| {
        let both = [charges(tree, 0, 0, &[2]), charges(tree, 0, 0, &[2])];
        let granted: u64 = both.map(|charges| charges.join().unwrap()).iter().sum();
        witness("one that puts back what it took", seen().put > 0);
        assert_eq!((granted, tree.own[0].held()), (2, 39), "one of two that do not both fit");
        assert_eq!(tree.root.held() - tree.leaves[ROOT].stocked(), CHARGED + 2);
    });
}

/// A release into the stock above, beside a fold, loses nothing.
#[test]
fn loom_tree_a_release_above_loses_nothing() {
    explore_from(open_root, Mistake::None, 0, |tree| {
        let fold = charges(tree, 1, 1, &[LIMIT - CHARGED]);
        release(&at(tree, 0), 1);
        assert_eq!(fold.join().unwrap(), LIMIT - CHARGED, "it fits");
        witness("a release into stock that a fold finds", seen().put > 0 && seen().closed > 0);
        witness("one that finds it closed", seen().put == 0 && seen().closed > 0);
        assert_eq!(tree.root.held() - tree.leaves[ROOT].stocked(), LIMIT - 1);
        assert_eq!(tree.own[0].held(), 36);
    });
}
