//! One charge, release or change of a limit, with other operations in the middle of it: before each
//! of its accesses in turn.

use std::cell::{Cell, RefCell};
use std::ptr::eq;
use std::rc::Rc;
use std::task::Waker;

use super::common::Common;
use super::leaf::{Leaf, Phase};
use super::level::{Level, LimitMode, REST_MS, Refusal};
use super::path::Path;
use super::stepped::{arm, disarm, refuel, step};
use super::stock::Stock;
use super::tree::{charge_forced, release, set_limit, set_mode, try_charge};
use super::wait::{Cancelled, Failure, Polled, Queue};

#[derive(Clone, Copy, Debug)]
enum Act {
    Charge(usize, u64),
    Uncharge(usize, u64),
    Limit(u64),
    /// Sets the limit of one leaf only.
    Own(usize, u64),
    Force(usize, u64),
    /// Begins to wait.
    Wait(usize, u64),
    /// The oldest waiting charge gives up.
    GiveUp,
    Mode(LimitMode),
    /// From now on leaves cannot be visited, as in a handler that interrupted a visit.
    Interrupt,
    /// Time passes.
    Rest,
    /// The first half of a fold, of one leaf.
    Close(usize),
    /// Reads the amount charged, if it is known without a look at stock.
    Ask,
    On(usize),
}
mod above;
mod beyond;
mod waits;

use Act::{
    Ask, Charge, Close, Force, GiveUp, Interrupt, Limit, Mode, On, Own, Rest, Uncharge, Wait,
};

/// The state shared by all leaves.
#[derive(Default)]
struct Machine {
    cpu: Cell<usize>,
    now: Cell<u32>,
    barriers: Cell<u32>,
}

struct Words {
    machine: Rc<Machine>,
    words: [Cell<i64>; 2],
    open: Cell<bool>,
    /// The number of barriers issued before it was closed.
    closed: Cell<Option<u32>>,
}

impl Stock for Words {
    fn add(&self, n: i64, cap: u64) -> bool {
        step();
        let word = &self.words[self.machine.cpu.get()];
        let after = word.get() + n;
        let done = self.open.get() && after.cast_unsigned() <= cap;
        if done {
            word.set(after);
        }
        done
    }
    fn add_again(&self, n: i64, cap: u64) -> bool {
        self.add(n, cap)
    }
    fn open(&self) {
        step();
        self.open.set(true);
    }
    fn close(&self) {
        step();
        self.open.set(false);
        self.closed.set(Some(self.machine.barriers.get()));
    }
    fn barrier(&self) {
        step();
        self.machine.barriers.set(self.machine.barriers.get() + 1);
    }
    fn sum(&self) -> i64 {
        step();
        self.words.iter().map(Cell::get).sum()
    }
    fn now_ms(&self) -> u32 {
        self.machine.now.get()
    }
}

struct Tree {
    machine: Rc<Machine>,
    root: Level,
    /// The level above leaf 0 only.
    between: Level,
    own: [Level; 2],
    /// The leaves, and those of the levels above them.
    leaves: [Leaf<Words>; 4],
    common: Common,
    visited: Cell<bool>,
    /// Whether this is in a handler that interrupted a visit.
    interrupted: Cell<bool>,
    queue: RefCell<Queue<At>>,
    /// Whether others would have had to wait for the queue: such a run proves nothing.
    stuck: Cell<bool>,
    /// Number, leaf and amount of each waiting charge.
    waiting: RefCell<Vec<(u64, usize, u64)>>,
    charged: [Cell<u64>; 2],
    /// The last answer to `Ask`.
    answer: Cell<Option<u64>>,
    /// Whether the levels of leaf 0 below the root held something when that was last recorded.
    noted: Cell<[bool; 2]>,
}

/// A leaf, or a level above one.
#[derive(Clone)]
struct At(Rc<Tree>, usize, Option<Rc<At>>);

/// The places of the levels above leaves.
const BETWEEN: usize = 2;
const ROOT: usize = 3;

