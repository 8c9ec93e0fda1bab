//! Misbehaving clients: they get a clear answer, nothing is lost, and no other client is affected.

mod common;

use std::io::Write;
use std::time::Duration;

use common::{Client, Running, eventually, start, start_default};
use submeter::Rate;
use submeter_cache::{Cache, Config, Server, TenantLimits};

/// Checks that the server still serves others.
fn is_well(server: &Running) {
    let mut client = server.connect();
    assert_eq!(client.set("well:k", b"value"), "STORED");
    assert_eq!(client.get("well:k").as_deref(), Some(&b"value"[..]));
}

#[test]
fn an_unknown_command_is_an_error() {
    let server = start_default();
    assert_eq!(server.connect().talk("bogus\r\nGET k\r\nx\r\n"), "ERROR\r\n".repeat(3));
    is_well(&server);
}

#[test]
fn malformed_lines_say_what_is_wrong() {
    let server = start_default();
    let format = "CLIENT_ERROR bad command line format";
    for (request, answer) in [
        ("\r\n", format),
        ("   \r\n", format),
        ("get\r\n", format),
        ("gets\r\n", format),
        ("gat 0\r\n", format),
        ("incr k\r\n", format),
        ("touch k\r\n", format),
        ("delete\r\n", format),
        ("delete k 0 noreply x\r\n", format),
        ("mg\r\n", format),
        ("ms k\r\n", format),
        ("set\r\n", format),
        ("set k 0 0\r\n", format),
        ("set k 0 0 x\r\n", format),
        ("set k 0 0 -1\r\n", format),
        ("set k 0 0 99999999999999999999\r\n", format),
        ("incr k x\r\n", "CLIENT_ERROR invalid numeric delta argument"),
        ("incr k -1\r\n", "CLIENT_ERROR invalid numeric delta argument"),
        ("touch k x\r\n", "CLIENT_ERROR invalid exptime argument"),
        ("gat x k\r\n", "CLIENT_ERROR invalid exptime argument"),
        ("flush_all x\r\n", "CLIENT_ERROR invalid exptime argument"),
        ("delete k 1\r\n", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]"),
        ("mg k v v\r\n", "CLIENT_ERROR duplicate flag"),
        ("mg k !\r\n", "CLIENT_ERROR invalid flag"),
        ("mg k Tx\r\n", "CLIENT_ERROR bad token in command line format"),
        ("md k !\r\n", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma k MX\r\n", "CLIENT_ERROR invalid mode for ma M token"),
        ("mg !!! b\r\n", "CLIENT_ERROR error decoding key"),
        ("get a\0b\r\n", format),
    ] {
        assert_eq!(server.connect().talk(request), format!("{answer}\r\n"), "to {request:?}");
    }
    is_well(&server);
}

#[test]
fn a_malformed_stores_value_is_no_command() {
    let server = start_default();
    let over = "k".repeat(251);
    for line in [
        "set k x 0 {}",
        "set k 4294967296 0 {}",
        "set k -1 0 {}",
        "set k 1.5 0 {}",
        "set k 0 0x1 {}",
        "set k 0 x {}",
        "set k 0 0 {} 2 3",
        "set OVER 0 0 {}",
        "add OVER 0 0 {}",
        "cas k 0 0 {}",
        "cas k 0 0 {} x",
        "cas k 0 0 {} 1 2 3",
        "ms OVER {}",
        "ms k {} !",
    ] {
        let value = "set smuggled 0 0 1\r\nx";
        let line = line.replace("OVER", &over).replace("{}", &value.len().to_string());
        let answer = server.connect().talk(format!("{line}\r\n{value}\r\nget smuggled\r\n"));
        let (refused, rest) = answer.split_once("\r\n").expect("an answer");
        assert!(refused.starts_with("CLIENT_ERROR "), "{refused:?} to {line:?}");
        assert_eq!(rest, "END\r\n", "to {line:?}");
    }
    // The end of a refused value is found even if the client wants no answer.
    let request = "set k x 0 4 noreply\r\nmn\r\n\r\nmn x\r\n";
    assert_eq!(server.connect().ask(request), "MN");
    is_well(&server);
}

#[test]
fn counting_what_is_no_number_is_an_error() {
    let server = start_default();
    let mut client = server.connect();
    assert_eq!(client.set("k", b"abc"), "STORED");
    let answer = "CLIENT_ERROR cannot increment or decrement non-numeric value";
    assert_eq!(client.ask("incr k 1\r\n"), answer);
    assert_eq!(client.ask("ma k\r\n"), answer);
    assert_eq!(client.get("k").as_deref(), Some(&b"abc"[..]), "it is unharmed");
}

#[test]
fn an_oversized_key_is_refused() {
    let server = start_default();
    let (most, over) = ("k".repeat(250), "k".repeat(251));
    let mut client = server.connect();
    assert_eq!(client.set(&most, b"a"), "STORED");
    assert_eq!(client.get(&most).as_deref(), Some(&b"a"[..]));
    let refused = "CLIENT_ERROR bad command line format";
    for request in ["get {}", "gat 0 {}", "delete {}", "incr {} 1", "touch {} 1", "mg {}", "me {}"]
    {
        let request = request.replace("{}", &over);
        assert_eq!(client.ask(format!("{request}\r\n")), refused, "to {request:?}");
    }
    assert_eq!(client.talk(format!("set {over} 0 0 7\r\nversion\r\n")), format!("{refused}\r\n"));
    is_well(&server);
}

#[test]
fn an_oversized_value_is_refused_and_swallowed() {
    let server = start_default();
    let mut client = server.connect();
    let most = vec![b'v'; 1 << 20];
    assert_eq!(client.set("a:k", &most), "STORED");
    assert_eq!(client.get("a:k"), Some(most));
    let over = vec![b'v'; (1 << 20) + 1];
    assert_eq!(client.set("a:k", &over), "SERVER_ERROR object too large for cache");
    assert_eq!(client.get("a:k"), None, "the value that was to be replaced is gone");
    let (line, value) = (format!("ms a:k {}\r\n", over.len()), String::from_utf8_lossy(&over));
    let answer = client.talk(format!("{line}{value}\r\n"));
    assert_eq!(answer, "SERVER_ERROR object too large for cache\r\n");
    assert_eq!(client.set("a:k", b"small"), "STORED");
    is_well(&server);
    let a = server.cache.tree().get("/a").expect("it was stored for");
    // Refused bytes are charged to the tenant that sent them.
    assert!(a.sum(server.cache.metrics().bytes_in) > 3 << 20);
}

#[test]
fn a_bad_data_chunk_is_refused() {
    let server = start_default();
    let mut client = server.connect();
    assert_eq!(
        client.talk("set k 0 0 3\r\nabcdef\r\nget k\r\n"),
        "CLIENT_ERROR bad data chunk\r\nERROR\r\nEND\r\n"
    );
    is_well(&server);
}

#[test]
fn a_client_that_leaves_amid_a_value_stores_none() {
    let server = start_default();
    let memory = server.cache.metrics().memory;
    let mut client = server.connect();
    client.send("set gone:k 0 0 100000\r\n");
    client.send(vec![b'v'; 50_000]);
    drop(client);
    let mut client = server.connect();
    client.send("set gone:j 0 0 10\r\nabc");
    client.close_writing();
    assert_eq!(client.rest(), b"");
    eventually("both are gone", || {
        server.connect().talk("stats\r\n").contains("curr_connections 1")
    });
    assert_eq!(server.connect().talk("get gone:k gone:j\r\n"), "END\r\n");
    assert_eq!(server.cache.tree().root().usage(memory).current, 0);
    is_well(&server);
}

#[test]
fn garbage_is_answered_and_then_closed() {
    let server = start_default();
    let mut client = server.connect();
    client.send("garbage\r\n".repeat(200));
    let answers = String::from_utf8(client.rest()).expect("text");
    let expected = "ERROR\r\n".repeat(100) + "CLIENT_ERROR too many malformed requests\r\n";
    assert_eq!(answers, expected);
    is_well(&server);
}

#[test]
fn errors_among_good_requests_close_nothing() {
    let server = start_default();
    let mut client = server.connect();
    let answers = client.talk("garbage\r\nget k\r\n".repeat(300));
    assert_eq!(answers, "ERROR\r\nEND\r\n".repeat(300));
}

#[test]
fn binary_garbage_without_lines_is_closed() {
    let server = start_default();
    let mut client = server.connect();
    let mut rng = fastrand::Rng::with_seed(1);
    // Any bytes except a line feed.
    let bytes = std::iter::repeat_with(|| 0x80 | rng.u8(..));
    client.send(bytes.take(100_000).collect::<Vec<_>>());
    assert_eq!(client.rest(), b"", "without a word");
    is_well(&server);
}

/// A line without end is closed once it is too long for its command.
#[test]
fn an_endless_line_is_closed() {
    let server = start_default();
    for (start, closed) in [("incr ", true), ("mg ", true), ("set ", true), ("get ", false)] {
        let mut client = server.connect();
        client.send(format!("mn\r\n{start}{} manyspaces", " ".repeat(2048)));
        assert_eq!(client.line(), "MN", "what came before is answered");
        if closed {
            assert_eq!(client.rest(), b"", "{start}");
        } else {
            assert_eq!(client.ask("\r\n"), "END", "{start}");
        }
    }
    is_well(&server);
}

#[test]
fn a_client_of_a_byte_at_a_time_is_served() {
    let server = start_default();
    let mut slow = server.connect();
    for byte in b"set slow:k 0 0 5\r\nvalue\r\nget slow:k\r\n" {
        slow.send([*byte]);
        std::thread::sleep(Duration::from_millis(5));
        if *byte == b'v' {
            is_well(&server);
        }
    }
    assert_eq!(slow.line(), "STORED");
    assert_eq!(slow.line(), "VALUE slow:k 0 5");
    is_well(&server);
}

/// Three hundred clients that reset at once leave nothing behind.
#[test]
fn three_hundred_resets_leave_nothing_behind() {
    const CLIENTS: usize = 300;
    let server = start_default();
    let (metrics, root) = (server.cache.metrics(), server.cache.tree().root());
    let mut neighbour = server.connect();
    assert_eq!(neighbour.set("well:large", &vec![b'v'; 1_000_000]), "STORED");
    let kept = root.usage(metrics.memory).current;
    let begin = |n: usize| {
        let mut client = server.connect();
        match n % 3 {
            0 => client.send(format!("set reset:k{n} 0 0 100000\r\n{}", "v".repeat(60_000))),
            1 => client.send("get well:large\r\n".repeat(20)),
            _ => client.send("get well:lar"),
        }
        // Dropping it sends RST: what either side has not read is lost.
        let socket = socket2::SockRef::from(&client.stream);
        socket.set_linger(Some(Duration::ZERO)).expect("a socket");
        client
    };
    let clients: Vec<Client> = (0..CLIENTS).map(begin).collect();
    let open = |client: &mut Client, n| {
        client.talk("stats\r\n").contains(&format!("STAT curr_connections {n}\r\n"))
    };
    eventually("all are accepted", || open(&mut neighbour, 1 + CLIENTS));
    eventually("uploads hold memory", || root.usage(metrics.buffers).current > 0);
    drop(clients);
    eventually("all are gone", || open(&mut neighbour, 1));
    eventually("with what they held", || root.usage(metrics.buffers).current == 0);
    assert_eq!(root.usage(metrics.memory).current, kept, "no half of a value is stored");
    assert_eq!(neighbour.ask("flush_all\r\n"), "OK");
    eventually("nothing is charged", || root.usage(metrics.memory).current == 0);
    let snapshot = server.cache.tree().snapshot();
    let whole = snapshot.get("/").expect("the root").counter(metrics.cmd_set);
    assert_eq!(whole, 1, "of sets, only the whole one counts");
    is_well(&server);
}

#[test]
fn others_are_served_beside_2000_idle_ones() {
    // Both ends are in this process.
    let files = rlimit::increase_nofile_limit(8192).expect("the limit can be read");
    assert!(files >= 4500, "the machine allows {files} open files: raise ulimit -n");
    let server = start(Config { connections_max: 2100, ..Config::default() });
    let idle: Vec<Client> = (0..2000).map(|_| server.connect()).collect();
    eventually("all are accepted", || {
        server.connect().talk("stats\r\n").contains("STAT curr_connections 2001\r\n")
    });
    is_well(&server);
    for mut client in idle.into_iter().step_by(100) {
        assert_eq!(client.ask("get nothing\r\n"), "END");
    }
}

#[test]
fn a_client_that_does_not_read_holds_up_nobody() {
    let server = start_default();
    let mut writer = server.connect();
    assert_eq!(writer.set("big:k", &vec![b'v'; 1 << 20]), "STORED");
    let mut deaf = server.connect();
    deaf.stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    // Far more answers than any socket buffers: the server stops reading and this stops writing.
    let mut blocked = false;
    for _ in 0..100_000 {
        if deaf.stream.write_all(b"get big:k\r\n").is_err() {
            blocked = true;
            break;
        }
    }
    is_well(&server);
    drop(deaf);
    assert!(blocked || server.connect().ask("mn\r\n") == "MN");
    eventually("it is forgotten", || {
        server.connect().talk("stats\r\n").contains("curr_connections 2\r\n")
    });
}

#[test]
fn an_endless_pipeline_lets_others_through() {
    let server = start_default();
    let mut greedy = server.connect();
    let mut reader = greedy.reader();
    let writing = std::thread::spawn(move || {
        for _ in 0..200 {
            greedy.send("get a:k\r\n".repeat(1000));
        }
    });
    let reading = std::thread::spawn(move || {
        for _ in 0..200_000 {
            assert_eq!(reader.line(), "END");
        }
    });
    for _ in 0..20 {
        is_well(&server);
    }
    writing.join().expect("all was sent");
    reading.join().expect("all was answered");
    let a = server.cache.tree().get("/a").expect("it was asked for");
    assert_eq!(a.sum(server.cache.metrics().cmd_get), 200_000);
}

#[test]
fn a_retrieval_of_many_values_is_sent_in_parts() {
    let server = start_default();
    let mut client = server.connect();
    let (small, large) = (vec![b's'; 3000], vec![b'l'; 100_000]);
    assert_eq!(client.set("t:small", &small), "STORED");
    assert_eq!(client.set("u:large", &large), "STORED");
    client.send(format!("get{}\r\n", " t:small u:large no".repeat(500)));
    for _ in 0..500 {
        assert_eq!(client.line(), "VALUE t:small 0 3000");
        assert_eq!(client.bytes(3002)[..3000], small);
        assert_eq!(client.line(), "VALUE u:large 0 100000");
        assert_eq!(client.bytes(100_002)[..100_000], large);
    }
    assert_eq!(client.line(), "END");
    let metrics = server.cache.metrics();
    let hits = |path: &str| server.cache.tree().get(path).expect("a tenant").sum(metrics.get_hits);
    assert_eq!((hits("/t"), hits("/u")), (500, 500));
    assert_eq!(server.cache.tree().root().sum(metrics.get_misses), 500);
}

#[test]
fn a_key_list_without_end_is_closed() {
    let server = start_default();
    let mut client = server.connect();
    client.send("get ");
    let mut sent = 0;
    while sent < 4 << 20 && client.stream.write_all(&[b'k'; 4096]).is_ok() {
        sent += 4096;
    }
    assert_eq!(client.rest(), b"", "without a word");
    is_well(&server);
}

#[test]
fn shutdown_closes_idle_connections_and_the_port() {
    let mut server = start_default();
    let mut idle = server.connect();
    assert_eq!(idle.ask("mn\r\n"), "MN");
    server.stop();
    assert_eq!(idle.rest(), b"");
    assert!(std::net::TcpStream::connect(server.addr).is_err(), "nobody listens any more");
}

#[test]
fn a_port_in_use_is_an_error() {
    let server = start_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let cache = Cache::new(Config::default()).expect("the configuration is sound");
    let bound = runtime.expect("a runtime").block_on(Server::bind(server.addr, cache));
    assert_eq!(bound.err().map(|error| error.kind()), Some(std::io::ErrorKind::AddrInUse));
}

#[test]
fn a_bad_configuration_names_setting_and_remedy() {
    let default = Config::default;
    let limits = |path: &str, bytes: u64| vec![(path.to_owned(), bytes.into())];
    let rate = |amount| Rate::new(amount, Duration::from_secs(1));
    let rates = |path: &str, amount| {
        let rate = Some(rate(amount));
        vec![(path.to_owned(), TenantLimits { rate, ..TenantLimits::default() })]
    };
    for (config, text) in [
        (Config { memory_max: 0, ..default() }, "memory_max 0"),
        (Config { value_max: 0, ..default() }, "value_max 0"),
        (Config { value_max: 2 << 30, ..default() }, "value_max 2147483648"),
        (Config { delimiter: b'/', ..default() }, "delimiter '/'"),
        (Config { delimiter: b' ', ..default() }, "delimiter ' '"),
        (Config { depth_max: 64, ..default() }, "depth_max 64"),
        (Config { depth_max: 0, ..default() }, "depth_max 0"),
        (Config { tenants_max: usize::MAX, ..default() }, "tenants_max"),
        (Config { connections_max: 0, ..default() }, "connections_max 0"),
        (Config { buffers_max: 1 << 20, ..default() }, "buffers_max 1048576"),
        (Config { value_max: 1 << 30, ..default() }, "buffers_max 67108864"),
        (Config { request_timeout: Duration::ZERO, ..default() }, "timeout of 0"),
        (Config { idle_timeout: Some(Duration::ZERO), ..default() }, "timeout of 0"),
        (Config { tenant_limits: limits("acme", 1), ..default() }, "\"acme\" is not a path"),
        (Config { tenant_limits: limits("/", 1), ..default() }, "set memory_max"),
        (Config { tenant_limits: limits("/a", 0), ..default() }, "limit 0 of tenant \"/a\""),
        (
            Config { tenant_limits: rates("/a", 0), ..default() },
            "tenant \"/a\": invalid rate 0 per 1s",
        ),
        (Config { tenant_limits: limits("/a:b", 1), ..default() }, "contains the delimiter"),
        (Config { tenant_limits: limits("/a//b", 1), ..default() }, "it is empty"),
        (Config { tenant_limits: limits("/a/..", 1), ..default() }, "it is reserved"),
        (Config { tenant_limits: limits("/a/b/c/d/e", 1), ..default() }, "deeper than depth_max 4"),
        (
            Config { tenant_limits: [limits("/a", 1), limits("/a", 2)].concat(), ..default() },
            "two limits",
        ),
        (
            Config { tenant_limits: limits("/a/b", 1), tenants_max: 1, ..default() },
            "2 tenants have limits or users, more than tenants_max 1",
        ),
    ] {
        let error = Cache::new(config).expect_err(text).to_string();
        assert!(error.contains(text), "{text:?} in {error:?}");
        assert!(!error.contains('\n'), "one line: {error:?}");
    }
}

#[test]
fn a_small_server_still_serves() {
    let server = start(Config { memory_max: 4096, ..Config::default() });
    is_well(&server);
}
