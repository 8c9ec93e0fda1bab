//! Every command of the classic protocol, with its answers.

use std::time::Duration;

use submeter_cache::Config;

use crate::common::{PATIENCE, Running, eventually, start, start_default};

/// Sends requests on a fresh connection and compares everything that comes back.
fn check(server: &Running, requests: &str, answers: &str) {
    assert_eq!(server.connect().talk(requests), answers, "to {requests:?}");
}

#[test]
fn set_and_get() {
    let server = start_default();
    check(&server, "set k 5 0 3\r\nabc\r\n", "STORED\r\n");
    check(&server, "get k\r\n", "VALUE k 5 3\r\nabc\r\nEND\r\n");
    check(&server, "get missing\r\n", "END\r\n");
    check(&server, "set k 0 0 0\r\n\r\nget k\r\n", "STORED\r\nVALUE k 0 0\r\n\r\nEND\r\n");
    check(&server, "set j 1 0 1\r\nj\r\n", "STORED\r\n");
    check(
        &server,
        "get j no k j\r\n",
        "VALUE j 1 1\r\nj\r\nVALUE k 0 0\r\n\r\nVALUE j 1 1\r\nj\r\nEND\r\n",
    );
}

#[test]
fn add_and_replace() {
    let server = start_default();
    check(&server, "replace k 0 0 1\r\na\r\nget k\r\n", "NOT_STORED\r\nEND\r\n");
    check(&server, "add k 0 0 1\r\na\r\nadd k 0 0 1\r\nb\r\n", "STORED\r\nNOT_STORED\r\n");
    check(&server, "replace k 0 0 1\r\nc\r\n", "STORED\r\n");
    check(&server, "get k\r\n", "VALUE k 0 1\r\nc\r\nEND\r\n");
}

#[test]
fn append_and_prepend() {
    let server = start_default();
    check(
        &server,
        "append k 0 0 1\r\na\r\nprepend k 0 0 1\r\na\r\n",
        "NOT_STORED\r\nNOT_STORED\r\n",
    );
    check(&server, "set k 7 0 1\r\nb\r\n", "STORED\r\n");
    check(&server, "append k 1 1 1\r\nc\r\nprepend k 2 1 1\r\na\r\n", "STORED\r\nSTORED\r\n");
    check(&server, "get k\r\n", "VALUE k 7 3\r\nabc\r\nEND\r\n");
}

#[test]
fn cas() {
    let server = start_default();
    let mut client = server.connect();
    assert_eq!(client.ask("cas k 0 0 1 1\r\na\r\n"), "NOT_FOUND");
    assert_eq!(client.set("k", b"a"), "STORED");
    let head = client.ask("gets k\r\n");
    let cas = head.rsplit(' ').next().expect("a line").to_owned();
    assert_eq!(client.talk(""), "a\r\nEND\r\n");
    assert_eq!(client.set("other", b"a"), "STORED");
    assert_eq!(client.ask(format!("cas k 0 0 1 {cas}\r\nb\r\n")), "STORED");
    assert_eq!(client.ask(format!("cas k 0 0 1 {cas}\r\nc\r\n")), "EXISTS");
    assert_eq!(client.get("k").as_deref(), Some(&b"b"[..]));
    let cas_of = |line: &str| line.split(' ').nth(4).map(str::to_owned);
    let both = client.talk("gets k other\r\n");
    let mut seen: Vec<_> = both.lines().filter_map(cas_of).collect();
    assert_eq!(seen.len(), 2);
    seen.dedup();
    assert_eq!(seen.len(), 2, "no two items share a cas");
}

#[test]
fn delete() {
    let server = start_default();
    check(&server, "delete k\r\n", "NOT_FOUND\r\n");
    check(&server, "set k 0 0 1\r\na\r\ndelete k\r\nget k\r\n", "STORED\r\nDELETED\r\nEND\r\n");
    check(&server, "set k 0 0 1\r\na\r\ndelete k 0\r\n", "STORED\r\nDELETED\r\n");
}

#[test]
fn incr_and_decr() {
    let server = start_default();
    check(&server, "incr k 1\r\ndecr k 1\r\n", "NOT_FOUND\r\nNOT_FOUND\r\n");
    check(&server, "set k 0 0 2\r\n98\r\nincr k 5\r\ndecr k 4\r\n", "STORED\r\n103\r\n99\r\n");
    check(&server, "get k\r\n", "VALUE k 0 3\r\n99 \r\nEND\r\n");
    check(&server, "decr k 100\r\n", "0\r\n");
    check(&server, "incr k 18446744073709551615\r\nincr k 2\r\n", "18446744073709551615\r\n1\r\n");
}

