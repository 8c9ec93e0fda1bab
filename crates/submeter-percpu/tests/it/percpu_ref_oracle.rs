//! Random sequences of all operations return what a naive count returns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use submeter_percpu::PercpuRef;
use submeter_percpu::percpu_ref::{Options, Start};

use crate::common::{migrate, on_every_backend};

#[derive(Clone, Copy, Debug)]
enum Step {
    Get(u32),
    TryGet(u32),
    TryGetLive(u32),
    Put(u32),
    Kill,
    KillMany,
    KillAndConfirm,
    ToAtomic,
    ToPercpu,
    Reinit,
    Resurrect,
    Migrate(usize),
}

fn step() -> impl Strategy<Value = Step> {
    use Step::*;
    prop_oneof![
        3 => (1..4u32).prop_map(Get),
        3 => (1..4u32).prop_map(TryGet),
        3 => (1..4u32).prop_map(TryGetLive),
        6 => (1..4u32).prop_map(Put),
        2 => Just(Kill),
        1 => Just(KillMany),
        1 => Just(KillAndConfirm),
        2 => Just(ToAtomic),
        2 => Just(ToPercpu),
        2 => Just(Reinit),
        2 => Just(Resurrect),
        4 => (0..8usize).prop_map(Migrate),
    ]
}

/// The count as one would write it under a lock. Misuse changes nothing, except in per-CPU mode,
/// where only the fold finds an excess put.
#[derive(Debug)]
struct Naive {
    references: i64,
    percpu: bool,
    sticky: bool,
    dead: bool,
    /// Whether it was released in the current life.
    released: bool,
    releases: u32,
    /// Excess puts were found: nothing is guaranteed any more.
    pinned: bool,
}

impl Naive {
    fn new(start: Start) -> Naive {
        let dead = start == Start::Dead;
        Naive {
            references: i64::from(!dead),
            percpu: start == Start::Percpu,
            sticky: start == Start::Atomic,
            dead,
            released: dead,
            releases: 0,
            pinned: false,
        }
    }

    fn zero(&mut self) {
        self.releases += u32::from(!self.released);
        self.released = true;
    }

    fn fold(&mut self) {
        if std::mem::take(&mut self.percpu) {
            match self.references {
                0 => self.zero(),
                1.. => {}
                _ => self.pinned = true,
            }
        }
    }

    fn open(&mut self) {
        self.percpu |= !self.sticky && !self.dead && self.references > 0;
    }

    fn put(&mut self, n: i64) {
        if self.percpu || self.references >= n {
            self.references -= n;
            if !self.percpu && self.references == 0 {
                self.zero();
            }
        }
    }

    fn kill(&mut self) -> bool {
        if self.dead {
            return false;
        }
        self.dead = true;
        if self.percpu {
            self.references -= 1;
            self.fold();
        } else {
            self.put(1);
        }
        true
    }

    /// Returns the operation's result.
    fn step(&mut self, step: Step) -> bool {
        match step {
            Step::Get(n) => {
                if self.percpu || self.references > 0 {
                    self.references += i64::from(n);
                }
            }
            Step::TryGet(n) | Step::TryGetLive(n) => {
                let live = matches!(step, Step::TryGetLive(_));
                let took = self.percpu || (self.references > 0 && !(live && self.dead));
                self.references += if took { i64::from(n) } else { 0 };
                return took;
            }
            Step::Put(n) => self.put(n.into()),
            Step::Kill | Step::KillMany | Step::KillAndConfirm => return self.kill(),
            Step::ToAtomic => {
                self.sticky = true;
                self.fold();
            }
            Step::ToPercpu => {
                self.sticky = false;
                self.open();
            }
            Step::Reinit => {
                let ready = self.dead && self.references == 0 && self.released;
                if ready {
                    (self.references, self.dead, self.released) = (1, false, false);
                    self.open();
                }
                return ready;
            }
            Step::Resurrect => {
                let ready = self.dead && self.references > 0;
                if ready {
                    self.references += 1;
                    self.dead = false;
                    self.open();
                }
                return ready;
            }
            Step::Migrate(_) => {}
        }
        true
    }
}

fn real(reference: &PercpuRef, step: Step) -> bool {
    match step {
        Step::Get(1) => reference.get(),
        Step::Get(n) => reference.get_many(n),
        Step::TryGet(1) => return reference.tryget(),
        Step::TryGet(n) => return reference.tryget_many(n),
        Step::TryGetLive(1) => return reference.tryget_live(),
        Step::TryGetLive(n) => return reference.tryget_live_many(n),
        Step::Put(1) => reference.put(),
        Step::Put(n) => reference.put_many(n),
        Step::Kill => return reference.kill(),
        Step::KillMany => return PercpuRef::kill_many([reference]) == 1,
        Step::KillAndConfirm => {
            let mut confirmed = false;
            let killed = reference.kill_and_confirm(|| confirmed = !reference.tryget_live());
            assert_eq!(killed, confirmed, "confirmed if and only if killed");
            return killed;
        }
        Step::ToAtomic => reference.switch_to_atomic(),
        Step::ToPercpu => reference.switch_to_percpu(),
        Step::Reinit => return reference.reinit(),
        Step::Resurrect => return reference.resurrect(),
        Step::Migrate(cpu) => migrate(cpu),
    }
    true
}

fn starts() -> impl Strategy<Value = Start> {
    prop_oneof![Just(Start::Percpu), Just(Start::Atomic), Just(Start::Dead)]
}

#[test]
fn percpu_ref_answers_as_a_naive_count() {
    // Misuse is part of the sequences: keep its reports out of the tests' output.
    let _ = submeter_percpu::misuse::set_misuse_hook(|_| ());
    on_every_backend(|area| {
        // The cases use one thread, so more of them show Miri no other order.
        let (cases, steps_max) = if cfg!(miri) { (1, 20) } else { (200, 60) };
        let config = ProptestConfig { cases, failure_persistence: None, ..Default::default() };
        proptest!(config, |(start in starts(), steps in prop::collection::vec(step(), 1..steps_max))| {
            let releases = Arc::new(AtomicU32::new(0));
            let counter = Arc::clone(&releases);
            let release = move || {
                // Relaxed: one thread.
                counter.fetch_add(1, Ordering::Relaxed);
            };
            let options = Options::new().area(area).start(start).allow_reinit();
            let reference = PercpuRef::with(options, release).expect("room");
            let mut naive = Naive::new(start);
            for step in steps {
                // A confirmed kill keeps the initial reference until the confirmation, so by design
                // it differs after excess puts.
                let step = match step {
                    Step::KillAndConfirm if naive.references < 1 => Step::Kill,
                    step => step,
                };
                prop_assert_eq!(real(&reference, step), naive.step(step), "{:?} {:?}", step, naive);
                if naive.pinned {
                    prop_assert!(!reference.is_zero() && !reference.is_released());
                    break;
                }
                let exact = (!naive.percpu).then_some(naive.references);
                prop_assert_eq!(reference.holders().references(), exact, "{:?} {:?}", step, naive);
                prop_assert_eq!(reference.is_zero(), exact == Some(0));
                prop_assert_eq!(reference.is_dying(), naive.dead);
                prop_assert_eq!(reference.is_released(), naive.released, "{:?} {:?}", step, naive);
                // Relaxed: as above.
                prop_assert_eq!(releases.load(Ordering::Relaxed), naive.releases);
            }
        });
    });
}
