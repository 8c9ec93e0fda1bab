//! Clients that make the server wait: limits on their number, their time and the memory they hold.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use crate::common::{Client, Running, eventually, start, start_default};
use submeter_cache::{Cache, Config, Server};

const BUFFERS: u64 = 8 << 20;

fn small_buffers() -> Running {
    start(Config { buffers_max: BUFFERS, ..Config::default() })
}

fn buffers(server: &Running) -> u64 {
    server.cache.tree().root().usage(server.cache.metrics().buffers).current
}

fn stat(server: &Running, name: &str) -> u64 {
    server.connect().stat(name)
}

/// Begins a store of 1 MiB and omits its end.
fn begin_upload(server: &Running, key: &str) -> Client {
    let mut client = server.connect();
    client.send(format!("set {key} 0 0 {}\r\n", 1 << 20));
    // The server may close it before everything is sent.
    let _ = client.stream.write_all(&vec![b'v'; (1 << 20) - 6]);
    client
}

/// Returns whether the server has closed the connection; it sends nothing else to this client.
fn is_closed(client: &mut Client) -> bool {
    client.stream.set_nonblocking(true).expect("a socket");
    let read = client.stream.read(&mut [0]);
    client.stream.set_nonblocking(false).expect("a socket");
    !matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// A superfluous connection is told so, and the others stay.
#[test]
fn a_connection_too_many_is_told_so() {
    let server = start(Config { connections_max: 2, ..Config::default() });
    let (mut one, mut two) = (server.connect(), server.connect());
    assert_eq!((one.ask("mn\r\n"), two.ask("mn\r\n")), ("MN".to_owned(), "MN".to_owned()));
    for _ in 0..3 {
        assert_eq!(server.connect().rest(), b"ERROR Too many open connections\r\n");
    }
    let stats = one.talk("stats\r\n");
    for line in ["max_connections 2", "curr_connections 2", "rejected_connections 3"] {
        assert!(stats.contains(&format!("STAT {line}\r\n")), "{line} in {stats}");
    }
    drop(two);
    eventually("there is a place again", || {
        let mut next = server.connect();
        next.send("mn\r\n");
        next.line() == "MN"
    });
}

/// Uploads that never end take the buffers, and hold up no other client.
#[test]
fn endless_uploads_hold_up_nobody_else() {
    let server = small_buffers();
    let uploads: Vec<Client> = (0..40).map(|n| begin_upload(&server, &format!("k{n}"))).collect();
    eventually("they hold what there is", || buffers(&server) > BUFFERS / 2);
    // A small request needs no room.
    let mut neighbour = server.connect();
    assert_eq!(neighbour.set("well:small", b"value"), "STORED");
    // A large request gets the room of the client that has stalled for the longest time.
    for n in 0..5 {
        assert_eq!(neighbour.set(&format!("well:{n}"), &vec![b'w'; 1 << 20]), "STORED");
    }
    assert!(stat(&server, "buffer_kicks") > 0);
    assert!(stat(&server, "buffer_bytes_peak") <= BUFFERS);
    drop(uploads);
    eventually("what they held is given back", || buffers(&server) == 0);
}

#[test]
fn untaken_answers_are_in_the_buffers_only() {
    let server = small_buffers();
    let mut writer = server.connect();
    let deaf: Vec<Client> = (0..40)
        .map(|n| {
            // Each value is replaced at once, so that only the answer holds it.
            assert_eq!(writer.set(&format!("k{n}"), &vec![b'v'; 1 << 20]), "STORED");
            let mut client = server.connect();
            client.send(format!("get{}\r\n", format!(" k{n}").repeat(20)));
            client
        })
        .collect();
    eventually("some had to go", || stat(&server, "buffer_kicks") > 0);
    assert!(stat(&server, "buffer_bytes_peak") <= BUFFERS);
    assert_eq!(writer.get("k39").map(|value| value.len()), Some(1 << 20));
    drop(deaf);
    eventually("what they held is given back", || buffers(&server) == 0);
}

/// A large value waits for room behind the other waiters, and is counted once.
///
/// Otherwise each client that gets a value would hold it beyond the bound: once evicted, the value
/// is in no tenant's account.
#[test]
fn a_large_value_waits_behind_others() {
    let server = small_buffers();
    let mut reader = server.connect();
    assert_eq!(reader.set("large", &vec![b'v'; 1 << 20]), "STORED");
    eventually("nothing is held", || buffers(&server) == 0);
    let uploads: Vec<Client> = (0..12).map(|n| begin_upload(&server, &format!("k{n}"))).collect();
    eventually("they hold what there is", || buffers(&server) > BUFFERS - (1 << 20));
    // Some wait, and the first gets the room of a stalled connection; these clients are behind
    // them.
    let mut others: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    // Without the value, or with one that the client already has, there is nothing to wait for.
    assert!(server.connect().ask("mg large s h u\r\n").starts_with("HD s1048576 h0"));
    reader.send("mg large v h\r\nmn\r\n");
    assert_eq!(reader.line(), "VA 1048576 h0", "the look for its room was no fetch");
    others[0].send("gat 1000 large small\r\n");
    others[1..].iter_mut().for_each(|other| other.send("get large\r\n"));
    for (n, client) in std::iter::once(&mut reader).chain(&mut others).enumerate() {
        if n > 0 {
            assert_eq!(client.line(), "VALUE large 0 1048576");
        }
        assert!(stat(&server, "buffer_kicks") > 0, "it had to wait for the room of others");
        assert_eq!(client.bytes((1 << 20) + 2).len(), (1 << 20) + 2);
        assert_eq!(client.line(), if n > 0 { "END" } else { "MN" });
    }
    let names = ["get_hits", "get_misses", "touch_hits", "cmd_meta"];
    assert_eq!(names.map(|name| stat(&server, name)), [4, 0, 1, 2]);
    drop(uploads);
    eventually("what they held is given back", || buffers(&server) == 0);
}

#[test]
fn a_large_buffer_is_given_up_after_use() {
    let server = start_default();
    let mut client = server.connect();
    assert_eq!(client.set("k", &vec![b'v'; 1 << 20]), "STORED");
    eventually("nothing is held between two requests", || buffers(&server) == 0);
    // The same with the beginning of the next request right behind the value.
    let mut both = format!("set k 0 0 {}\r\n", 1 << 20).into_bytes();
    both.extend(vec![b'v'; 1 << 20]);
    both.extend(b"\r\nget k");
    assert_eq!(client.ask(both), "STORED");
    eventually("the buffer is small again", || buffers(&server) == 0);
    client.send(" k\r\n");
    assert_eq!(client.line(), "VALUE k 0 1048576");
}

/// A request that is not complete in time ends its connection.
#[test]
fn an_unfinished_request_ends_its_connection() {
    let time = Duration::from_millis(300);
    let server = start(Config { request_timeout: time, ..Config::default() });
    let mut idle = server.connect();
    assert_eq!(idle.ask("mn\r\n"), "MN");
    for beginning in ["g", "set k 0 0 100000\r\nvvv", "get k k k"] {
        let mut slow = server.connect();
        slow.send(beginning);
        // An occasional byte does not extend the time. The bytes are far too few to complete the
        // request, however busy the machine is.
        eventually("its time is over", || {
            let _ = slow.stream.write_all(b"v");
            is_closed(&mut slow)
        });
    }
    eventually("they are counted", || stat(&server, "slow_kicks") == 3);
    assert_eq!(idle.ask("mn\r\n"), "MN", "an idle client may wait");
}

#[test]
fn a_client_in_progress_may_take_any_time() {
    let time = Duration::from_secs(3);
    let server = start(Config { request_timeout: time, ..Config::default() });
    let mut client = server.connect();
    // The client is always in the middle of a request, for longer than one request may take.
    for _ in 0..20 {
        client.send("mn\r\nm");
        assert_eq!(client.line(), "MN");
        std::thread::sleep(time / 15);
        client.send("n\r\n");
        assert_eq!(client.line(), "MN");
    }
}

#[test]
fn who_is_slow_to_take_answers_is_not_waiting() {
    const VALUE: usize = 512 << 10;
    const REQUESTS: u64 = 100;
    let slow = Duration::from_secs(1);
    let server = start_default();
    let mut client = server.connect();
    client.send(format!("set acme:k 0 0 {VALUE}\r\n{}\r\n", "v".repeat(VALUE)));
    assert_eq!(client.line(), "STORED");
    client.send("get acme:k\r\n".repeat(REQUESTS as usize));
    // The sockets hold a few; the others wait for this client.
    std::thread::sleep(slow);
    for _ in 0..REQUESTS {
        assert_eq!(client.line(), format!("VALUE acme:k 0 {VALUE}"));
        client.bytes(VALUE + 7);
    }
    let metrics = server.cache.metrics();
    let snapshot = server.cache.tree().snapshot();
    let waited = Duration::from_nanos(snapshot.get("/acme").expect("made").counter(metrics.waited));
    // Each of some 90 answers would have a second.
    assert!(waited < slow * 20, "{waited:?}");
}

#[test]
fn answers_not_taken_in_time_end_a_connection() {
    let time = Duration::from_millis(300);
    let server = start(Config { request_timeout: time, ..Config::default() });
    let mut deaf = server.connect();
    assert_eq!(deaf.set("k", &vec![b'v'; 100_000]), "STORED");
    deaf.send(format!("get{}\r\n", " k".repeat(1000)));
    eventually("its time is over", || stat(&server, "slow_kicks") == 1);
    eventually("it holds nothing", || buffers(&server) == 0);
}

#[test]
fn an_idle_connection_is_closed_only_if_asked() {
    // Long enough for the other client to send in time on a busy machine.
    let time = Duration::from_secs(3);
    let server = start(Config { idle_timeout: Some(time), ..Config::default() });
    let mut busy = server.connect();
    let mut idle = server.connect();
    assert_eq!(idle.ask("mn\r\n"), "MN");
    eventually("its time is over", || {
        assert_eq!(busy.ask("mn\r\n"), "MN");
        is_closed(&mut idle)
    });
    assert_eq!(stat(&server, "idle_kicks"), 1);
}

#[test]
fn a_request_under_way_at_shutdown_is_finished() {
    let server = start(Config { drain: Duration::from_secs(30), ..Config::default() });
    let mut idle = server.connect();
    assert_eq!(idle.ask("mn\r\n"), "MN");
    let mut client = begin_upload(&server, "k");
    eventually("it has begun", || buffers(&server) > 0);
    let cache = server.cache.clone();
    let mut server = server;
    let stopping = std::thread::spawn(move || server.stop());
    assert_eq!(idle.rest(), b"", "who waits for nothing is closed at once");
    client.send("vvvvvv\r\n");
    assert_eq!(client.line(), "STORED");
    assert_eq!(client.rest(), b"");
    stopping.join().expect("it stops");
    assert_eq!(cache.tree().root().sum(cache.metrics().cmd_set), 1);
}

#[test]
fn what_arrived_before_a_shutdown_is_answered() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (tell, told) = std::sync::mpsc::channel();
    runtime.expect("a runtime").block_on(async {
        let cache = Cache::new(Config::default()).expect("the configuration is sound");
        let server = Server::bind(([127, 0, 0, 1], 0).into(), cache).await.expect("a port");
        let addr = server.address().tcp().expect("a port");
        let shutdown = async move {
            let client = tokio::task::spawn_blocking(move || {
                let mut client = Client::connect(addr);
                assert_eq!(client.ask("mn\r\n"), "MN");
                client
            });
            let mut client = client.await.expect("answered");
            // Sent on the server's only thread, so that the server sees the shutdown and this
            // request at the same time.
            client.send("mn\r\n");
            let closes = std::thread::spawn(move || client.rest());
            tell.send(closes).expect("the test waits");
        };
        server.run(shutdown).await.expect("serving does not fail");
    });
    let answer = told.recv().expect("sent").join().expect("closed in time");
    assert_eq!(answer, b"MN\r\n");
}

