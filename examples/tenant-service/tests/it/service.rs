//! Documents, limits, deletion, restarts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::client::{Service, of, text};

/// Documents are stored, listed, fetched and counted.
#[test]
fn documents_are_stored_listed_and_counted() {
    let service = Service::start("documents");
    let key = service.create("acme", "");
    // Some pieces, the last one partly filled; two whole ones; a batch, and a little more; nothing.
    for bytes in [150_000, 128 << 10, 1 << 20, (1 << 20) + 1, 0] {
        let content = text(bytes);
        assert_eq!(service.call(&key, "PUT", "/documents/a", &content).0, 201);
        let (status, _, got) = service.call(&key, "GET", "/documents/a", &[]);
        assert!(status == 200 && got == content, "{status}, {} of {bytes}", got.len());
    }
    let listed = service.call(&key, "GET", "/documents", &[]).2;
    let listed: serde_json::Value = serde_json::from_slice(&listed).expect("JSON");
    assert_eq!(listed, serde_json::json!([{"name": "a", "bytes": 0}]));

    let lines = b"b a  c a\nb a".repeat(20_000);
    assert_eq!(service.call(&key, "PUT", "/documents/words", &lines).0, 201);
    assert_eq!(service.call(&key, "GET", "/documents/words/words", &[]).0, 404);
    assert_eq!(service.call(&key, "POST", "/documents/words/words", &[]).0, 202);
    let words = service.await_status(&key, "/documents/words/words", 200);
    // The last word of each copy and the first of the next are one.
    assert_eq!(String::from_utf8_lossy(&words), "40001 a\n20001 b\n20000 c\n19999 ab\n");

    assert_eq!(service.call(&key, "DELETE", "/documents/a", &[]).0, 204);
    assert_eq!(service.call(&key, "GET", "/documents/a", &[]).0, 404);
    assert_eq!(service.call(&key, "DELETE", "/documents/a", &[]).0, 404);
    assert_eq!(service.call("no key", "GET", "/documents", &[]).0, 401);
}

#[test]
fn every_byte_that_a_client_sees_is_counted_once() {
    let service = Service::start("bytes");
    let [acme, other] = ["acme", "other"].map(|tenant| service.create(tenant, ""));
    let content = text(200_000);
    let (mut sent, mut seen) = (0, 0);
    let mut call = |method, path, body: &[u8]| {
        sent += body.len();
        let (status, _, got) = service.call(&acme, method, path, body);
        seen += got.len();
        status
    };
    assert_eq!(call("PUT", "/documents/a", &content), 201);
    assert_eq!(call("PUT", "/documents/b", b"short"), 201);
    for _ in 0..5 {
        assert_eq!(call("GET", "/documents/a", &[]), 200);
        assert_eq!(call("GET", "/documents", &[]), 200);
        assert_eq!(call("GET", "/documents/none", &[]), 404);
    }
    assert_eq!(service.call(&other, "GET", "/documents/a", &[]).0, 404, "of another tenant");
    let metrics = service.metrics();
    assert_eq!(of(&metrics, "http_request_bytes_total", "/acme"), sent as f64);
    assert_eq!(of(&metrics, "http_response_bytes_total", "/acme"), seen as f64);
    assert_eq!(of(&metrics, "http_requests_total", "/acme"), 17.0);
    assert_eq!(of(&metrics, "http_requests_total", "/other"), 1.0);
    assert_eq!(of(&metrics, "http_active_requests", "/acme"), 0.0);
    assert_eq!(of(&metrics, "memory_bytes", "/acme"), 0.0);
}

