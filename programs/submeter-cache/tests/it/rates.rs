//! Rates: a tenant over its own rate is refused or waits, and no other tenant is.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use submeter::Rate;
use submeter_cache::{Address, Cache, Config, OverRate, Server, TenantLimits};

use crate::common::{Running, eventually, start};

const HOUR: Duration = Duration::from_secs(3600);

/// Limits a tenant to no request at all.
fn nothing(path: &str) -> (String, TenantLimits) {
    (path.to_owned(), TenantLimits { rate: Some(Rate::NOTHING), ..TenantLimits::default() })
}

fn limit(path: &str, amount: u64, per: Duration) -> (String, TenantLimits) {
    let rate = Some(Rate::new(amount, per));
    (path.to_owned(), TenantLimits { rate, ..TenantLimits::default() })
}

fn server(amount: u64, per: Duration, over_rate: OverRate) -> Running {
    let tenant_limits = vec![limit("/a", amount, per)];
    start(Config { tenant_limits, over_rate, ..Config::default() })
}

/// Returns how many requests of a tenant were held back.
fn throttled(server: &Running, path: &str) -> u64 {
    let group = server.cache.tree().get(path).expect(path);
    group.sum(server.cache.metrics().requests.throttled())
}

#[test]
fn tenants_share_the_rate_of_all_by_weight() {
    let weigh = |path: &str, weight| {
        (path.to_owned(), TenantLimits { weight: Some(weight), ..TenantLimits::default() })
    };
    let tenant_limits = vec![limit("/", 100, HOUR), weigh("/a", 100), weigh("/b", 300)];
    let server = start(Config { tenant_limits, ..Config::default() });
    let mut client = server.connect();
    assert_eq!(client.ask("get b:k\r\n"), "END");
    let mut granted = |key: &str| {
        let request = format!("get {key}\r\n");
        (0..200).take_while(|_| client.ask(&request) == "END").count()
    };
    // Half of the burst is for all, a fourth of the other half for one; one request came before.
    assert_eq!((granted("a:k"), granted("b:k")), (49 + 12, 37));
    assert!(throttled(&server, "/") >= 2);
}

#[test]
fn only_a_tenant_over_its_rate_is_refused() {
    let server = server(3, HOUR, OverRate::Refuse);
    let mut client = server.connect();
    assert_eq!(client.set("a:k", b"1"), "STORED");
    // A tenant below takes from the same rate.
    assert_eq!(client.set("a:web:k", b"2"), "STORED");
    assert_eq!(client.get("a:k").as_deref(), Some(&b"1"[..]));
    for request in [
        "set a:k 0 0 1\r\n9\r\n",
        "get a:k\r\n",
        "mg a:k v q\r\n",
        "ms a:k 1\r\n9\r\n",
        "delete a:web:k\r\n",
        "incr a:k 1\r\n",
        "touch a:k 0\r\n",
        "gat 0 a:k\r\n",
    ] {
        let answer = client.ask(request);
        let wait = answer.strip_prefix("SERVER_ERROR too many requests: retry after ");
        let ms = wait.and_then(|wait| wait.strip_suffix(" ms")).expect(&answer);
        let ms: u128 = ms.parse().expect("a number");
        assert!(ms <= HOUR.as_millis() / 3 && ms > HOUR.as_millis() / 4, "{answer}");
    }
    assert_eq!(client.talk("set a:k 0 0 1 noreply\r\n9\r\n"), "", "as it asked");
    assert_eq!(throttled(&server, "/a"), 9);
    assert_eq!(throttled(&server, "/a/web"), 0, "it has no rate");
    assert_eq!(client.set("b:k", b"1"), "STORED");
    let root = server.cache.tree().root();
    let gets = server.cache.metrics().cmd_get;
    assert_eq!(root.sum(gets), 3, "asked for, also where refused; gat counts as a touch");
    server.cache.set_limits(&[]).expect("no limits");
    assert_eq!(client.get("a:k").as_deref(), Some(&b"1"[..]), "nothing was changed");
}