/// The maximum amount in a word.
const CAP: u64 = 4;

fn at(tree: &Rc<Tree>, place: usize) -> At {
    let above = match place {
        0 => Some(BETWEEN),
        1 | BETWEEN => Some(ROOT),
        _ => None,
    };
    At(Rc::clone(tree), place, above.map(|above| Rc::new(at(tree, above))))
}

impl Path for At {
    type Stock = Words;
    fn leaf(&self) -> &Leaf<Words> {
        &self.0.leaves[self.1]
    }
    fn level(&self) -> &Level {
        [&self.0.own[0], &self.0.own[1], &self.0.between, &self.0.root][self.1]
    }
    fn up(&self) -> impl Iterator<Item = &At> + Clone {
        std::iter::successors(Some(self), |at| at.2.as_deref())
    }
    fn below(&self, level: &Level, visit: &mut dyn FnMut(&mut dyn Iterator<Item = &Self>)) -> bool {
        step();
        if self.0.interrupted.get() {
            return false;
        }
        self.0.visited.set(true);
        let leaves = [0, 1, BETWEEN, ROOT].map(|place| at(&self.0, place));
        let below = |at: &&At| at.levels().any(|above| eq(level, above));
        visit(&mut leaves.iter().filter(below));
        self.0.visited.set(false);
        true
    }
    fn join(&self, open: &mut dyn FnMut() -> bool) {
        step();
        self.0.visited.set(true);
        open();
        self.0.visited.set(false);
    }
    fn common(&self) -> &Common {
        &self.0.common
    }
    fn serve(&self) {
        step();
        self.0.queue(|queue| {
            self.note_holders();
            queue.serve(self.levels(), &mut Vec::new());
        });
    }
    fn reconsider(&self) {
        step();
        self.0.queue(|queue| {
            self.note_holders();
            queue.reconsider(&mut Vec::new());
        });
    }
    fn note_wait(&self, _begins: bool) {
        self.note_holders();
    }
    fn note_holders(&self) {
        if self.1 == 0 {
            self.0.noted.set(self.0.holders());
        }
    }
    fn note_charge(&self) {
        self.0.queue(|_| self.note_holders());
    }
}

const NONE: u64 = u64::MAX;

impl Tree {
    fn new() -> Rc<Tree> {
        let machine = Rc::new(Machine::default());
        let leaf = || {
            let machine = Rc::clone(&machine);
            let (words, open) = (Default::default(), Cell::new(false));
            Leaf::new(Words { machine, words, open, closed: Cell::new(None) }, CAP, 2)
        };
        Rc::new(Tree {
            root: Level::new(),
            between: Level::new(),
            own: [Level::new(), Level::new()],
            leaves: [leaf(), leaf(), leaf(), leaf()],
            common: Common::new(),
            visited: Cell::new(false),
            interrupted: Cell::new(false),
            queue: Default::default(),
            stuck: Cell::new(false),
            waiting: Default::default(),
            charged: Default::default(),
            answer: Cell::new(None),
            noted: Default::default(),
            machine,
        })
    }

    /// Returns whether another thread would not have to wait.
    fn is_free(&self) -> bool {
        let free =
            |leaf: &Leaf<Words>| leaf.phase() == Phase::Closed || leaf.lock.try_lock().is_some();
        !self.visited.get() && self.leaves.iter().all(free)
    }

    fn limit(&self) -> u64 {
        self.root.record().limit
    }

    fn own_limit(&self, leaf: usize) -> u64 {
        self.own[leaf].record().limit
    }

    fn holders(&self) -> [bool; 2] {
        [&self.own[0], &self.between].map(|level| level.held() > 0)
    }

    fn total(&self) -> u64 {
        self.charged.iter().map(Cell::get).sum()
    }

