//! Measures what a group switch costs beside the clock that it reads, interleaved in one thread.
//!
//! Run with `cargo run --release -p submeter --example switch_cost`; it takes some seconds.

use std::hint::black_box;
use std::time::Instant;

use submeter::perf::{Request, Session, parse};
use submeter::switch::{self, Observer, clock};
use submeter::{Counter, Group, Nanoseconds, Schema, Tree};
use submeter_sys::clock::ThreadClock;

const ROUNDS: usize = 300;
const SWITCHES: u32 = 2_000;

type Case<'a> = Box<dyn FnMut() + 'a>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let choice = clock::choice();
    println!("clock: {} ({})", choice.source.name(), choice.reason);
    let mut schema = Schema::builder();
    let cpu = schema.cpu_time("cpu", "CPU time used");
    let metered = Tree::builder(schema.build()?).groups_max(20_000).build()?;
    let few = siblings(&metered, "few", 6)?;
    let many = siblings(&metered, "many", 10_000)?;
    // In no list: entering it again would be a case of its own.
    let home = metered.get_or_create("/home")?;
    let deep = metered.get_or_create("/1/2/3/4/5/6/7/8")?;

    let mut clock = ThreadClock::new();
    let mut cases: Vec<(&str, Case<'_>)> = vec![
        ("one read of the clock", Box::new(|| _ = black_box(clock.now_ns()))),
        ("the kernel's own", Box::new(|| _ = black_box(clock::thread_cpu_ns()))),
        ("same group: enter and leave", Box::new(|| home.run(|| black_box(())))),
        ("a sibling: enter and leave (two switches)", Box::new(|| few[1].run(|| black_box(())))),
        ("8 levels deep (two switches)", Box::new(|| deep.run(|| black_box(())))),
        ("one of 6, in order (two switches)", in_turn(&few, 1)),
        ("one of 10,000, in order (two switches)", in_turn(&many, 1)),
        ("one of 10,000, far apart (two switches)", in_turn(&many, 7_919)),
        ("charge and stay", Box::new(switch::park)),
        ("a handle, cloned and dropped", Box::new(|| drop(black_box(few[1].clone())))),
        ("an update", Box::new(|| few[1].add(cpu, 100))),
    ];
    run(&mut cases, || home.enter());
    drop(cases);
    followed(&metered, &few, &many, &deep)?;
    accuracy(&metered, cpu, &few);
    Ok(())
}

/// Measures the same switches while something follows them: each line has its own rounds with
/// nobody.
fn followed(
    tree: &Tree,
    few: &[Group],
    many: &[Group],
    deep: &Group,
) -> Result<(), Box<dyn std::error::Error>> {
    struct Nothing;
    impl Observer for Nothing {
        fn switched(&mut self, _: Option<&Group>, _: Option<&Group>, _: u64) {}
    }
    let session = |groups: &[Group], list: &str| -> Result<Session, Box<dyn std::error::Error>> {
        let events = parse(list)?;
        let of = |group| events.iter().map(move |list| Request::group(group, list.clone()));
        Ok(Session::open(tree, groups.iter().flat_map(of)))
    };
    let two = "task-clock,cpu-clock";
    type Follow<'a> =
        Box<dyn Fn() -> Result<Box<dyn std::any::Any>, Box<dyn std::error::Error>> + 'a>;
    let follows: Vec<(&str, Follow<'_>)> = vec![
        ("nobody", Box::new(|| Ok(Box::new(())))),
        (
            "an observer that does nothing",
            Box::new(|| Ok(Box::new(switch::observe(|_| Some(Box::new(Nothing)))))),
        ),
        ("a session without events", Box::new(|| Ok(Box::new(session(&[], two)?)))),
        ("one event for each of 6", Box::new(|| Ok(Box::new(session(few, "task-clock")?)))),
        ("two events for each of 6", Box::new(|| Ok(Box::new(session(few, two)?)))),
        (
            "a group of two for each of 6",
            Box::new(|| Ok(Box::new(session(few, "{task-clock,cpu-clock}")?))),
        ),
        (
            "clock and context switches for each of 6",
            Box::new(|| Ok(Box::new(session(few, "task-clock,context-switches")?))),
        ),
        ("two events for each of 10,000", Box::new(|| Ok(Box::new(session(many, two)?)))),
    ];
    let home = tree.get_or_create("/home")?;
    for (name, follow) in follows {
        let _following = follow()?;
        println!("\nfollowed by: {name}");
        let mut clock = ThreadClock::new();
        let mut cases: Vec<(&str, Case<'_>)> = vec![
            ("one read of the clock", Box::new(|| _ = black_box(clock.now_ns()))),
            (
                "a sibling: enter and leave (two switches)",
                Box::new(|| few[1].run(|| black_box(()))),
            ),
            ("8 levels deep (two switches)", Box::new(|| deep.run(|| black_box(())))),
            ("one of 6, in order (two switches)", in_turn(few, 1)),
            ("one of 10,000, in order (two switches)", in_turn(many, 1)),
        ];
        run(&mut cases, || home.enter());
    }
    Ok(())
}

