//! A model of a cache server that knows what a fair server would have done.
//!
//! Requests of all tenants wait in one queue for the workers, and items of all tenants are dropped
//! from one memory, least recently used first. The same requests are also given to a server that
//! gives each tenant its part of the workers' time: a tenant that waits here and would not wait
//! there is harmed, and one that would also wait there asked for too much.

use std::collections::VecDeque;

use fastrand::Rng;

use super::Second;

const WORKERS: f64 = 2.0;

/// Maximum size of all items together.
const MEMORY: f64 = 1e9;

/// Steps per second.
const STEPS: usize = 20;
const STEP: f64 = 1.0 / STEPS as f64;

/// Time that a request spends on its way, during which its client sends no other.
const ROUND_TRIP: f64 = 1e-4;

/// Time after which clients give up.
const PATIENCE: f64 = 1.0;

/// For how long a loss or gain can be why a tenant finds less.
const LATELY: usize = 120;

/// What is felt, as the documentation of waits and hit ratios defines it.
const FELT_WAIT: f64 = 1e-3;
const FELT_TIMES: f64 = 10.0;
const FELT_LOST: f64 = 0.3;

/// A gain of this part of all memory takes what others lose.
const TAKEN: f64 = 0.1;

/// Factors on what is felt: above the first it is certain, below the second excluded, and between
/// them both answers are right.
const SURELY: f64 = 1.5;
const PERHAPS: f64 = 0.6;

/// Returns a number with mean 0 and deviation 1, roughly normal.
pub(super) fn normal(chance: &mut Rng) -> f64 {
    ((0..4).map(|_| chance.f64()).sum::<f64>() - 2.0) * 3f64.sqrt()
}

/// What a tenant's clients do in one second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// Requests a second of clients that do not wait for answers.
    pub(super) rate: f64,
    /// Requests that are always in flight, from clients that do.
    pub(super) in_flight: f64,
    /// Whether all requests of the second come at its start.
    pub(super) at_once: bool,
    pub(super) work_s: f64,
    /// Bytes of all items that it requests, and of one item.
    pub(super) keys: f64,
    pub(super) item: f64,
    /// Whether it stores what it never requests.
    pub(super) scans: bool,
    /// Whether it requests other keys than before, or no longer has any.
    pub(super) renews: bool,
    pub(super) flushes: bool,
}

impl Demand {
    pub(super) fn new(rate: f64, keys: f64) -> Demand {
        Demand {
            rate,
            in_flight: 0.0,
            at_once: false,
            work_s: 8e-6,
            keys,
            item: 500.0,
            scans: false,
            renews: false,
            flushes: false,
        }
    }
}

/// The truth about a tenant in one second, for certain and perhaps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Truth {
    pub(super) is_harmed: bool,
    pub(super) may_be_harmed: bool,
    pub(super) is_to_blame: bool,
    pub(super) may_be_to_blame: bool,
}

#[derive(Clone, Debug, Default)]
struct Tenant {
    /// Bytes of items that are still requested, and of those that no longer are.
    live: f64,
    stale: f64,
    /// Bytes per second that are requested, or stored for nothing.
    touched: f64,
    /// Whether it has asked for too much since all queues were last empty.
    filled_queues: bool,
    /// Seconds of work in the queue, here and on a server that shares fairly.
    queued: f64,
    queued_fairly: f64,
    /// What it found, held, lost to others and asked for in the seconds before.
    past: VecDeque<[f64; 4]>,
}

/// A server.
pub(super) struct Model {
    tenants: Vec<Tenant>,
    chance: Rng,
}

/// What a tenant had in one second.
#[derive(Clone, Copy, Debug, Default)]
struct Had {
    came: f64,
    served_s: f64,
    waited: f64,
    waited_fairly: f64,
    /// The steps in which a fair server could not have served it.
    wanted_too_much: f64,
    /// Seconds of work that it asked for.
    asked_s: f64,
}