/// A retrieval of several keys takes a token for each, and ends with the error.
#[test]
fn a_retrieval_takes_a_token_for_each_key() {
    let server = server(4, HOUR, OverRate::Refuse);
    let mut client = server.connect();
    for key in ["a:1", "a:2", "b:1"] {
        assert_eq!(client.set(key, b"v"), "STORED");
    }
    let answers = client.talk("get a:1 b:1 a:2 a:1 b:1\r\nget b:1\r\n");
    let value = |key: &str| format!("VALUE {key} 0 1\r\nv\r\n");
    let (whole, error) = answers.split_once("SERVER_ERROR").expect(&answers);
    assert_eq!(whole, [value("a:1"), value("b:1"), value("a:2")].concat());
    assert_eq!(error.split_once("\r\n").expect("a line").1, value("b:1") + "END\r\n");
}

#[test]
fn a_tenant_over_its_rate_waits_where_it_is_to() {
    let each = Duration::from_millis(50);
    let server = server(1, each, OverRate::Wait);
    let mut client = server.connect();
    let started = Instant::now();
    assert_eq!(client.set("a:k", b"v"), "STORED");
    client.send("get a:k a:k\r\nmg a:k v\r\nincr a:none 1\r\n");
    // Line by line: a retrieval that restarts would never end.
    let lines = ["VALUE a:k 0 1", "v", "VALUE a:k 0 1", "v", "END", "VA 1", "v", "NOT_FOUND"];
    for expected in lines {
        assert_eq!(client.line(), expected);
    }
    assert!(started.elapsed() >= 4 * each, "{:?}", started.elapsed());
    assert!(throttled(&server, "/a") >= 4);
}

/// A request that would wait longer than it may take is refused.
#[test]
fn who_would_wait_too_long_is_refused() {
    let server = server(1, HOUR, OverRate::Wait);
    let mut client = server.connect();
    assert_eq!(client.set("a:k", b"v"), "STORED");
    assert!(client.ask("get a:k\r\n").starts_with("SERVER_ERROR too many requests"));
}

/// A request that waits for a rate of nothing is served once the rate grants again.
#[test]
fn a_wait_ends_when_its_rate_grants_again() {
    let over_rate = OverRate::Wait;
    let request_timeout = Duration::from_secs(3);
    let server = start(Config { over_rate, request_timeout, ..Config::default() });
    let mut client = server.connect();
    assert_eq!([client.set("a:k", b"v"), client.set("b:k", b"v")], ["STORED", "STORED"]);
    server.cache.set_limits(&[nothing("/a"), nothing("/b")]).expect("sound");
    client.send("get a:k\r\n");
    // Until it was held up at least once, and a second time after that.
    let started = Instant::now();
    while throttled(&server, "/a") < 2 {
        assert!(started.elapsed() < Duration::from_secs(60), "nothing is kept waiting");
        std::thread::sleep(Duration::from_millis(10));
    }
    server.cache.set_limits(&[nothing("/b")]).expect("sound");
    for expected in ["VALUE a:k 0 1", "v", "END"] {
        assert_eq!(client.line(), expected);
    }
    // Requests that arrived together are refused together: no client waits once for each of them.
    let started = Instant::now();
    let answers = client.talk("get b:k\r\nmg b:k v\r\n");
    assert!(started.elapsed() >= request_timeout, "{:?}", started.elapsed());
    let refused = "SERVER_ERROR too many requests: none is granted for now\r\n";
    assert_eq!(answers, refused.repeat(2));
}

/// Who waits for a rate that is lifted or raised waits no longer.
#[test]
fn a_wait_ends_with_its_limit() {
    let (per, patience) = (Duration::from_secs(50), Duration::from_secs(30));
    let lift = |server: &Running| server.cache.set_limits(&[]).expect("sound");
    let raise = |server: &Running| {
        let limits = [limit("/a", 1000, Duration::from_secs(1))];
        server.cache.set_limits(&limits).expect("sound");
    };
    for (case, end) in [&lift as &dyn Fn(&Running), &raise].into_iter().enumerate() {
        let server = server(1, per, OverRate::Wait);
        let mut client = server.connect();
        assert_eq!(client.set("a:k", b"v"), "STORED");
        let started = Instant::now();
        client.send("get a:none\r\n");
        while throttled(&server, "/a") == 0 {
            assert!(started.elapsed() < patience, "nothing is kept waiting");
            std::thread::sleep(Duration::from_millis(5));
        }
        end(&server);
        assert_eq!(client.line(), "END");
        assert!(started.elapsed() < patience, "case {case}: {:?}", started.elapsed());
    }
}

