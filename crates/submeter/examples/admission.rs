//! Shows what the fair queue costs, how it shares CPU time by weight, and what a light tenant sees
//! of a heavy one, beside tokio's semaphore and beside no queue at all.
//!
//! Run with `cargo run --release -p submeter --example admission [SECONDS]`; of so many seconds
//! each part takes one to three times as long.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use submeter::admission::Admission;
use submeter::switch::clock;
use submeter::{Counter, Group, Nanoseconds, Schema, Tree};
use tokio::sync::Semaphore;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let seconds = std::env::args().nth(1).map_or(Ok(4), |seconds| seconds.parse())?;
    let places = thread::available_parallelism()?.get().try_into()?;
    let (tree, cpu) = tree()?;
    cost(&tree)?;
    for paths in [&["/one", "/three"][..], &["/a", "/b/one", "/b/three"]] {
        shares(&tree, cpu, paths, places, Duration::from_secs(seconds))?;
    }
    let time = Duration::from_secs(seconds);
    neighbours(&tree, places, time, "works", work)?;
    neighbours(&tree, places, time, "sleeps", |_, long| thread::sleep(long))
}

fn tree() -> Result<(Tree, Counter<Nanoseconds>), Failure> {
    let mut schema = Schema::builder();
    let cpu = schema.cpu_time("cpu", "CPU time used");
    Ok((Tree::new(schema.build()?)?, cpu))
}

// ---- what it costs -----------------------------------------------------------------------------

fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("there is room"),
    }
}

/// Its name, what is measured, and what each round took.
type Case<'a> = (&'static str, Box<dyn FnMut() + 'a>, Vec<f64>);

fn cost(tree: &Tree) -> Result<(), Failure> {
    const ROUNDS: usize = 201;
    const CALLS: u32 = 2_000;
    let (web, admission) = (tree.get_or_create("/web")?, Admission::new(8));
    let semaphore = Arc::new(Semaphore::new(8));
    let mut cases: Vec<Case<'_>> = vec![
        ("acquire", Box::new(|| drop(black_box(ready(admission.acquire(&web))))), vec![]),
        (
            "acquire_blocking",
            Box::new(|| drop(black_box(admission.acquire_blocking(&web, Duration::MAX)))),
            vec![],
        ),
        (
            "tokio: acquire_owned",
            {
                let acquire = || ready(Arc::clone(&semaphore).acquire_owned());
                Box::new(move || drop(black_box(acquire())))
            },
            vec![],
        ),
        ("tokio: acquire", Box::new(|| drop(black_box(ready(semaphore.acquire())))), vec![]),
    ];
    for _ in 0..ROUNDS {
        for (_, call, samples) in &mut cases {
            let start = Instant::now();
            (0..CALLS).for_each(|_| call());
            samples.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS));
        }
    }
    println!("let in and out again while nobody waits, one thread, interleaved:");
    for (name, _, samples) in &mut cases {
        samples.sort_by(f64::total_cmp);
        let at = |part: usize| samples[samples.len() * part / 100];
        println!("  {name:22} {:6.1} ns (p10 {:.1}, p90 {:.1})", at(50), at(10), at(90));
    }
    Ok(())
}

// ---- shares ------------------------------------------------------------------------------------

/// Uses the CPU for a while, in the group.
fn work(group: &Group, busy: Duration) {
    group.run(|| {
        let end = clock::thread_cpu_ns() + busy.as_nanos() as u64;
        while clock::thread_cpu_ns() < end {
            black_box((0..200).fold(0_u64, |sum, n| sum.rotate_left(7) ^ n));
        }
    });
}

