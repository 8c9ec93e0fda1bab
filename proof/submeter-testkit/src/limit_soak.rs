//! Charges by many threads where limits are always reached.

use std::iter::zip;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use submeter::Bytes;
use submeter::{Charge, Group, LimitMode, Quota, Schema, Tree};

/// Paths of the groups: the root, two parents, and three leaves of each.
const PATHS: [&str; 9] = ["/", "/a", "/b", "/a/x", "/a/y", "/a/z", "/b/x", "/b/y", "/b/z"];
const LEAVES: std::ops::Range<usize> = 3..9;
/// Limits of the root, a parent and a leaf. Each is less than what the levels below may hold
/// together, and many times what CPUs keep in stock, so that leaves open and close.
const LIMITS: [u64; 3] = [16 << 20, 10 << 20, 5 << 20];
/// The amount per CPU that a thread charges of what fits exactly: more than twice what CPUs keep in
/// stock, so that leaves open.
const SHARE: u64 = 1 << 18;
/// Longer than a level rests after it was near its limit: leaves then open again.
const REST: Duration = Duration::from_millis(12);
/// Maximum wait of a charge. All room is released long before.
const PATIENCE: Duration = Duration::from_secs(120);

/// Threads that charge one tree with limits at three levels, to check that none is ever exceeded
/// and nothing that fits is refused.
///
/// Notes are taken on both sides of each charge: the amount certainly charged, which must not
/// exceed a limit, and the amount possibly charged. With all threads paused both are equal, and
/// show whether a refused charge fits now.
#[derive(Debug)]
pub struct LimitSoak {
    tree: Tree,
    quota: Quota<Bytes>,
    rng: Rng,
    tally: LimitTally,
}

/// What a [`LimitSoak`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitTally {
    /// Charges that were granted.
    pub granted: u64,
    /// Charges that were refused.
    pub refused: u64,
    /// Comparisons of the whole tree with the notes, with all threads paused.
    pub compared: u64,
    /// Charges that waited until they were granted.
    pub waited: u64,
    /// How often threads together charged exactly what fits, and all charges were granted.
    pub exact: u64,
}

impl LimitTally {
    fn add(&mut self, other: LimitTally) {
        self.granted += other.granted;
        self.refused += other.refused;
        self.compared += other.compared;
        self.waited += other.waited;
        self.exact += other.exact;
    }
}

/// The notes of one round with fixed limits.
struct Notes {
    groups: [Group; 9],
    quota: Quota<Bytes>,
    /// At least this is charged.
    low: [AtomicU64; 9],
    /// At most this is charged.
    high: [AtomicU64; 9],
    /// Held for writing with all threads paused.
    paused: RwLock<()>,
}

/// Returns a leaf and its ancestors.
fn path(leaf: usize) -> [usize; 3] {
    [leaf, 1 + (leaf - LEAVES.start) / 3, 0]
}

fn limit(at: usize) -> u64 {
    LIMITS[match at {
        0 => 0,
        1 | 2 => 1,
        _ => 2,
    }]
}

/// Records an amount, which may be negative, for a leaf and its ancestors.
fn add(notes: &[AtomicU64; 9], leaf: usize, n: u64) -> [u64; 3] {
    // SeqCst: notes and charges are in one order.
    path(leaf).map(|at| notes[at].fetch_add(n, Ordering::SeqCst).wrapping_add(n))
}

fn all(notes: &[AtomicU64; 9]) -> [u64; 9] {
    // SeqCst: as above.
    notes.each_ref().map(|note| note.load(Ordering::SeqCst))
}

/// Draws an amount: mostly some bytes, sometimes so much that a limit is crossed.
fn amount(rng: &mut Rng) -> u64 {
    match rng.u8(..64) {
        0 => rng.u64(1 << 18..3 << 20),
        1..8 => rng.u64(1 << 10..1 << 16),
        _ => rng.u64(1..512),
    }
}

impl LimitSoak {
    /// Makes a tree.
    ///
    /// # Panics
    /// When there is no room for it.
    #[must_use]
    pub fn new(seed: u64) -> LimitSoak {
        let mut schema = Schema::builder();
        let quota = schema.quota("memory", "Memory held");
        let tree = Tree::new(schema.build().expect("valid")).expect("a small tree");
        LimitSoak { tree, quota, rng: Rng::with_seed(seed), tally: LimitTally::default() }
    }

    /// Returns what was done so far.
    #[must_use]
    pub fn tally(&self) -> LimitTally {
        self.tally
    }

    fn groups(&self) -> [Group; 9] {
        let groups = PATHS.map(|path| match path {
            "/" => self.tree.root().clone(),
            path => self.tree.get_or_create(path).expect("a small tree"),
        });
        for (at, group) in groups.iter().enumerate() {
            group.set_limit(self.quota, Some(limit(at)));
            group.set_limit_mode(self.quota, LimitMode::Enforced);
        }
        groups
    }

