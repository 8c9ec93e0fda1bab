//! What an update costs, in nanoseconds and in bare increments.
//!
//! `cargo bench -p submeter --bench update_cost [rounds]`
//!
//! A bare increment is the least that counting on the running CPU's own word can cost: one
//! sequence, one word, no mark, no batch. Every variant is measured once a round, in samples of
//! some 10 µs, so that what disturbs the machine disturbs all; ratios are of minima and of medians.
//! One thread.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use submeter::{Bytes, Count, Counter, Group, Schema, Tree};
use submeter_percpu::{Area, Block, PercpuCounter, Word};

const ROUNDS: usize = 1000;
/// Updates of a sample.
const UPDATES: usize = 10_000;
/// Leaves of the random variants; a power of two, so that an index is masked.
const LEAVES: usize = 1024;

/// Has a number of loops that are compiled each on its own, as a caller's would be.
macro_rules! loops {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $body:block)*) => {$(
        #[inline(never)]
        fn $name($($arg: $type),*) {
            for _ in 0..UPDATES $body
        }
    )*};
}

loops! {
    fn increment(word: Word<'_>) { word.increment(); }
    fn block_add(block: &Block, n: i64) { block.add(0, n); }
    fn counter_add(counter: &PercpuCounter, n: i64) { counter.add(n); }
    fn group_add(group: &Group, requests: Counter<Count>) { group.add(requests, 1); }
    fn group_add_bytes(group: &Group, sent: Counter<Bytes>, n: u64) { group.add(sent, n); }
    fn walk_up(levels: &[&AtomicI64]) {
        for level in levels {
            // Relaxed: a statistic.
            level.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[inline(never)]
fn meter_add(group: &Group, requests: Counter<Count>) {
    let requests = group.handle(requests);
    (0..UPDATES).for_each(|_| requests.add(1));
}

#[inline(never)]
fn meter_add_bytes(group: &Group, sent: Counter<Bytes>, n: u64) {
    let sent = group.handle(sent);
    (0..UPDATES).for_each(|_| sent.add(n));
}

/// Calls `update` with the numbers of leaves in no order.
#[inline(always)]
fn at_random(mut update: impl FnMut(usize)) {
    let mut state = 1u32;
    for _ in 0..UPDATES {
        // The high bits of a linear generator, with the constants of Numerical Recipes.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        update(state as usize >> 16 & (LEAVES - 1));
    }
}

struct Atomic {
    leaf: AtomicI64,
    group: usize,
}

struct Variant<'a> {
    name: &'static str,
    run: Box<dyn Fn() + 'a>,
    ns: Vec<f64>,
}

impl<'a> Variant<'a> {
    fn new(name: &'static str, run: Box<dyn Fn() + 'a>) -> Variant<'a> {
        Variant { name, run, ns: Vec::new() }
    }

    /// Once to warm up, once with the clock.
    fn sample(&mut self) {
        (self.run)();
        let start = Instant::now();
        (self.run)();
        self.ns.push(start.elapsed().as_nanos() as f64 / UPDATES as f64);
    }
}

fn main() -> ExitCode {
    let rounds = std::env::args().skip(1).find(|it| it != "--bench");
    let rounds = match rounds.map(|rounds| rounds.parse()) {
        None => ROUNDS,
        Some(Ok(rounds @ 1..)) => rounds,
        Some(_) => {
            eprintln!("update_cost: the number of rounds must be 1 or more, such as {ROUNDS}");
            return ExitCode::from(2);
        }
    };
    match measure(rounds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("update_cost: {error}: raise the limit of address space (ulimit -v)");
            ExitCode::FAILURE
        }
    }
}

fn measure(rounds: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests", "Requests");
    let sent = schema.counter::<Bytes>("sent", "Bytes sent");
    let tree = Tree::new(schema.build()?)?;
    let groups = (0..LEAVES)
        .map(|leaf| tree.get_or_create(&format!("/{}/{}/{leaf}", leaf / 100, leaf / 10)))
        .collect::<Result<Vec<Group>, _>>()?;
    let meters: Vec<_> = groups.iter().map(|group| group.handle(requests)).collect();

    let area = Area::new(|_| 0)?;
    let blocks = (0..LEAVES).map(|_| area.block(2)).collect::<Result<Vec<Block>, _>>()?;
    let words: Vec<_> = blocks.iter().map(|block| block.word(0)).collect();
    let (counter, wide) = (PercpuCounter::new()?, PercpuCounter::with_batch(&area, 1 << 16)?);

    let leaves: Vec<Atomic> =
        (0..LEAVES).map(|n| Atomic { leaf: AtomicI64::new(0), group: n / 10 }).collect();
    let [above, top]: [Vec<AtomicI64>; 2] =
        [LEAVES / 10 + 1, LEAVES / 100 + 1].map(|len| (0..len).map(|_| 0.into()).collect());
    let root = AtomicI64::new(0);
    let walk_up_random = || {
        at_random(|n| {
            let Atomic { leaf, group } = &leaves[n];
            for level in [leaf, &above[*group], &top[*group / 10], &root] {
                // Relaxed: a statistic.
                level.fetch_add(1, Ordering::Relaxed);
            }
        });
    };

    let group = &groups[0];
    let mut variants = vec![
        Variant::new("bare increment, one word", Box::new(|| increment(words[0]))),
        Variant::new("Block::add", Box::new(|| block_add(&blocks[1], black_box(1)))),
        Variant::new(
            "PercpuCounter::add, batch 32",
            Box::new(|| counter_add(&counter, black_box(1))),
        ),
        Variant::new(
            "PercpuCounter::add, batch 2^16",
            Box::new(|| counter_add(&wide, black_box(1))),
        ),
        Variant::new("handle add, counts", Box::new(|| meter_add(group, requests))),
        Variant::new("handle add, bytes", Box::new(|| meter_add_bytes(group, sent, black_box(1)))),
        Variant::new("Group::add, counts", Box::new(|| group_add(group, requests))),
        Variant::new("Group::add, bytes", Box::new(|| group_add_bytes(group, sent, black_box(1)))),
        Variant::new(
            "four atomics, from leaf to root",
            Box::new(|| walk_up(&[&leaves[0].leaf, &above[0], &top[0], &root])),
        ),
        Variant::new(
            "bare increment, random word",
            Box::new(|| at_random(|n| words[n].increment())),
        ),
        Variant::new("handle add, random leaf", Box::new(|| at_random(|n| meters[n].add(1)))),
        Variant::new(
            "Group::add, random leaf",
            Box::new(|| at_random(|n| groups[n].add(requests, 1))),
        ),
        Variant::new("four atomics, random leaf", Box::new(walk_up_random)),
    ];
    for _ in 0..rounds {
        variants.iter_mut().for_each(Variant::sample);
    }
    print(&mut variants);
    Ok(())
}

/// Prints each variant's figures, with ratios to the bare increment above it.
fn print(variants: &mut [Variant<'_>]) {
    println!("ns an update, and its ratio to the bare increment above it");
    println!("{:<32}{:>14}{:>16}  {:>13}", "", "least", "median", "middle half");
    let mut bare = (1.0, 1.0);
    for variant in variants {
        let ns = &mut variant.ns;
        ns.sort_by(f64::total_cmp);
        let at = |quarter: usize| ns[(ns.len() - 1) * quarter / 4];
        let (least, median) = (at(0), at(2));
        if variant.name.starts_with("bare") {
            bare = (least, median);
        }
        println!(
            "{:<32}{least:>7.2}{:>6.2}x{median:>8.2}{:>7.2}x   {:>5.2} – {:<5.2}",
            variant.name,
            least / bare.0,
            median / bare.1,
            at(1),
            at(3),
        );
    }
}
