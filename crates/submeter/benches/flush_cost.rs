//! What a flush costs for each group that it visits, in nanoseconds and in bare increments.
//!
//! `cargo bench -p submeter --bench flush_cost [clean groups]`
//!
//! The tree has 1 + 10 + 100 + 1000 groups and 16 metrics; before each flush every leaf was
//! updated, in one metric or in all. The shapes take turns, so that what disturbs the machine
//! disturbs all of them; the least and the median count.

use std::time::Instant;

use submeter::{Count, Counter, Group, Schema, Tree};
use submeter_percpu::Area;

const METRICS: usize = 16;
const ROUNDS: usize = 400;
const ADDS: u32 = 20_000;

/// A tree of four levels, with whatever else lies in it.
struct Shape {
    name: &'static str,
    tree: Tree,
    leaves: Vec<Group>,
    metrics: Vec<Counter<Count>>,
    dirty: usize,
    ns_per_group: Vec<f64>,
    /// Of a flush that finds one leaf.
    ns_alone: Vec<f64>,
}

impl Shape {
    fn new(
        name: &'static str,
        dirty: usize,
        clean: usize,
    ) -> Result<Shape, Box<dyn std::error::Error>> {
        let mut schema = Schema::builder();
        let metrics =
            (0..METRICS).map(|n| schema.counter::<Count>(&format!("metric_{n}"), "One")).collect();
        let tree =
            Tree::builder(schema.build()?).groups_max(clean + clean / 1000 + 2000).build()?;
        let mut leaves = Vec::new();
        for n in 0..1000 {
            leaves.push(tree.get_or_create(&format!("/{}/{}/{}", n / 100, n / 10 % 10, n % 10))?);
        }
        for n in 0..clean {
            tree.get_or_create(&format!("/clean/{}/{n}", n / 1000))?;
        }
        Ok(Shape {
            name,
            tree,
            leaves,
            metrics,
            dirty,
            ns_per_group: Vec::new(),
            ns_alone: Vec::new(),
        })
    }

    fn sample(&mut self) {
        for leaf in &self.leaves {
            for &metric in &self.metrics[..self.dirty] {
                leaf.add(metric, 1);
            }
        }
        let start = Instant::now();
        let report = self.tree.flush();
        let ns = start.elapsed().as_nanos() as f64;
        assert_eq!(report.groups, 1111, "every leaf, and every group above one");
        self.ns_per_group.push(ns / 1111.0);

        self.leaves[500].add(self.metrics[0], 1);
        let start = Instant::now();
        let report = self.tree.flush();
        self.ns_alone.push(start.elapsed().as_nanos() as f64);
        assert_eq!(report.groups, 4, "a leaf, and every group above it");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clean = match std::env::args().skip(1).find(|it| it != "--bench") {
        None => 1_000_000,
        Some(text) => {
            text.parse().map_err(|_| format!("`{text}` is no number of clean groups: give one"))?
        }
    };
    let mut shapes = vec![
        Shape::new("1 metric", 1, 0)?,
        Shape::new("16 metrics", METRICS, 0)?,
        Shape::new("1 metric, clean groups beside", 1, clean)?,
        Shape::new("16 metrics, clean groups beside", METRICS, clean)?,
    ];
    let area = Area::new(|_| 0)?;
    let block = area.block(1)?;
    let word = block.word(0);
    let mut increment_ns = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..ADDS {
            word.increment();
        }
        increment_ns.push(start.elapsed().as_nanos() as f64 / f64::from(ADDS));
        shapes.iter_mut().for_each(Shape::sample);
    }
    let (bare, bare_median) = least_and_median(&mut increment_ns);
    println!("a bare increment: {bare:.2} ns, median {bare_median:.2}");
    for shape in &mut shapes {
        let (least, median) = least_and_median(&mut shape.ns_per_group);
        let (alone, _) = least_and_median(&mut shape.ns_alone);
        println!(
            "{:<32} {least:.1} ns a group ({:.1} increments), median {median:.1} ({:.1}); \
             a flush of one leaf {alone:.0} ns",
            shape.name,
            least / bare,
            median / bare_median
        );
    }
    Ok(())
}

fn least_and_median(samples: &mut [f64]) -> (f64, f64) {
    samples.sort_by(f64::total_cmp);
    (samples[0], samples[samples.len() / 2])
}