    /// Makes `threads` charge and release `steps` times each below fixed limits.
    ///
    /// # Panics
    /// When a limit was exceeded, a charge that fits was refused, or a total is wrong.
    pub fn strict(&mut self, threads: u64, steps: u64) {
        let notes = Notes {
            groups: self.groups(),
            quota: self.quota,
            low: Default::default(),
            high: Default::default(),
            paused: RwLock::default(),
        };
        let seeds: Vec<u64> = (0..threads).map(|_| self.rng.u64(..)).collect();
        let tallies: Vec<LimitTally> = thread::scope(|scope| {
            let work = |seed| {
                let notes = &notes;
                scope.spawn(move || notes.work(Rng::with_seed(seed), steps))
            };
            let threads: Vec<_> = seeds.into_iter().map(work).collect();
            threads.into_iter().map(|thread| thread.join().expect("as asserted")).collect()
        });
        tallies.into_iter().for_each(|tally| self.tally.add(tally));
        notes.compare();
        self.assert_empty();
    }

    /// Makes pairs of threads charge, each `cycles` times, exactly what fits for both together: any
    /// refusal is one of a charge that fits, whatever the other thread does at that moment.
    ///
    /// # Panics
    /// When a charge was refused, or a total is wrong.
    pub fn exact(&mut self, pairs: u64, cycles: u64) {
        self.tree.root().set_limit(self.quota, None);
        let cpus = thread::available_parallelism().map_or(1, usize::from) as u64;
        let (share, quota) = (SHARE * cpus, self.quota);
        let wrong = AtomicU64::new(0);
        thread::scope(|scope| {
            for pair in 0..pairs {
                let path = format!("/pairs/{pair}");
                let both = self.tree.get_or_create(&path).expect("a small tree");
                both.set_limit(quota, Some(2 * share));
                let shared = Arc::new((Barrier::new(2), AtomicU64::new(share)));
                for (leaf, waits) in [("x", false), ("y", true)] {
                    let leaf = self.tree.get_or_create(&format!("{path}/{leaf}"));
                    let (leaf, both) = (leaf.expect("a small tree"), both.clone());
                    let (shared, mut rng, wrong) = (Arc::clone(&shared), self.rng.fork(), &wrong);
                    scope.spawn(move || {
                        let (together, others) = &*shared;
                        for _ in 0..cycles {
                            let (mut left, mut held) = (share, Vec::new());
                            while left > 0 {
                                // In small steps; but one thread takes its second half at once,
                                // when the other is about to end, and little is left but stock.
                                let all = waits && left < share / 2;
                                let n = if all { left } else { rng.u64(1..1 << 13).min(left) };
                                let least = rng.u64(..share / 32);
                                // Relaxed, both: only the time of the attempt depends on it.
                                while all && others.load(Ordering::Relaxed) > least {
                                    thread::yield_now();
                                }
                                if !waits {
                                    others.store(left - n, Ordering::Relaxed);
                                }
                                match leaf.try_charge(quota, n) {
                                    Ok(charge) => {
                                        left -= n;
                                        held.push(charge);
                                    }
                                    // Relaxed: read after the threads have ended. It does not
                                    // panic: the other thread would wait below.
                                    Err(_) => _ = wrong.fetch_add(1, Ordering::Relaxed),
                                }
                            }
                            together.wait();
                            let all = both.usage(quota).current == 2 * share;
                            // Relaxed: as above.
                            wrong.fetch_add(u64::from(!all), Ordering::Relaxed);
                            together.wait();
                            drop(held);
                            // Relaxed: the barrier orders it.
                            others.store(share, Ordering::Relaxed);
                            thread::sleep(REST);
                            together.wait();
                        }
                        leaf.kill().expect("it lives");
                    });
                }
            }
        });
        assert_eq!(wrong.into_inner(), 0, "refused what fits, or a wrong total");
        self.tally.exact += pairs * cycles;
        self.assert_empty();
    }

