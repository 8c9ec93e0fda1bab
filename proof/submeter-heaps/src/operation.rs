//! The measured operations.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use submeter_sys::cpu::{affinity, set_affinity};

use crate::Tenants;

/// A measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A block of 64 bytes is allocated and freed.
    Pair,
    /// One of many blocks is freed, and another allocated in its place.
    Many,
    /// A block is allocated by one thread, and freed by another that works for another tenant.
    Another,
    /// A switch from one tenant to the other.
    Switch,
    /// A block is allocated for one tenant and freed for the other, with a switch for each.
    Handed,
    /// An entry of an index of texts is made, found and freed.
    Program,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 6] = [
        Operation::Pair,
        Operation::Many,
        Operation::Another,
        Operation::Switch,
        Operation::Handed,
        Operation::Program,
    ];

    /// Returns its name in rows, and in requests to a program.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Operation::Pair => "pair",
            Operation::Many => "one of many",
            Operation::Another => "freed by another thread",
            Operation::Switch => "switch",
            Operation::Handed => "handed over",
            Operation::Program => "program",
        }
    }

    /// Finds the operation of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Operation> {
        Operation::ALL.into_iter().find(|operation| operation.name() == name)
    }
}

/// Duration of a sample, the same as in other tables.
const SAMPLE: Duration = Duration::from_millis(3);
/// Operations between two reads of the clock.
const BATCH: usize = 256;
/// Size of a pair's block.
const SIZE: usize = 64;
/// Number of blocks of which one is replaced: more than a cache holds, with the space between them.
const MANY: usize = 1 << 14;
/// The entries of an index.
const ENTRIES: usize = 128;

/// The threads that allocate and free, and their state.
pub(crate) struct Work<T> {
    tenants: T,
    state: u32,
    many: Vec<Vec<u8>>,
    free: Sender<Vec<Block>>,
    freed: Receiver<(Duration, Vec<Block>)>,
}

type Block = Box<[u8; SIZE]>;

impl<T: Tenants> Work<T> {
    /// Pins this thread to a CPU, and starts the one that frees, on another CPU if there is one.
    ///
    /// # Errors
    /// When a thread cannot be pinned to a CPU.
    pub(crate) fn new(tenants: T) -> std::io::Result<Work<T>> {
        let cpus = affinity()?;
        let (free, to_free) = channel::<Vec<Block>>();
        let (done, freed) = channel();
        let (mut others, cpu) = (tenants.share(), cpus[cpus.len() - 1]);
        thread::spawn(move || {
            let pinned = set_affinity(&[cpu]);
            for mut blocks in to_free {
                let from = Instant::now();
                others.run(1, || blocks.clear());
                if pinned.is_err() || done.send((from.elapsed(), blocks)).is_err() {
                    break;
                }
            }
        });
        set_affinity(&cpus[..1])?;
        Ok(Work { tenants, state: 1, many: Vec::new(), free, freed })
    }

    /// Takes a sample: the nanoseconds of one operation, and whether something else ran in the
    /// meantime.
    pub(crate) fn sample(&mut self, operation: Operation) -> (f64, bool) {
        self.batch(operation);
        let (mut took, mut longest, mut batches) = (Duration::ZERO, Duration::ZERO, 0);
        while took < SAMPLE {
            let batch = self.batch(operation);
            longest = longest.max(batch);
            took += batch;
            batches += 1;
        }
        let times = batches * of_a_batch(operation);
        (took.as_nanos() as f64 / times as f64, longest > SAMPLE / 10)
    }

    /// Performs a batch, and returns how long it took.
    fn batch(&mut self, operation: Operation) -> Duration {
        let Work { tenants, state, many, .. } = self;
        let from = Instant::now();
        match operation {
            Operation::Pair => tenants.run(0, || {
                for _ in 0..BATCH {
                    drop(black_box(Vec::<u8>::with_capacity(black_box(SIZE))));
                }
            }),
            Operation::Many => {
                let next = |state: &mut u32| Vec::with_capacity(size(random(state)));
                tenants.run(0, || {
                    many.resize_with(MANY, || next(state));
                    for _ in 0..BATCH {
                        let at = random(state) as usize % MANY;
                        many[at] = next(state);
                    }
                });
            }
            Operation::Another => return self.another(),
            Operation::Switch => {
                for _ in 0..BATCH / 2 {
                    tenants.run(0, || black_box(()));
                    tenants.run(1, || black_box(()));
                }
            }
            Operation::Handed => {
                for _ in 0..BATCH / 2 {
                    let mut block = None;
                    tenants.run(0, || block = Some(black_box(Box::new([0_u8; SIZE]))));
                    tenants.run(1, || drop(block));
                }
            }
            Operation::Program => tenants.run(0, || index(state)),
        }
        from.elapsed()
    }

    fn another(&mut self) -> Duration {
        // The memory that the other thread gave back: it belongs to no tenant.
        let mut blocks = Vec::with_capacity(BATCH);
        let from = Instant::now();
        self.tenants.run(0, || blocks.resize_with(BATCH, || Box::new([0_u8; SIZE])));
        let took = from.elapsed();
        let gone = "the thread that frees is gone";
        self.free.send(blocks).expect(gone);
        let (more, _) = self.freed.recv().expect(gone);
        took + more
    }
}

/// Returns the number of operations in a batch.
fn of_a_batch(operation: Operation) -> usize {
    match operation {
        Operation::Program => ENTRIES,
        // Into each of two groups and out again: four switches, for a thread that was in none.
        Operation::Switch => 2 * BATCH,
        Operation::Handed => BATCH / 2,
        _ => BATCH,
    }
}

/// Makes an index of short texts as many programs do, looks each up, and frees it.
fn index(state: &mut u32) {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for _ in 0..ENTRIES {
        let number = random(state);
        let texts = all.entry(format!("tenant {}", number % 64)).or_default();
        texts.push(format!("a request for {number}"));
    }
    let found = (0..64).filter(|number| all.contains_key(&format!("tenant {number}"))).count();
    black_box(found);
}

/// Returns a size of 16 to 4,096 bytes, small ones more often.
fn size(random: u32) -> usize {
    (16 << (random % 8)) + (random >> 8) as usize % (16 << (random % 8))
}

/// Returns the high bits of a linear generator, with the constants of Numerical Recipes.
fn random(state: &mut u32) -> u32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    *state >> 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rung, groups};

    /// Each operation takes time and has a name of its own.
    #[test]
    fn operations_take_time_and_have_own_names() {
        let (_tree, _charges, tenants) = groups(Rung::Bare).expect("address space");
        let mut work = Work::new(tenants).expect("pinned");
        for operation in Operation::ALL {
            assert_eq!(Operation::named(operation.name()), Some(operation));
            let (ns, _) = work.sample(operation);
            assert!(ns > 0.5 && ns < 1e6, "{operation:?}: {ns}");
        }
        assert_eq!(work.many.len(), MANY);
        assert!(work.many.iter().all(|block| (16..=4_096).contains(&block.capacity())));
    }
}
