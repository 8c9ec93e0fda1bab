//! Hours of loads as in production: whom verdicts accuse, and whether they are right.
//!
//! The requests are given to a [model](super::model) of a server, which says for each second who is
//! harmed and who is to blame. The judge sees what the page's sampler would see.
//!
//! With `SUBMETER_VERDICT_SEEDS=0..40` other seeds are tried than the usual ones, as `.ci/proof
//! verdicts` does in a release build.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use fastrand::Rng;

use super::Server;
use super::model::{Demand, Model, Truth, normal};

const HOUR: usize = 3600;

/// One hour of each load: of seeds 0 to 2, the one with the most to report. The judge was never
/// changed for its results in these three.
const SEEDS: Range<u64> = 2..3;

/// A verdict is reported from its second second on, and for three more after it is over.
const LATE: usize = 6;

/// A tenant to blame must be named after this many seconds.
const SOON: usize = 4;

/// An accusation that returns within this many seconds flaps: a reader takes it for news.
const FLAPS: usize = 5;

/// What the tenants of an hour do.
struct Load {
    name: &'static str,
    tenants: usize,
    /// Returns what a tenant does in a second, before chance is applied.
    of: fn(tenant: usize, second: usize, seed: u64) -> Demand,
    /// The second in which the server restarts, with an empty memory.
    restarts: Option<usize>,
}

/// Returns the same randomness for the same seed and two integers.
fn chance(seed: u64, [a, b]: [usize; 2]) -> Rng {
    Rng::with_seed((seed << 32) ^ ((a as u64) << 16) ^ b as u64)
}

/// A day in an hour. A few tenants do most, each at its own time of day. Now and then all customers
/// of one come at once, and some tenants request everything that they need once a second.
fn day(n: usize, second: usize, seed: u64) -> Demand {
    let skew = [0.8, 1.1, 1.6][seed as usize % 3];
    let share = 1.0 / ((n + 1) as f64).powf(skew);
    let phase = second as f64 / HOUR as f64 * std::f64::consts::TAU + n as f64 / 8.0;
    let size = [25_000.0, 40_000.0, 62_000.0][seed as usize % 3];
    let mut demand = Demand::new(size * share * (1.1 + phase.sin()), 2e8 * share + 1e6);
    // Every four minutes one of the larger ones, for up to a minute.
    let mut crowd = chance(seed, [99, second / 240]);
    let (who, lasts) = ((crowd.f64() * 8.0) as usize, 5 + (crowd.f64() * 55.0) as usize);
    if n == who && (60..60 + lasts).contains(&(second % 240)) {
        demand.rate *= 2.0 + 6.0 * crowd.f64();
    }
    demand.at_once = n > 10 && n % 7 == 5;
    demand
}

/// Jobs that start at the minute, each as fast as answers come. Some have few requests in flight
/// and do no harm, some have hundreds, and some store items that no client requests.
fn jobs(n: usize, second: usize, seed: u64) -> Demand {
    if n < 8 {
        let mut job = Demand::new(0.0, 5e7);
        let mut own = chance(seed, [n, 1]);
        let every = [60, 60, 120, 300][(own.f64() * 4.0) as usize];
        let lasts = 5.0 + own.f64() * 30.0;
        let in_flight = 2f64.powf(own.f64() * 11.0);
        job.work_s = 5e-6 * 2f64.powf(own.f64() * 5.0);
        job.scans = n % 4 == 3;
        job.item = 200.0 * 2f64.powf(own.f64() * 5.0);
        if ((second % every) as f64) < lasts {
            job.in_flight = in_flight;
        }
        return job;
    }
    Demand::new(24_000.0 / (n - 6) as f64, 4e8 / (n - 6) as f64)
}

/// Deploys: a tenant's clients are gone for some seconds, return all at once, and request other
/// keys; or its items are deleted. Every tenant has some of these in an hour.
fn deploys(n: usize, second: usize, seed: u64) -> Demand {
    let share = 1.0 / ((n + 1) as f64).powf([0.7, 1.0, 1.5][seed as usize % 3]);
    let mut demand =
        Demand::new([22_000.0, 40_000.0, 62_000.0][seed as usize % 3] * share, 3e8 * share + 1e6);
    let mut own = chance(seed, [n, second / 600]);
    let (at, gone) = ((own.f64() * 400.0) as usize, 3 + (own.f64() * 30.0) as usize);
    let since = (second % 600).wrapping_sub(at);
    demand.renews = since == gone;
    demand.flushes = own.f64() < 0.3 && since == gone;
    if since < gone {
        demand.rate = 0.0;
    } else if since < gone + 6 {
        demand.rate *= 2.5;
    }
    demand
}

/// The results of an hour.
#[derive(Debug, Default)]
struct Shown {
    /// Accusations, one a second, and those of them that were right.
    accused: usize,
    rightly: usize,
    /// Seconds in which a tenant was harmed and another to blame for some seconds, and those of
    /// them in which one to blame was named.
    harmed: usize,
    named: usize,
    /// Accusations that began, and those of them that flapped.
    began: usize,
    flapped: usize,
    /// The second in which each tenant was last accused, if it was.
    last: Vec<Option<usize>>,
    /// Wrong accusations, and what was reported at each miss.
    wrong: Vec<String>,
    missed: Vec<String>,
}