    fn perform(self: &Rc<Tree>, act: Act) -> Result<(), Refusal> {
        match act {
            Charge(leaf, n) => {
                let at = at(self, leaf);
                try_charge(&at, n).map_err(|(index, refusal)| {
                    let level = at.levels().nth(index).expect("it refused");
                    assert!(level.limit() < NONE, "it has no limit");
                    refusal
                })?;
                self.charged[leaf].set(self.charged[leaf].get() + n);
            }
            Uncharge(leaf, n) => {
                self.charged[leaf].set(self.charged[leaf].get() - n);
                release(&at(self, leaf), n);
            }
            Force(leaf, n) => {
                charge_forced(&at(self, leaf), n);
                self.charged[leaf].set(self.charged[leaf].get() + n);
            }
            Mode(mode) => set_mode(&at(self, 0), &self.root, mode),
            Wait(leaf, n) => {
                let at = at(self, leaf);
                let push = |queue: &mut Queue<At>| queue.push(at.clone(), n, Waker::noop().clone());
                let Some(number) = self.queue(push) else { return Ok(()) };
                self.waiting.borrow_mut().push((number, leaf, n));
                at.serve();
            }
            GiveUp => {
                let (number, leaf, n) = self.waiting.borrow_mut().remove(0);
                let at = at(self, leaf);
                let cancelled = self.queue(|queue| queue.cancel(number));
                if matches!(cancelled, Some(Cancelled::Granted)) {
                    release(&at, n);
                }
                at.serve();
            }
            Interrupt => self.interrupted.set(true),
            Own(leaf, limit) => set_limit(&at(self, leaf), &self.own[leaf], limit),
            Limit(limit) => set_limit(&at(self, 0), &self.root, limit),
            Rest => self.machine.now.set(self.machine.now.get() + REST_MS),
            Close(leaf) => _ = self.leaves[leaf].close(self.common.begin_visit()),
            Ask => self.answer.set(self.root.exactly()),
            On(cpu) => self.machine.cpu.set(cpu),
        }
        Ok(())
    }

    fn queue<T>(&self, change: impl FnOnce(&mut Queue<At>) -> T) -> Option<T> {
        let queue = self.queue.try_borrow_mut();
        queue.inspect_err(|_| self.stuck.set(true)).ok().map(|mut queue| change(&mut queue))
    }

    /// Counts waiting charges that were granted. Returns how many still wait.
    fn harvest(&self) -> usize {
        self.waiting.borrow_mut().retain(|(number, leaf, n)| {
            match self.queue.borrow_mut().poll(*number, &mut Waker::noop().clone()) {
                Polled::Waits => return true,
                Polled::Done(Ok(())) => self.charged[*leaf].set(self.charged[*leaf].get() + n),
                Polled::Done(Err(_)) => assert!(*n > self.limit(), "{n} fit, at another time"),
                Polled::Unknown => panic!("it was pushed"),
            }
            false
        });
        self.waiting.borrow().len()
    }

    /// Checks what must hold while nothing is under way.
    fn check(self: &Rc<Tree>, at: &str) {
        self.harvest();
        if let Some(&(_, leaf, n)) = self.waiting.borrow().first() {
            let full = self.total() + n > self.limit() && self.root.mode() != LimitMode::Soft
                || self.charged[leaf].get() + n > self.own_limit(leaf);
            assert!(full, "{at}: {n} wait, and would fit");
        } else {
            let awaited = self.own.iter().chain([&self.root]).any(Level::is_awaited);
            assert!(!awaited, "{at}: nobody waits");
        }
        for place in [0, 1, BETWEEN, ROOT] {
            self.check_level(place, &format!("{at}: level {place}"));
        }
    }

