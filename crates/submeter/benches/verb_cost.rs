//! What each verb costs on one thread, in nanoseconds.
//!
//! `cargo bench -p submeter --bench verb_cost [rounds]`
//!
//! Every verb is measured once a round, so that what disturbs the machine disturbs all.

use std::cell::Cell;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use submeter::admission::Admission;
use submeter::switch::{InGroup, TimeSlice};
use submeter::{
    Buckets, Bytes, Charge, Count, Counter, Gauge, Group, Histogram, LimitError, Metrics,
    Nanoseconds, Quota, Rate, RateLimit, Refusal, Schema, SchemaBuilder, Tree,
};

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

struct Keys {
    requests: Counter<Count>,
    sent: Counter<Bytes>,
    waiting: Gauge<Count>,
    latency: Histogram<Nanoseconds>,
    memory: Quota<Bytes>,
    rate: RateLimit<Count>,
}

impl Metrics for Keys {
    fn declare(schema: &mut SchemaBuilder) -> Keys {
        Keys {
            requests: schema.counter("requests", "Requests"),
            sent: schema.counter("sent", "Bytes sent"),
            waiting: schema.gauge("waiting", "Requests that wait"),
            latency: schema.histogram("latency", "Of answers", Buckets::LATENCY_NS),
            memory: schema.quota("memory", "Memory held"),
            rate: schema.rate_limit("rate", "Requests"),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args().skip(1).find(|it| it != "--bench");
    let rounds = rounds.map_or(Ok(ROUNDS), |rounds| rounds.parse())?.max(1);
    let mut schema = Schema::builder();
    let keys: Keys = schema.declare();
    let cpu = schema.cpu_time("cpu", "CPU time");
    let tree = Tree::new(schema.build()?)?;
    let web = tree.get_or_create("/acme/web")?;
    web.set_limit(keys.memory, Some(1 << 40));
    // Never used up, so that no take is refused.
    let rate = Rate { burst: 1 << 40, ..Rate::new(1 << 40, Duration::from_secs(1)) };
    web.set_rate(keys.rate, Some(rate))?;
    let names: Vec<String> = (0..1000).map(|n| format!("/acme/project-{n}")).collect();
    let _all = names.iter().map(|name| tree.get_or_create(name)).collect::<Result<Vec<_>, _>>()?;

    let next = Cell::new(0);
    let mut verbs = updates(&web, &keys);
    verbs.extend(charges(&tree, &web, &keys)?);
    verbs.extend(lookups_and_reads(&tree, &web, &keys, &names, &next));
    verbs.extend(data(&tree, &web)?);
    verbs.extend(futures(&web));
    verbs.extend(refusals(&tree, &web, &keys)?);
    let mut inside = checkpoints();
    for _ in 0..rounds {
        verbs.iter_mut().for_each(Verb::sample);
        web.run(|| inside.iter_mut().for_each(Verb::sample));
    }
    verbs.extend(inside);
    println!("{:<32}{:>8}{:>9}  {:>15}", "ns", "least", "median", "middle half");
    for Verb { name, ns, .. } in &mut verbs {
        ns.sort_by(f64::total_cmp);
        let at = |quarter: usize| ns[(ns.len() - 1) * quarter / 4];
        println!("{name:<32}{:>8.1}{:>9.1}  {:>6.1} – {:<6.1}", at(0), at(2), at(1), at(3));
    }
    assert!(tree.root().sum(cpu) > 0, "the switch charged nothing");
    Ok(())
}

fn verb<'a>(name: &'static str, call: impl Fn() + 'a) -> Verb<'a> {
    Verb { name, call: Box::new(call), ns: Vec::new() }
}

fn updates<'a>(web: &'a Group, keys: &'a Keys) -> Vec<Verb<'a>> {
    vec![
        verb("a call alone", move || _ = black_box(web)),
        verb("add, a count", move || web.add(keys.requests, 1)),
        verb("add, 512 bytes", move || web.add(keys.sent, 512)),
        verb("add, 128 KiB of bytes", move || web.add(keys.sent, 1 << 17)),
        verb("adjust, up and down", move || {
            web.adjust(keys.waiting, 1);
            web.adjust(keys.waiting, -1);
        }),
        verb("set", move || web.set(keys.waiting, 7)),
        verb("record", move || web.record(keys.latency, 1_500_000)),
        verb("enter and leave", move || drop(web.enter())),
        verb("clone and drop", move || drop(black_box(web.clone()))),
    ]
}

fn charges<'a>(
    tree: &Tree,
    web: &'a Group,
    keys: &'a Keys,
) -> Result<Vec<Verb<'a>>, submeter::Error> {
    let free = tree.get_or_create("/acme/free")?;
    Ok(vec![
        verb("try_charge and its drop, 4 KiB", move || {
            _ = black_box(web.try_charge(keys.memory, 4096))
        }),
        verb("try_charge and its drop, 1 MiB", move || {
            _ = black_box(web.try_charge(keys.memory, 1 << 20));
        }),
        verb("try_take, one rate", move || _ = black_box(web.try_take(keys.rate, 1))),
        verb("try_take, no rate", move || _ = black_box(free.try_take(keys.rate, 1))),
        verb("try_admit, one rate", move || _ = black_box(web.try_admit(keys.rate))),
        verb("spend, one rate", move || web.spend(keys.rate, 1)),
    ])
}