#[test]
fn who_is_over_its_limits_is_told_when_to_retry() {
    let service = Service::start("limits");
    let slow = service.create("slow", "requests_per_s=1");
    assert_eq!(service.call(&slow, "GET", "/documents", &[]).0, 200);
    // On a machine that takes a second for each request, the next one is within the rate.
    let refused = (0..100).map(|_| service.call(&slow, "GET", "/documents", &[]));
    let (_, after, body) = refused.into_iter().find(|(status, ..)| *status == 429).expect("one");
    assert_eq!(after, Some(1));
    assert_eq!(
        String::from_utf8_lossy(&body),
        "the rate of requests is reached: try again later\n"
    );

    let small = service.create("small", "memory_bytes=1100000");
    assert_eq!(service.call(&small, "PUT", "/documents/a", &text(1_200_000)).0, 201);
    let (status, after, body) = service.call(&small, "POST", "/documents/a/words", &[]);
    assert_eq!((status, after), (507, Some(1)));
    assert_eq!(String::from_utf8_lossy(&body), "the limit of memory is reached: try again later\n");

    for bad in ["requests_per_s=0", "requests_per_s=x", "memory=1"] {
        assert_eq!(service.operate("PUT", &format!("/tenants/bad?{bad}")).0, 400, "{bad}");
    }
    assert_eq!(service.operate("PUT", "/tenants/a%2Fb").0, 400);
    let metrics = service.metrics();
    assert!(of(&metrics, "requests_throttled_total", "/slow") >= 1.0);
    assert_eq!(of(&metrics, "memory_refused_total", "/small"), 1.0);
}

#[test]
fn a_deleted_tenant_leaves_after_its_downloads() {
    let service = Service::start("deleted");
    let key = service.create("acme", "");
    // More than sockets buffer, so that the download cannot end by itself.
    let content = text(48 << 20);
    assert_eq!(service.call(&key, "PUT", "/documents/a", &content).0, 201);
    let mut download = TcpStream::connect(service.api).expect("connects");
    write!(download, "GET /documents/a HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n")
        .expect("sent");
    let mut download = BufReader::new(download);
    let mut line = String::new();
    download.read_line(&mut line).expect("an answer");
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");

    let deleted = std::thread::scope(|scope| {
        // Ends the download if the test fails, so that the deletion ends too.
        let mut download = download;
        let deletion = scope.spawn(|| service.operate("DELETE", "/tenants/acme").0);
        service.await_status(&key, "/documents/none", 401);
        assert!(!deletion.is_finished(), "the download holds the tenant");
        // The download in progress still gets all of it.
        while line != "\r\n" {
            line.clear();
            download.read_line(&mut line).expect("a head");
        }
        let mut got = vec![0; content.len()];
        download.read_exact(&mut got).expect("all of it");
        assert!(got == content, "what came is not what was stored");
        deletion.join().expect("no panic")
    });
    assert_eq!(deleted, 204);
    assert_eq!(service.operate("DELETE", "/tenants/acme").0, 404);
    let metrics = service.metrics();
    let root = |metric: &str| of(&metrics, metric, "/") + of(&metrics, metric, "//other");
    // Requests that were too early for the deletion have a text too.
    let early = root("http_requests_total") - 2.0;
    let bytes = content.len() as f64 + early * "no document has this name\n".len() as f64;
    assert_eq!(root("http_response_bytes_total"), bytes);
    assert!(metrics.keys().all(|name| !name.contains("/acme")), "{metrics:?}");
    // The name is free for another tenant, which finds nothing.
    let key = service.create("acme", "");
    assert_eq!(service.call(&key, "GET", "/documents", &[]).2, b"[]");
}

/// Stored documents survive a crash, and half an upload does not.
#[test]
fn what_was_stored_outlives_a_crash() {
    let mut service = Service::start("crash");
    let key = service.create("acme", "requests_per_s=500");
    assert_eq!(service.call(&key, "PUT", "/documents/a", &text(100_000)).0, 201);
    let mut upload = TcpStream::connect(service.api).expect("connects");
    let head = format!("PUT /documents/b HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n");
    write!(upload, "{head}content-length: 2000000\r\n\r\n").expect("sent");
    upload.write_all(&text(1_900_000)).expect("sent");
    service.crash();
    let (status, _, got) = service.call(&key, "GET", "/documents/a", &[]);
    assert!(status == 200 && got == text(100_000));
    let listed = service.call(&key, "GET", "/documents", &[]).2;
    assert_eq!(listed, br#"[{"name":"a","bytes":100000}]"#);
    assert_eq!(of(&service.metrics(), "http_requests_total", "/acme"), 2.0);
}
