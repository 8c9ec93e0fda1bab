//! Scenes: what each tenant does second by second, and the sentences that must be said of it.

use std::time::{Duration, Instant};

use submeter::{Bytes, Count, Nanoseconds, Schema};

use super::super::history::History;
use super::super::sample::Row;
use super::super::views::{View, Views, Worse};
use super::super::wire::{Figure, Placement, VerdictDoc, VerdictKind};
use super::Verdicts;
use super::judge::Case;

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
    stalled: f64,
}

fn busy(requests: f64) -> Second {
    let (cores, work_us) = (requests / 1e5, 10.0);
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
}

impl Server {
    fn new<const N: usize>(names: [&'static str; N]) -> Server {
        let mut s = Schema::builder();
        let [requests, hits] = ["requests", "hits"].map(|name| s.counter::<Count>(name, ""));
        let [cpu, waited] = ["cpu", "waited"].map(|name| s.counter::<Nanoseconds>(name, ""));
        let memory = s.quota::<Bytes>("memory", "");
        let over = s.rate_limit::<Count>("over", "");
        s.build().expect("distinct names");
        let views = Views::new(vec![
            View::rate("requests", "Requests/s", [requests]).contended(),
            View::rate("cpu", "CPU", [cpu]).contended(),
            View::ratio("hits", "Hits", hits, [requests]).worse(Worse::Low),
            View::held("memory", "Memory", memory).contended(),
            View::mean("wait", "Wait", waited, [requests])
                .wait_for("work")
                .place(Placement::Detail),
            View::mean("work", "Work", cpu, [requests]).place(Placement::Nowhere),
            View::rate("over", "Over rate/s", [over.throttled()])
                .noun("over its rate")
                .trouble()
                .place(Placement::Table),
            View::pressure("stalls", "Stalls", memory).place(Placement::Table),
        ]);
        let (history, verdicts) = (History::new(views.clone()), Verdicts::default());
        let (start, names) = (Instant::now(), names.into());
        Server { views, history, verdicts, start, seconds: 0, names }
    }

    /// Lets a second pass.
    fn second(&mut self, tenants: &[Second]) {
        self.seconds += 1;
        let of = |n: f64| Figure(Some(n));
        let row = |id: u32, parent: Option<u32>, s: &Second| {
            let waits = [s.wait_ms * 1e6, s.work_us * 1e3].map(of);
            let figures = [of(s.requests), of(s.cores), Figure(s.hits), of(s.memory)];
            let limits = [s.over_rate, s.stalled].map(of);
            Row { id, parent, figures: [&figures[..], &waits, &limits].concat().into() }
        };
        let sum = |part: fn(&Second) -> f64| tenants.iter().map(part).sum();
        let (requests, cores) = (sum(|s| s.requests), sum(|s| s.cores));
        let all = Second { requests, cores, memory: sum(|s| s.memory), ..Second::default() };
        let mut rows = vec![row(0, None, &all)];
        rows.extend(tenants.iter().zip(1..).map(|(tenant, id)| row(id, Some(0), tenant)));
        self.history.push(self.start + Duration::from_secs(self.seconds), &rows);
        let names = self.names.clone();
        let path = |row: usize| names[row - 1];
        let Server { views, history, verdicts, .. } = self;
        let case = Case { views, rows: &rows, window_s: 1.0, history };
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

#[test]
fn a_burst_is_named_with_whom_it_takes_from_and_who_recovers_is_not_blamed() {
    let mut server = Server::new(["/a", "/b", "/c"]);
    let calm = [3000.0, 400.0, 300.0].map(busy);
    let burst = [1000.0, 400.0, 5000.0].map(busy);
    assert!(server.seconds(10, &calm).is_empty());
    for period in 0..9 {
        let said = server.seconds(3, &burst);
        let bursts = "/c bursts: 78 % of all requests and 78 % of CPU, 16.7 times its usual.";
        assert_eq!(said[0], bursts, "{period}");
        assert_eq!(said[1..], ["/a gets less: 67 % below its usual."], "{period}");
        let said = server.seconds(4, &calm);
        assert!(said[0].starts_with("/c burst: 78 %"), "held for some seconds: {said:?}");
        assert_eq!(said[1..], ["/a got less: 67 % below its usual."]);
        assert!(server.seconds(6, &calm).is_empty(), "over");
    }
    assert!(server.seconds(5, &[1000.0, 400.0, 300.0].map(busy)).is_empty(), "less to do");
    assert_eq!(server.verdicts.past.len(), 9 * 2);
}

#[test]
fn a_hog_that_is_always_one_is_named_while_another_waits_for_it() {
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
    assert!(server.seconds(9, &[hog, calm]).is_empty(), "what harms nobody is no news");
}

#[test]
fn who_takes_the_processors_with_few_requests_is_named() {
    let mut server = Server::new(["/many", "/thief", "/other"]);
    let thief = Second { cores: 1.9, work_us: 19_000.0, ..busy(100.0) };
    let waits = Second { wait_ms: 5.0, work_us: 20.0, ..busy(400.0) };
    let other = Second { cores: 0.01, ..busy(400.0) };
    let said = server.seconds(3, &[waits, thief, other]);
    assert_eq!(said[0], "/thief takes most: 99.3 % of all CPU.");
    assert_eq!(said[1..], ["/many waits 5.00 ms a request, 250 times as long as its work."]);
}

#[test]
fn who_fills_the_memory_that_others_find_less_in_is_named() {
    let mut server = Server::new(["/victim", "/thief"]);
    let memory = |of: Second, memory: f64, hits: f64| Second { memory, hits: Some(hits), ..of };
    let (victim, thief) = (busy(1000.0), busy(900.0));
    let before = [memory(victim, 5e7, 0.95), memory(thief, 1e7, 0.5)];
    assert!(server.seconds(20, &before).is_empty());
    let after = [memory(victim, 1e7, 0.4), memory(thief, 5e7, 0.5)];
    let said = server.seconds(3, &after);
    assert_eq!(said[0], "/thief takes most: 83 % of all memory.");
    assert_eq!(said[1..], ["/victim finds less: 40 % hits, usually 95 %."]);
    let fewer = [memory(victim, 5e7, 0.4), memory(thief, 1e7, 0.5)];
    let mut server = Server::new(["/victim", "/thief"]);
    server.seconds(20, &before);
    assert!(server.seconds(5, &fewer).is_empty(), "other keys are asked for, and nobody took any");
}

#[test]
fn who_is_at_a_limit_of_its_own_is_named_and_harms_nobody() {
    let mut server = Server::new(["/a", "/b", "/c"]);
    let over = Second { over_rate: 7770.0, ..busy(8770.0) };
    let stalled = Second { stalled: 0.37, ..busy(30.0) };
    let said = server.seconds(2, &[busy(10.0), over, stalled]);
    let refused = "/b is refused 7770 times a second: over its rate.";
    assert_eq!(said, [refused, "/c waits for room: 37 % of the last 10 s."]);
    let less = Second { stalled: 0.009, ..stalled };
    assert!(server.seconds(3, &[busy(10.0), busy(10.0), less]).is_empty(), "noise");
}

#[test]
fn where_all_wait_alike_nobody_is_to_blame() {
    let mut server = Server::new(["/a", "/b", "/c"]);
    let waits = Second { wait_ms: 30.0, ..busy(500.0) };
    let said = server.seconds(2, &[waits; 3]);
    assert_eq!(said, ["/a and 2 more wait 30.0 ms a request, 3000 times as long as its work."]);
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
fn a_second_says_nothing_and_a_second_less_ends_nothing() {
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
    server.seconds(2, &[hog, busy(100.0)]);
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
            assert!(said[1].starts_with("/a and 1 more wait "), "{said:?}");
        }
    }
    assert!(server.verdicts.past.is_empty());
    server.seconds(3, &[busy(90_000.0), busy(100.0), waits(11.0)]);
    assert!(server.said()[1].starts_with("/b waits "), "named when the first waits no longer");
    let past: Vec<_> = server.verdicts.past.iter().map(|doc| doc.group.as_str()).collect();
    assert_eq!(past, ["/a"]);
}

#[test]
fn who_waits_for_itself_accuses_nobody() {
    let waits = Second { wait_ms: 400.0, ..busy(100.0) };
    let limited = Second { over_rate: 100.0, ..waits };
    let mut server = Server::new(["/large", "/slow"]);
    let said = server.seconds(3, &[busy(90_000.0), limited]);
    assert_eq!(said, ["/slow is refused 100 times a second: over its rate."]);
    let mut server = Server::new(["/alone", "/idle"]);
    assert!(server.seconds(3, &[waits, busy(0.0)]).is_empty(), "behind what it sent itself");
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
fn who_is_large_is_not_to_blame_for_another_tenants_new_keys() {
    let mut server = Server::new(["/large", "/web"]);
    let large = Second { memory: 8e8, ..busy(1000.0) };
    let web = |hits: f64| Second { hits: Some(hits), memory: 1e8, ..busy(1000.0) };
    server.seconds(20, &[large, web(0.95)]);
    assert!(server.seconds(20, &[large, web(0.2)]).is_empty(), "it lost nothing that it held");
}

#[test]
fn harm_that_lasts_does_not_become_usual() {
    let mut server = Server::new(["/a", "/b", "/c"]);
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
fn who_was_idle_all_day_and_takes_a_half_at_night_bursts() {
    let mut server = Server::new(["/a", "/b", "/batch"]);
    server.seconds(30, &[3000.0, 2000.0, 0.0].map(busy));
    let said = server.seconds(6, &[1000.0, 1500.0, 3000.0].map(busy));
    assert!(said[0].starts_with("/batch bursts: 55 % of all requests"), "{said:?}");
    assert!(said[1].starts_with("/a gets less"), "{said:?}");
}

#[test]
fn a_clock_that_is_set_back_says_nothing() {
    let mut server = Server::new(["/hog", "/quiet"]);
    let waits = Second { wait_ms: 9.0, ..busy(100.0) };
    server.seconds(3, &[busy(90_000.0), waits]);
    server.seconds(2, &[busy(90_000.0), busy(100.0)]);
    assert_eq!(server.docs().len(), 2, "said in the past tense");
    assert!(server.verdicts.said(1000).is_empty(), "it is an hour ago");
}

#[test]
fn a_figure_that_is_not_all_is_never_shown_as_all() {
    let mut server = Server::new(["/hog", "/quiet"]);
    let waits = Second { wait_ms: 9.0, ..busy(1.0) };
    let said = server.seconds(2, &[busy(1e7), waits]);
    assert!(said[0].starts_with("/hog takes most: 99.9 % of all requests"), "{said:?}");
}

#[test]
fn every_verdict_has_its_metric_also_where_nothing_is_said() {
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