#[test]
fn an_endless_request_holds_up_no_shutdown() {
    let mut server = start(Config { drain: Duration::from_millis(200), ..Config::default() });
    let mut upload = begin_upload(&server, "k");
    eventually("it has begun", || buffers(&server) > 0);
    server.stop();
    assert!(is_closed(&mut upload));
}

#[test]
fn a_list_of_tenants_is_metered_and_in_parts() {
    let server = start_default();
    let mut client = server.connect();
    let name = "n".repeat(200);
    for n in 0..2000 {
        client.send(format!("set t{n}{name}:k 0 0 1 noreply\r\nv\r\n"));
    }
    assert_eq!(client.ask("mn\r\n"), "MN");
    let root = server.cache.tree().root().clone();
    let out = server.cache.metrics().bytes_out;
    let before = root.sum(out);
    client.send("stats tenants\r\nmn\r\n");
    let mut length = 0;
    let mut lines = 0;
    loop {
        let line = client.line();
        if line == "END" {
            break;
        }
        assert!(line.starts_with("STAT /"), "{line}");
        length += line.len() as u64 + 2;
        lines += 1;
    }
    assert_eq!(lines, 2001 * 10 + 1);
    assert_eq!(client.line(), "MN", "what follows is answered after it");
    assert_eq!(root.sum(out) - before, length + 5 + 4);
}

/// Unread lists are few, and clients that read get theirs.
#[test]
fn unread_lists_are_few() {
    let server = start_default();
    let mut client = server.connect();
    let name = "n".repeat(200);
    for n in 0..8000 {
        client.send(format!("set t{n}{name}:k 0 0 1 noreply\r\nv\r\n"));
    }
    assert_eq!(client.ask("mn\r\n"), "MN");
    let deaf: Vec<Client> = (0..50)
        .map(|_| {
            let mut client = server.connect();
            client.send("stats tenants\r\n".repeat(3));
            client
        })
        .collect();
    assert_eq!(client.ask("mn\r\n"), "MN");
    client.send("stats tenants\r\n");
    while client.line() != "END" {}
    assert!(stat(&server, "buffer_bytes") < BUFFERS, "each holds a part");
    drop(deaf);
}