    fn check_level(self: &Rc<Tree>, place: usize, at: &str) {
        let path = self::at(self, place);
        let level = path.level();
        let below = [0, 1, BETWEEN, ROOT].map(|place| self::at(self, place));
        let below = || below.iter().filter(|below| below.levels().any(|above| eq(above, level)));
        let charged: u64 = below().filter_map(|at| self.charged.get(at.1)).map(Cell::get).sum();
        let stocked: u64 = below().map(|at| at.leaf().stocked()).sum();
        assert_eq!(level.held(), charged + stocked, "{at}: held");
        let limit = level.record().limit.max(charged);
        assert!(level.held() <= limit, "{at}: stock beyond the limit");
        let open = below().filter(|at| at.leaf().phase() != Phase::Closed).count();
        assert_eq!(level.openings() as u32, open as u32, "{at}: leaves that may be open");
        let exact = level.exactly().is_none_or(|held| held == charged);
        assert!(exact, "{at}: not what is charged");
        let leaf = path.leaf();
        let open = leaf.phase() == Phase::Open;
        let loose = path.levels().all(Level::is_loose);
        assert!(!open || loose, "{at}: a leaf is open below a tight level");
        let behind = leaf.stock.closed.get().is_none_or(|at| at < self.machine.barriers.get());
        let behind = leaf.phase() != Phase::Closed || behind;
        assert!(behind, "{at}: stock was given back without a barrier");
    }
}

/// Runs `act` after `start`, with `others` before each of its accesses in turn.
fn at_every_step(start: &[Act], act: Act, others: &'static [Act]) {
    let mut run = 0;
    for accesses in 0.. {
        let tree = Tree::new();
        for act in start {
            tree.perform(*act).expect("a start has room");
        }
        let (charged, limit) = (tree.total(), tree.limit());
        let own_charged = tree.charged.each_ref().map(Cell::get);
        let ran = Rc::new(Cell::new(None));
        let (other, told) = (Rc::clone(&tree), Rc::clone(&ran));
        arm(accesses, move || {
            if other.is_free() {
                told.set(Some((tree_after(&other, act, others), other.root.held())));
            }
        });
        let result = tree.perform(act);
        let over = !disarm();
        let at = format!("{act:?} with {others:?} before access {accesses}");
        if let Some((then, held)) = ran.take() {
            run += 1;
            let fits = |n| charged.saturating_add(n) <= limit && then + n <= tree.limit();
            match (act, result) {
                (Charge(leaf, n), Err(refusal)) => {
                    let own = [own_charged[leaf], tree.charged[leaf].get()];
                    let own_fits =
                        own.iter().all(|own| own.saturating_add(n) <= tree.own_limit(leaf));
                    assert!(!fits(n) || !own_fits, "{at}: refused what fits: {refusal:?}");
                    let was = tree.interrupted.get()
                        || [charged, then].contains(&refusal.held)
                        || !own_fits && own.contains(&refusal.held);
                    assert!(was, "{at}: {refusal:?}, but {charged} or {then} were charged");
                }
                (Charge(_, n), Ok(())) => {
                    let reported = held >= then + n;
                    let within =
                        tree.total() <= tree.limit() || tree.root.mode() == LimitMode::Soft;
                    assert!(within || reported, "{at}: granted beyond a limit that was set before");
                }
                (Ask, _) => {
                    let right = tree.answer.get().is_none_or(|n| [charged, then].contains(&n));
                    assert!(right, "{at}: {:?}, not {charged} nor {then}", tree.answer);
                }
                _ => {}
            }
        }
        if tree.interrupted.take() {
            // The interrupted thread ends the fold that it began.
            tree.perform(Limit(0)).expect("a limit");
        }
        tree.check(&at);
        if over {
            break;
        }
    }
    assert!(run > 0, "{act:?} with {others:?}: there was no place for them");
}

