//! Compares the sources of thread CPU time, interleaved in one process: what a question costs,
//! alone and with an update between two questions, how far answers are off, how far the sums of
//! tenants are that take turns on a thread, and what a source adds to each switch of a thread,
//! alone and with an interval of CPU time after each wait.
//!
//! Run with `cargo bench -p submeter-sys --bench clock_sources`, and with an argument for
//! so many threads that take the CPUs away; it takes some seconds.
#![expect(unsafe_code, reason = "the sequences and the counter are unsafe to call")]

use std::hint::black_box;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use submeter_sys::clock::{self, Source, ThreadClock};
use submeter_sys::memory::Reservation;
use submeter_sys::{Rseq, STRIDE, cpu};

const SOURCES: [Source; 3] = [Source::PerfPage, Source::Ticks, Source::Syscall];
const ROUNDS: usize = 200;
const QUESTIONS: u32 = 2_000;
const SWITCHES: u32 = 2_000;

fn main() {
    let busy: usize = std::env::args().skip(1).find_map(|n| n.parse().ok()).unwrap_or(0);
    for _ in 0..busy {
        std::thread::spawn(|| {
            loop {
                work(100);
            }
        });
    }
    let choice = clock::choice();
    println!("chosen: {}, because {}\n", choice.source.name(), choice.reason);
    let mut clocks: Vec<ThreadClock> =
        SOURCES.iter().filter_map(|&source| ThreadClock::on(source).ok()).collect();
    costs(&mut clocks);
    drop(clocks);
    for source in SOURCES {
        accuracy(source);
    }
    println!();
    for turns in &TURNS {
        for source in SOURCES {
            turns.compare(source);
        }
    }
    println!();
    switches();
}

/// What each of three tenants does in its turn, in µs of work and of sleep, to which the system
/// adds some 50; and what the thread does between two turns, if it does anything.
struct Turns {
    name: &'static str,
    tenants: [(u64, u64); 3],
    between: Option<(u64, u64)>,
}

const TURNS: [Turns; 6] = [
    Turns { name: "work", tenants: [(2, 0), (5, 0), (30, 0)], between: None },
    Turns { name: "one waits", tenants: [(5, 0), (5, 1), (10, 0)], between: None },
    Turns { name: "work between", tenants: [(5, 0), (2, 0), (30, 0)], between: Some((5, 0)) },
    Turns { name: "waits between", tenants: [(5, 0), (2, 0), (3, 0)], between: Some((0, 1)) },
    Turns { name: "waits in both", tenants: [(5, 0), (10, 40), (30, 0)], between: Some((2, 1)) },
    Turns { name: "mostly idle", tenants: [(5, 0), (100, 0), (30, 1)], between: Some((2, 2_000)) },
];

impl Turns {
    /// Compares what `source` tells of each tenant with the kernel's clock, asked at the same
    /// moments.
    fn compare(&self, source: Source) {
        let (Ok(mut clock), Ok(mut kernel)) =
            (ThreadClock::on(source), ThreadClock::on(Source::Syscall))
        else {
            return;
        };
        let act = |(us, sleep_us)| {
            work(us);
            if sleep_us > 0 {
                std::thread::sleep(Duration::from_micros(sleep_us));
            }
        };
        let (mut told, mut used) = ([0; 3], [0; 3]);
        let mut last = [kernel.now_ns(), clock.now_ns()];
        let start = Instant::now();
        for turn in 0.. {
            if start.elapsed().as_millis() >= 400 {
                break;
            }
            // In either order: the questions of the one are in the intervals of the other.
            let both = |first: &mut dyn FnMut() -> u64, second: &mut dyn FnMut() -> u64| {
                if turn % 2 == 0 {
                    [first(), second()]
                } else {
                    let second = second();
                    [first(), second]
                }
            };
            for (place, tenant) in self.tenants.into_iter().enumerate() {
                if let Some(between) = self.between {
                    act(between);
                    last = both(&mut || kernel.now_ns(), &mut || clock.begin_ns());
                }
                act(tenant);
                let now = both(&mut || kernel.now_ns(), &mut || clock.now_ns());
                used[place] += now[0] - last[0];
                told[place] += now[1] - last[1];
                last = now;
            }
        }
        let off = |told: u64, used: u64| (told as f64 / used as f64 - 1.0) * 100.0;
        let each = [0, 1, 2].map(|place| format!("{:+.2}", off(told[place], used[place])));
        let sum = off(told.iter().sum(), used.iter().sum());
        let (name, each) = (self.name, each.join(" "));
        println!("{name:<15} {:<45} off by {sum:+.2} % in sum, each {each}", source.name());
    }
}

/// Computes for about so many microseconds, of a CPU of this decade.
fn work(us: u64) {
    black_box((0..us * 1_000).map(black_box).sum::<u64>());
}