impl Model {
    pub(super) fn new(tenants: usize, seed: u64) -> Model {
        Model { tenants: vec![Tenant::default(); tenants], chance: Rng::with_seed(seed) }
    }

    /// Forgets all items, as a new process does.
    pub(super) fn restart(&mut self) {
        self.tenants.fill(Tenant::default());
    }

    /// Lets a second pass in which the machine gives the workers a part of their time.
    pub(super) fn second(&mut self, demands: &[Demand], given: f64) -> Vec<(Second, Truth)> {
        let mut had = vec![Had::default(); demands.len()];
        for step in 0..STEPS {
            self.step(step, demands, WORKERS * given, &mut had);
        }
        let found = self.remember(demands, &had);
        let wait = self.tenants.iter().map(|tenant| tenant.queued).sum::<f64>();
        for (tenant, had) in self.tenants.iter_mut().zip(&had) {
            // The queue that it made outlasts its requests.
            tenant.filled_queues =
                wait > FELT_WAIT && (tenant.filled_queues || had.wanted_too_much > 0.0);
        }
        let second = demands.iter().zip(&had).zip(&self.tenants).zip(found);
        let seconds = second.map(|(((demand, had), tenant), hits)| Second {
            requests: had.served_s / demand.work_s,
            cores: had.served_s,
            hits,
            memory: tenant.live + tenant.stale,
            wait_ms: if had.came > 0.0 { had.waited / had.came * 1e3 } else { 0.0 },
            work_us: demand.work_s * 1e6,
            ..Second::default()
        });
        // Queues grow long before the whole time is taken.
        let excess = had.iter().map(|had| had.asked_s).sum::<f64>() - WORKERS * given * 0.9;
        let truths = had.iter().zip(demands).zip(&self.tenants);
        let truths = truths.map(|((had, demand), tenant)| truth(had, demand, tenant, excess));
        seconds.zip(truths).collect()
    }

    /// Lets the workers run for a step of a second.
    fn step(&mut self, step: usize, demands: &[Demand], workers: f64, had: &mut [Had]) {
        // Requests that come on their own.
        let came: Vec<f64> = demands
            .iter()
            .map(|demand| {
                let mean = match (demand.at_once, step) {
                    (true, 0) => demand.rate,
                    (true, _) => 0.0,
                    _ => demand.rate * STEP,
                };
                (mean + mean.sqrt() * normal(&mut self.chance)).max(0.0)
            })
            .collect();
        let open: f64 = came.iter().zip(demands).map(|(came, demand)| came * demand.work_s).sum();
        // Clients that wait for answers make a queue as long as what they have in flight: the wait
        // at which as much arrives as is done.
        let closed = |demand: &Demand, wait: f64| {
            demand.in_flight / (wait + demand.work_s + ROUND_TRIP) * STEP
        };
        let queued: f64 = self.tenants.iter().map(|tenant| tenant.queued).sum();
        let (mut low, mut high) = (0.0, 60.0);
        if demands.iter().any(|demand| demand.in_flight > 0.0) {
            for _ in 0..30 {
                let wait = f64::midpoint(low, high);
                let more = demands.iter().filter(|demand| demand.in_flight > 0.0);
                let more: f64 = more.map(|demand| closed(demand, wait) * demand.work_s).sum();
                let left = queued + open + more - workers * STEP;
                *(if left > wait * workers { &mut low } else { &mut high }) = wait;
            }
        } else {
            low = ((queued + open - workers * STEP) / workers).max(0.0);
        }
        let wait = low;
        let came: Vec<f64> =
            came.iter().zip(demands).map(|(came, demand)| came + closed(demand, wait)).collect();
        let work: f64 = came.iter().zip(demands).map(|(came, demand)| came * demand.work_s).sum();
        let busy = (work / (workers * STEP)).min(0.95);
        let mean_s = work / came.iter().sum::<f64>().max(1.0);
        // The queue at the start and at the end of the step, and that of chance collisions.
        let wait = f64::midpoint(queued / workers, wait) + mean_s * busy * busy / (1.0 - busy);
        let at_once: f64 = demands
            .iter()
            .zip(&came)
            .filter(|(demand, _)| demand.at_once)
            .map(|(demand, came)| came * demand.work_s / workers / 2.0)
            .sum();
        let done = ((queued + work).min(workers * STEP)) / (queued + work).max(1e-12);
        for (n, tenant) in self.tenants.iter_mut().enumerate() {
            let asked = came[n] * demands[n].work_s;
            had[n].came += came[n];
            let behind = if demands[n].at_once { at_once } else { 0.0 };
            had[n].waited += came[n] * (wait + behind);
            let served = (tenant.queued + asked) * done;
            had[n].served_s += served;
            tenant.queued = (tenant.queued + asked - served) * (PATIENCE / wait.max(PATIENCE));
        }
        self.share(&came, demands, workers, had);
    }

