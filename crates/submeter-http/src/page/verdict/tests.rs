//! Scenes: what each tenant does second by second, and the sentences that must describe it.

mod hour;
mod limits;
mod model;
mod queues;
mod sentences;

use std::cell::Cell;
use std::time::{Duration, Instant};

use submeter::{Bytes, Count, Nanoseconds, Schema};

use super::super::dashboard::Remedy;
use super::super::history::History;
use super::super::sample::Row;
use super::super::views::{View, Views, Worse};
use super::super::wire::{Figure, Placement, VerdictDoc, VerdictKind};
use super::Verdicts;
use super::judge::Case;

thread_local! {
    static LOOKS: Cell<usize> = const { Cell::new(0) };
}

/// Counts that a tenant is looked at for the sake of another: what must not grow faster than the
/// number of tenants.
pub(super) fn look() {
    LOOKS.set(LOOKS.get() + 1);
}

/// What a tenant does in a second.
#[derive(Clone, Copy, Default)]
struct Second {
    requests: f64,
    cores: f64,
    hits: Option<f64>,
    memory: f64,
    wait_ms: f64,
    work_us: f64,
    over_rate: f64,
    over_limit: f64,
    no_room: f64,
    stalled: f64,
    weight: Option<f64>,
    rate: Option<f64>,
    limit: Option<f64>,
    protected: Option<f64>,
}

fn busy(requests: f64) -> Second {
    let (cores, work_us) = (requests / 1e4, 10.0);
    Second { requests, cores, hits: Some(0.9), memory: 1e6, work_us, ..Second::default() }
}

/// A server whose seconds the test makes.
struct Server {
    views: Views,
    history: History,
    verdicts: Verdicts,
    start: Instant,
    seconds: u64,
    names: Vec<&'static str>,
    /// What the root itself does.
    own: Second,
    remedy: Option<Remedy>,
}

