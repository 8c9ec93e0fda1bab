//! Charges DataFusion's memory pools, as its operators do: a reservation of each thread grows and
//! shrinks. Its protocol is described in `proof/submeter-peers/src/datafusion/process.rs`.
//!
//! Arguments: `greedy` or `fair`, for the pool; `far` or `limit`, for charges far from the limit or
//! with every second one refused; nanoseconds of a sample; charges between two clock reads; CPUs.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use datafusion_execution::memory_pool::{
    FairSpillPool, GreedyMemoryPool, MemoryConsumer, MemoryPool, MemoryReservation,
};
use submeter_sys::cpu::set_affinity;

/// The amount of one charge, in bytes, as in the bench.
const AMOUNT: usize = 64;

/// The measured pool.
struct Peer {
    /// Whether the pool gives each its share, for which its consumers must be able to spill.
    fair: bool,
    far: bool,
    sample: Duration,
    batch: u32,
    cpus: Vec<usize>,
    pool: Arc<dyn MemoryPool>,
}

/// The result of one thread in one sample.
struct Run {
    from: Instant,
    until: Instant,
    longest: Duration,
    asked: u64,
    granted: u64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = Peer::new(&arguments).and_then(|peer| serve(&peer));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("submeter-peer-datafusion: {why}: submeter-bench limits starts it");
            ExitCode::from(2)
        }
    }
}

/// Answers each line with a sample.
fn serve(peer: &Peer) -> Result<(), String> {
    let say = |line: &str| {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| error.to_string())
    };
    peer.run()?;
    say("ready")?;
    let (mut asked, mut granted) = (0, 0);
    for line in io::stdin().lock().lines() {
        line.map_err(|error| error.to_string())?;
        let runs = peer.run()?;
        let seconds = |run: &Run| (run.until - run.from).as_secs_f64();
        let rate: f64 = runs.iter().map(|run| run.asked as f64 / seconds(run)).sum();
        let longest = runs.iter().map(|run| run.longest).max().unwrap_or_default();
        let first = runs.iter().map(|run| run.from).min();
        let last = runs.iter().map(|run| run.from).max();
        let apart = first.zip(last).map(|(first, last)| last - first).unwrap_or_default();
        asked += runs.iter().map(|run| run.asked).sum::<u64>();
        granted += runs.iter().map(|run| run.granted).sum::<u64>();
        let (longest, apart) = (longest.as_nanos(), apart.as_nanos());
        say(&format!("{rate:.0} {longest} {apart} {asked} {granted}"))?;
    }
    Ok(())
}

impl Peer {
    fn new(arguments: &[String]) -> Result<Peer, String> {
        let [pool, case, sample_ns, batch, cpus @ ..] = arguments else {
            return Err("too few arguments".to_owned());
        };
        let number = |text: &String| text.parse().map_err(|_| format!("{text:?} is no number"));
        let cpus: Vec<usize> =
            cpus.iter().map(|cpu| number(cpu).map(|cpu| cpu as usize)).collect::<Result<_, _>>()?;
        let fair = pool == "fair";
        let far = case == "far";
        let bytes = match (far, fair) {
            (true, _) => 1 << 40,
            // A share of one charge for each consumer.
            (false, true) => AMOUNT * cpus.len(),
            (false, false) => AMOUNT,
        };
        let pool: Arc<dyn MemoryPool> = match fair {
            true => Arc::new(FairSpillPool::new(bytes)),
            false => Arc::new(GreedyMemoryPool::new(bytes)),
        };
        let sample = Duration::from_nanos(number(sample_ns)?);
        Ok(Peer { fair, far, sample, batch: number(batch)? as u32, cpus, pool })
    }

    /// Takes a sample on all CPUs.
    fn run(&self) -> Result<Vec<Run>, String> {
        let start = Barrier::new(self.cpus.len());
        // All of them before the first charge: a fair pool divides its memory among those it knows.
        let own = |n: usize| MemoryConsumer::new(format!("thread {n}")).with_can_spill(self.fair);
        let reservations: Vec<MemoryReservation> =
            (0..self.cpus.len()).map(|n| own(n).register(&self.pool)).collect();
        let runs: io::Result<Vec<Run>> = thread::scope(|scope| {
            let start = &start;
            let run = |(reservation, &cpu): (&MemoryReservation, &usize)| {
                // Not moved into the thread: `reservation` ends after all threads have.
                let reservation = reservation.new_empty();
                scope.spawn(move || {
                    let pinned = set_affinity(&[cpu]);
                    start.wait();
                    pinned.map(|()| self.sample(&reservation))
                })
            };
            let threads: Vec<_> = reservations.iter().zip(&self.cpus).map(run).collect();
            threads.into_iter().map(|thread| thread.join().expect("it panics nowhere")).collect()
        });
        let held = self.pool.reserved();
        match held {
            0 => runs.map_err(|error| error.to_string()),
            _ => Err(format!("{held} bytes are held after all was released")),
        }
    }

    fn sample(&self, reservation: &MemoryReservation) -> Run {
        let from = Instant::now();
        let mut run = Run { from, until: from, longest: Duration::ZERO, asked: 0, granted: 0 };
        while run.until - run.from < self.sample {
            run.granted += if self.far { self.pairs(reservation) } else { self.twos(reservation) };
            run.asked += u64::from(self.batch);
            let now = Instant::now();
            run.longest = run.longest.max(now - run.until);
            run.until = now;
        }
        run
    }

    /// Charges and releases; returns how often it was granted.
    fn pairs(&self, reservation: &MemoryReservation) -> u64 {
        let pair = || {
            let granted = reservation.try_grow(AMOUNT).is_ok();
            if granted {
                reservation.shrink(AMOUNT);
            }
            u64::from(granted)
        };
        (0..self.batch).map(|_| pair()).sum()
    }

    /// Charges where one charge fits, and again while it is held; returns how often it was granted.
    fn twos(&self, reservation: &MemoryReservation) -> u64 {
        let two = || {
            let first = reservation.try_grow(AMOUNT).is_ok();
            let second = reservation.try_grow(AMOUNT).is_ok();
            let granted = u64::from(first) + u64::from(second);
            reservation.free();
            granted
        };
        (0..self.batch / 2).map(|_| two()).sum()
    }
}