#[test]
fn touch_and_gat() {
    let server = start_default();
    check(&server, "touch k 10\r\ngat 10 k\r\n", "NOT_FOUND\r\nEND\r\n");
    check(
        &server,
        "set k 3 0 1\r\na\r\ntouch k 100\r\nmg k t\r\n",
        "STORED\r\nTOUCHED\r\nHD t100\r\n",
    );
    check(&server, "gat 200 k no k\r\n", "VALUE k 3 1\r\na\r\nVALUE k 3 1\r\na\r\nEND\r\n");
    check(&server, "mg k t\r\n", "HD t200\r\n");
    let gats = server.connect().talk("gats 0 k\r\n");
    assert!(gats.starts_with("VALUE k 3 1 ") && gats.ends_with("\r\na\r\nEND\r\n"), "{gats:?}");
    check(&server, "mg k t\r\n", "HD t-1\r\n");
    check(&server, "touch k -1\r\nget k\r\n", "TOUCHED\r\nEND\r\n");
}

#[test]
fn expiry() {
    let server = start_default();
    check(&server, "set k 0 -1 1\r\na\r\nget k\r\n", "STORED\r\nEND\r\n");
    check(&server, "set k 0 1000000000 1\r\na\r\nget k\r\n", "STORED\r\nEND\r\n");
    check(&server, "set k 0 2592000 1\r\na\r\nmg k t\r\n", "STORED\r\nHD t2592000\r\n");
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let in_an_hour = unix.expect("after 1970").as_secs() + 3600;
    let answer = server.connect().talk(format!("set k 0 {in_an_hour} 1\r\na\r\nmg k t\r\n"));
    let left = answer.trim_end().rsplit('t').next().and_then(|left| left.parse().ok());
    assert!(left.is_some_and(|left: u64| left.abs_diff(3600) < 60), "{answer:?}");
    check(&server, "set k 0 1 1\r\na\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\na\r\nEND\r\n");
    let mut client = server.connect();
    eventually("it expires", || client.get("k").is_none());
    check(&server, "add k 0 0 1\r\nb\r\n", "STORED\r\n");
}

#[test]
fn flush_all() {
    let server = start_default();
    check(&server, "set k 0 0 1\r\na\r\nflush_all\r\nget k\r\n", "STORED\r\nOK\r\nEND\r\n");
    // Sent in one piece, so that no second ends between the last two.
    let not_yet = "STORED\r\nOK\r\nVALUE k 0 1\r\na\r\nEND\r\n";
    check(&server, "set k 0 0 1\r\na\r\nflush_all 1\r\nget k\r\n", not_yet);
    let mut client = server.connect();
    eventually("it is flushed", || client.get("k").is_none());
    check(&server, "set k 0 0 1\r\nb\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\nb\r\nEND\r\n");
    let memory = server.cache.metrics().memory;
    check(&server, "flush_all\r\n", "OK\r\n");
    assert_eq!(server.cache.tree().root().usage(memory).current, 0);
}

#[test]
fn a_forbidden_flush_all_drops_nothing() {
    let server = start(Config { flush_all: false, ..Config::default() });
    let refused = "CLIENT_ERROR flush_all not allowed\r\n";
    check(&server, "set k 0 0 1\r\na\r\nflush_all\r\n", &format!("STORED\r\n{refused}"));
    check(&server, "flush_all 0\r\nflush_all noreply\r\nflush_all 1\r\n", &refused.repeat(2));
    // By then the delayed flush has taken effect.
    std::thread::sleep(Duration::from_millis(1500));
    check(&server, "get k\r\n", "VALUE k 0 1\r\na\r\nEND\r\n");
    assert!(server.connect().talk("stats settings\r\n").contains("STAT flush_enabled no\r\n"));
}

#[test]
fn expired_items_go_without_being_asked_for() {
    let server = start_default();
    let memory = server.cache.metrics().memory;
    let mut client = server.connect();
    for n in 0..50 {
        assert_eq!(client.ask(format!("set k{n} 0 -1 1\r\na\r\n")), "STORED");
    }
    assert!(server.cache.tree().root().usage(memory).current > 0);
    // A full sweep takes a minute; some items go within any part of it.
    let before = server.cache.tree().root().usage(memory).current;
    eventually("the sweep finds some", || {
        std::thread::sleep(Duration::from_millis(100));
        server.cache.tree().root().usage(memory).current < before
    });
}