    /// Makes limits change, leaves be killed and recreated, charges be forced and others wait, all
    /// at once. Every waiter is served, and in the end nothing is charged.
    ///
    /// # Panics
    /// When a charge waited in vain, or a total is wrong.
    pub fn wild(&mut self, steps: u64) {
        let groups = self.groups();
        let quota = self.quota;
        let [mut changes, mut charges, mut waits] = [0; 3].map(|_: u8| self.rng.fork());
        let tree = &self.tree;
        let leaf = |rng: &mut Rng| {
            // Sometimes killed: what is charged to a handle then is charged to its ancestors all
            // the same.
            let path = PATHS[rng.usize(LEAVES)];
            tree.get_or_create(path).unwrap_or_else(|_| tree.root().clone())
        };
        let mut tally = LimitTally::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..steps {
                    let at = changes.usize(..groups.len());
                    match changes.u8(..8) {
                        0 if LEAVES.contains(&at) => {
                            _ = tree.get(PATHS[at]).map(|leaf| leaf.kill());
                        }
                        1 => _ = groups[at].set_limit_mode(quota, LimitMode::Soft),
                        2 => _ = groups[at].set_limit_mode(quota, LimitMode::Enforced),
                        3 => drop(leaf(&mut changes).charge_forced(quota, amount(&mut changes))),
                        _ => {
                            let limit = changes.u64(limit(at) / 2..=limit(at));
                            _ = groups[at].set_limit(quota, Some(limit));
                        }
                    }
                }
            });
            scope.spawn(|| {
                let mut held: Vec<Charge> = Vec::new();
                for _ in 0..steps {
                    if charges.bool() && !held.is_empty() {
                        drop(held.swap_remove(charges.usize(..held.len())));
                    } else if let Ok(charge) =
                        leaf(&mut charges).try_charge(quota, amount(&mut charges))
                    {
                        held.push(charge);
                    }
                }
            });
            let waiter = scope.spawn(|| {
                let mut tally = LimitTally::default();
                for _ in 0..steps / 64 {
                    // Less than the lowest limit ever set.
                    let n = waits.u64(1..1 << 20);
                    match leaf(&mut waits).charge_blocking(quota, n, PATIENCE) {
                        // The wait ends with its group.
                        Err(error) if error.is_killed() => {}
                        held => drop(held.expect("there was room for it long before")),
                    }
                    tally.waited += 1;
                }
                tally
            });
            tally = waiter.join().expect("as asserted");
        });
        self.tally.add(tally);
        self.assert_empty();
    }

    fn assert_empty(&mut self) {
        for group in self.groups() {
            assert_eq!(group.usage(self.quota).current, 0, "{}: all was released", group.path());
        }
    }
}

impl Notes {
    fn work(&self, mut rng: Rng, steps: u64) -> LimitTally {
        let mut tally = LimitTally::default();
        let mut held: Vec<(usize, Charge)> = Vec::new();
        for _ in 0..steps {
            let running = self.paused.read().unwrap_or_else(PoisonError::into_inner);
            if !held.is_empty() && rng.u8(..100) < 45 {
                let (leaf, charge) = held.swap_remove(rng.usize(..held.len()));
                self.release(leaf, charge);
                continue;
            }
            let (leaf, n) = (rng.usize(LEAVES), amount(&mut rng));
            if let Some(charge) = self.charge(leaf, n) {
                held.push((leaf, charge));
                tally.granted += 1;
                continue;
            }
            tally.refused += 1;
            drop(running);
            if rng.u8(..8) == 0 {
                self.try_again(leaf, n);
                tally.compared += 1;
            }
        }
        let _running = self.paused.read().unwrap_or_else(PoisonError::into_inner);
        held.into_iter().for_each(|(leaf, charge)| self.release(leaf, charge));
        tally
    }

    fn charge(&self, leaf: usize, n: u64) -> Option<Charge> {
        add(&self.high, leaf, n);
        match self.groups[leaf].try_charge(self.quota, n) {
            Ok(charge) => {
                for (at, low) in zip(path(leaf), add(&self.low, leaf, n)) {
                    assert!(low <= limit(at), "{}: {low} are charged", PATHS[at]);
                }
                Some(charge)
            }
            Err(refused) => {
                let (held, limit) = (refused.current(), refused.limit());
                assert!(held + n > limit, "{refused}: it fits");
                add(&self.high, leaf, n.wrapping_neg());
                None
            }
        }
    }

    fn release(&self, leaf: usize, charge: Charge) {
        let n = charge.amount();
        add(&self.low, leaf, n.wrapping_neg());
        drop(charge);
        add(&self.high, leaf, n.wrapping_neg());
    }

    /// Retries what was refused with all threads paused, when it is known whether it fits.
    fn try_again(&self, leaf: usize, n: u64) {
        let _paused = self.paused.write().unwrap_or_else(PoisonError::into_inner);
        let charged = all(&self.low);
        let fits = |n| path(leaf).iter().all(|&at| charged[at] + n <= limit(at));
        // An exact fit, and one more than that, are the most telling.
        let room = path(leaf).map(|at| limit(at) - charged[at]);
        let most = room.into_iter().min().unwrap_or(0);
        for n in [n, most, most + 1] {
            let granted = self.groups[leaf].try_charge(self.quota, n);
            assert_eq!(granted.is_ok(), fits(n), "{n} of {charged:?}: {granted:?}");
        }
        self.compare();
    }

    fn compare(&self) {
        let charged = self.groups.each_ref().map(|group| group.usage(self.quota).current);
        assert_eq!((charged, all(&self.low)), (all(&self.high), charged), "{PATHS:?}");
    }
}
