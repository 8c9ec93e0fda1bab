//! Reclaim beside a model that recomputes everything before it asks any group.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use submeter::{Bytes, Charge, Group, Quota, Reclaimable, Schema, Tree};

use crate::naive::Naive;

/// How much of the requested amount a callback frees.
#[derive(Clone, Copy, Debug)]
enum Frees {
    All,
    Half,
    Nothing,
    /// Frees and panics.
    Panics,
}

impl Frees {
    fn of(self, wanted: u64, held: u64) -> u64 {
        match self {
            Frees::All | Frees::Panics => wanted.min(held),
            Frees::Half => wanted.div_ceil(2).min(held),
            Frees::Nothing => 0,
        }
    }
}

/// How often a charge looks again, and the average number of times that each callback is asked in
/// one look.
const ATTEMPTS: usize = 16;

/// The groups that were asked, and for how much.
type Asked = Vec<(usize, u64)>;

/// The model's knowledge of one tree.
#[derive(Debug)]
struct Model {
    naive: Naive,
    limits: Vec<Option<u64>>,
    /// What the callbacks do, for groups that have one.
    callbacks: Vec<Option<Frees>>,
}

/// What a callback's group uses beyond all protection, and beyond `min`.
#[derive(Clone, Copy, Debug)]
struct Standing {
    at: usize,
    beyond: [u128; 2],
}

impl Model {
    fn usage(&self, at: usize) -> u128 {
        self.naive.usage(at)
    }

    fn up(&self, at: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(at), |&at| self.naive.groups[at].parent)
    }

    fn missing(&self, level: usize, n: u128) -> u128 {
        let limit = self.limits[level].map_or(u128::MAX, u128::from);
        (self.usage(level) + n).saturating_sub(limit)
    }

    /// Returns the nearest group with a callback that answers for another.
    fn answers(&self, at: usize, top: usize) -> Option<usize> {
        let below = |&above: &usize| self.naive.is_below(above, top);
        self.up(at).take_while(below).find(|&above| self.callbacks[above].is_some())
    }

    /// Returns the callbacks that may be asked on behalf of `top`, in order.
    fn standings(&self, top: usize, passed: &BTreeSet<usize>) -> Vec<Standing> {
        let all = 0..self.naive.groups.len();
        let whole = [0, 1].map(|which| {
            let mut got = self.naive.protection(top, which);
            got[top] = self.naive.children(top).map(|child| got[child]).sum();
            got
        });
        let mut standings: Vec<Standing> = all
            .clone()
            .filter(|&at| self.naive.is_below(at, top) && !passed.contains(&at))
            .filter(|&at| self.callbacks[at].is_some())
            .map(|at| {
                let own: u128 = all
                    .clone()
                    .filter(|&of| self.answers(of, top) == Some(at))
                    .map(|of| u128::from(self.naive.groups[of].own))
                    .sum();
                let others = all.clone().filter(|&of| {
                    let parent = self.naive.groups[of].parent;
                    of != top
                        && self.callbacks[of].is_some()
                        && parent.is_some_and(|parent| self.answers(parent, top) == Some(at))
                });
                let protected = |which: usize| {
                    let of_others: u128 = others.clone().map(|of| whole[which][of]).sum();
                    whole[which][at].saturating_sub(of_others)
                };
                let [min, low] = [0, 1].map(protected);
                let beyond = [min.max(low), min].map(|protected| own.saturating_sub(protected));
                Standing { at, beyond }
            })
            .collect();
        standings.sort_by_key(|standing| (Reverse(standing.beyond), standing.at));
        standings
    }

    /// Charges, and records which callbacks are asked. Returns whether the charge was granted.
    fn charge(&mut self, at: usize, n: u64, asked: &mut Asked) -> bool {
        let mut passed = BTreeSet::new();
        let mut granted = self.grant(at, n);
        for _ in 0..ATTEMPTS {
            if granted {
                break;
            }
            let full: Vec<usize> =
                self.up(at).filter(|&level| self.missing(level, n.into()) > 0).collect();
            let has_enough = |&level: &usize| {
                let standings = self.standings(level, &passed);
                let most: u128 = standings.iter().map(|standing| standing.beyond[1]).sum();
                most >= self.missing(level, n.into())
            };
            if !full.iter().all(has_enough) {
                break;
            }
            let before = asked.len();
            let mut freed = 0;
            for level in full {
                let below = |&at: &usize| self.naive.is_below(at, level);
                let callbacks = (0..self.callbacks.len())
                    .filter(|&at| self.callbacks[at].is_some() && below(&at))
                    .count();
                let mut short = BTreeMap::<usize, usize>::new();
                for _ in 0..ATTEMPTS * callbacks {
                    let missing = self.missing(level, n.into());
                    let mut standings = self.standings(level, &passed);
                    standings.retain(|one| one.beyond != [0, 0]);
                    // The sort is stable: among equals those that use more come first.
                    standings.sort_by_key(|one| {
                        let often = short.get(&one.at).copied().unwrap_or(0);
                        (often >= ATTEMPTS, one.beyond[0] == 0, often)
                    });
                    let next = standings.into_iter().next();
                    let Some(next) = next.filter(|_| !granted && missing > 0) else { break };
                    let more = self.ask(next, missing, &mut passed, asked);
                    let wanted = asked.last().expect("it was asked").1;
                    *short.entry(next.at).or_default() += usize::from(0 < more && more < wanted);
                    freed += more;
                    granted = self.grant(at, n);
                }
            }
            if freed == 0 || asked.len() == before {
                break;
            }
        }
        granted
    }

    fn ask(
        &mut self,
        Standing { at, beyond: [low, min] }: Standing,
        missing: u128,
        passed: &mut BTreeSet<usize>,
        asked: &mut Asked,
    ) -> u64 {
        let wanted = missing.min(if low > 0 { low } else { min }) as u64;
        asked.push((at, wanted));
        let frees = self.callbacks[at].expect("it has one");
        let own = &mut self.naive.groups[at].own;
        let freed = frees.of(wanted, *own);
        *own -= freed;
        if freed == 0 {
            passed.insert(at);
        }
        freed
    }

    /// Holds `n` more if there is room.
    fn grant(&mut self, at: usize, n: u64) -> bool {
        let fits = self.up(at).all(|level| self.missing(level, n.into()) == 0);
        self.naive.groups[at].own += if fits { n } else { 0 };
        fits
    }
}

