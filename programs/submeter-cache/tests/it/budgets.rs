//! CPU time: no request of a tenant that owes CPU time begins, and no other tenant is held back.

use std::time::{Duration, Instant};

use submeter::{LimitMode, Rate};
use submeter_cache::{Config, OverRate, TenantLimits};

use crate::common::{Client, Running, start};

const HOUR: Duration = Duration::from_secs(3600);
const REFUSED: &str = "SERVER_ERROR too much CPU time: retry after ";

fn budget(path: &str, cpu: Rate) -> (String, TenantLimits) {
    (path.to_owned(), TenantLimits { cpu: Some(cpu), ..TenantLimits::default() })
}

/// A millisecond per hour: what is used is soon spent, and owed for a long time.
fn little() -> Rate {
    Rate::new(1_000_000, HOUR)
}

fn sums(server: &Running, path: &str) -> [u64; 2] {
    let group = server.cache.tree().get(path).expect(path);
    let budget = server.cache.metrics().cpu_budget;
    [budget.throttled(), budget.overdrafts()].map(|counter| group.sum(counter))
}

/// Works until the server says otherwise. The CPU time used is charged in fractions of a
/// millisecond.
fn until(client: &mut Client, request: &str, is_over: impl Fn(&str) -> bool) -> String {
    let began = Instant::now();
    loop {
        let answer = client.ask(request);
        if is_over(&answer) {
            return answer;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{answer}");
    }
}

/// A tenant that owes CPU time is refused before anything is answered; no other tenant is.
#[test]
fn a_debtor_is_refused_and_nobody_else_is() {
    let tenant_limits = vec![budget("/a", little())];
    let server = start(Config { tenant_limits, ..Config::default() });
    let mut client = server.connect();
    for key in ["a:k", "b:k"] {
        assert_eq!(client.set(key, b"v"), "STORED");
    }
    let refused = until(&mut client, "ms a:k 1\r\nv\r\n", |answer| answer != "HD");
    let ms = refused.strip_prefix(REFUSED).and_then(|ms| ms.strip_suffix(" ms"));
    assert!(ms.and_then(|ms| ms.parse::<u64>().ok()) > Some(1000), "{refused}");
    let [before, _] = sums(&server, "/a");
    for request in [
        "get a:k\r\n",
        // Its turn would be the second: by then the first would be answered.
        "get b:k a:web:k\r\n",
        "gat 0 b:k a:k\r\n",
        "mg a:k v q\r\n",
        "set a:k 0 0 1\r\n9\r\n",
        "delete a:web:k\r\n",
        "incr a:k 1\r\n",
        "touch a:k 0\r\n",
    ] {
        assert!(client.ask(request).starts_with(REFUSED), "{request}");
    }
    assert_eq!(sums(&server, "/a"), [before + 8, 0]);
    assert_eq!(client.get("b:k").as_deref(), Some(&b"v"[..]));
    assert_eq!(client.set("b:k", b"w"), "STORED");
    server.cache.set_limits(&[]).expect("no limits");
    assert_eq!(client.get("a:k").as_deref(), Some(&b"v"[..]), "nothing was changed");
}

/// The time is charged neither to the previous tenant on the connection nor to none.
#[test]
fn refusing_work_is_charged_to_the_refused() {
    let tenant_limits = vec![budget("/b", little())];
    let server = start(Config { tenant_limits, ..Config::default() });
    let mut client = server.connect();
    assert_eq!(client.set("a:k", b"v"), "STORED");
    until(&mut client, "ms b:k 1\r\nv\r\n", |answer| answer != "HD");
    let cpu = |path: &str| {
        let group = server.cache.tree().get(path).expect(path);
        group.sum(server.cache.metrics().cpu)
    };
    let [a, b] = ["/a", "/b"].map(cpu);
    let pipelined = format!("mg a:k\r\n{}", "get b:k\r\n".repeat(200));
    for _ in 0..200 {
        let answer = client.talk(&pipelined);
        assert!(answer.contains(REFUSED), "{answer}");
    }
    let [a, b] = [cpu("/a") - a, cpu("/b") - b];
    assert!(b > 3 * a, "{b} ns for 40,000 refusals of /b, {a} ns for 200 answers of /a");
}

/// A request counts once, whatever keys it has.
#[test]
fn a_soft_budget_counts_many_keys_once() {
    let mut limits = budget("/a", little());
    limits.1.mode = Some(LimitMode::Soft);
    let server = start(Config { tenant_limits: vec![limits], ..Config::default() });
    let mut client = server.connect();
    assert_eq!(client.set("a:k", b"v"), "STORED");
    let began = Instant::now();
    while sums(&server, "/a")[1] == 0 {
        client.get("a:k");
        assert!(began.elapsed() < Duration::from_secs(60));
    }
    let [_, before] = sums(&server, "/a");
    client.talk(format!("get{}\r\n", " a:k".repeat(100)));
    assert_eq!(sums(&server, "/a")[1], before + 1);
}

#[test]
fn a_tenant_that_owes_waits_where_it_is_to() {
    // A hundredth of a CPU.
    let tenant_limits = vec![budget("/a", Rate::new(100_000, Duration::from_millis(10)))];
    let over_rate = OverRate::Wait;
    let server = start(Config { tenant_limits, over_rate, ..Config::default() });
    let mut client = server.connect();
    assert_eq!(client.set("a:k", b"v"), "STORED");
    let began = Instant::now();
    while sums(&server, "/a")[0] < 3 {
        assert_eq!(client.get("a:k").as_deref(), Some(&b"v"[..]), "it is answered in the end");
        assert!(began.elapsed() < Duration::from_secs(60), "nothing is kept waiting");
    }
}

/// A soft budget grants what it would refuse, and counts it.
#[test]
fn a_soft_budget_counts_what_it_would_refuse() {
    let (path, limits) = budget("/a", little());
    let soft = TenantLimits {
        memory: Some(100),
        rate: Some(Rate::new(1, HOUR)),
        mode: Some(LimitMode::Soft),
        ..limits
    };
    let tenant_limits = vec![(path, soft)];
    let server = start(Config { tenant_limits, ..Config::default() });
    let mut client = server.connect();
    let began = Instant::now();
    while sums(&server, "/a")[1] < 100 {
        assert_eq!(client.set("a:k", b"v"), "STORED");
        assert!(began.elapsed() < Duration::from_secs(60), "nothing is counted");
    }
    assert_eq!(sums(&server, "/a")[0], 0);
    let (metrics, group) = (server.cache.metrics(), server.cache.tree().get("/a").expect("used"));
    assert!(group.sum(metrics.requests.overdrafts()) > 100, "its rate is soft, too");
    assert!(group.usage(metrics.memory).overdrafts > 0, "and so is its limit of memory");
    server.cache.shrink("/a");
    assert_eq!(client.get("a:k").as_deref(), Some(&b"v"[..]), "which takes nothing from it");
    // It is enforced once the soft mode ends.
    server.cache.set_limits(&[budget("/a", little())]).expect("sound");
    assert!(client.set("a:k", b"v").starts_with(REFUSED));
}

#[test]
fn a_budget_needs_metering_and_is_not_of_nothing() {
    for (metering, cpu, named) in [
        (false, little(), "not counted without metering"),
        (true, Rate { per: Duration::ZERO, ..little() }, "the period is 0"),
    ] {
        let tenant_limits = vec![budget("/a", cpu)];
        let config = Config { tenant_limits, metering, ..Config::default() };
        let error = submeter_cache::Cache::new(config).expect_err(named).to_string();
        assert!(error.contains(named) && error.contains("\"/a\""), "{error}");
    }
}