#[test]
fn limits_change_while_tenants_are_served() {
    let server = server(1, HOUR, OverRate::Refuse);
    let mut client = server.connect();
    assert_eq!(client.set("a:k", b"v"), "STORED");
    let limits = [limit("/a", 1, HOUR), limit("/b", 1, HOUR), ("/c".to_owned(), 4000.into())];
    server.cache.set_limits(&limits).expect("sound");
    assert!(client.set("a:k", b"v").starts_with("SERVER_ERROR"), "the same rate grants no more");
    assert_eq!(client.set("b:k", b"v"), "STORED");
    assert!(client.set("b:k", b"v").starts_with("SERVER_ERROR"));
    assert!(client.set("c:k", &[b'v'; 5000]).starts_with("SERVER_ERROR out of memory"));

    let error = server.cache.set_limits(&[limit("/b", 9, HOUR), ("d".to_owned(), 1.into())]);
    assert!(error.expect_err("no path").to_string().contains("\"d\" is not a path"));
    assert!(client.set("b:k", b"v").starts_with("SERVER_ERROR"), "as it was");

    let root = [limit("/", 2, HOUR)];
    server.cache.set_limits(&root).expect("sound");
    assert_eq!(client.set("c:k", &[b'v'; 5000]), "STORED", "the others have no limits now");
    assert_eq!(client.set("b:k", b"v"), "STORED");
    assert!(client.set("e:k", b"v").starts_with("SERVER_ERROR"), "the server's");
    assert_eq!(
        server.cache.tree().root().usage(server.cache.metrics().memory).limit,
        Some(64 << 20)
    );
}

#[test]
fn a_tenant_created_again_has_its_limits_again() {
    let server = server(1, HOUR, OverRate::Refuse);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let delete = server.cache.delete_tenant("/a", Duration::from_secs(30));
    runtime.block_on(delete).expect("it lives");
    let mut client = server.connect();
    assert_eq!(client.set("a:k", b"v"), "STORED");
    assert!(client.set("a:k", b"v").starts_with("SERVER_ERROR"));
}

/// A request that waits for its rate ends with its tenant, and does not hold up the deletion. What
/// the tenant owes is owed by the next one of that name.
#[test]
fn waiting_requests_do_not_hold_up_deletion() {
    let request_timeout = Duration::from_secs(60);
    let slow = Rate::new(1, Duration::from_secs(50));
    let requests = |rate| TenantLimits { rate: Some(rate), ..TenantLimits::default() };
    let second_ns = 1_000_000_000;
    let cpu = Some(Rate::new(second_ns, Duration::from_secs(1)));
    let cpu = TenantLimits { cpu, ..TenantLimits::default() };
    let get = "get a:k\r\n";
    for (limits, owes, request, of) in [
        (requests(Rate::NOTHING), 0, get, "too many requests"),
        (requests(slow), 0, "get a:k a:k\r\n", "too many requests"),
        (requests(slow), 0, "mg a:k v\r\nmn\r\nmg a:k v\r\n", "too many requests"),
        (cpu, 41 * second_ns, get, "too much CPU time"),
    ] {
        let tenant_limits = vec![("/a".to_owned(), limits)];
        let config = Config { over_rate: OverRate::Wait, request_timeout, ..Config::default() };
        let server = start(Config { tenant_limits, ..config });
        let metrics = server.cache.metrics();
        let group = || server.cache.tree().get("/a").expect("it has limits");
        group().spend(metrics.cpu_budget, owes);
        let mut client = server.connect();
        client.send(request);
        let held_back = || {
            let of = [metrics.requests.throttled(), metrics.cpu_budget.throttled()];
            of.map(|of| group().sum(of)).iter().sum::<u64>()
        };
        let started = Instant::now();
        while held_back() == 0 {
            assert!(started.elapsed() < request_timeout, "nothing is kept waiting");
            std::thread::sleep(Duration::from_millis(5));
        }
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let delete = server.cache.delete_tenant("/a", request_timeout / 2);
        runtime.block_on(delete).expect("who waits holds no group");
        let expected = format!("SERVER_ERROR {of}: the tenant was deleted");
        let answer = std::iter::repeat_with(|| client.line()).find(|line| line.starts_with('S'));
        assert_eq!(answer, Some(expected));
        let balance = [group().balance(metrics.requests), group().balance(metrics.cpu_budget)];
        match owes {
            0 => assert_eq!(balance, [Some(0), None], "{request}"),
            _ => assert!(balance[1] < Some(0), "{balance:?}"),
        }
    }
}

