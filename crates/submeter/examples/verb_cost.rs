//! What each verb costs on one thread, in nanoseconds: those that the other examples leave out too.
//!
//! `cargo run --release -p submeter --example verb_cost [rounds]`
//!
//! Every verb is measured once a round, so that what disturbs the machine disturbs all.

use std::hint::black_box;
use std::time::{Duration, Instant};

use submeter::{Buckets, Bytes, Count, Nanoseconds, Rate, Schema, Tree};

const ROUNDS: usize = 500;
/// Calls of a sample.
const CALLS: u32 = 500;

struct Verb<'a> {
    name: &'static str,
    call: Box<dyn Fn() + 'a>,
    ns: Vec<f64>,
}

impl Verb<'_> {
    fn sample(&mut self) {
        let start = Instant::now();
        (0..CALLS).for_each(|_| (self.call)());
        self.ns.push(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(ROUNDS), |rounds| rounds.parse())?.max(1);
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests", "Requests");
    let sent = schema.counter::<Bytes>("sent", "Bytes sent");
    let waiting = schema.gauge::<Count>("waiting", "Requests that wait");
    let latency = schema.histogram::<Nanoseconds>("latency", "Of answers", Buckets::LATENCY_NS);
    let memory = schema.quota::<Bytes>("memory", "Memory held");
    let rate = schema.rate_limit::<Count>("rate", "Requests");
    let cpu = schema.cpu_time("cpu", "CPU time");
    let tree = Tree::new(schema.build()?)?;
    let (web, root) = (tree.get_or_create("/acme/web")?, tree.root());
    web.set_limit(memory, Some(1 << 40));
    // Never used up, so that no take is refused.
    web.set_rate(
        rate,
        Some(Rate { burst: 1 << 40, ..Rate::new(1 << 40, Duration::from_secs(1)) }),
    )?;
    let names: Vec<String> = (0..1000).map(|n| format!("/acme/project-{n}")).collect();
    let groups =
        names.iter().map(|name| tree.get_or_create(name)).collect::<Result<Vec<_>, _>>()?;
    let next = std::cell::Cell::new(0);
    let name = || {
        next.set((next.get() + 7) % names.len());
        &names[next.get()]
    };

    let verb = |name, call| Verb { name, call, ns: Vec::new() };
    let mut verbs: Vec<Verb<'_>> = vec![
        verb("a call alone", Box::new(|| _ = black_box(&web))),
        verb("add, a count", Box::new(|| web.add(requests, 1))),
        verb("add, 512 bytes", Box::new(|| web.add(sent, 512))),
        verb("add, 64 KiB of bytes", Box::new(|| web.add(sent, 1 << 16))),
        verb(
            "adjust, up and down",
            Box::new(|| {
                web.adjust(waiting, 1);
                web.adjust(waiting, -1);
            }),
        ),
        verb("set", Box::new(|| web.set(waiting, 7))),
        verb("record", Box::new(|| web.record(latency, 1_500_000))),
        verb(
            "try_charge and its drop, 4 KiB",
            Box::new(|| _ = black_box(web.try_charge(memory, 4096))),
        ),
        verb(
            "try_charge and its drop, 1 MiB",
            Box::new(|| _ = black_box(web.try_charge(memory, 1 << 20))),
        ),
        verb("try_take, one rate", Box::new(|| _ = black_box(web.try_take(rate, 1)))),
        verb("try_take, no rate", Box::new(|| _ = black_box(groups[0].try_take(rate, 1)))),
        verb("enter and leave", Box::new(|| drop(web.enter()))),
        verb("clone and drop", Box::new(|| drop(black_box(web.clone())))),
        verb("child", Box::new(|| _ = black_box(root.child("acme")))),
        verb("get, two levels", Box::new(|| _ = black_box(tree.get(name())))),
        verb("get_or_create, two levels", Box::new(|| _ = black_box(tree.get_or_create(name())))),
        verb("read", Box::new(|| _ = black_box(root.read(requests)))),
        verb("usage", Box::new(|| _ = black_box(web.usage(memory)))),
        verb(
            "add, then sum of the root",
            Box::new(|| {
                web.add(requests, 1);
                black_box(root.sum(requests));
            }),
        ),
    ];
    for _ in 0..rounds {
        verbs.iter_mut().for_each(Verb::sample);
    }
    println!("{:<32}{:>8}{:>9}  {:>15}", "ns", "least", "median", "middle half");
    for Verb { name, ns, .. } in &mut verbs {
        ns.sort_by(f64::total_cmp);
        let at = |quarter: usize| ns[(ns.len() - 1) * quarter / 4];
        println!("{name:<32}{:>8.1}{:>9.1}  {:>6.1} – {:<6.1}", at(0), at(2), at(1), at(3));
    }
    assert!(tree.root().sum(cpu) > 0, "the switch charged nothing");
    Ok(())
}
