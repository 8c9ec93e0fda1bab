//! Requests that another site's page made a browser send.

use super::{Answer, World};
use crate::Token;

const HEADER: &str = "X-Submeter: 1";

/// Every route, with the method that it takes.
const ROUTES: [(&str, &str); 10] = [
    ("GET", "/"),
    ("GET", "/api/tree"),
    ("HEAD", "/api/tree"),
    ("GET", "/api/group?path=/acme"),
    ("DELETE", "/api/group?path=/acme"),
    ("GET", "/api/events"),
    ("POST", "/api/stat?e=task-clock&g="),
    ("GET", "/metrics"),
    ("GET", "/healthz"),
    ("GET", "/nothing"),
];

/// Returns whether the request was refused without revealing anything to the page.
fn is_refused(answer: &Answer) -> bool {
    // A request without `Host` is not HTTP/1.1, which the parser may find first.
    matches!(answer.status, 400 | 403) && !answer.body.contains("acme")
}

#[test]
fn no_route_answers_a_page_of_another_site() {
    let world = World::start();
    drop(world.jobs("/acme", 1));
    let port = world.addr.port();
    let own = format!("Host: 127.0.0.1:{port}");
    let rebound = format!("Host: evil.example:{port}");
    let neighbour = format!("Origin: http://127.0.0.1:{}", port ^ 1);
    let forged: [&[&str]; 19] = [
        &[],
        &[&rebound],
        &["Host: 192.0.2.1"],
        &["Host: 127.0.0.1.evil.example"],
        &["Host: localhost.evil.example"],
        &["Host: 127.0.0.1@evil.example"],
        &["Host: evil.example@127.0.0.1"],
        &["Host: localhost:abc"],
        &["Host: [::1]:99999"],
        &["Host: \u{e4}"],
        &[&own, &own],
        &[&own, &rebound],
        &[&rebound, &own],
        &[&own, "Origin: http://evil.example"],
        &[&own, "Origin: null"],
        &[&own, &neighbour],
        &[&own, "Origin: http://evil.example", "Origin: http://127.0.0.1"],
        &[&own, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"],
        &[&own, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: cors"],
    ];
    for (method, target) in ROUTES {
        for headers in forged {
            let headers = [headers, &[HEADER]].concat();
            let answer = world.request_with(method, target, &headers);
            assert!(is_refused(&answer), "{method} {target} {headers:?}: {answer:?}");
        }
    }
    let absolute = format!("http://evil.example:{port}/api/tree");
    assert!(is_refused(&world.request_with("GET", &absolute, &[&own])));
    assert!(world.tree().get("/acme").is_some());
}

#[test]
fn a_refusal_says_how_to_ask() {
    let world = World::start();
    let answer = world.request_with("GET", "/metrics", &["Host: submeter.lan"]);
    assert_eq!(answer.status, 403);
    for part in ["\"submeter.lan\"", "--http-host NAME", &world.addr.to_string()] {
        assert!(answer.body.contains(part), "{answer:?} names {part}");
    }
    assert_eq!(answer.body.matches('\n').count(), 1, "{answer:?}");
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
}

#[test]
fn an_effect_takes_a_header_no_other_site_sends() {
    let world = World::start();
    drop(world.jobs("/acme", 1));
    for (method, target) in
        [("DELETE", "/api/group?path=/acme"), ("POST", "/api/stat?e=task-clock&g=")]
    {
        for headers in [&["Host: localhost"][..], &["Host: localhost", "X-Submeter: 0"]] {
            let answer = world.request_with(method, target, headers);
            assert_eq!(answer.status, 403, "{method} {target} {headers:?}: {answer:?}");
            assert!(answer.body.contains("X-Submeter: 1"), "{answer:?}");
        }
        let asks = format!("Access-Control-Request-Method: {method}");
        let preflight = ["Host: localhost", &asks, "Access-Control-Request-Headers: x-submeter"];
        let answer = world.request_with("OPTIONS", target, &preflight);
        assert_eq!(answer.status, 405);
        assert!(answer.header("allow").is_some_and(|allow| allow.contains(method)), "{answer:?}");
        assert!(answer.headers.iter().all(|(name, _)| !name.starts_with("access-control")));
    }
    assert!(world.tree().get("/acme").is_some());
}

#[test]
fn counting_events_is_no_get() {
    let world = World::start();
    for method in ["GET", "HEAD"] {
        let mut connection = world.connect();
        connection.send(&format!(
            "{method} /api/stat?e=task-clock&g= HTTP/1.1\r\nHost: localhost\r\n{HEADER}\r\n\r\n"
        ));
        // Reads only the head: if the request counted, its body would not end.
        let answer = connection.head();
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{method}");
    }
}

#[test]
fn any_address_or_name_of_the_server_is_answered() {
    let world = World::with(|shown| shown.host("submeter.lan"));
    let port = world.addr.port();
    let page = format!("Origin: http://submeter.lan:{port}");
    let host = format!("Host: Submeter.lan:{port}");
    for headers in [
        &["Host: localhost:1"][..],
        &["Host: [::1]:1"],
        &["Host: 127.0.0.2"],
        &["Host: LOCALHOST"],
        &["Host: submeter.lan"],
        &[&host, &page],
        &[&host, &page, "Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors"],
        &["Host: localhost", "Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate"],
        // A person follows a link on another site's page.
        &["Host: localhost", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"],
    ] {
        let answer = world.request_with("GET", "/api/tree", headers);
        assert_eq!(answer.status, 200, "{headers:?}: {answer:?}");
    }
    let form = ["Host: localhost", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"];
    assert_eq!(world.request_with("POST", "/healthz", &form).status, 403, "a form of another site");
}

#[test]
fn every_route_but_health_asks_for_a_token() {
    let token = Token::new("correct-horse-battery").expect("a token");
    let world = World::with(|shown| shown.token(token));
    drop(world.jobs("/acme", 1));
    let own = ["Host: localhost", HEADER];
    let right = "Authorization: Bearer correct-horse-battery";
    // correct-horse-battery, of user x.
    let browsers = "Authorization: Basic eDpjb3JyZWN0LWhvcnNlLWJhdHRlcnk=";
    for (method, target) in ROUTES {
        let without = world.request_with(method, target, &own);
        if target == "/healthz" {
            assert_eq!(without.status, 200);
            continue;
        }
        let wrong = [&own[..], &["Authorization: Bearer correct-horse-batterx"]].concat();
        for answer in [without, world.request_with(method, target, &wrong)] {
            assert_eq!(answer.status, 401, "{method} {target}: {answer:?}");
            let challenge = answer.header("www-authenticate").expect("how to ask");
            assert!(challenge.contains("Bearer") && challenge.contains("Basic"), "{challenge}");
            assert!(!answer.body.contains("acme"), "{answer:?}");
        }
    }
    assert!(world.tree().get("/acme").is_some());
    assert!(!World::start().get("/api/tree").body.contains("asks_token"), "nor asked for");
    for shown in [right, browsers] {
        let with = [&own[..], &[shown]].concat();
        let tree = world.request_with("GET", "/api/tree", &with);
        assert_eq!(tree.status, 200, "{shown}");
        assert!(tree.body.contains(r#""asks_token":true"#), "copied commands have it");
        // A browser also sends it for a page of another site.
        let crossed = [&with[..], &["Sec-Fetch-Site: cross-site"]].concat();
        assert_eq!(world.request_with("GET", "/api/tree", &crossed).status, 403, "{shown}");
    }
}
