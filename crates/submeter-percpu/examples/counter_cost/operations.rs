//! Operations on the backend in use.

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};

use submeter_percpu::{Area, LimitedCounter, PercpuCounter};

use crate::sample::{Thing, best};

const COUNT: u32 = 10_000;
/// Counters that are created together.
const TOGETHER: usize = 16;

pub(crate) fn run() -> io::Result<()> {
    let area = Area::common()?;
    let block = area.block(1)?;
    let (wide, narrow) = (PercpuCounter::with_batch(area, 1 << 20)?, PercpuCounter::new()?);
    let atomic = AtomicI64::new(0);
    let limit = 1 << 40;
    let far = LimitedCounter::with_batch(area, 1 << 20, limit)?;
    let near = LimitedCounter::with_batch(area, 1, limit)?;
    let exact = AtomicI64::new(0);

    let mut things = vec![
        each("Block::add(1)", || block.add(0, black_box(1))),
        each("add(1), batch 2^20", || wide.add(black_box(1))),
        each("add(1), batch 32", || narrow.add(black_box(1))),
        pair("add(32), add(-32), batch 32: every add overflows", |n| narrow.add(n)),
        // Relaxed, here and below: a statistic, only its cost is of interest.
        each("AtomicI64::fetch_add", || {
            atomic.fetch_add(black_box(1), Ordering::Relaxed);
        }),
        pair("try_add(32) and back, far from the limit, batch 2^20", |n| grant(&far, n)),
        pair("try_add(32) and back, batch 1: always exact", |n| grant(&near, n)),
        pair("one atomic, exchanged while it fits", |n| {
            let fits = |now: i64| (now + n <= limit).then_some(now + n);
            // Relaxed: as above.
            let _ = black_box(exact.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits));
        }),
        each("read", || {
            black_box(narrow.read());
        }),
        each("sum", || {
            black_box(narrow.sum());
        }),
        together("many(16) and their end, a counter", || PercpuCounter::many(TOGETHER)),
        together("16 times new and their end, a counter", || {
            (0..TOGETHER).map(|_| PercpuCounter::new()).collect()
        }),
    ];
    let best = best(&mut things);
    println!("\n| operation | ns |\n|---|---|");
    for (thing, ns) in things.iter().zip(best) {
        println!("| {} | {ns:.2} |", thing.name);
    }
    Ok(())
}

fn grant(counter: &LimitedCounter, n: i64) {
    let _ = black_box(counter.try_add(n));
}

fn each<'a>(name: &'a str, operation: impl Fn() + 'a) -> Thing<'a> {
    Thing { name, count: COUNT, work: Box::new(move || (0..COUNT).for_each(|_| operation())) }
}

/// Creates some counters and drops them.
fn together<'a>(
    name: &'a str,
    make: impl Fn() -> io::Result<Vec<PercpuCounter>> + 'a,
) -> Thing<'a> {
    let work = move || (0..50).for_each(|_| drop(black_box(make())));
    Thing { name, count: 50 * TOGETHER as u32, work: Box::new(work) }
}

/// There and back, so that values stay where they are.
fn pair<'a>(name: &'a str, operation: impl Fn(i64) + 'a) -> Thing<'a> {
    let work = move || {
        for _ in 0..COUNT / 2 {
            operation(black_box(32));
            operation(black_box(-32));
        }
    };
    Thing { name, count: COUNT, work: Box::new(work) }
}