/// One group of the tree itself.
struct Made {
    group: Group,
    held: Arc<Mutex<Charge>>,
    _registered: Option<Reclaimable>,
}

fn made(
    group: Group,
    memory: Quota<Bytes>,
    at: usize,
    callback: Option<Frees>,
    asked: &Arc<Mutex<Asked>>,
) -> Made {
    let held = Arc::new(Mutex::new(group.try_charge(memory, 0).expect("nothing")));
    let _registered = callback.map(|frees| {
        let (asked, held) = (Arc::clone(asked), Arc::clone(&held));
        group.on_reclaim(memory, move |wanted| {
            asked.lock().unwrap().push((at, wanted));
            let mut held = held.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let freed = frees.of(wanted, held.amount());
            drop(held.split(freed));
            drop(held);
            assert!(!matches!(frees, Frees::Panics), "on purpose");
        })
    });
    Made { group, held, _registered }
}

/// The same callbacks are asked for the same amounts as in a naive model.
#[test]
fn what_is_asked_is_what_a_naive_model_says() {
    let mut rng = Rng::with_seed(41);
    let mut calls = 0;
    // Callbacks that panic would print that.
    for _ in 0..if cfg!(miri) { 2 } else { 60 } {
        let mut schema = Schema::builder();
        let memory = schema.quota::<Bytes>("memory", "Held");
        let tree = Tree::new(schema.build().expect("valid")).expect("room");
        let noted = Arc::<Mutex<Asked>>::default();
        let (mut groups, mut naive) = (Vec::<Made>::new(), Naive::default());
        let (mut limits, mut callbacks) = (Vec::new(), Vec::new());
        for at in 0..rng.usize(2..10) {
            let parent = (at > 0).then(|| rng.usize(..at));
            let group = parent.map_or_else(
                || tree.root().clone(),
                |parent| groups[parent].group.create_child(&at.to_string()).expect("room"),
            );
            let mut claim = || if rng.bool() { rng.u64(..80) } else { 0 };
            let claims = if at == 0 { [0; 2] } else { [claim(), claim()] };
            group.set_min(memory, Some(claims[0]));
            group.set_low(memory, Some(claims[1]));
            let limit = (at == 0 || rng.u8(..3) == 0).then(|| rng.u64(50..400));
            group.set_limit(memory, limit);
            let all = [Frees::All, Frees::All, Frees::Half, Frees::Nothing, Frees::Panics];
            let kinds = if rng.u8(..8) == 0 { 5 } else { 4 };
            let frees = all[rng.usize(..kinds)];
            let callback = (rng.u8(..4) > 0).then_some(frees);
            groups.push(made(group, memory, at, callback, &noted));
            naive.add(parent, 0, claims);
            limits.push(limit);
            callbacks.push(callback);
        }
        let mut model = Model { naive, limits, callbacks };
        for _ in 0..40 {
            let (at, n) = (rng.usize(..groups.len()), rng.u64(1..120));
            let mut expected = Asked::new();
            let granted = model.charge(at, n, &mut expected);
            let charged = groups[at].group.charge_reclaiming(memory, n);
            assert_eq!(*noted.lock().unwrap(), expected, "{n} to {at} of {model:#?}");
            assert_eq!(charged.is_ok(), granted, "{n} to {at} of {model:#?}");
            calls += std::mem::take(&mut *noted.lock().unwrap()).len();
            if let Ok(charge) = charged {
                groups[at].held.lock().unwrap().merge(charge);
            }
            for (at, made) in groups.iter().enumerate() {
                let held = made.held.lock().unwrap().amount();
                assert_eq!(held, model.naive.groups[at].own, "{at} of {model:#?}");
                assert_eq!(u128::from(made.group.usage(memory).current), model.usage(at));
            }
        }
    }
    assert!(calls > if cfg!(miri) { 0 } else { 500 }, "{calls}");
}
