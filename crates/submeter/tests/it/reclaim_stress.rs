//! Reclaim by many threads, while groups and their callbacks come and go.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use submeter::{Bytes, Charge, Group, Killed, Quota, Reclaimable, Schema, Tree};

const THREADS: u64 = 4;
const STEPS: usize = if cfg!(miri) { 20 } else { 2_000 };
const LIMIT: u64 = 1_000;
/// What a group holds that claims protection for all of it.
const SHELTERED: u64 = 100;

/// What one group holds, from which its callback may take.
type Pool = Arc<Mutex<Vec<Charge>>>;

/// Registers a callback that frees what it is asked for, as far as it can; now and then it charges,
/// panics or kills a group instead.
fn evicts(tree: &Tree, group: &Group, memory: Quota<Bytes>, pool: &Pool) -> Reclaimable {
    let (tree, pool, calls) = (tree.clone(), Arc::clone(pool), AtomicU64::new(0));
    let (group_of, alone) = (group.clone(), AtomicBool::new(false));
    group.on_reclaim(memory, move |wanted| {
        // Relaxed: if two calls overlapped, nothing would order them.
        assert!(!alone.swap(true, Ordering::Relaxed), "calls overlap");
        // Relaxed: a number alone.
        match calls.fetch_add(1, Ordering::Relaxed) % 16 {
            7 => _ = tree.get("/spare").map(|spare| spare.kill()),
            8 => _ = tree.create("/spare"),
            9 => drop(group_of.charge_reclaiming(memory, 5)),
            10 => drop(group_of.charge_blocking(memory, 5, Duration::ZERO)),
            11 => _ = tree.flush(),
            _ => {}
        }
        let mut freed = 0;
        let mut taken = Vec::new();
        let mut pool = pool.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(charge) = pool.pop_if(|_| freed < wanted) {
            freed += charge.amount();
            taken.push(charge);
        }
        drop(pool);
        drop(taken);
        // Relaxed: as above.
        alone.store(false, Ordering::Relaxed);
        // Relaxed: as above.
        assert!(calls.load(Ordering::Relaxed) % 32 != 31, "on purpose");
    })
}

/// One thread's groups, which others charge to as well.
struct Worker<'a> {
    tree: &'a Tree,
    memory: Quota<Bytes>,
    name: String,
    pool: Pool,
    registered: Vec<Reclaimable>,
    killed: Vec<Killed>,
    granted: u64,
}

impl Worker<'_> {
    fn group(&self) -> Group {
        self.tree.get_or_create(&format!("/{}/leaf", self.name)).expect("room")
    }

    fn step(&mut self, rng: &mut Rng) {
        let (memory, group) = (self.memory, self.group());
        let n = rng.u64(1..60);
        let charged = match rng.u8(..16) {
            0..8 => group.charge_reclaiming(memory, n),
            8..10 => group.charge_blocking(memory, n, Duration::from_micros(100)),
            10 => group.try_charge(memory, n),
            11 => {
                self.registered.push(evicts(self.tree, &group, memory, &self.pool));
                return;
            }
            12 if self.registered.len() > 1 => {
                drop(self.registered.swap_remove(rng.usize(..self.registered.len())));
                return;
            }
            13 => {
                _ = group.reclaim(memory, n);
                return;
            }
            14 if rng.u8(..8) == 0 => {
                self.killed.extend(group.kill());
                return;
            }
            _ => {
                let mut pool = self.pool.lock().expect("callbacks do not panic with it");
                let last = pool.pop();
                drop(pool);
                drop(last);
                return;
            }
        };
        if let Ok(charge) = charged {
            self.granted += 1;
            self.pool.lock().expect("callbacks do not panic with it").push(charge);
        }
    }
}

/// Limits and protection hold while all groups reclaim from each other.
#[test]
fn limits_and_protection_hold_stress() {
    let mut schema = Schema::builder();
    let memory = schema.quota::<Bytes>("memory", "Held");
    let tree = Tree::new(schema.build().expect("valid")).expect("room");
    tree.root().set_limit(memory, Some(LIMIT));
    let sheltered = tree.create("/sheltered").expect("room");
    sheltered.set_min(memory, Some(SHELTERED));
    let inside = sheltered.try_charge(memory, SHELTERED).expect("it fits");
    let asked = Arc::new(AtomicBool::new(false));
    let note = Arc::clone(&asked);
    // Relaxed, here and below: the threads are joined before it is read.
    let never = sheltered.on_reclaim(memory, move |_| note.store(true, Ordering::Relaxed));

    let killed: Vec<Killed> = thread::scope(|scope| {
        let run = |thread: u64| {
            let (tree, pool) = (&tree, Pool::default());
            let (registered, killed) = (Vec::new(), Vec::new());
            let name = thread.to_string();
            let mut worker = Worker { tree, memory, name, pool, registered, killed, granted: 0 };
            let own = worker.group();
            own.parent().expect("not the root").set_low(memory, Some(thread * 50));
            worker.registered.push(evicts(tree, &own, memory, &worker.pool));
            let mut rng = Rng::with_seed(thread);
            for _ in 0..STEPS {
                worker.step(&mut rng);
                assert!(tree.root().usage(memory).current <= LIMIT);
            }
            assert!(worker.granted > 0);
            worker.killed
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    // Relaxed: as above.
    assert!(!asked.load(Ordering::Relaxed), "what `min` protects was asked for");
    let usage = tree.root().usage(memory);
    assert!(usage.peak <= LIMIT, "{usage:?}");
    assert_eq!(usage.current, SHELTERED, "all else went with its callbacks");
    assert!(killed.iter().all(Killed::is_released));
    drop((never, inside));
}