impl Shown {
    /// Compares the verdicts with the truth, now and in the seconds before, newest first.
    fn compare(&mut self, server: &Server, past: &VecDeque<Vec<Truth>>, second: usize, at: &str) {
        let accused = server.verdicts.marks.iter().filter(|(_, kind)| kind.is_blame());
        let accused: Vec<usize> = accused.map(|(id, _)| *id as usize - 1).collect();
        let is_so = |&n: &usize| {
            past.iter().any(|of| {
                let is_other = |(m, of): (usize, &Truth)| m != n && of.may_be_harmed;
                of[n].may_be_to_blame && of.iter().enumerate().any(is_other)
            })
        };
        for &n in &accused {
            let ago = self.last[n].replace(second).map(|last| second - last);
            self.began += usize::from(ago != Some(1));
            self.flapped += usize::from(ago.is_some_and(|ago| (2..=FLAPS).contains(&ago)));
        }
        let said = || format!("{at}, second {second}: {:?}", server.said());
        let rightly = accused.iter().filter(|n| is_so(n)).count();
        self.accused += accused.len();
        self.rightly += rightly;
        if rightly < accused.len() {
            self.wrong.push(said());
        }
        let is_sure = |of: &Vec<Truth>| {
            of.iter().any(|of| of.is_harmed) && of.iter().any(|of| of.is_to_blame)
        };
        if past.len() >= SOON && past.iter().take(SOON).all(is_sure) {
            self.harmed += 1;
            match accused.iter().any(is_so) {
                true => self.named += 1,
                false => self.missed.push(said()),
            }
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown { accused, rightly, harmed, named, began, flapped, .. } = self;
        write!(f, "{rightly} of {accused} rightly, {named} of {harmed} named, ")?;
        write!(f, "{flapped} of {began} flapped")
    }
}

fn hour(load: &Load, seed: u64) -> Shown {
    let Load { name, tenants, of, restarts } = *load;
    let (mut model, mut server) = (Model::new(tenants, seed), Server::new([]));
    server.names = (0..tenants).map(|n| &*format!("/t{n:02}").leak()).collect();
    let (mut noise, mut shown) = (Rng::with_seed(!seed), Shown::default());
    shown.last = vec![None; tenants];
    let mut drift = vec![0.0; tenants];
    let mut past: VecDeque<Vec<Truth>> = VecDeque::new();
    // The part of their time that the workers are given, and for how many more seconds.
    let mut given = (1.0, 0);
    for second in 0..HOUR {
        if restarts == Some(second) {
            model.restart();
            server.restart();
        }
        if given.1 == 0 {
            // Now and then the machine has other work.
            let is_busy = noise.f64() < 1.0 / 200.0;
            given = match is_busy {
                true => (0.1 + 0.4 * noise.f64(), 1 + (noise.f64() * 4.0) as usize),
                false => (1.0, 1),
            };
        }
        given.1 -= 1;
        let mut demand = |n: usize| {
            let demand = of(n, second, seed);
            drift[n] = 0.8 * drift[n] + 0.2 * normal(&mut noise);
            Demand { rate: demand.rate * (1.0 + drift[n]).max(0.1), ..demand }
        };
        let demands: Vec<Demand> = (0..tenants).map(&mut demand).collect();
        let (seconds, truths): (Vec<_>, Vec<_>) =
            model.second(&demands, given.0).into_iter().unzip();
        server.second(&seconds);
        past.push_front(truths);
        past.truncate(LATE);
        shown.compare(&server, &past, second, &format!("{name}, seed {seed}"));
    }
    shown
}

/// Asserts that no tenant is accused wrongly in hours of some seeds, and that one to blame is named
/// in at least a part of the seconds in which there is one. Some are not named: a tenant that takes
/// a fifth of all in an overload that all others together make is left alone. With other seeds, a
/// fifth fewer need a name.
fn expect(load: Load, named: f64) {
    let mut all = Shown::default();
    let asked = seeds();
    for seed in asked.clone().unwrap_or(SEEDS) {
        let of = hour(&load, seed);
        println!("{} {seed}: {of}", load.name);
        all = Shown {
            accused: all.accused + of.accused,
            rightly: all.rightly + of.rightly,
            harmed: all.harmed + of.harmed,
            named: all.named + of.named,
            began: all.began + of.began,
            flapped: all.flapped + of.flapped,
            last: Vec::new(),
            wrong: [all.wrong, of.wrong].concat(),
            missed: [all.missed, of.missed].concat(),
        };
    }
    println!("{}, all: {all}", load.name);
    let some = |of: &[String]| of.iter().step_by(of.len() / 9 + 1).cloned().collect::<Vec<_>>();
    let named = if asked.is_some() { 0.8 * named } else { named };
    assert!(all.wrong.is_empty(), "{} wrong, such as {:#?}", all.wrong.len(), some(&all.wrong));
    let part = all.named as f64 / all.harmed as f64;
    assert!(part >= named, "{part} named, and not, such as, {:#?}", some(&all.missed));
    assert!(all.rightly > 0, "nothing to say");
}

fn seeds() -> Option<Range<u64>> {
    let asked = std::env::var("SUBMETER_VERDICT_SEEDS").ok()?;
    let seeds = asked.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    Some(seeds.unwrap_or_else(|| panic!("{asked:?}: wanted as 100..120")))
}

#[test]
fn hours_like_a_day_accuse_nobody_wrongly() {
    expect(Load { name: "a day", tenants: 24, of: day, restarts: None }, 0.7);
}

/// Hours of jobs at the minute accuse nobody wrongly.
#[test]
fn hours_of_jobs_accuse_nobody_wrongly() {
    expect(Load { name: "jobs", tenants: 20, of: jobs, restarts: None }, 0.95);
}

/// Hours of deploys and a restart accuse nobody wrongly.
#[test]
fn hours_of_deploys_accuse_nobody_wrongly() {
    expect(Load { name: "deploys", tenants: 16, of: deploys, restarts: Some(1800) }, 0.5);
}
