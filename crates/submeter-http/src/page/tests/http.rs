//! The answer of each address.

use std::collections::BTreeSet;
use std::io::Read;
use std::time::Instant;

use super::super::client;
use super::super::connections::{CONNECTIONS_MAX, HEAD_TIMEOUT};
use super::super::wire::totals::TotalsDoc;
use super::super::wire::{DetailDoc, FORMAT, Figure, LimitDoc, TreeDoc, ValueDoc};
use super::World;
use crate::Token;

#[test]
fn the_page_is_one_file_that_asks_nobody_else() {
    let answer = World::start().get("/");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(answer.header("content-security-policy").is_some_and(|p| p.contains("'none'")));
    assert!(answer.body.starts_with("<!doctype html>") && answer.body.ends_with("</html>\n"));
    for outside in ["<script src", "<link rel=\"stylesheet\"", "@import", "//cdn", "https://"] {
        assert!(!answer.body.contains(outside), "the page contains {outside}");
    }
}

#[test]
fn no_text_from_the_server_is_parsed_as_markup() {
    let parsers = ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser"];
    for parser in parsers.iter().chain(&["createContextualFragment", "eval(", "new Function"]) {
        assert!(!client::PAGE.contains(parser), "the page uses {parser}");
    }
}

#[test]
fn head_answers_as_get_does_without_the_body() {
    let world = World::start();
    for target in ["/", "/healthz", "/api/tree", "/metrics"] {
        let answer = world.request("HEAD", target);
        assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{target}");
    }
    assert_eq!(world.get("/healthz").body, "ok\n");
}

#[cfg(feature = "gzip")]
#[test]
fn who_takes_gzip_is_sent_the_same_in_less() {
    let world = World::start();
    for n in 0..100 {
        world.jobs(&format!("/tenant-{n}"), 1);
    }
    // Until the group is in a sample.
    for _ in 0..600 {
        if world.get("/api/group?path=/tenant-7").status == 200 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    for (target, times) in [("/", 3), ("/api/tree", 5), ("/api/group?path=/tenant-7", 2)] {
        let plain = world.get(target);
        assert_eq!(plain.header("content-encoding"), None, "{target}");
        assert_eq!(plain.header("vary"), Some("accept-encoding"), "{target}");
        let ask = ["Host: localhost", "Accept-Encoding: gzip, deflate, br"];
        let (answer, small) = world.request_bytes("GET", target, &ask);
        assert_eq!(answer.header("content-encoding"), Some("gzip"), "{target}");
        assert_eq!(answer.header("vary"), Some("accept-encoding"), "{target}");
        assert_eq!(answer.header("content-length"), Some(&*small.len().to_string()), "{target}");
        assert_eq!(answer.header("content-type"), plain.header("content-type"), "{target}");
        assert!(small.len() * times < plain.body.len(), "{target}: {} bytes", small.len());
        let mut body = String::new();
        flate2::read::GzDecoder::new(&small[..]).read_to_string(&mut body).expect("gzip of text");
        if target == "/" {
            assert_eq!(body, plain.body);
        } else {
            let keys = |json: &str| {
                let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
                let keys: BTreeSet<String> =
                    json.as_object().expect("one").keys().cloned().collect();
                (keys, json["groups"].as_array().map(Vec::len))
            };
            assert_eq!(keys(&body), keys(&plain.body), "{target}");
        }
        let head = world.request_with("HEAD", target, &ask);
        assert_eq!((head.status, head.body.as_str()), (200, ""), "{target}");
    }
    for (target, status) in [("/metrics", 200), ("/healthz", 200), ("/api/group?path=/no", 404)] {
        let answer =
            world.request_with("GET", target, &["Host: localhost", "Accept-Encoding: gzip"]);
        assert_eq!((answer.status, answer.header("content-encoding")), (status, None), "{target}");
    }
}

#[test]
fn proxies_pass_what_streams_as_it_comes() {
    let world = World::start();
    let mut streaming = Vec::new();
    for (method, target) in [
        ("GET", "/"),
        ("GET", "/api/tree"),
        ("GET", "/api/group?path=/"),
        ("GET", "/api/totals"),
        ("GET", "/api/events"),
        ("POST", "/api/stat?e=task-clock&g="),
        ("GET", "/metrics"),
        ("GET", "/healthz"),
        ("GET", "/nothing"),
        ("POST", "/api/tree"),
    ] {
        let mut connection = world.connect();
        connection.send(&format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nX-Submeter: 1\r\n\r\n"
        ));
        let head = connection.head();
        let streams = head.header("transfer-encoding") == Some("chunked");
        let expected = if streams {
            streaming.push(target);
            (Some("no"), Some("no-store, no-transform"))
        } else {
            (None, Some("no-store"))
        };
        let passed = (head.header("x-accel-buffering"), head.header("cache-control"));
        assert_eq!(passed, expected, "{method} {target}");
    }
    assert_eq!(streaming, ["/api/events", "/api/stat?e=task-clock&g="]);
}