impl Server {
    fn new<const N: usize>(names: [&'static str; N]) -> Server {
        Server::of(names, [|wait| wait.wait_for("work"), |over| over])
    }

    /// Makes one in which requests over their rate wait.
    fn delaying<const N: usize>(names: [&'static str; N]) -> Server {
        Server::of(names, [|wait| wait.wait_for("work"), View::delays])
    }

    /// Makes one that does not measure how long its requests wait.
    fn without_waits<const N: usize>(names: [&'static str; N]) -> Server {
        Server::of(names, [|wait| wait, |over| over])
    }

    fn of<const N: usize>(
        names: [&'static str; N],
        [wait, delays]: [fn(View) -> View; 2],
    ) -> Server {
        let mut s = Schema::builder();
        let [requests, hits, failed] =
            ["requests", "hits", "failed"].map(|name| s.counter::<Count>(name, ""));
        let [cpu, waited] = ["cpu", "waited"].map(|name| s.counter::<Nanoseconds>(name, ""));
        let memory = s.quota::<Bytes>("memory", "");
        let over = s.rate_limit::<Count>("over", "");
        s.build().expect("distinct names");
        let views = Views::new(vec![
            View::rate("requests", "Requests/s", [requests]).within("rate").contended(),
            View::rate("cpu", "CPU", [cpu]).contended(),
            View::ratio("hits", "Hits", hits, [requests]).worse(Worse::Low),
            View::held("memory", "Memory", memory)
                .within("limit")
                .protected_by("protected")
                .contended(),
            wait(View::mean("wait", "Wait", waited, [requests])).place(Placement::Detail),
            View::mean("work", "Work", cpu, [requests]).place(Placement::Nowhere),
            delays(
                View::rate("over", "Over rate/s", [over.throttled()])
                    .noun("over its rate")
                    .refused_by("rate")
                    .trouble()
                    .place(Placement::Table),
            ),
            View::refusals("full", "Over limit/s", memory)
                .noun("over its memory")
                .refused_by("limit")
                .trouble()
                .place(Placement::Table),
            View::rate("no_room", "No room/s", [failed])
                .noun("no room")
                .lacks("memory")
                .trouble()
                .place(Placement::Table),
            View::pressure("stalls", "Stalls", memory).place(Placement::Table),
            View::weight("weight", over),
            View::rate_limit("rate", "Rate", over).place(Placement::Nowhere),
            View::limit("limit", "Limit", memory).place(Placement::Nowhere),
            View::protection("protected", memory),
        ]);
        let (history, verdicts) = (History::new(views.clone()), Verdicts::default());
        let (start, names) = (Instant::now(), names.into());
        let (own, remedy) = (Second::default(), None);
        Server { views, history, verdicts, start, seconds: 0, names, own, remedy }
    }

    /// Starts over, as a program that knows nothing of the past.
    fn restart(&mut self) {
        self.history = History::new(self.views.clone());
        self.verdicts = Verdicts::default();
    }

    /// Lets one second pass.
    fn second(&mut self, tenants: &[Second]) {
        self.seconds += 1;
        let of = |n: f64| Figure(Some(n));
        let row = |id: u32, parent: Option<u32>, s: &Second| {
            let waits = [s.wait_ms * 1e6, s.work_us * 1e3].map(of);
            let figures = [of(s.requests), of(s.cores), Figure(s.hits), of(s.memory)];
            let limits = [
                of(s.over_rate),
                of(s.over_limit),
                of(s.no_room),
                of(s.stalled),
                Figure(s.weight),
                Figure(s.rate),
                Figure(s.limit),
                Figure(s.protected),
            ];
            Row { id, parent, figures: [&figures[..], &waits, &limits].concat().into() }
        };
        let names = self.names.clone();
        let is_below = |name: &str, level: &str| {
            name.strip_prefix(level).is_some_and(|rest| rest.starts_with('/'))
        };
        let is_level = |level: &str| names.iter().any(|name| is_below(name, level));
        let sum = |part: fn(&Second) -> f64, level: &str| {
            let tenants = names.iter().zip(tenants).filter(|(name, _)| is_below(name, level));
            tenants.filter(|(name, _)| !is_level(name)).map(|(_, s)| part(s)).sum::<f64>()
        };
        // What a level is given is its own, and also counts above it.
        let refused = |part: fn(&Second) -> f64, level: &str| {
            let below = names.iter().zip(tenants).filter(|(name, _)| is_below(name, level));
            below.map(|(_, s)| part(s)).sum::<f64>()
        };
        let whole = |level: &str, own: Second| Second {
            requests: sum(|s| s.requests, level),
            cores: sum(|s| s.cores, level),
            memory: sum(|s| s.memory, level),
            over_rate: own.over_rate + refused(|s| s.over_rate, level),
            over_limit: own.over_limit + refused(|s| s.over_limit, level),
            no_room: refused(|s| s.no_room, level),
            ..own
        };
        let mut rows = vec![row(0, None, &whole("", self.own))];
        for ((name, tenant), id) in names.iter().zip(tenants).zip(1..) {
            let parent = names.iter().rposition(|level| is_below(name, level));
            let parent = parent.map_or(0, |at| at as u32 + 1);
            let figures = if is_level(name) { whole(name, *tenant) } else { *tenant };
            rows.push(row(id, Some(parent), &figures));
        }
        self.history.push(self.start + Duration::from_secs(self.seconds), &rows, 0.0);
        let path = |row: usize| names[row - 1];
        let Server { views, history, verdicts, remedy, .. } = self;
        let remedy = remedy.as_ref();
        let case = Case { views, rows: &rows, window_s: 1.0, history, remedy };
        verdicts.take(self.seconds * 1000, case, path);
    }

    fn seconds(&mut self, n: u64, tenants: &[Second]) -> Vec<String> {
        for _ in 0..n {
            self.second(tenants);
        }
        self.said()
    }

    fn docs(&self) -> Vec<VerdictDoc> {
        self.verdicts.said(self.seconds * 1000)
    }

    fn said(&self) -> Vec<String> {
        let say = |doc: VerdictDoc| format!("{}{}", doc.group, doc.text).replace('\u{a0}', " ");
        self.docs().into_iter().map(say).collect()
    }

    fn why(&self) -> String {
        self.docs().remove(0).why.replace('\u{a0}', " ")
    }
}

/// A burst is named with its victim, and a tenant that recovers is not blamed.
#[test]
fn a_burst_is_named_with_whom_it_takes_from() {
    let mut server = Server::new(["/a", "/b", "/c"]);
    let calm = [3000.0, 400.0, 300.0].map(busy);
    let waits = Second { wait_ms: 3.0, ..busy(1000.0) };
    let burst = [waits, busy(400.0), busy(5000.0)];
    assert!(server.seconds(10, &calm).is_empty());
    for period in 0..9 {
        let said = server.seconds(3, &burst);
        let bursts = "/c bursts: 78 % of all requests and 78 % of CPU, 16.7 times its usual.";
        assert_eq!(said[0], bursts, "{period}");
        assert_eq!(
            said[1..],
            ["/a waits 3.00 ms a request, 300 times as long as its work."],
            "{period}"
        );
        let said = server.seconds(4, &calm);
        assert!(said[0].starts_with("/c burst: 78 %"), "held for some seconds: {said:?}");
        assert_eq!(said[1..], ["/a waited 3.00 ms a request, 300 times as long as its work."]);
        assert!(server.seconds(8, &calm).is_empty(), "over");
    }
    assert!(server.seconds(5, &[1000.0, 400.0, 300.0].map(busy)).is_empty(), "less to do");
    assert_eq!(server.verdicts.past.len(), 9 * 2);
}

#[test]
fn a_burst_is_twice_what_is_usual() {
    let waits = Second { wait_ms: 5.0, ..busy(1000.0) };
    let said = |times: f64| {
        let mut server = Server::new(["/a", "/b", "/c", "/d"]);
        server.seconds(20, &[busy(1000.0); 4]);
        server.seconds(3, &[busy(1000.0 * times), waits, waits, waits])[0].clone()
    };
    assert!(said(1.9).starts_with("/b waits"), "a good part, and no most: {}", said(1.9));
    assert!(said(2.1).starts_with("/a bursts: 41 % of all requests"), "{}", said(2.1));
}

#[test]
fn who_fills_room_that_was_left_took_nothing() {
    let mut server = Server::new(["/deletes", "/large"]);
    let memory = |memory: f64, hits: f64| Second { memory, hits: Some(hits), ..busy(1000.0) };
    server.seconds(20, &[memory(5e7, 0.95), memory(4e7, 0.9)]);
    for second in 1..20 {
        let large = memory(4e7 + 3e6 * f64::from(second), 0.9);
        let said = server.seconds(1, &[memory(1e7, 0.4), large]);
        assert!(said.is_empty(), "{said:?}");
    }
    // It loses a fourth to another, and then deletes the rest while the other gains.
    let mut server = Server::new(["/deletes", "/large"]);
    for second in 0..12 {
        let lost = 3.5e5 * f64::from(second);
        let said = server.seconds(1, &[memory(1.6e7 - lost, 0.95), memory(5e8 + lost, 0.9)]);
        assert!(said.is_empty(), "{said:?}");
    }
    let said = server.seconds(9, &[memory(2e6, 0.6), memory(5.1e8, 0.9)]);
    assert!(said.is_empty(), "{said:?}");
}

#[test]
fn other_work_of_the_machine_blames_no_tenant() {
    let said = |all: f64| {
        let mut server = Server::new(["/large", "/a", "/b"]);
        // It also holds most, which keeps no other waiting.
        let of = |part: f64| Second { cores: part, memory: part * 1e8, ..busy(1000.0) };
        server.seconds(20, &[0.6, 0.2, 0.2].map(of));
        let slow = |part: f64| Second { cores: part * all, wait_ms: 900.0, ..of(part) };
        server.seconds(3, &[0.8, 0.1, 0.1].map(slow))[0].clone()
    };
    assert!(said(1.0).starts_with("/large takes most"), "{}", said(1.0));
    assert!(said(0.3).starts_with("/a waits"), "{}", said(0.3));
}

/// A hog that is always one is named while another waits for it.
#[test]
fn a_constant_hog_is_named_while_one_waits() {
    let mut server = Server::new(["/load/tenant1", "/quiet"]);
    let hog = Second { wait_ms: 20.0, cores: 1.96, ..busy(301_000.0) };
    let quiet = Second { wait_ms: 12.6, work_us: 210.0, cores: 0.04, ..busy(70.0) };
    let said = server.seconds(2, &[hog, quiet]);
    let takes = "/load/tenant1 takes most: 99.9 % of all requests and 98 % of CPU.";
    let waits = "/quiet waits 12.6 ms a request, 60 times as long as its work.";
    assert_eq!(said, [takes, waits]);
    assert_eq!(
        server.why(),
        "/quiet waits 12.6 ms a request, 60 times as long as its work; \
         /load/tenant1 takes most: 99.9 % of all requests and 98 % of CPU"
    );
    let calm = Second { wait_ms: 0.01, ..quiet };
    assert!(server.seconds(11, &[hog, calm]).is_empty(), "what harms nobody is no news");
}

/// A tenant of a nearly idle server is not why others wait for a busy machine.
#[test]
fn who_uses_next_to_nothing_keeps_nobody_waiting() {
    let said = |times: f64, wait_ms: f64| {
        let mut server = Server::new(["/large", "/a", "/b"]);
        let of = |requests: f64| Second { wait_ms, ..busy(requests * times) };
        let calm = |requests: f64| Second { wait_ms: 0.1, ..of(requests) };
        server.seconds(20, &[300.0, 300.0, 300.0].map(calm));
        server.seconds(3, &[900.0, 300.0, 300.0].map(of))[0].clone()
    };
    let idle = said(1.0, 1.2);
    assert!(idle.starts_with("/a waits 1.20 ms"), "0.09 of a processor: {idle}");
    assert!(said(2.0, 1.2).starts_with("/large bursts"), "{}", said(2.0, 1.2));
    let queue = said(1.0, 300.0);
    assert!(queue.starts_with("/large bursts"), "the machine has no time for 270: {queue}");
}

/// What a tenant holds is no reason while there is room for all.
#[test]
fn while_there_is_room_nobody_lacks_it() {
    let said = |limit: Option<f64>| {
        let mut server = Server::new(["/hog", "/quiet"]);
        server.own.limit = limit;
        let hog = Second { memory: 2e6, cores: 1.9, ..busy(9.0) };
        let quiet = Second { memory: 2e5, cores: 1e-3, wait_ms: 9.0, ..busy(100.0) };
        server.seconds(3, &[hog, quiet]).remove(0)
    };
    let takes = "/hog takes most: 99.9 % of all CPU";
    assert_eq!(said(Some(6.4e7)), format!("{takes}."));
    let also = format!("{takes} and 91 % of memory.");
    assert_eq!(said(Some(2.3e6)), also, "full");
    assert_eq!(said(None), also, "it is unknown how much there is");
    // Nor is one to blame for it while another finds less.
    let thief = |limit: f64| {
        let mut server = Server::new(["/victim", "/thief"]);
        server.own.limit = Some(limit);
        let second = |memory: f64, hits: f64| Second { memory, hits: Some(hits), ..busy(1000.0) };
        server.seconds(20, &[second(5e7, 0.95), second(1e7, 0.5)]);
        server.second(&[second(3e7, 0.7), second(3e7, 0.5)]);
        server.seconds(3, &[second(1e7, 0.4), second(5e7, 0.5)])
    };
    assert!(thief(6e7)[0].starts_with("/thief takes most"));
    assert!(thief(2e8).is_empty(), "nothing was evicted");
}

/// A tenant that takes the processors with few requests is named; one with many is not.
#[test]
fn few_requests_that_take_the_cpus_are_named() {
    let mut server = Server::new(["/many", "/thief", "/other", "/large"]);
    let thief = Second { cores: 1.9, work_us: 19_000.0, ..busy(100.0) };
    let waits = Second { wait_ms: 5.0, work_us: 20.0, ..busy(400.0) };
    let other = Second { cores: 0.01, ..busy(400.0) };
    let large = Second { cores: 0.05, memory: 9e6, ..busy(5000.0) };
    let said = server.seconds(3, &[waits, thief, other, large]);
    assert_eq!(said[0], "/thief takes most: 95 % of all CPU.");
    assert_eq!(said[1..], ["/many waits 5.00 ms a request, 250 times as long as its work."]);
}

#[test]
fn who_fills_the_memory_others_lack_is_named() {
    let mut server = Server::new(["/victim", "/thief"]);
    let memory = |of: Second, memory: f64, hits: f64| Second { memory, hits: Some(hits), ..of };
    let (victim, thief) = (busy(1000.0), busy(900.0));
    let before = [memory(victim, 5e7, 0.95), memory(thief, 1e7, 0.5)];
    assert!(server.seconds(20, &before).is_empty());
    let after = [memory(victim, 1e7, 0.4), memory(thief, 5e7, 0.5)];
    server.second(&[memory(victim, 3e7, 0.7), memory(thief, 3e7, 0.5)]);
    let said = server.seconds(3, &after);
    assert_eq!(said[0], "/thief takes most: 83 % of all memory.");
    assert_eq!(said[1..], ["/victim finds less: 40 % hits, usually 95 %."]);
    let fewer = [memory(victim, 5e7, 0.4), memory(thief, 1e7, 0.5)];
    let mut server = Server::new(["/victim", "/thief"]);
    server.seconds(20, &before);
    assert!(server.seconds(5, &fewer).is_empty(), "other keys are asked for, and nobody took any");
    let mut server = Server::new(["/victim", "/thief"]);
    server.seconds(20, &before);
    assert!(server.seconds(5, &after).is_empty(), "deleted at once, and the other gains by chance");
}

#[test]
fn where_all_wait_alike_nobody_is_to_blame() {
    let mut server = Server::new(["/a", "/b", "/c"]);
    let waits = Second { wait_ms: 30.0, ..busy(500.0) };
    let said = server.seconds(2, &[waits; 3]);
    assert_eq!(said, ["/a waits 30.0 ms a request, 3000 times as long as its work; 2 more wait."]);
}

#[test]
fn what_is_healthy_is_no_news() {
    // Even, with noise.
    let mut server = Server::new(["/a", "/b", "/c"]);
    for second in 0..120 {
        let noise = |n: u64| busy(1000.0 + (second * (17 + n * 6) % 53) as f64 * 6.0);
        server.second(&[0, 1, 2].map(noise));
        assert!(server.said().is_empty(), "even, second {second}");
    }
    // One tenant that is nearly everything, beside small ones that lack nothing.
    let mut server = Server::new(["/large", "/a", "/b"]);
    assert!(server.seconds(120, &[50_000.0, 20.0, 30.0].map(busy)).is_empty());
    // It bursts, and there is room for it.
    assert!(server.seconds(20, &[150_000.0, 20.0, 30.0].map(busy)).is_empty());
    // A day in two minutes: all go up and down together.
    let mut server = Server::new(["/a", "/b", "/c"]);
    for second in 0..240 {
        let level = 1.0 + (f64::from(second) / 120.0 * std::f64::consts::PI).sin().abs() * 9.0;
        server.second(&[3000.0, 400.0, 300.0].map(|n| busy(n * level)));
        assert!(server.said().is_empty(), "a day, second {second}");
    }
    // Tenants come and go.
    let mut server = Server::new(["/a", "/b", "/c"]);
    for second in 0..60 {
        let third = if second / 7 % 2 == 0 { 0.0 } else { 900.0 };
        server.second(&[1000.0, 800.0, third].map(busy));
        assert!(server.said().is_empty(), "come and go, second {second}");
    }
}

#[test]
fn one_second_says_nothing_and_ends_nothing() {
    let mut server = Server::new(["/hog", "/quiet"]);
    let hog = busy(90_000.0);
    let waits = Second { wait_ms: 9.0, ..busy(100.0) };
    for _ in 0..10 {
        assert!(server.seconds(1, &[hog, waits]).is_empty());
        assert!(server.seconds(1, &[hog, busy(100.0)]).is_empty());
    }
    assert_eq!(server.seconds(2, &[hog, waits]).len(), 2);
    for _ in 0..10 {
        assert_eq!(server.seconds(1, &[hog, busy(100.0)]).len(), 2);
        assert_eq!(server.seconds(1, &[hog, waits]).len(), 2);
    }
    assert!(server.docs().iter().all(|doc| doc.ended_ms.is_none()));
    assert!(server.verdicts.past.is_empty(), "never over");
    server.seconds(3, &[hog, busy(100.0)]);
    assert!(server.verdicts.past.is_empty(), "nor by three");
    server.seconds(1, &[hog, busy(100.0)]);
    let ended: Vec<_> = server.verdicts.past.iter().map(|doc| doc.kind).collect();
    assert_eq!(ended.len(), 2);
    assert!(ended.contains(&VerdictKind::Takes) && ended.contains(&VerdictKind::Waits));
}

#[test]
fn what_is_worse_of_two_each_second_ends_neither() {
    let mut server = Server::new(["/hog", "/a", "/b"]);
    let waits = |wait_ms: f64| Second { wait_ms, ..busy(100.0) };
    server.seconds(2, &[busy(90_000.0), waits(12.0), waits(11.0)]);
    for _ in 0..20 {
        for wait_ms in [10.0, 12.0] {
            let said = server.seconds(1, &[busy(90_000.0), waits(wait_ms), waits(11.0)]);
            assert!(
                said[1].starts_with("/a waits ") && said[1].ends_with("; 1 more waits."),
                "{said:?}"
            );
        }
    }
    assert!(server.verdicts.past.is_empty());
    server.seconds(5, &[busy(90_000.0), busy(100.0), waits(11.0)]);
    assert!(server.said()[1].starts_with("/b waits "), "named when the first waits no longer");
    let past: Vec<_> = server.verdicts.past.iter().map(|doc| doc.group.as_str()).collect();
    assert_eq!(past, ["/a"]);
}

#[test]
fn of_few_requests_nothing_follows() {
    let mut server = Server::new(["/large", "/small"]);
    for second in 0..120_u32 {
        let hits = Some(if second % 7 < 3 { 0.0 } else { 1.0 });
        let small = Second { hits, memory: 0.0, ..busy(f64::from(second % 5)) };
        let large = busy(if second % 30 < 10 { 900.0 } else { 300.0 });
        server.second(&[large, small]);
        assert!(server.said().is_empty(), "second {second}: {:?}", server.said());
    }
}

#[test]
fn size_is_not_to_blame_for_anothers_new_keys() {
    let mut server = Server::new(["/large", "/web"]);
    let large = Second { memory: 8e8, ..busy(1000.0) };
    let web = |hits: f64| Second { hits: Some(hits), memory: 1e8, ..busy(1000.0) };
    server.seconds(20, &[large, web(0.95)]);
    assert!(server.seconds(20, &[large, web(0.2)]).is_empty(), "it lost nothing that it held");
}

#[test]
fn harm_that_lasts_does_not_become_usual() {
    let mut server = Server::without_waits(["/a", "/b", "/c"]);
    server.seconds(20, &[3000.0, 400.0, 300.0].map(busy));
    let burst = [1000.0, 400.0, 5000.0].map(busy);
    for second in 0..300 {
        server.second(&burst);
        assert!(second == 0 || server.said().len() == 2, "second {second}: {:?}", server.said());
    }
    server.seconds(400, &burst);
    assert!(server.said().is_empty(), "after ten minutes it is how things are");
}

#[test]
fn idle_all_day_and_half_at_night_is_a_burst() {
    let mut server = Server::without_waits(["/a", "/b", "/batch"]);
    server.seconds(30, &[3000.0, 2000.0, 0.0].map(busy));
    let said = server.seconds(6, &[1000.0, 1500.0, 3000.0].map(busy));
    assert!(said[0].starts_with("/batch bursts: 55 % of all requests"), "{said:?}");
    assert!(said[1].starts_with("/a gets less"), "{said:?}");
}

/// A level whose tenants together take most is named, but not for what it does to its own.
#[test]
fn a_level_that_takes_most_in_sum_is_named() {
    const NAMES: [&str; 8] =
        ["/acme", "/acme/a", "/acme/b", "/acme/c", "/acme/d", "/acme/e", "/acme/f", "/quiet"];
    let mut server = Server::new(NAMES);
    let level = Second::default();
    let [a, quiet] = [busy(15_000.0), Second { wait_ms: 9.0, ..busy(100.0) }];
    let said = server.seconds(3, &[level, a, a, a, a, a, a, quiet]);
    assert_eq!(said[0], "/acme takes most: 99.9 % of all requests and 99.9 % of CPU.");
    assert!(said[1].starts_with("/quiet waits"), "{said:?}");
    let mut server = Server::new(NAMES);
    let [slow, quiet] = [Second { wait_ms: 9.0, ..busy(100.0) }, busy(100.0)];
    assert!(server.seconds(3, &[level, a, a, a, a, a, slow, quiet]).is_empty(), "its own affair");
    let mut server = Server::new(NAMES);
    let said = server
        .seconds(3, &[level, busy(900_000.0), a, a, a, a, a, Second { wait_ms: 9.0, ..quiet }]);
    assert!(said[0].starts_with("/acme/a takes most"), "the one below says more: {said:?}");
}

#[test]
fn what_is_fair_is_as_weights_and_protection_say() {
    let waits = Second { wait_ms: 9.0, ..busy(1000.0) };
    let gold = |weight| Second { weight, ..busy(9000.0) };
    let said = |gold| Server::new(["/gold", "/free"]).seconds(3, &[gold, waits]);
    assert!(said(gold(None))[0].starts_with("/gold takes most"));
    assert!(said(gold(Some(900.0))).is_empty(), "it has what it is given");
    assert!(said(gold(Some(300.0)))[0].starts_with("/gold takes most"), "given three fourths");
    // Both of two halves of the memory, and the one was given its own.
    let scene = |protected| {
        let mut server = Server::new(["/victim", "/thief"]);
        let memory = |memory: f64, hits: f64| Second { memory, hits: Some(hits), ..busy(1000.0) };
        server.seconds(20, &[memory(5e7, 0.95), memory(1e7, 0.5)]);
        server.second(&[memory(3e7, 0.7), Second { protected, ..memory(3e7, 0.5) }]);
        server.seconds(3, &[memory(1e7, 0.4), Second { protected, ..memory(5e7, 0.5) }])
    };
    assert!(scene(None)[0].starts_with("/thief takes most"));
    assert!(scene(Some(6e7)).is_empty(), "protected");
}

#[test]
fn a_clock_that_is_set_back_says_nothing() {
    let mut server = Server::new(["/hog", "/quiet"]);
    let waits = Second { wait_ms: 9.0, ..busy(100.0) };
    server.seconds(3, &[busy(90_000.0), waits]);
    server.seconds(4, &[busy(90_000.0), busy(100.0)]);
    assert_eq!(server.docs().len(), 2, "said in the past tense");
    assert!(server.verdicts.said(1000).is_empty(), "it is an hour ago");
}

#[test]
fn a_partial_figure_is_never_shown_as_all() {
    let mut server = Server::new(["/hog", "/quiet"]);
    let waits = Second { wait_ms: 9.0, ..busy(1.0) };
    let said = server.seconds(2, &[busy(1e7), waits]);
    assert!(said[0].starts_with("/hog takes most: 99.9 % of all requests"), "{said:?}");
}

/// Every verdict has its metric, even if there is nothing to report.
#[test]
fn every_verdict_has_its_metric() {
    use submeter::export::Format;
    let mut server = Server::new(["/hog", "/quiet"]);
    let mut text = "a 1\n# EOF\n".to_owned();
    server.verdicts.expose("p", Format::OpenMetrics, &mut text);
    for kind in VerdictKind::ALL {
        assert!(text.contains(&format!("p_verdict_tenants{{verdict=\"{}\"}} 0\n", kind.key())));
    }
    let waits = Second { wait_ms: 9.0, ..busy(1.0) };
    server.seconds(2, &[busy(1e7), waits]);
    server.verdicts.expose("p", Format::Text, &mut text);
    assert!(text.contains("p_verdict_tenants{verdict=\"waits\"} 1\n"), "{text}");
}