#[test]
fn noreply_is_silent() {
    let server = start_default();
    for request in [
        "set k 0 0 1 noreply\r\n1\r\n",
        "add k 0 0 1 noreply\r\n1\r\n",
        "replace k 0 0 1 noreply\r\n1\r\n",
        "append k 0 0 1 noreply\r\n1\r\n",
        "prepend k 0 0 1 noreply\r\n1\r\n",
        "cas k 0 0 1 1 noreply\r\n1\r\n",
        "incr k 1 noreply\r\n",
        "decr k 1 noreply\r\n",
        "touch k 0 noreply\r\n",
        "verbosity 1 noreply\r\n",
        "delete k noreply\r\n",
        "flush_all noreply\r\n",
        "flush_all 0 noreply\r\n",
    ] {
        check(&server, request, "");
    }
}

#[test]
fn version_verbosity_quit_shutdown() {
    let server = start_default();
    let version = server.connect().ask("version\r\n");
    assert!(version.starts_with("VERSION 1."), "{version:?}");
    check(&server, "verbosity 1\r\n", "OK\r\n");
    check(&server, "shutdown\r\n", "SERVER_ERROR: shutdown not enabled\r\n");
    check(&server, "shutdown now\r\n", "SERVER_ERROR: shutdown not enabled\r\n");
    let mut client = server.connect();
    client.send("set k 0 0 1\r\na\r\nquit\r\nget k\r\n");
    assert_eq!(client.rest(), b"STORED\r\n", "what follows quit is not answered");
}

/// `shutdown`, if it is enabled, ends the connection and asks for the server's end.
#[test]
fn an_enabled_shutdown_asks_for_the_end() {
    for request in ["shutdown\r\nget k\r\n", "shutdown graceful\r\nget k\r\n"] {
        let server = start(Config { shutdown: true, ..Config::default() });
        check(&server, "shutdown now\r\n", "CLIENT_ERROR invalid shutdown mode\r\n");
        let mut client = server.connect();
        client.send(request);
        assert_eq!(client.rest(), b"", "what follows is not answered");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let asked = async { tokio::time::timeout(PATIENCE, server.cache.shutdown_asked()).await };
        runtime.expect("a runtime").block_on(asked).expect("it was asked");
    }
}

#[test]
fn stats() {
    let server = start_default();
    let mut client = server.connect();
    client.talk("set acme:k 0 0 1\r\na\r\nget acme:k\r\nget acme:no\r\n");
    let general = client.talk("stats\r\n");
    for line in [
        "STAT cmd_get 2\r\n",
        "STAT cmd_set 1\r\n",
        "STAT get_hits 1\r\n",
        "STAT get_misses 1\r\n",
        "STAT curr_items 1\r\n",
        "STAT curr_connections 1\r\n",
        "STAT limit_maxbytes 67108864\r\n",
    ] {
        assert!(general.contains(line), "{line:?} in {general}");
    }
    assert!(general.ends_with("END\r\n"));
    let tenants = client.talk("stats tenants\r\n");
    for line in ["STAT /acme:cmd_get 2\r\n", "STAT /:cmd_get 2\r\n", "STAT /acme:curr_items 1\r\n"]
    {
        assert!(tenants.contains(line), "{line:?} in {tenants}");
    }
    for topic in ["settings", "items", "slabs", "sizes"] {
        let answer = client.talk(format!("stats {topic}\r\n"));
        assert!(answer.starts_with("STAT ") && answer.ends_with("END\r\n"), "{topic}: {answer:?}");
    }
    assert_eq!(client.talk("stats reset\r\n"), "RESET\r\n");
    let refused = "CLIENT_ERROR stats cachedump not allowed\r\n";
    assert_eq!(client.talk("stats cachedump 1 100\r\n"), refused);
    assert_eq!(client.talk("stats nonsense\r\n"), "ERROR\r\n");
}

#[test]
fn a_pipeline_is_answered_in_order() {
    let server = start_default();
    let mut client = server.connect();
    let mut requests = String::new();
    let mut answers = String::new();
    for n in 0..2000 {
        requests.push_str(&format!("set k{n} 0 0 {}\r\n{n}\r\nget k{n}\r\n", n.to_string().len()));
        let len = n.to_string().len();
        answers.push_str(&format!("STORED\r\nVALUE k{n} 0 {len}\r\n{n}\r\nEND\r\n"));
    }
    assert_eq!(client.talk(requests), answers);
}