#[test]
fn what_is_not_there_says_what_is() {
    let world = World::start();
    let answer = world.get("/metric");
    assert_eq!(answer.status, 404);
    assert!(answer.body.contains("/metric:") && answer.body.contains("/metrics"), "{answer:?}");
    let answer = world.request("POST", "/api/tree");
    assert_eq!(answer.status, 405);
    assert!(answer.header("allow").is_some_and(|allow| allow.contains("GET")), "{answer:?}");
    let answer = world.get("/api/group");
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("?path="), "{answer:?}");
    let answer = world.get("/api/group?path=/nobody");
    assert_eq!(answer.status, 404);
    assert!(answer.body.contains("/nobody"), "{answer:?}");
}

#[test]
fn the_tree_is_of_this_moment_and_adds_up() {
    let world = World::start();
    world.jobs("/acme/web", 7);
    world.jobs("/acme/api", 5);
    let held = world.tenant("/acme/web").try_charge(world.program.disk, 1000);
    world.tenant("/acme/web").set_limit(world.program.disk, Some(5000));
    let tree: TreeDoc =
        serde_json::from_value(world.json("/api/tree")).expect("reads as it was written");
    drop(held);
    assert_eq!(tree.format, FORMAT);
    let paths: Vec<&str> = tree.groups.iter().map(|group| group.path.as_str()).collect();
    assert_eq!(paths, ["/", "/acme", "/acme/api", "/acme/web"]);
    assert_eq!(tree.groups[3].parent, Some(1));
    for (index, gets) in [(0, 12), (1, 12), (2, 5), (3, 7)] {
        assert_eq!(tree.groups[index].values["jobs"], ValueDoc::Unsigned(gets));
    }
    assert_eq!(tree.groups[0].overview["disk"], Figure(Some(1000.0)));
    assert_eq!(tree.groups[3].overview["disk_limit"], Figure(Some(5000.0)));
    assert_eq!(tree.groups[2].overview["disk_limit"], Figure(None));
    let views: Vec<&str> = tree.views.iter().map(|view| view.key.as_str()).collect();
    let shown: Vec<&str> = tree.groups[0].overview.keys().map(String::as_str).collect();
    assert_eq!(BTreeSet::from_iter(views), BTreeSet::from_iter(shown), "each is described");
    assert_eq!(tree.schema.len(), world.tree().schema().metrics().len());
}

#[test]
fn bills_are_numbered_and_name_the_process() {
    let world = World::with(|shown| shown.member("east-1"));
    world.jobs("/acme/web", 7);
    let totals = || -> TotalsDoc {
        serde_json::from_value(world.json("/api/totals")).expect("reads as it was written")
    };
    let (first, second) = (totals(), totals());
    assert_eq!((first.format, &*first.member), (1, "east-1"));
    assert_eq!(first.units["jobs"], "count");
    assert!(!first.units.contains_key("queued"), "no gauge");
    let [reading] = first.readings.as_slice() else { panic!("nothing was restored") };
    assert_eq!(second.readings[0].epoch, reading.epoch);
    assert!(second.readings[0].sequence > reading.sequence);
    assert_eq!(second.readings[0].started_ms, reading.started_ms);
    assert_eq!((reading.complete, reading.follows.len()), (false, 0));
    let groups: Vec<_> = reading.groups.iter().map(|g| (&*g.path, g.totals["jobs"])).collect();
    assert_eq!(groups, [("/", 7), ("/acme", 7), ("/acme/web", 7)]);
    assert_eq!(reading.groups[2].parent, Some(reading.groups[1].id));
    assert_ne!(World::start().json("/api/totals")["readings"][0]["epoch"], *reading.epoch);
}

