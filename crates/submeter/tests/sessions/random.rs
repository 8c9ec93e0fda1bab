//! Random threads checked against a ledger: guards in any order, groups of two trees, sessions that
//! start and stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::stop::StopOnDrop;
use crate::support::{CYCLES, Counters, Fixture, another, fixture, one, work};
use crate::work::burn;
use fastrand::Rng;
use submeter::perf::{Request, RequestState, Session};
use submeter::switch::{self, Entered};
use submeter::{Counter, Group, Nanoseconds, Tree};

fn groups(f: &Fixture) -> Vec<Group> {
    [&f.a, &f.x, &f.y, &f.b, f.tree.root()].map(Group::clone).into()
}

/// A session that counts each group of one tree and the whole process, with the expected counts.
struct Ledger {
    session: Arc<Session>,
    groups: Vec<Group>,
    due: Vec<u64>,
    time: Arc<TimeLedger>,
}

/// A session that counts only CPU time, beside the time that the same groups are charged.
struct TimeLedger {
    session: Session,
    cpu: Counter<Nanoseconds>,
    /// The groups, and what they had been charged before.
    before: Vec<(Group, u64)>,
}

impl TimeLedger {
    /// Opens a session with two requests for each group but `x`, whose time is its parent's.
    fn open(f: &Fixture) -> TimeLedger {
        let asked = [&f.y, f.tree.root(), &f.b, &f.a].map(Group::clone);
        let lists = ["task-clock", "{cpu-clock,task-clock}"];
        let twice = |group: &Group| lists.map(|list| Request::group(group, one(list)));
        let requests = asked.iter().flat_map(twice);
        let requests = requests.chain([Request::everywhere(one("task-clock"))]);
        let session = Session::open(&f.tree, requests);
        // What the thread has used before is charged now, and from now on it is followed.
        switch::park();
        let before = asked.map(|group| (group.clone(), group.sum(f.cpu))).into();
        TimeLedger { session, cpu: f.cpu, before }
    }

    fn compare(&self, at: &str) {
        let counts = self.session.counts();
        let mut most = 0;
        for ((group, before), counts) in self.before.iter().zip(counts.chunks(2)) {
            let due = group.sum(self.cpu) - before;
            for (counts, events) in counts.iter().zip(1..) {
                assert_eq!(counts.values(), vec![due; events], "{at}: {counts:?}");
                assert_eq!((counts.enabled_ns(), counts.running_ns()), (due, due), "{at}");
            }
            most = most.max(due);
        }
        let all = counts.last().expect("that of the whole process");
        assert!(all.values()[0] >= most, "{at}: {all:?}, {most} in groups");
    }
}

/// Opens a session that counts each of `groups` and the whole process.
fn open(tree: &Tree, groups: &[Group], turns: Duration) -> Session {
    let of = |group| Request::group(group, one("cycles"));
    let everywhere = Request::everywhere(one("cycles"));
    let requests = groups.iter().map(of).chain([everywhere]);
    Session::builder().interval(turns).open_with(tree, requests, || Counters::new(8))
}

impl Ledger {
    fn open(f: &Fixture, turns: Duration) -> Ledger {
        let groups = groups(f);
        let session = Arc::new(open(&f.tree, &groups, turns));
        let time = Arc::new(TimeLedger::open(f));
        Ledger { session, due: vec![0; groups.len() + 1], groups, time }
    }

    /// Records that the thread did `n` units of work in `group`.
    fn note(&mut self, group: Option<&Group>, n: u64) {
        for (of, due) in self.groups.iter().zip(&mut self.due) {
            let mut up = std::iter::successors(group, |group| group.parent());
            *due += if up.any(|group| group == of) { n } else { 0 };
        }
        *self.due.last_mut().expect("everything") += n;
    }

    fn compare(&self, at: &str) {
        self.time.compare(at);
        for (counts, &due) in self.session.counts().iter().zip(&self.due) {
            assert_eq!(counts.values(), [due], "{at}: {counts:?}");
            let state = counts.state();
            let fine = *state == RequestState::Counting || due == 0;
            assert!(fine && counts.running_ns() == counts.enabled_ns(), "{at}: {counts:?}");
        }
    }
}

/// One thread's guards, the latest last, each with its group.
#[derive(Default)]
struct Walk {
    guards: Vec<Option<(Entered, Group)>>,
    ledgers: Vec<Ledger>,
    /// Number of ledgers, from the first, that belong to all threads, so that this one keeps them.
    kept: usize,
}

