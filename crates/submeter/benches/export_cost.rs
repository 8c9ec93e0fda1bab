//! What a scrape costs, in time and in size, of a tree of many tenants of whom few are busy, with
//! the brakes that an export has unless it is told otherwise.
//!
//! `cargo bench -p submeter --bench export_cost [groups] [busy]`
//!
//! Once with tenants who have all counted before, once with tenants of whom the others never have,
//! and with tenants who all hold something of a quota. Most of the time goes into a look at every
//! tenant's handle and at one of its totals, and depends on how many of these are in caches. The
//! samples are printed, in milliseconds, in order.

use std::time::Instant;

use submeter::export::Export;
use submeter::{
    Buckets, Bytes, Charge, Count, Counter, Group, Histogram, Nanoseconds, Quota, Schema, Tree,
};

const ROUNDS: usize = 31;

struct World {
    tree: Tree,
    tenants: Vec<Group>,
    requests: Counter<Count>,
    bytes: Counter<Bytes>,
    latency: Histogram<Nanoseconds>,
    memory: Quota<Bytes>,
    held: Vec<Charge>,
}

impl World {
    /// Of `groups` tenants, who all have counted if that is asked for.
    fn new(groups: usize, counted: bool) -> Result<World, Box<dyn std::error::Error>> {
        let mut schema = Schema::builder();
        let requests = schema.counter("requests", "Requests answered");
        let bytes = schema.counter("bytes_sent", "Bytes of answers");
        let latency = schema.histogram("latency", "Time to answer", Buckets::LATENCY_NS);
        schema.gauge::<Count>("queued", "Requests in the queue");
        let memory = schema.quota("memory", "Memory held");
        let tree = Tree::builder(schema.build()?).groups_max(groups + 2).build()?;
        let tenants: Result<Vec<_>, _> =
            (0..groups).map(|n| tree.get_or_create(&format!("/tenant-{n:06}"))).collect();
        let held = Vec::new();
        let world = World { tree, tenants: tenants?, requests, bytes, latency, memory, held };
        world.tenants.iter().filter(|_| counted).for_each(|tenant| world.serve(tenant, 1));
        Ok(world)
    }

    /// Has each tenant hold something.
    fn hold(mut self) -> Result<World, Box<dyn std::error::Error>> {
        for tenant in &self.tenants {
            self.held.push(tenant.try_charge(self.memory, 4096)?);
        }
        Ok(self)
    }

    fn serve(&self, tenant: &Group, requests: u64) {
        tenant.add(self.requests, requests);
        tenant.add(self.bytes, 1000 * requests);
        tenant.record_many(self.latency, 250_000, requests);
    }

    /// Prints the times of scrapes, and the size of the last.
    fn scrape(&self, what: &str, export: &Export, busy: usize) -> std::fmt::Result {
        let (mut ms, mut text) = (Vec::new(), String::new());
        for round in 0..ROUNDS {
            for tenant in self.tenants.iter().step_by((self.tenants.len() / busy).max(1)) {
                self.serve(tenant, 10 + round as u64);
            }
            text.clear();
            let start = Instant::now();
            export.write(&self.tree, &mut text)?;
            ms.push(start.elapsed().as_secs_f64() * 1e3);
        }
        let raw: Vec<String> = ms.iter().map(|ms| format!("{ms:.1}")).collect();
        ms.sort_by(f64::total_cmp);
        let [least, median, most] = [0, ROUNDS / 2, ROUNDS - 1].map(|at| ms[at]);
        println!("{what}: median {median:.1} ms, {least:.1} to {most:.1}, {} bytes", text.len());
        println!("  {}", raw.join(" "));
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).filter(|it| it != "--bench");
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |n| n.parse());
    let (groups, busy) = (number(100_000)?, number(100)?.max(1));
    println!("{groups} tenants, {busy} of them busy");
    let default = Export::new("app");
    World::new(groups, true)?.scrape("all have counted", &default, busy)?;
    World::new(groups, false)?.scrape("the others never have", &default, busy)?;
    let holding = World::new(groups, true)?.hold()?;
    let by_memory = Export::new("app").top(100, holding.memory);
    holding.scrape("all hold something", &Export::new("app"), busy)?;
    holding.scrape("chosen by what they hold", &by_memory, busy)?;
    Ok(())
}