#[test]
fn a_group_comes_with_its_histogram_and_its_past() {
    let world = World::start();
    world.jobs("/acme/web", 3);
    let mut detail: Option<DetailDoc> = None;
    // The first sample with the group may be older than its jobs.
    for _ in 0..600 {
        let answer = world.get("/api/group?path=%2Facme%2Fweb");
        if answer.status == 200 {
            let found: DetailDoc = serde_json::from_str(&answer.body).expect("JSON");
            if found.histograms["waits"].total.iter().sum::<u64>() > 0 {
                detail = Some(found);
                break;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let detail = detail.expect("sampled within a minute");
    assert_eq!(detail.group.path, "/acme/web");
    assert_eq!(detail.group.values["jobs"], ValueDoc::Unsigned(3));
    let waits = &detail.histograms["waits"];
    assert_eq!(waits.total.iter().sum::<u64>(), 1);
    assert_eq!(waits.upper.len(), waits.total.len());
    assert_eq!(detail.history.ago_s.len(), detail.history.series["jobs_per_s"].len());
    assert!(!detail.history.ago_s.is_empty());
}

#[test]
fn hostile_names_arrive_as_they_are() {
    let world = World::start();
    let name = "<img src=x onerror=alert(1)>\"'`&</script><!--\\u0000\u{202e}";
    world.jobs(&format!("/{}", name.replace('/', "|")), 1);
    let tree = world.json("/api/tree");
    assert_eq!(tree["groups"][1]["path"], format!("/{}", name.replace('/', "|")));
    let answer = world.get("/api/group?path=/%3Cscript%3Ealert(1)%3C/script%3E");
    assert_eq!(answer.status, 404);
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
}

/// Metrics cover the groups that the program chose.
#[test]
fn metrics_are_of_the_groups_chosen() {
    let world = World::with(|shown| shown.version("").export(|export| export.depth(1)));
    world.jobs("/acme/web", 7);
    let text = world.get("/metrics").body;
    assert!(text.contains("program_jobs_total{group=\"/acme\"} 7\n"), "{text}");
    assert!(!text.contains("group=\"/acme/web\""), "{text}");
    assert!(!text.contains("version=\"\""), "no version is not an empty one: {text}");
}

#[test]
fn metrics_are_in_the_format_asked_for() {
    let world = World::start();
    world.jobs("/acme/web", 7);
    let answer = world.get("/metrics");
    let text = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(answer.header("content-type"), Some(text));
    let accept = "Accept: application/openmetrics-text;version=1.0.0";
    let answer = world.request_with("GET", "/metrics", &["Host: localhost", accept]);
    assert_eq!(
        answer.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    assert!(answer.body.contains("program_jobs_total{group=\"/acme/web\"} 7\n"));
    assert!(answer.body.contains("program_jobs_total{group=\"/\"} 0\n"));
    let info = format!("program_backend_info{{backend=\"{}\",", submeter::backend().id());
    assert!(answer.body.contains(&info), "{}", answer.body);
    assert!(answer.body.ends_with("# EOF\n"));
}

#[test]
fn accept_is_one_list_however_many_lines_it_has() {
    let world = World::start();
    let [openmetrics, text] =
        ["application/openmetrics-text;q=0.5", "text/plain"].map(|kind| format!("Accept: {kind}"));
    for (lines, kind) in [
        (&[&*openmetrics][..], "application/openmetrics-text"),
        (&[&*openmetrics, &text], "text/plain"),
        (&[&*text, &openmetrics], "text/plain"),
    ] {
        let answer = world.request_with("GET", "/metrics", &[&["Host: localhost"], lines].concat());
        let sent = answer.header("content-type").expect("a type");
        assert_eq!(sent.split(';').next(), Some(kind), "{lines:?}");
        assert_eq!(answer.header("vary"), Some("accept"));
    }
}

#[test]
fn what_else_a_request_asks_for_is_passed_over() {
    let world = World::start();
    world.jobs("/acme", 1);
    for line in [
        "Range: bytes=0-1",
        "If-Range: \"x\"",
        "If-None-Match: *",
        "If-None-Match: W/\"x\", \"y\"",
        "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT",
        "TE: trailers, deflate;q=0.5",
        "Connection: TE, X-Other",
        "Upgrade: h2c, websocket",
        "Expect: 100-continue",
        "Max-Forwards: 0",
        "Content-Type: nonsense",
    ] {
        let answer = world.request_with("GET", "/api/tree", &["Host: localhost", line]);
        assert_eq!(answer.status, 200, "{line}");
        assert_eq!(answer.header("content-length"), Some(&*answer.body.len().to_string()));
        assert!(answer.header("content-range").is_none() && answer.body.contains("/acme"));
    }
    // An invalid length, or two of them, would let one request hide in another.
    for lines in [
        &["Content-Length: x"][..],
        &["Content-Length: +1"],
        &["Content-Length: 1", "Content-Length: 2"],
        &["Content-Length: 1, 2"],
    ] {
        let answer =
            world.request_with("POST", "/api/stat", &[&["Host: localhost"], lines].concat());
        assert_eq!(answer.status, 400, "{lines:?}");
    }
}

#[test]
fn a_body_that_is_waited_for_is_asked_for() {
    let world = World::with(|shown| shown.on_limits(async |text| text));
    let mut connection = world.connect();
    connection.send(
        "POST /api/limits HTTP/1.1\r\nHost: localhost\r\nX-Submeter: 1\r\nContent-Length: 5\r\n\
         Expect: 100-Continue\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(connection.head().status, 100);
    connection.send("/a=1k");
    assert_eq!(connection.head().status, 200);
    assert_eq!(connection.line().as_deref(), Some("/a=1k"));
}

/// A limit of one group takes the header, the group, and the program's consent.
#[test]
fn a_limit_of_one_group_takes_header_and_consent() {
    let set = async |path: String, limits: String| match limits.as_str() {
        "rate=none" => Err((crate::StatusCode::BAD_REQUEST, "no such limit\n".to_owned())),
        _ => Ok(LimitDoc { path, limits, undo: "rate=none".to_owned() }),
    };
    let world = World::with(|shown| shown.on_limit(set));
    let post = |target: &str, headers: &[&str], body: &str| {
        let length = format!("Content-Length: {}", body.len());
        let mut connection = world.connect();
        let headers = [&["Host: localhost", "Connection: close", &length], headers].concat();
        let head = format!("POST {target} HTTP/1.1\r\n{}\r\n\r\n{body}", headers.join("\r\n"));
        connection.send(&head);
        (connection.head().status, connection.line().unwrap_or_default())
    };
    let meant = ["X-Submeter: 1"];
    let (status, doc) = post("/api/limit?path=%2Facme", &meant, "rate=500/s");
    let doc: LimitDoc = serde_json::from_str(&doc).expect("JSON");
    assert_eq!(
        (status, &*doc.path, &*doc.limits, &*doc.undo),
        (200, "/acme", "rate=500/s", "rate=none")
    );
    for (target, headers, body, status, named) in [
        ("/api/limit?path=/acme", &meant[..], "rate=none", 400, "no such limit"),
        ("/api/limit", &meant, "rate=5/s", 400, "name exactly one group"),
        ("/api/limit?path=/acme", &[], "rate=5/s", 403, "X-Submeter"),
        (
            "/api/limit?path=/acme",
            &["X-Submeter: 1", "Origin: http://evil.example"],
            "rate=5/s",
            403,
            "evil",
        ),
    ] {
        let (got, line) = post(target, headers, body);
        assert!(got == status && line.contains(named), "{target} {headers:?}: {got} {line}");
    }
    let tree: serde_json::Value = serde_json::from_str(&world.get("/api/tree").body).expect("JSON");
    assert_eq!(tree["server"]["sets_limits"], true, "the page has a button");
    assert_eq!(
        World::start().request("POST", "/api/limit?path=/acme").status,
        404,
        "not asked for"
    );
}

#[test]
fn every_route_says_which_methods_it_has() {
    let world = World::with(|shown| shown.on_limits(async |_| ""));
    for (target, allowed) in [
        ("/", "GET,HEAD"),
        ("/api/tree", "GET,HEAD"),
        ("/api/group?path=/", "GET,HEAD,DELETE"),
        ("/api/totals", "GET,HEAD"),
        ("/api/events", "GET,HEAD"),
        ("/api/limits", "POST"),
        ("/api/stat", "POST"),
        ("/metrics", "GET,HEAD"),
        ("/healthz", "GET,HEAD"),
    ] {
        for method in ["PUT", "PATCH", "OPTIONS", "TRACE", "PROPFIND"] {
            let answer = world.request(method, target);
            assert_eq!(answer.status, 405, "{method} {target}");
            let allow: Vec<_> =
                answer.headers.iter().filter(|(name, _)| name == "allow").map(|(_, v)| v).collect();
            assert_eq!(allow, [allowed], "{method} {target}");
        }
        if allowed.contains("HEAD") {
            let answer = world.request("HEAD", target);
            assert_eq!((answer.status, &*answer.body), (200, ""), "{target}");
        }
    }
}

/// A client that finds no place is told so, and the others stay.
#[test]
fn a_client_too_many_is_told_so() {
    let world = World::start();
    let mut idle: Vec<_> = (0..CONNECTIONS_MAX).map(|_| world.let_in()).collect();
    let answer = world.get("/api/tree");
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")), "{answer:?}");
    assert!(answer.body.contains(&CONNECTIONS_MAX.to_string()), "{answer:?}");
    let mut first = idle.swap_remove(0);
    first.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(first.head().status, 200);
}

#[test]
fn silent_or_tokenless_clients_keep_nobody_out() {
    let token = Token::new("correct-horse-battery").expect("a token");
    let world = World::with(|shown| shown.token(token));
    let began = Instant::now();
    let mut strangers: Vec<_> = (0..2 * CONNECTIONS_MAX + 50).map(|_| world.connect()).collect();
    let heads = ["GET /api/tree HT", "GET /api/tree HTTP/1.1\r\nHost: localhost\r\n\r\n"];
    let all = strangers.len();
    for (client, head) in strangers[all - 100..].iter_mut().zip(heads.into_iter().cycle()) {
        client.send(head);
    }
    let headers = ["Host: localhost", "Authorization: Bearer correct-horse-battery"];
    for _ in 0..10 {
        assert_eq!(world.request_with("GET", "/api/totals", &headers).status, 200);
    }
    assert_eq!(strangers[0].line(), None, "the place of the first was another's");
    assert!(began.elapsed() < HEAD_TIMEOUT, "a place was free only once a stranger was given up");
}

#[test]
fn a_server_full_of_slow_clients_says_it_runs() {
    let world = World::start();
    // More than there are places, and than are heard beyond those.
    let mut slow: Vec<_> = (0..CONNECTIONS_MAX).map(|_| world.let_in()).collect();
    slow.extend((0..100).map(|_| world.connect()));
    for client in &mut slow[..CONNECTIONS_MAX] {
        client.send("GET /api/tree HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    for _ in 0..40 {
        let answer = world.get("/healthz");
        assert_eq!((answer.status, &*answer.body), (200, "ok\n"));
    }
    assert_eq!(slow[CONNECTIONS_MAX].line(), None, "one that came early was given up");
    let answer = world.request_with("GET", "/healthz", &["Host: elsewhere.example"]);
    assert_eq!(answer.status, 403, "the guard is the same");
}

#[test]
fn what_is_not_http_is_refused_and_harms_nobody() {
    let world = World::start();
    let mut garbage = world.connect();
    garbage.send("\0\u{1}get k\r\n\r\n");
    assert_eq!(garbage.head().status, 400);
    assert_eq!(world.get("/healthz").status, 200);
}
