//! HTTP requests, which a page of any site can make a browser on this machine send.

use submeter_cache::{Config, Foreign};

use crate::common::{Client, Running, start_default, start_with};

/// Sends what a browser sends for `fetch(url, {method: "POST", mode: "no-cors", body})`.
fn post(server: &Running, first_line: &str, body: &str) -> Client {
    let mut client = server.connect();
    client.send(format!(
        "{first_line}\r\nHost: {}\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101\r\n\
         Accept: */*\r\nAccept-Language: en\r\nAccept-Encoding: gzip, deflate\r\n\
         Content-Type: text/plain;charset=UTF-8\r\nContent-Length: {}\r\n\
         Origin: http://evil.example\r\nReferer: http://evil.example/\r\n\
         Sec-Fetch-Dest: empty\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Site: cross-site\r\n\
         Connection: keep-alive\r\nPriority: u=4\r\n\r\n{body}",
        server.addr,
        body.len()
    ));
    client
}

#[test]
fn the_body_of_a_browsers_post_is_not_executed() {
    let server = start_default();
    let mut own = server.connect();
    assert_eq!(own.set("victim", b"x"), "STORED");
    // A server that executes the body obeys its `quit`, so that the test fails instead of waiting.
    let body = "\r\nflush_all\r\nset acme:pwned 0 0 4\r\nevil\r\nquit\r\n";
    // The second line is what a proxy might make of the first.
    for first_line in ["POST / HTTP/1.1", "get /"] {
        let answer = post(&server, first_line, body).rest();
        let answer = String::from_utf8_lossy(&answer);
        let expected = if first_line == "get /" { "END\r\n" } else { "" };
        assert_eq!(answer, expected, "{first_line}: closed, without a word");
        assert_eq!(own.get("victim").as_deref(), Some(&b"x"[..]), "{first_line}");
        assert!(server.cache.tree().get("/acme").is_none(), "{first_line}");
    }
}

#[test]
fn answers_to_what_came_before_are_still_sent() {
    let server = start_default();
    let mut client = server.connect();
    client.send("set k 0 0 1\r\nv\r\nget k\r\nPOST / HTTP/1.1\r\nget k\r\nquit\r\n");
    let answers = String::from_utf8(client.rest()).expect("text");
    assert_eq!(answers, "STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n");
}

#[test]
fn http_in_a_value_is_a_value() {
    let server = start_default();
    let mut client = server.connect();
    let page = b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(client.set("page:cached", page), "STORED");
    assert_eq!(client.get("page:cached").as_deref(), Some(&page[..]));
    // A refused value is skipped by its length, not by lines.
    let large = b"Host: x\r\n".repeat(200_000);
    assert_eq!(client.set("page:large", &large), "SERVER_ERROR object too large for cache");
    assert_eq!(client.ask("mn\r\n"), "MN");
}

/// A client of another protocol is closed at once and reported.
#[test]
fn a_client_of_another_protocol_is_closed() {
    let (tell, told) = std::sync::mpsc::channel();
    let hear = move |foreign: &Foreign| tell.send(foreign.clone()).expect("the test listens");
    let server = start_with(Config::default(), |server| server.on_foreign(hear));
    for (first, protocol) in [
        // A request for the version, and the beginning of a handshake: neither ends a line.
        (
            &b"\x80\x0b\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"[..],
            "memcached's binary protocol",
        ),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", "TLS"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
    ] {
        let mut client = server.connect();
        client.send(first);
        assert_eq!(client.rest(), b"", "{protocol}");
        let foreign = told.recv().expect("it is told of");
        let from = format!("tcp:{}", client.stream.local_addr().expect("bound"));
        assert_eq!((foreign.protocol, foreign.client), (protocol, from));
    }
    let mut client = server.connect();
    assert_eq!(client.set("k", b"\x80\x16\x03\x01"), "STORED", "a value may begin with anything");
}
