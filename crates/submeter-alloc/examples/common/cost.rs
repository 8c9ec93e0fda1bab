//! What blocks and switches cost with the allocator of the program that includes this.

use std::hint::black_box;
use std::time::{Duration, Instant};

use submeter::{Group, Tree};

/// How long a sample runs, and of how many one is taken: that which a tenth is faster than, so
/// that those in which the thread lost the CPU do not matter.
const SAMPLE: Duration = Duration::from_micros(200);
const SAMPLES: usize = 401;

/// How many blocks are held at once where others free them.
const HELD: usize = 256;

/// Prints a line for each operation: its name and the nanoseconds that it takes.
///
/// # Panics
/// Where the tree has no room for two groups.
pub(crate) fn show(tree: &Tree) {
    let [a, b] = ["/a", "/b"].map(|path| tree.create(path).expect("new"));
    [&a, &b].into_iter().for_each(|group| group.run(|| ()));
    line("pair, in its group", || a.run(|| pairs(|_| 64)));
    line("pair, outside", || pairs(|_| 64));
    line("pair of 16 to 4,096 bytes, in its group", || a.run(|| pairs(|at| 16 << (at * 7 % 9))));
    line("pair, freed by another group", || freed_by(&a, &b));
    line("switch and back", || (0..HELD).for_each(|_| a.run(|| black_box(()))));
}

/// Allocates and frees one block after the other.
fn pairs(size: impl Fn(usize) -> usize) {
    for at in 0..HELD {
        drop(black_box(Vec::<u8>::with_capacity(black_box(size(at)))));
    }
}

/// Allocates for one group what another then frees, with two switches for all of them.
fn freed_by(a: &Group, b: &Group) {
    let mut held = [const { None }; HELD];
    a.run(|| held.iter_mut().for_each(|block| *block = Some(Box::new([0_u8; 64]))));
    b.run(|| drop(black_box(held)));
}

/// `work` does its operation as often as blocks are held.
fn line(name: &str, work: impl Fn()) {
    let mut samples: Vec<f64> = (0..SAMPLES).map(|_| sample(&work)).collect();
    samples.sort_by(f64::total_cmp);
    println!("{name}\t{:.2}", samples[SAMPLES / 10]);
}

fn sample(work: &impl Fn()) -> f64 {
    let (start, mut times) = (Instant::now(), 0);
    while start.elapsed() < SAMPLE {
        work();
        times += HELD;
    }
    start.elapsed().as_nanos() as f64 / times as f64
}