/// Runs the cases interleaved, each in a group of its own, and prints what one call took.
fn run(cases: &mut [(&str, Case<'_>)], home: impl Fn() -> switch::Entered) {
    let mut samples = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for ((_, case), samples) in cases.iter_mut().zip(&mut samples) {
            let _home = home();
            let start = Instant::now();
            for _ in 0..SWITCHES {
                case();
            }
            samples.push(start.elapsed().as_nanos() as f64 / f64::from(SWITCHES));
        }
    }
    for ((name, _), mut samples) in cases.iter().zip(samples) {
        samples.sort_by(f64::total_cmp);
        let (least, median) = (samples[0], samples[ROUNDS / 2]);
        println!("{name:<45} {least:>8.2} {median:>8.2} ns (least, median)");
    }
}

/// Twice as many threads as usually have CPUs switch all the time: what the groups are charged,
/// beside what the kernel says that the threads used.
fn accuracy(tree: &Tree, cpu: Counter<Nanoseconds>, groups: &[Group]) {
    let before = tree.root().sum(cpu);
    let work = || {
        let _home = tree.root().enter();
        switch::park();
        let (start, until) = (clock::thread_cpu_ns(), Instant::now());
        let mut switches = 0;
        while until.elapsed().as_millis() < 1_000 {
            for group in groups {
                group.run(|| black_box((0..20_000u64).map(black_box).sum::<u64>()));
                switches += 2;
            }
        }
        let used = clock::thread_cpu_ns() - start;
        switch::park();
        (used, switches)
    };
    let threads = std::thread::available_parallelism().map_or(4, |cpus| 2 * cpus.get());
    let (mut used, mut switches) = (0, 0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            let (of_thread, made) = thread.join().expect("no panic");
            (used, switches) = (used + of_thread, switches + made);
        }
    });
    let charged = tree.root().sum(cpu) - before;
    let off = (charged as f64 / used as f64 - 1.0) * 100.0;
    println!(
        "{threads} threads, {switches} switches: charged {charged} ns of {used} used, {off:+.3} %"
    );
}

fn siblings(tree: &Tree, above: &str, count: usize) -> Result<Vec<Group>, submeter::Error> {
    (0..count).map(|index| tree.get_or_create(&format!("/{above}/{index}"))).collect()
}

/// With a prime for `apart`, in an order that no cache guesses.
fn in_turn(groups: &[Group], apart: usize) -> Case<'_> {
    let mut next = 0;
    Box::new(move || {
        // No division, which would be a good part of what is measured.
        next += apart;
        if next >= groups.len() {
            next -= groups.len();
        }
        groups[next].run(|| black_box(()));
    })
}