/// Runs `act` after `start`, with the first others before each of its accesses in turn, and the
/// second others before each of the following accesses. Passes the results of `act` and of the last
/// of the others to `check`.
fn at_two_steps(
    start: &[Act],
    act: Act,
    others: [&'static [Act]; 2],
    check: impl Fn(&Rc<Tree>, [Result<(), Refusal>; 2], &str),
) {
    let mut run = 0;
    for (accesses, more) in (0..100).flat_map(|first| (0..40).map(move |second| (first, second))) {
        let tree = Tree::new();
        start.iter().for_each(|act| tree.perform(*act).expect("a start has room"));
        let (other, last) = (Rc::clone(&tree), Rc::new(Cell::new(None)));
        let told = Rc::clone(&last);
        arm(accesses, move || {
            let perform = |tree: &Rc<Tree>, others: &[Act]| {
                let acts = others.iter().filter(|_| tree.is_free());
                acts.fold(None, |_, act| Some(tree.perform(*act)))
            };
            perform(&other, others[0]);
            arm(more, move || told.set(perform(&other, others[1])));
        });
        let result = tree.perform(act);
        _ = disarm();
        let at = format!("{act:?} with {others:?} before access {accesses} and {more} later");
        if let Some(last) = last.take() {
            run += 1;
            check(&tree, [result, last], &at);
        }
        tree.check(&at);
    }
    assert!(run > 0, "{act:?} with {others:?}: there was no place for them");
}

/// Runs the others' part; returns the amount then charged, without `act`.
fn tree_after(tree: &Rc<Tree>, act: Act, others: &[Act]) -> u64 {
    let (own, lowered) = match act {
        Charge(_, n) | Force(_, n) => (n, NONE),
        Limit(limit) => (0, limit),
        _ => (0, NONE),
    };
    for other in others {
        let before = tree.total();
        match (tree.perform(*other), *other) {
            (Err(refusal), Charge(leaf, n)) => {
                let fits = before + own + n <= tree.limit().min(lowered);
                let own = if matches!(act, Charge(of, _) if of == leaf) { own } else { 0 };
                let own_fits = tree.charged[leaf].get() + own + n <= tree.own_limit(leaf);
                let fits = fits && own_fits;
                assert!(!fits, "{other:?} in {act:?} was refused, and fits: {refusal:?}");
            }
            (_, Ask) => {
                let right = tree.answer.get().is_none_or(|n| [before, before + own].contains(&n));
                assert!(right, "in {act:?}: {:?}, not {before}, nor with it", tree.answer);
            }
            _ => {}
        }
    }
    tree.total()
}

/// Both leaves are open, with stock on CPU 0: 100 are charged, and 103 held.
const START: [Act; 5] = [On(0), Charge(0, 64), Charge(0, 2), Charge(1, 32), Charge(1, 2)];

fn start(more: &[Act]) -> Vec<Act> {
    START.iter().chain(more).copied().collect()
}

/// The minimum charged rises without the peak once there is no stock.
#[test]
fn the_least_charged_rises_without_the_peak() {
    let tree = Tree::new();
    start(&[]).into_iter().for_each(|act| tree.perform(act).expect("granted"));
    let before = tree.root.record();
    assert!(before.peak_low < 102 && before.peak > 102, "{before:?}: some of it lies in stock");
    for act in [Limit(102), Charge(0, 2)] {
        tree.perform(act).expect("it fits");
    }
    let after = tree.root.record();
    assert_eq!((after.peak_low, after.peak), (102, before.peak));
    for act in [Limit(200), Charge(1, 90)] {
        tree.perform(act).expect("it fits");
    }
    let after = tree.root.record();
    assert_eq!((after.peak_low, after.peak), (192, 192));
}

/// After a fold of the root: both leaves are closed, and may open again.
const FOLDED: [Act; 3] = [Limit(100), Limit(1000), Rest];

#[test]
fn no_leaf_opens_while_a_fold_closes_neighbours() {
    let start = start(&FOLDED);
    at_every_step(&start, Charge(0, 1), &[Limit(102), Charge(1, 3)]);
    at_every_step(&start, Charge(0, 1), &[Charge(1, 901)]);
}

#[test]
fn a_refill_beside_a_fold_leaves_no_stock_behind() {
    at_every_step(&start(&[Limit(1000)]), Charge(0, 3), &[Charge(1, 899)]);
    at_every_step(&start(&[Limit(1000)]), Charge(0, 3), &[Limit(101)]);
    // The word has 3 of 4: too few, and no room for a batch.
    at_every_step(&start(&[Limit(1000), Uncharge(0, 1)]), Charge(0, 4), &[Charge(1, 899)]);
}

/// A refill that comes after a fold holds nothing that would make others be refused.
#[test]
fn a_refill_behind_a_fold_refuses_nobody() {
    const FOLD: &[Act] = &[Limit(100), Limit(200)];
    let both_fit =
        |_: &Rc<Tree>, results: [_; 2], at: &str| assert_eq!(results, [Ok(()); 2], "{at}");
    at_two_steps(&start(&[Limit(1000)]), Charge(0, 3), [FOLD, &[Charge(1, 97)]], both_fit);
}

/// A fold does not touch leaves that another fold closed after its own barrier.
#[test]
fn a_fold_lets_a_later_folds_leaves_be() {
    // Another fold completes it, time passes, the leaf opens again, and a third fold begins to
    // close it.
    const OTHERS: &[Act] = &[Limit(100), Limit(1000), Rest, Charge(0, 40), Charge(0, 3), Close(0)];
    at_every_step(&START, Limit(101), OTHERS);
    at_every_step(&start(&[Limit(1000)]), Charge(0, 901), OTHERS);
    // The same where the first finds nothing to close.
    at_every_step(&start(&[Limit(100), Limit(150), Rest]), Limit(100), OTHERS);
    const FIRST: &[Act] = &[Charge(1, 1001), Rest, Charge(0, 64), Charge(0, 3), Close(0)];
    at_every_step(&[On(0), Limit(1000)], Charge(0, 1001), FIRST);
}

#[test]
fn a_charge_that_fits_is_granted_amid_a_fold() {
    at_every_step(&START, Limit(102), &[Charge(1, 2)]);
    at_every_step(&START, Limit(102), &[Charge(0, 1), On(1), Charge(1, 1)]);
}

#[test]
fn a_refusal_beside_openings_reports_charges() {
    const OTHERS: &[Act] = &[Rest, Uncharge(0, 30), Charge(1, 1), Charge(1, 3)];
    at_every_step(&start(&[Limit(100), Limit(102)]), Charge(0, 40), OTHERS);
    at_every_step(&start(&[Limit(100), Limit(102), Rest]), Charge(0, 900), OTHERS);
}

#[test]
fn held_is_compared_with_its_moments_limit() {
    const RAISE: &[Act] = &[Limit(200), Charge(1, 60)];
    const LOWER: &[Act] = &[Uncharge(1, 60), Limit(100)];
    let start = [On(0), Charge(0, 30), Limit(29), Limit(100)];
    at_two_steps(&start, Charge(0, 20), [RAISE, LOWER], |_, [result, _], at| {
        assert_eq!(result, Ok(()), "{at}: it fits at all times");
    });
}

#[test]
fn a_limit_lowered_amid_a_charge_is_not_exceeded() {
    for start in [start(&[]), start(&FOLDED), start(&[Limit(100), Limit(1000)])] {
        for n in [1, 2, 3, 9] {
            at_every_step(&start, Charge(0, n), &[Limit(102)]);
            at_every_step(&start, Charge(0, n), &[Limit(50)]);
        }
    }
}

#[test]
fn a_release_beside_a_fold_loses_nothing() {
    for n in [1, 5] {
        at_every_step(&start(&[Limit(1000)]), Uncharge(0, n), &[Charge(1, 900)]);
        at_every_step(&START, Uncharge(0, n), &[On(1), Charge(0, 2), Limit(90)]);
    }
}

#[test]
fn held_is_charged_unless_a_leaf_was_open() {
    at_every_step(&start(&FOLDED), Ask, &[Charge(0, 1), Charge(0, 3)]);
    at_every_step(&start(&FOLDED), Ask, &[Charge(0, 1), Limit(90)]);
    at_every_step(&start(&FOLDED), Charge(0, 1), &[Ask]);
    at_every_step(&START, Limit(50), &[Ask]);
}
