//! The document's three tests.

use std::hint::black_box;
use std::io;

use crossbeam_utils::CachePadded;
use memmap2::MmapMut;
use parking_lot::Mutex;
use submeter::counter::BATCH_DEFAULT;
use submeter_percpu::{Area, PercpuCounter};

use super::designs::{Atomic, Counter, LockFold};
use super::lock::Spin;
use crate::bench::runner::{Cell, Sample};
use crate::bench::threads::rates;
use crate::row::{Param, Params};

/// The size that test 1 maps and counts.
const MAPPED_BYTES: usize = 32 << 20;
const PAGE_BYTES: usize = 4096;

/// Loops between two clock reads: a few microseconds each, however slow the loop.
const PAIRS: u32 = 512;
const MAPPINGS: u32 = 8;
const SUMS: u32 = 64;

/// Returns the cells of all tests on `cpus`; what cannot be measured becomes a note.
///
/// # Errors
/// When no per-CPU word is free for a counter.
pub(super) fn groups(cpus: &[usize], notes: &mut Vec<String>) -> io::Result<Vec<Vec<Cell>>> {
    let mut settings = settings(cpus);
    if let Err(error) = MmapMut::map_anon(MAPPED_BYTES) {
        notes.push(format!("no figures with mappings: the kernel refuses 32 MiB: {error}"));
        settings.retain(|setting| !matches!(setting.loops, Loops::Mappings));
    }
    if cpus.len() == 1 {
        notes.push("no figures for test 3: this process may use only one CPU".to_owned());
        settings.retain(|setting| !matches!(setting.loops, Loops::Sums));
    }
    settings.into_iter().map(Setting::cells).collect()
}

/// One test on one path.
#[derive(Clone)]
pub(super) struct Setting {
    test: u64,
    path: &'static str,
    /// The amount that is added and subtracted.
    n: i64,
    loops: Loops,
    cpus: Vec<usize>,
}

/// The content of a loop.
#[derive(Clone, Copy)]
enum Loops {
    /// An add and its opposite, on each CPU.
    Pairs,
    /// The same, around a mapping that is created and removed.
    Mappings,
    /// A sum on the first CPU, while the others do pairs.
    Sums,
}

/// Returns all tests, on all paths.
pub(super) fn settings(cpus: &[usize]) -> Vec<Setting> {
    let (one, all) = (cpus[..1].to_vec(), cpus.to_vec());
    let (below, batch) = (1, BATCH_DEFAULT.cast_signed());
    let pages = (MAPPED_BYTES / PAGE_BYTES) as i64;
    let setting = |test, path, n, loops, cpus: &Vec<usize>| {
        let cpus = cpus.clone();
        Setting { test, path, n, loops, cpus }
    };
    vec![
        setting(1, "slow", pages, Loops::Pairs, &all),
        setting(1, "slow", pages, Loops::Mappings, &all),
        setting(2, "fast", below, Loops::Pairs, &one),
        setting(2, "slow", batch, Loops::Pairs, &one),
        setting(3, "fast", below, Loops::Sums, &all),
        setting(3, "slow", batch, Loops::Sums, &all),
    ]
}

impl Setting {
    fn cells(self) -> io::Result<Vec<Cell>> {
        let places = self.cpus.len();
        let counter = PercpuCounter::with_batch(Area::common()?, BATCH_DEFAULT)?;
        Ok(vec![
            self.cell("lock_fold", LockFold::<Spin>::new(places, BATCH_DEFAULT)),
            self.cell("lock_fold_mutex", LockFold::<Mutex<()>>::new(places, BATCH_DEFAULT)),
            self.cell("submeter", CachePadded::new(counter)),
            self.cell("atomic", Atomic::default()),
        ])
    }

    fn cell<C: Counter>(&self, variant: &'static str, counter: C) -> Cell {
        let setting = self.clone();
        let measure = move || {
            let sample = setting.sample(&counter)?;
            // The speed of a design that loses adds means nothing.
            assert_eq!(counter.sum(), 0, "{variant} subtracts what it added");
            Ok(sample)
        };
        Cell::new(self.params(), variant, measure)
    }

    fn params(&self) -> Params {
        let mmap = if matches!(self.loops, Loops::Mappings) { "yes" } else { "no" };
        let cpus = if self.test == 2 { "1" } else { "all" };
        Params::from([
            ("test", Param::number(self.test)),
            ("path", Param::word(self.path)),
            ("mmap", Param::word(mmap)),
            ("cpus", Param::word(cpus)),
        ])
    }

    /// Measures the rate of loops of all CPUs, or of sums of the one that sums.
    pub(super) fn sample<C: Counter>(&self, counter: &C) -> io::Result<Sample> {
        let n = self.n;
        let (rates, disturbed) = match self.loops {
            Loops::Pairs => {
                rates(&self.cpus, PAIRS, &|place, loops| pairs(counter, place, n, loops))
            }
            Loops::Mappings => {
                rates(&self.cpus, MAPPINGS, &|place, loops| mappings(counter, place, n, loops))
            }
            Loops::Sums => rates(&self.cpus, SUMS, &|place, loops| {
                if place == 0 { sums(counter, loops) } else { pairs(counter, place, n, loops) }
            }),
        }?;
        let counted = if matches!(self.loops, Loops::Sums) { &rates[..1] } else { &rates };
        // Fractions of a loop per second are meaningless.
        Ok(Sample::of("loops/s", counted.iter().sum::<f64>().round(), disturbed))
    }
}

/// Adds `n` and subtracts it. Not inlined, so that `n` is unknown to the compiler but in a
/// register: `black_box` would put it in memory, with one more store for each locked instruction to
/// wait for.
#[inline(never)]
fn pairs<C: Counter>(counter: &C, place: usize, n: i64, loops: u32) {
    let (add, mut n) = (counter.adder(place), n);
    // A single call site, so that no variant is inlined at one site and called at another because
    // of its size.
    for _ in 0..2 * loops {
        add(n);
        n = -n;
    }
}

/// Maps 32 MiB, untouched as in the document, and counts its pages.
fn mappings<C: Counter>(counter: &C, place: usize, n: i64, loops: u32) {
    let add = counter.adder(place);
    for _ in 0..loops {
        let mapping = MmapMut::map_anon(MAPPED_BYTES).expect("the kernel granted one before");
        add(n);
        drop(mapping);
        add(-n);
    }
}

fn sums<C: Counter>(counter: &C, loops: u32) {
    let mut all = 0_i64;
    for _ in 0..loops {
        all = all.wrapping_add(counter.sum());
    }
    // Used, or the compiler would remove the loads of `atomic`.
    black_box(all);
}
