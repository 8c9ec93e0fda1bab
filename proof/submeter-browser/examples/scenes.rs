//! Takes pictures of the page in every scene that a verdict is made for, for inspection.
//!
//! `cargo run -p submeter-browser --features long --example scenes -- DIRECTORY`
//!
//! Each scene on a desktop and on a phone, in the light and the dark scheme. What tenants do is
//! added to their metrics, so that a scene looks the same on any machine.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, fs, future};

use serde_json::json;
use submeter::{Bytes, Charge, Count, Counter, Group, Nanoseconds, Quota, Rate, RateLimit};
use submeter::{Schema, Tree};
use submeter_browser::Browser;
use submeter_http::wire::{CellDoc, LimitDoc, Placement, Shape};
use submeter_http::{Column, Dashboard, Panel, View, Views, Worse};
use tokio::net::TcpListener;

const TICK: Duration = Duration::from_millis(100);

/// Number of bytes that change hands in a tick: no cache loses everything at once.
const MOVES: u64 = 2 << 20;

/// Duration of each half of a scene.
const BEFORE: Duration = Duration::from_secs(8);
const AFTER: Duration = Duration::from_secs(5);

/// What a tenant does: requests per second, CPUs, hits, milliseconds that a request waits, MiB.
type Does = (f64, f64, f64, f64, u64);

struct Scene {
    name: &'static str,
    /// Each tenant, and what it does before and after.
    tenants: &'static [(&'static str, Does, Does)],
    /// Requests per second that the first tenant may make, and MiB that it may hold.
    rate: Option<u64>,
    limit: Option<u64>,
    learns: bool,
}

/// A message of a server of a fleet.
const LEARNS: &str = "The bank was restarted and is learning what was lent before: for about the \
                      length of a lease it lends nothing new, and refuses requests that need more \
                      (--bank).";

const SCENE: Scene = Scene { name: "", tenants: &[], rate: None, limit: None, learns: false };
const WEB: Does = (3000.0, 0.2, 0.95, 0.01, 30);
const API: Does = (900.0, 0.1, 0.85, 0.02, 12);

const SCENES: [Scene; 10] = [
    Scene {
        name: "burst",
        tenants: &[
            ("/shop/batch", (300.0, 0.02, 0.5, 0.01, 9), (9000.0, 1.5, 0.5, 4.0, 11)),
            ("/shop/web", WEB, (1100.0, 0.1, 0.95, 6.0, 30)),
            ("/bank/api", API, API),
        ],
        ..SCENE
    },
    Scene {
        name: "steady-hog",
        tenants: &[
            ("/load/tenant1", (301e3, 1.7, 0.9, 20.0, 40), (301e3, 1.7, 0.9, 20.0, 40)),
            ("/quiet", (70.0, 0.001, 0.9, 12.6, 1), (70.0, 0.001, 0.9, 12.6, 1)),
        ],
        ..SCENE
    },
    Scene {
        name: "cache-thief",
        tenants: &[
            ("/crawler", (800.0, 0.1, 0.4, 0.01, 8), (900.0, 0.1, 0.4, 0.01, 52)),
            ("/shop/web", (1000.0, 0.1, 0.95, 0.01, 50), (1000.0, 0.1, 0.41, 0.01, 6)),
        ],
        ..SCENE
    },
    Scene {
        name: "cpu-thief",
        tenants: &[
            ("/reports", (90.0, 0.1, 0.9, 0.01, 5), (100.0, 1.5, 0.9, 0.01, 5)),
            ("/shop/web", WEB, (2900.0, 0.2, 0.95, 5.0, 30)),
            ("/bank/api", API, (880.0, 0.1, 0.85, 7.0, 12)),
        ],
        ..SCENE
    },
    Scene {
        name: "at-its-limit",
        tenants: &[("/acme/web", WEB, WEB), ("/bank/api", API, API)],
        limit: Some(32),
        ..SCENE
    },
    Scene {
        name: "over-its-rate",
        tenants: &[
            ("/acme/web", (8770.0, 0.1, 0.9, 0.01, 20), (8770.0, 0.1, 0.9, 0.01, 20)),
            ("/bank/api", API, API),
        ],
        rate: Some(1000),
        ..SCENE
    },
    Scene { name: "fleet-learns", tenants: &[("/acme/web", WEB, WEB)], learns: true, ..SCENE },
    Scene {
        name: "healthy-even",
        tenants: &[("/acme/web", WEB, WEB), ("/bank/api", API, API), ("/shop/web", WEB, WEB)],
        ..SCENE
    },
    Scene {
        name: "healthy-one-is-large",
        tenants: &[
            ("/acme/web", (50e3, 0.9, 0.97, 0.02, 48), (50e3, 0.9, 0.97, 0.02, 48)),
            ("/bank/api", API, API),
        ],
        ..SCENE
    },
    Scene {
        name: "healthy-comes-and-goes",
        tenants: &[
            ("/acme/web", WEB, WEB),
            ("/nightly/export", (0.0, 0.0, 0.0, 0.0, 0), (900.0, 0.1, 0.7, 0.01, 4)),
        ],
        ..SCENE
    },
];