/// Minimum and median of the rounds, in ns a question.
fn costs(clocks: &mut [ThreadClock]) {
    let word = Word::new();
    let mut samples = vec![Vec::new(); 2 * clocks.len() + 2];
    for _ in 0..ROUNDS {
        samples[0].push(time(counter));
        samples[1].push(time(|| word.add()));
        for (i, clock) in clocks.iter_mut().enumerate() {
            samples[2 + 2 * i].push(time(|| clock.now_ns()));
            samples[3 + 2 * i].push(time(|| {
                word.add();
                clock.now_ns()
            }));
        }
    }
    let mut names = vec!["the counter alone".to_owned(), "an update alone".to_owned()];
    for clock in clocks {
        names.push(clock.source().name().to_owned());
        names.push(format!("{}, an update between", clock.source().name()));
    }
    for (name, mut samples) in names.into_iter().zip(samples) {
        samples.sort_by(f64::total_cmp);
        println!("{name:<75} {:>7.2} {:>7.2} ns", samples[0], samples[ROUNDS / 2]);
    }
    println!();
}

fn time<T>(mut question: impl FnMut() -> T) -> f64 {
    let start = Instant::now();
    for _ in 0..QUESTIONS {
        black_box(question());
    }
    start.elapsed().as_nanos() as f64 / f64::from(QUESTIONS)
}

#[cfg(target_arch = "x86_64")]
fn counter() -> u64 {
    // SAFETY: 1. Every x86-64 CPU has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    0
}

/// One word for each CPU, updated by sequences where there are any.
struct Word {
    rows: Option<(Reservation, Rseq)>,
}

impl Word {
    fn new() -> Word {
        let reserve = |rseq: Rseq| {
            let rows = Reservation::new(rseq.cpus() as usize * STRIDE).ok()?;
            Some((rows, rseq))
        };
        Word { rows: Rseq::get().and_then(reserve) }
    }

    fn add(&self) -> u64 {
        let Some((rows, rseq)) = &self.rows else { return 0 };
        // SAFETY: 1. The word has a row for each CPU: reserved above. 2. Only this sequence writes
        // it.
        u64::from(unsafe { rseq.add(rows.base().as_ptr().cast(), 1) })
    }
}

/// How far answers are from the kernel's, while another thread takes the CPU now and then.
fn accuracy(source: Source) {
    let Ok(mut clock) = ThreadClock::on(source) else {
        println!("{:<75} cannot be had here", source.name());
        return;
    };
    let mut off = Vec::new();
    let start = Instant::now();
    while start.elapsed().as_millis() < 700 {
        let answer = clock.now_ns();
        off.push(clock::thread_cpu_ns().abs_diff(answer));
        for _ in 0..100 {
            black_box(clock.now_ns());
        }
    }
    off.sort_unstable();
    let at = |part: f64| off[((off.len() - 1) as f64 * part) as usize];
    println!(
        "{:<75} off by {} median, {} p99, {} p99.9, {} ns most, of {}",
        source.name(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
        off.len()
    );
}

/// What the thread that is timed does after each wait.
type Interval = fn(&mut ThreadClock) -> u64;

const INTERVALS: [(&str, Interval); 3] = [
    ("no interval", |_| 0),
    ("now to now", |clock| {
        let begin = clock.now_ns();
        clock.now_ns() - begin
    }),
    ("begin to now", |clock| {
        let begin = clock.begin_ns();
        clock.now_ns() - begin
    }),
];

/// Two threads of one CPU wake each other by pipes: what a switch of both costs, with and without a
/// clock.
fn switches() {
    let cases: Vec<_> =
        SOURCES.iter().flat_map(|&source| INTERVALS.map(|interval| (source, interval))).collect();
    let mut samples = vec![Vec::new(); cases.len()];
    for _ in 0..15 {
        for (samples, &(source, (_, interval))) in samples.iter_mut().zip(&cases) {
            samples.push(ping_pong(source, interval));
        }
    }
    for (mut samples, (source, (name, _))) in samples.into_iter().zip(cases) {
        samples.sort_by(f64::total_cmp);
        let name = format!("{}, {name}", source.name());
        println!("{name:<75} {:>7.0} {:>7.0} ns there and back", samples[0], samples[7]);
    }
}

fn ping_pong(source: Source, interval: Interval) -> f64 {
    let (mut ping_out, mut ping_in) = std::io::pipe().expect("pipes");
    let (mut pong_out, mut pong_in) = std::io::pipe().expect("pipes");
    let here = cpu::affinity().expect("readable")[..1].to_vec();
    let watched = move || {
        cpu::set_affinity(&here).expect("a CPU we were on");
        ThreadClock::on(source).ok()
    };
    let there = watched.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _clock = there();
            let mut byte = [0];
            while matches!(ping_out.read(&mut byte), Ok(1)) {
                pong_in.write_all(&byte).expect("open");
            }
        });
        let timed = scope.spawn(move || {
            let mut clock = watched();
            let start = Instant::now();
            for _ in 0..SWITCHES {
                ping_in.write_all(&[1]).expect("open");
                pong_out.read_exact(&mut [0]).expect("open");
                if let Some(clock) = &mut clock {
                    black_box(interval(clock));
                }
            }
            start.elapsed().as_nanos() as f64 / f64::from(SWITCHES)
        });
        timed.join().expect("no panic")
    })
}