    /// Serves the same requests as a fair server would, with the time that the machine gives.
    fn share(&mut self, came: &[f64], demands: &[Demand], workers: f64, had: &mut [Had]) {
        // A tenant with many requests in flight would take whatever is left.
        let asks = |n: usize| {
            let Demand { in_flight, work_s, .. } = demands[n];
            (came[n] * work_s).max(in_flight / (work_s + ROUND_TRIP) * work_s * STEP)
        };
        let asked: Vec<f64> = (0..demands.len()).map(asks).collect();
        let wanted: Vec<f64> =
            asked.iter().zip(&self.tenants).map(|(asked, of)| asked + of.queued_fairly).collect();
        let served = fairly(&wanted, workers * STEP);
        for (n, tenant) in self.tenants.iter_mut().enumerate() {
            let (demand, had) = (demands[n], &mut had[n]);
            let waits = if demand.in_flight > 0.0 { 0.0 } else { wanted[n] - served[n] };
            tenant.queued_fairly = waits.min(PATIENCE);
            // Requests that come at once wait for each other, however fair the server is.
            let own = if demand.at_once { came[n] * demand.work_s / 2.0 } else { 0.0 };
            let pace = (served[n] / STEP).max(WORKERS / 2.0);
            had.waited_fairly += came[n] * (waits + own) / pace;
            had.asked_s += asked[n];
            had.wanted_too_much += f64::from(u8::from(served[n] < wanted[n] * 0.999));
        }
    }

    /// Changes what is held, and returns the hit ratios.
    fn remember(&mut self, demands: &[Demand], had: &[Had]) -> Vec<Option<f64>> {
        let mut stored = vec![0.0; demands.len()];
        let mut found = Vec::new();
        for (n, tenant) in self.tenants.iter_mut().enumerate() {
            let demand = demands[n];
            if demand.renews {
                tenant.stale += std::mem::take(&mut tenant.live);
            }
            if demand.flushes {
                (tenant.live, tenant.stale) = (0.0, 0.0);
            }
            let requests = had[n].served_s / demand.work_s;
            if demand.scans {
                stored[n] = requests * demand.item;
                tenant.stale += stored[n];
                tenant.touched = stored[n];
                found.push(None);
                continue;
            }
            // The most requested items are held first.
            let part = (tenant.live / demand.keys).min(1.0).powf(0.3) * 0.98;
            let lookups = (requests * 0.9).floor();
            let noise = (part * (1.0 - part) / lookups.max(1.0)).sqrt() * normal(&mut self.chance);
            let hits = (part + noise).clamp(0.0, 1.0);
            let missed = lookups * (1.0 - hits) * demand.item;
            let lacks = demand.keys - tenant.live;
            stored[n] = lacks * (1.0 - (-missed / lacks.max(1.0)).exp());
            tenant.live += stored[n];
            tenant.touched = requests * demand.item;
            found.push((lookups > 0.0).then_some(hits));
        }
        let lost = self.evict();
        for (n, tenant) in self.tenants.iter_mut().enumerate() {
            let by_others = (lost[n] - stored[n]).max(0.0);
            let held = tenant.live + tenant.stale;
            tenant.past.push_back([found[n].unwrap_or(f64::NAN), held, by_others, had[n].asked_s]);
            if tenant.past.len() > LATELY {
                tenant.past.pop_front();
            }
        }
        found
    }