/// A client that does not read does not hold a deleted tenant for whose rate it waits.
#[test]
fn unread_answers_do_not_hold_up_deletion() {
    let request_timeout = Duration::from_secs(60);
    let config = Config { over_rate: OverRate::Wait, request_timeout, ..Config::default() };
    let cache = Cache::new(Config { tenant_limits: vec![nothing("/a")], ..config }).expect("sound");
    // Its sockets take less than an answer, unlike a port's, whose buffers grow.
    let path = std::env::temp_dir().join(format!("submeter-{}-unread", std::process::id()));
    let address = Address::Unix { path: path.clone(), mode: Address::UNIX_MODE };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::listen(&address, cache.clone())).expect("it listens");
    let serving = runtime.spawn(server.run(std::future::pending()));
    let connect = || {
        let stream = UnixStream::connect(&path).expect("it accepts");
        stream.set_read_timeout(Some(request_timeout)).expect("a timeout");
        (stream.try_clone().expect("a descriptor"), BufReader::new(stream).lines())
    };
    let (mut client, mut answers) = connect();
    let mut line = || answers.next().expect("an answer").expect("readable");
    // Little enough for both requests to be in one batch.
    let value = "v".repeat(254_000);
    write!(client, "set b:k 0 0 {}\r\n{value}\r\n", value.len()).expect("sent");
    assert_eq!(line(), "STORED");
    client.write_all(b"get b:k\r\nget a:k\r\n").expect("sent");
    let (mut other, mut states) = connect();
    eventually("it waits for its client", || {
        other.write_all(b"stats conns\r\n").expect("sent");
        let mut states = states.by_ref().map(|line| line.expect("readable"));
        // All of it is read.
        states.by_ref().take_while(|line| line != "END").filter(|l| l.contains("mwrite")).count()
            == 1
    });
    let group = cache.tree().get("/a").expect("it has limits");
    assert!(group.sum(cache.metrics().requests.throttled()) > 0);
    drop(group);
    runtime.block_on(cache.delete_tenant("/a", request_timeout / 2)).expect("nothing holds it");
    // The next tenant of that name has its limits.
    cache.set_limits(&[]).expect("sound");
    for expected in ["VALUE b:k 0 254000", &value, "END", "END"] {
        assert!(line() == expected);
    }
    serving.abort();
}

/// A retrieval that has waited for a deleted tenant waits for the tenants of its other keys.
#[test]
fn a_deletion_refuses_no_other_tenants_key() {
    let tenant_limits = vec![nothing("/a"), nothing("/b")];
    let server = start(Config { tenant_limits, over_rate: OverRate::Wait, ..Config::default() });
    let mut client = server.connect();
    client.send("get a:k b:k\r\n");
    eventually("it waits for the first", || throttled(&server, "/a") > 0);
    server.cache.set_limits(&[nothing("/b")]).expect("sound");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let delete = server.cache.delete_tenant("/a", Duration::from_secs(30));
    runtime.block_on(delete).expect("nothing holds it");
    eventually("it waits for the second", || throttled(&server, "/b") > 0);
    server.cache.set_limits(&[]).expect("sound");
    assert_eq!(client.line(), "END");
}

/// A rate that the program sets itself is looked for, if the program says so.
#[test]
fn the_programs_own_rates_are_looked_for() {
    for rates in [false, true] {
        let server = start(Config { rates, ..Config::default() });
        let mut client = server.connect();
        assert_eq!(client.set("a:k", b"1"), "STORED");
        let group = server.cache.tree().get("/a").expect("it has an item");
        let rate = Rate::new(1, HOUR);
        group.set_rate(server.cache.metrics().requests, Some(rate)).expect("a rate");
        assert_eq!(client.set("a:k", b"2"), "STORED");
        assert_eq!(client.set("a:k", b"3") == "STORED", !rates);
    }
}