/// Of a value that the group has, and of keys that the tree has.
fn data<'a>(tree: &Tree, web: &'a Group) -> Result<Vec<Verb<'a>>, submeter::Error> {
    let made = tree.get_or_create("/acme/made")?;
    web.data_or_init(|| 7u64)?;
    Ok(vec![
        verb("data and its drop", move || _ = black_box(web.data::<u64>())),
        verb("data_or_init, found", move || _ = black_box(web.data_or_init(|| 7u64))),
        verb("keys", move || _ = black_box(web.keys::<Keys>())),
        verb("create, data_or_init, kill", move || {
            let child = made.create_child("a").expect("the name is free");
            _ = black_box(child.data_or_init(|| 7u64));
            drop(child.kill());
        }),
        verb("create, kill", {
            let made = tree.get_or_create("/acme/made")?;
            move || _ = made.create_child("a").map(|child| child.kill())
        }),
    ])
}

/// Of futures that are ready at their first poll.
fn futures(web: &Group) -> Vec<Verb<'_>> {
    let turns = Admission::for_cpus();
    let other = turns.clone();
    vec![
        verb("in_group, polled once", move || poll_once(async {}.in_group(web))),
        verb("until_killed, polled once", move || {
            poll_once(async {}.in_group(web).until_killed());
        }),
        verb("acquire and its end", move || drop(turns.try_acquire(web))),
        verb("until_pending, polled once", move || {
            let place = other.try_acquire(web).expect("nothing waits");
            poll_once(place.until_pending(async {}));
        }),
    ]
}

fn poll_once(future: impl Future) {
    _ = black_box(pin!(future).poll(&mut Context::from_waker(Waker::noop())));
}

/// Of a charge that is refused, boxed and taken out of its box, and of one that replaces another.
fn refusals<'a>(
    tree: &Tree,
    web: &'a Group,
    keys: &'a Keys,
) -> Result<Vec<Verb<'a>>, submeter::Error> {
    let full = tree.get_or_create("/acme/full")?;
    full.set_limit(keys.memory, Some(10));
    let refused = move || full.try_charge(keys.memory, 11).expect_err("more than the limit");
    let boxed = move |error: LimitError| Refusal::downcast(Box::new(error));
    let held = Cell::new(web.try_charge(keys.memory, 4096).ok());
    let replaced = move |held: &mut Charge| {
        web.try_charge_replacing(keys.memory, 4000, Some(held)).expect("room")
    };
    Ok(vec![
        verb("try_charge, refused", {
            let refused = refused.clone();
            move || _ = black_box(refused())
        }),
        verb("try_charge, refused, downcast", move || _ = black_box(boxed(refused()))),
        verb("try_charge_replacing", move || {
            let mut old = held.take().expect("there is always one");
            held.set(Some(replaced(&mut old)));
        }),
    ])
}

/// Of a slice that is never used up, in a group.
fn checkpoints() -> Vec<Verb<'static>> {
    const SLICE: TimeSlice = TimeSlice::new(Duration::from_secs(3600));
    vec![
        verb("should_yield", || _ = black_box(SLICE.should_yield())),
        verb("checkpoint, polled once", || poll_once(SLICE.checkpoint())),
    ]
}

fn lookups_and_reads<'a>(
    tree: &'a Tree,
    web: &'a Group,
    keys: &'a Keys,
    names: &'a [String],
    next: &'a Cell<usize>,
) -> Vec<Verb<'a>> {
    let name = move || {
        next.set((next.get() + 7) % names.len());
        &names[next.get()]
    };
    let root = tree.root();
    vec![
        verb("child", move || _ = black_box(root.child("acme"))),
        verb("get, two levels", move || _ = black_box(tree.get(name()))),
        verb("get_or_create, two levels", move || _ = black_box(tree.get_or_create(name()))),
        verb("read", move || _ = black_box(root.read(keys.requests))),
        verb("usage", move || _ = black_box(web.usage(keys.memory))),
        verb("add, then sum of the root", move || {
            web.add(keys.requests, 1);
            black_box(root.sum(keys.requests));
        }),
    ]
}