    /// Drops the oldest items of all tenants until there is room. Returns how much each lost.
    fn evict(&mut self) -> Vec<f64> {
        let held: f64 = self.tenants.iter().map(|tenant| tenant.live + tenant.stale).sum();
        let excess = (held - MEMORY).max(0.0);
        // By size and age: items that are never requested grow older than anything else.
        let old = |tenant: &Tenant| {
            let age = (tenant.live / tenant.touched.max(1.0)).clamp(1.0, 600.0);
            [tenant.live * age, tenant.stale * 600.0]
        };
        let all: f64 = self.tenants.iter().flat_map(old).sum();
        let drop = |tenant: &mut Tenant| {
            let [live, stale] = old(tenant).map(|of| excess * of / all.max(1.0));
            let before = tenant.live + tenant.stale;
            tenant.live = (tenant.live - live).max(0.0);
            tenant.stale = (tenant.stale - stale).max(0.0);
            before - tenant.live - tenant.stale
        };
        self.tenants.iter_mut().map(drop).collect()
    }
}

/// Divides time: a tenant that needs less than its part leaves the rest to the others.
fn fairly(wanted: &[f64], time: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let (mut left, mut rest, mut served) = (time, wanted.len(), vec![0.0; wanted.len()]);
    for n in order {
        served[n] = wanted[n].min(left / rest as f64);
        (left, rest) = (left - served[n], rest - 1);
    }
    served
}

/// Says what a fair server would have done differently. `excess` is the work beyond what the
/// workers can do.
fn truth(had: &Had, demand: &Demand, tenant: &Tenant, excess: f64) -> Truth {
    let mean = |waited: f64| if had.came > 0.0 { waited / had.came } else { 0.0 };
    let too_much = had.wanted_too_much * STEP;
    let unfair = if too_much > 0.5 { 0.0 } else { mean(had.waited) - mean(had.waited_fairly) };
    let felt = FELT_WAIT.max(demand.work_s * FELT_TIMES);
    let past = |of: usize| tenant.past.iter().map(move |second| second[of]);
    let usual = |of: usize| {
        let mut past: Vec<f64> = past(of).filter(|past| !past.is_nan()).collect();
        let middle = past.len() / 2;
        if past.is_empty() {
            return 0.0;
        }
        *past.select_nth_unstable_by(middle, f64::total_cmp).1
    };
    let found = past(0).next_back().filter(|found| !found.is_nan()).unwrap_or(1.0);
    let (held, most) = (tenant.live + tenant.stale, past(1).fold(0.0, f64::max));
    let least = past(1).fold(f64::INFINITY, f64::min);
    let lost: f64 = past(2).sum::<f64>() / most.max(1.0);
    let misses = |so: f64| lost > FELT_LOST * so && found < usual(0) * (1.0 - FELT_LOST * so);
    let gained = |so: f64| held - least > TAKEN * so * MEMORY;
    // Without its increase over the usual, half of the excess would be gone; or without all of its
    // requests, the workers would be idle for a good part of their time.
    let is_why = || {
        let more = had.asked_s - usual(3);
        more > had.asked_s / 3.0 && more > excess / 2.0 || had.asked_s > excess + WORKERS * 0.4
    };
    Truth {
        is_harmed: unfair > felt * SURELY || misses(SURELY),
        may_be_harmed: unfair > felt * PERHAPS || misses(PERHAPS),
        is_to_blame: too_much > 0.5 || gained(SURELY),
        may_be_to_blame: too_much > 0.0
            || tenant.filled_queues
            || gained(PERHAPS)
            || excess > 0.0 && is_why(),
    }
}