fn shares(
    tree: &Tree,
    cpu: Counter<Nanoseconds>,
    paths: &[&str],
    places: u32,
    time: Duration,
) -> Result<(), Failure> {
    let admission = Admission::new(places);
    let groups =
        paths.iter().map(|path| tree.get_or_create(path)).collect::<Result<Vec<_>, _>>()?;
    for group in &groups {
        if group.name() == "three" {
            admission.set_weight(group, Some(300))?;
        }
        if let Some(parent) = group.parent().filter(|parent| parent.depth() > 0) {
            admission.set_weight(parent, Some(300))?;
        }
    }
    let stop = AtomicBool::new(false);
    let used = || groups.iter().map(|group| group.sum(cpu)).collect::<Vec<_>>();
    let before = thread::scope(|scope| {
        for (at, group) in groups.iter().enumerate() {
            for thread in 0..u64::from(places) * 4 {
                let (admission, stop) = (&admission, &stop);
                scope.spawn(move || {
                    // The one asks for ten times as much at once as the next.
                    let most = [300, 3_000, 1_000][at];
                    let mut rng = fastrand::Rng::with_seed(thread);
                    // Relaxed: a flag alone.
                    while !stop.load(Ordering::Relaxed) {
                        let admitted = admission.acquire_blocking(group, Duration::MAX);
                        work(group, Duration::from_micros(rng.u64(1..most)));
                        drop(admitted);
                    }
                });
            }
        }
        thread::sleep(Duration::from_millis(200));
        let before = used();
        thread::sleep(time);
        let used: Vec<_> = used().iter().zip(before).map(|(now, before)| now - before).collect();
        // Relaxed: as above.
        stop.store(true, Ordering::Relaxed);
        used
    });
    let all: u64 = before.iter().sum();
    println!("shares of the CPU time of {places} places over {time:?}, weights by name:");
    for (path, used) in paths.iter().zip(before) {
        println!("  {path:10} {:5.2} %", used as f64 * 100.0 / all as f64);
    }
    Ok(())
}

// ---- a light tenant beside a heavy one ---------------------------------------------------------

#[derive(Clone, Copy)]
enum Beside {
    Nobody,
    NoQueue,
    Semaphore,
    Queue,
}

/// What a heavy tenant does in its place, for so long.
type Heavy = fn(&Group, Duration);

fn neighbours(
    tree: &Tree,
    places: u32,
    time: Duration,
    name: &str,
    heavy: Heavy,
) -> Result<(), Failure> {
    let modes = [
        ("alone", Beside::Nobody),
        ("no queue", Beside::NoQueue),
        ("one semaphore of tokio's", Beside::Semaphore),
        ("Admission", Beside::Queue),
    ];
    let mut latencies: [Vec<Duration>; 4] = Default::default();
    for _ in 0..4 {
        for (&(_, mode), latencies) in modes.iter().zip(&mut latencies) {
            latencies.extend(light(tree, places, mode, heavy, time / 2)?);
        }
    }
    println!(
        "a light tenant, 4 ms of CPU each 25 ms, beside 32 threads of one that {name} 1 ms each:"
    );
    let p99 = latencies.each_mut().map(|latencies| {
        latencies.sort_unstable();
        (latencies[latencies.len() / 2], latencies[latencies.len() * 99 / 100], latencies.len())
    });
    for ((name, _), (p50, p99_now, count)) in modes.iter().zip(p99) {
        let ratio = p99_now.as_secs_f64() / p99[0].1.as_secs_f64();
        println!("  {name:26} p50 {p50:9.2?}  p99 {p99_now:9.2?}  ÷ alone {ratio:6.2}  of {count}");
    }
    Ok(())
}

fn light(
    tree: &Tree,
    places: u32,
    mode: Beside,
    in_place: Heavy,
    time: Duration,
) -> Result<Vec<Duration>, Failure> {
    let [light, heavy] = [tree.get_or_create("/light")?, tree.get_or_create("/heavy")?];
    let (admission, semaphore) = (Admission::new(places), Semaphore::new(places as usize));
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let handle = runtime.handle();
    let request = |group: &Group, act: Heavy, long: Duration| match mode {
        Beside::Nobody | Beside::NoQueue => act(group, long),
        Beside::Semaphore => {
            let _permit = handle.block_on(semaphore.acquire());
            act(group, long);
        }
        Beside::Queue => {
            let _admitted = admission.acquire_blocking(group, Duration::MAX);
            act(group, long);
        }
    };
    let stop = AtomicBool::new(false);
    Ok(thread::scope(|scope| {
        for _ in 0..if matches!(mode, Beside::Nobody) { 0 } else { 32 } {
            scope.spawn(|| {
                // Relaxed, here and below: a flag alone.
                while !stop.load(Ordering::Relaxed) {
                    request(&heavy, in_place, Duration::from_millis(1));
                }
            });
        }
        thread::sleep(Duration::from_millis(50));
        let (begun, mut latencies) = (Instant::now(), Vec::new());
        while begun.elapsed() < time {
            let start = Instant::now();
            request(&light, work, Duration::from_millis(4));
            latencies.push(start.elapsed());
            thread::sleep(Duration::from_millis(25).saturating_sub(start.elapsed()));
        }
        stop.store(true, Ordering::Relaxed);
        latencies
    }))
}
