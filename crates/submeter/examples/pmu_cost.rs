//! Measures what it costs to read a thread's events at a switch, by each way there is, interleaved
//! in one thread.
//!
//! Run with `cargo run --release -p submeter --example pmu_cost`; it takes some seconds.

use std::hint::black_box;
use std::time::Instant;

use submeter::perf::{Event, Handle, Pmu, ThreadPmu, parse};
use submeter_sys::clock::ThreadClock;
use submeter_sys::perf_event::{self, Config};

const ROUNDS: usize = 300;
const MOMENTS: u32 = 500;

type Case = Box<dyn FnMut()>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut clock = ThreadClock::new();
    let mut cases: Vec<(String, Case)> = vec![
        ("one read of the clock".to_owned(), Box::new(move || _ = black_box(clock.now_ns()))),
        ("a moment without events".to_owned(), Box::new(moments(Vec::new(), ThreadPmu::new()))),
    ];
    for list in [
        "task-clock",
        "task-clock,task-clock",
        "context-switches",
        "context-switches,cpu-migrations",
        "page-faults:u",
        "page-faults:u,page-faults:u,page-faults:u,page-faults:u",
        "page-faults:u,minor-faults:u",
        "page-faults:u,minor-faults:u,major-faults:u,alignment-faults:u",
        "cycles:u",
        "cycles:u,instructions:u",
    ] {
        let groups = parse(list)?;
        let events: Vec<&Event> = groups.iter().flat_map(|group| group.events()).collect();
        let mut pmu = ThreadPmu::new();
        let handles = events.iter().map(|event| pmu.prepare(event)).collect::<Result<Vec<_>, _>>();
        match handles {
            Ok(handles) => {
                assert!(pmu.place(&handles), "{list}: no counter is free");
                cases.push((list.to_owned(), Box::new(moments(handles, pmu))));
            }
            Err(refused) => println!("skipped: {refused}"),
        }
    }
    for (name, numbers) in [
        ("page-faults, by a system call each", &[2u64][..]),
        ("page-, minor-, major-, alignment-faults, likewise", &[2, 5, 6, 7]),
    ] {
        let open = |&number| {
            perf_event::Event::open(&Config::new(perf_event::TYPE_SOFTWARE, number), None)
        };
        let files = numbers.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let read_all = move || files.iter().for_each(|file| _ = black_box(file.read()));
        cases.push((name.to_owned(), Box::new(read_all)));
    }
    measure(cases);
    Ok(())
}

/// Reads all events of a moment, each once.
fn moments(handles: Vec<Handle>, mut pmu: ThreadPmu) -> impl FnMut() {
    let mut now_ns = 0;
    move || {
        now_ns += 1;
        pmu.begin(now_ns);
        for &handle in &handles {
            black_box(pmu.read(handle));
        }
    }
}

fn measure(mut cases: Vec<(String, Case)>) {
    let mut samples = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for ((_, case), samples) in cases.iter_mut().zip(&mut samples) {
            let start = Instant::now();
            for _ in 0..MOMENTS {
                case();
            }
            samples.push(start.elapsed().as_nanos() as f64 / f64::from(MOMENTS));
        }
    }
    for ((name, _), mut samples) in cases.into_iter().zip(samples) {
        samples.sort_by(f64::total_cmp);
        let (least, median) = (samples[0], samples[ROUNDS / 2]);
        println!("{name:<65} {least:>8.2} {median:>8.2} ns (least, median)");
    }
}