impl Walk {
    fn current(&self) -> Option<&Group> {
        self.guards.iter().rev().flatten().next().map(|(_, group)| group)
    }

    fn step(&mut self, rng: &mut Rng, trees: &[Fixture; 2]) {
        let tree = &trees[usize::from(rng.usize(..4) == 0)];
        let group = groups(tree).swap_remove(rng.usize(..5));
        match rng.usize(..12) {
            0..3 if self.guards.len() < 20 => self.guards.push(Some((group.enter(), group))),
            0..5 if !self.guards.is_empty() => {
                let nth = rng.usize(..self.guards.len());
                self.guards[nth] = None;
            }
            5 => drop(self.guards.pop()),
            6 => {
                if let Some((entered, of)) = self.guards.iter_mut().rev().flatten().next() {
                    entered.switch_to(&group);
                    *of = group;
                }
            }
            7 => switch::park(),
            8 if self.ledgers.len() < 3 => {
                let turns = Duration::from_secs(rng.usize(..2) as u64);
                self.ledgers.push(Ledger::open(tree, turns));
            }
            9 if self.ledgers.len() > self.kept && rng.usize(..5) == 0 => drop(self.ledgers.pop()),
            10 => {
                burn(Duration::from_micros(5));
            }
            _ => {
                let n = 1 + rng.usize(..100) as u64;
                work(CYCLES, n);
                let current = switch::current();
                self.ledgers.iter_mut().for_each(|ledger| ledger.note(current.as_ref(), n));
            }
        }
        assert_eq!(switch::current().as_ref(), self.current());
    }
}

/// Sessions agree with a ledger, whatever a thread does.
#[test]
fn sessions_agree_with_a_ledger_stress() {
    const CASES: u64 = if cfg!(miri) { 2 } else { 150 };
    let trees = [fixture(), another()];
    for case in 0..CASES {
        let rng = &mut Rng::with_seed(case);
        let mut walk = Walk::default();
        for step in 0..200 {
            walk.step(rng, &trees);
            if rng.usize(..10) == 0 {
                switch::park();
                let at = format!("case {case}, step {step}");
                walk.ledgers.iter().for_each(|ledger| ledger.compare(&at));
            }
        }
        walk.guards.clear();
        assert_eq!(switch::current(), None, "case {case}");
        switch::park();
        walk.ledgers.iter().for_each(|ledger| ledger.compare(&format!("the end of case {case}")));
    }
    let charged = trees.each_ref().map(|tree| tree.tree.root().sum(tree.cpu));
    assert!(charged.into_iter().all(|ns| ns > 0), "{charged:?} ns");
}

/// A session agrees with the ledgers of all threads while others come and go.
#[test]
fn a_session_agrees_with_all_ledgers_stress() {
    const ROUNDS: u64 = if cfg!(miri) { 1 } else { 15 };
    const THREADS: u64 = 3;
    let trees = [fixture(), another()];
    let groups = groups(&trees[0]);
    for round in 0..ROUNDS {
        let session = Arc::new(open(&trees[0].tree, &groups, Duration::from_micros(50)));
        let time = Arc::new(TimeLedger::open(&trees[0]));
        let done = AtomicBool::new(false);
        let walk = |thread: u64| {
            let rng = &mut Rng::with_seed(round << 8 | thread);
            let due = vec![0; groups.len() + 1];
            let (session, time) = (Arc::clone(&session), Arc::clone(&time));
            let ledger = Ledger { session, groups: groups.clone(), due, time };
            let mut walk = Walk { guards: Vec::new(), ledgers: vec![ledger], kept: 1 };
            switch::park();
            for _ in 0..if cfg!(miri) { 50 } else { 1000 } {
                walk.step(rng, &trees);
            }
            walk.guards.clear();
            walk.ledgers.swap_remove(0).due
        };
        let dues: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let stopping = StopOnDrop(&done);
            let threads: Vec<_> = (1..=THREADS).map(|t| scope.spawn(move || walk(t))).collect();
            let others = scope.spawn(|| {
                // Relaxed: it only stops some time later.
                while !done.load(Ordering::Relaxed) {
                    drop(open(&trees[0].tree, &groups, Duration::ZERO));
                }
            });
            let dues = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
            drop(stopping);
            others.join().expect("no panic");
            dues
        });
        let mut due = vec![0; groups.len() + 1];
        for thread in &dues {
            due.iter_mut().zip(thread).for_each(|(due, thread)| *due += thread);
        }
        let all = Ledger { session, groups: groups.clone(), due, time };
        all.compare(&format!("round {round}"));
    }
}