/// The tenants' metrics.
#[derive(Clone, Copy)]
struct Metrics {
    requests: Counter<Count>,
    hits: Counter<Count>,
    cpu: Counter<Nanoseconds>,
    waited: Counter<Nanoseconds>,
    memory: Quota<Bytes>,
    over: RateLimit<Count>,
}

fn views(m: Metrics) -> Views {
    Views::new(vec![
        View::rate("requests_per_s", "Requests/s", [m.requests]).within("rate").contended(),
        View::rate_limit("rate", "Rate limit", m.over).place(Placement::Nowhere),
        View::ratio("hit_ratio", "Hits", m.hits, [m.requests]).worse(Worse::Low),
        View::rate("cpu_cores", "CPU", [m.cpu]).contended(),
        View::held("memory_bytes", "Memory", m.memory).within("memory_limit").contended(),
        View::limit("memory_limit", "Memory limit", m.memory).place(Placement::Nowhere),
        View::refusals("refused_per_s", "Over limit/s", m.memory)
            .noun("over its memory")
            .refused_by("memory_limit")
            .place(Placement::Table)
            .trouble(),
        View::rate("over_rate_per_s", "Over rate/s", [m.over.throttled()])
            .noun("over its rate")
            .refused_by("rate")
            .place(Placement::Table)
            .trouble(),
        View::mean("wait_ns", "Wait", m.waited, [m.requests])
            .wait_for("work_ns")
            .place(Placement::Detail),
        View::mean("work_ns", "Work", m.cpu, [m.requests]).place(Placement::Detail),
    ])
}

/// Makes a tenant do its work of one tick.
fn act(group: &Group, m: Metrics, does: Does, held: &mut Option<Charge>) {
    let (rate, cores, hits, wait_ms, mib) = does;
    let seconds = TICK.as_secs_f64();
    let requests = (rate * seconds).round();
    group.add(m.requests, requests as u64);
    group.add(m.hits, (requests * hits) as u64);
    group.add(m.cpu, (cores * 1e9 * seconds) as u64);
    group.add(m.waited, (requests * wait_ms * 1e6) as u64);
    if group.rate(m.over).is_some() {
        for _ in 0..requests as u64 {
            // What exceeds it is counted.
            _ = group.try_take(m.over, 1);
        }
    }
    let usage = group.usage(m.memory);
    let wanted = usage.limit.unwrap_or(mib << 20);
    let now = held.take().map_or(wanted, |_| usage.current);
    let bytes = wanted.clamp(now.saturating_sub(MOVES), now + MOVES);
    *held = Some(group.charge_forced(m.memory, bytes));
    if group.usage(m.memory).limit.is_some() {
        group.try_charge(m.memory, 4096).expect_err("all is held");
    }
}

/// Shows the tree of a scene.
fn dashboard(scene: &Scene, tree: &Tree, metrics: Metrics) -> Dashboard {
    let mut shown = Dashboard::new("submeter", tree)
        .version("0.1.0")
        .listen("127.0.0.1:11211")
        .views(views(metrics))
        .remedies("rate=500/s", |offence| {
            let requests = offence.figure("requests_per_s").filter(|_| offence.kind.is_blame())?;
            Some(format!("rate={:.0}/s", requests / 2.0))
        })
        .on_limit(async |path, limits: String| Ok(LimitDoc { path, limits, undo: "none".into() }));
    if scene.learns {
        shown = shown.notice(|| Some(LEARNS.to_owned()));
        let columns = vec![
            Column::label("bank", "Bank"),
            Column::state("state", "State", "Whether it lends", &["lends", "learns", "away"]),
            Column::gauge("lent", "Lent", "What it has lent to this server"),
        ];
        let row = || {
            let state = CellDoc::from("learns");
            vec!["redis://10.0.0.7".into(), state, CellDoc::figure(0, Shape::Bytes)]
        };
        shown = shown.panel(Panel::new("fleet", "Fleet", columns).rows(move || vec![row()]));
    }
    shown
}

async fn show(scene: &Scene, browser: &Browser, directory: &str) -> Result<(), Box<dyn Error>> {
    let mut s = Schema::builder();
    let metrics = Metrics {
        requests: s.counter("requests", "Requests answered"),
        hits: s.counter("hits", "Requests that found an item"),
        cpu: s.counter("cpu", "Time of processors"),
        waited: s.counter("waited", "Time that requests waited"),
        memory: s.quota("memory", "Memory held"),
        over: s.rate_limit("over", "Requests over the rate"),
    };
    let tree = Tree::new(s.build()?)?;
    let port = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}/", port.local_addr()?);
    let shown = dashboard(scene, &tree, metrics);
    let serving = tokio::spawn(async {
        submeter_http::serve(port, shown, future::pending()).await.expect("a listener");
    });
    let is_after = Arc::new(Mutex::new(false));
    let acting = tokio::spawn({
        let (is_after, tenants) = (is_after.clone(), scene.tenants);
        let (rate, limit) = (scene.rate, scene.limit);
        async move {
            let make = |path| tree.get_or_create(path).expect("a valid path");
            let groups: Vec<Group> = tenants.iter().map(|(path, ..)| make(*path)).collect();
            let rate = rate.map(|rate| Rate::new(rate, Duration::from_secs(1)));
            groups[0].set_rate(metrics.over, rate).expect("a rate in range");
            groups[0].set_limit(metrics.memory, limit.map(|mib| mib << 20));
            let mut held: Vec<Option<Charge>> = groups.iter().map(|_| None).collect();
            let mut next = Instant::now();
            loop {
                let is_after = *is_after.lock().expect("nobody panics with it");
                let tenants = groups.iter().zip(tenants).zip(&mut held);
                for ((group, (_, before, after)), held) in tenants {
                    act(group, metrics, if is_after { *after } else { *before }, held);
                }
                next += TICK;
                tokio::time::sleep_until(next.into()).await;
            }
        }
    });
    browser.open(&address).await?;
    tokio::time::sleep(BEFORE).await;
    *is_after.lock().expect("nobody panics with it") = true;
    tokio::time::sleep(AFTER).await;
    pictures(browser, &format!("{directory}/{}", scene.name)).await?;
    acting.abort();
    serving.abort();
    Ok(())
}

/// Takes a picture on each screen and in each scheme.
async fn pictures(browser: &Browser, name: &str) -> Result<(), Box<dyn Error>> {
    // A phone is scrolled: all of the page is looked at.
    for (width, height) in [(1400, 900), (390, 1300)] {
        browser.resize(width, height).await?;
        for scheme in ["light", "dark"] {
            let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
            let media = json!({ "features": features });
            browser.devtools("Emulation.setEmulatedMedia", media).await?;
            tokio::time::sleep(Duration::from_millis(600)).await;
            let file = format!("{name}-{width}-{scheme}.png");
            fs::write(file, browser.picture().await?)?;
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [directory] = &arguments[..] else { return Err("wanted: a directory".into()) };
    fs::create_dir_all(directory)?;
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    for scene in &SCENES {
        show(scene, &browser, directory).await?;
    }
    browser.close().await
}
