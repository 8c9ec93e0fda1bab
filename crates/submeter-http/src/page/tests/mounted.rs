//! The router in another program's router, without a server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, Version};
use parking_lot::Mutex;
use submeter::Tree;
use tokio::runtime::Handle;
use tower::ServiceExt;

use super::super::{Dashboard, router};
use super::Program;

async fn ask(app: &Router, method: &str, target: &str, headers: &[(&str, &str)]) -> (u16, String) {
    send(app, method, target, headers, Body::empty()).await
}

async fn send(
    app: &Router,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: Body,
) -> (u16, String) {
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(body).expect("a request");
    let Ok(answer) = app.clone().oneshot(request).await;
    let status = answer.status().as_u16();
    let body = to_bytes(answer.into_body(), 1 << 20).await.expect("a body");
    (status, String::from_utf8(body.to_vec()).expect("text"))
}

const HOST: (&str, &str) = ("host", "localhost:8080");

#[tokio::test]
async fn it_answers_below_its_mount_and_nowhere_else() {
    let program = Program::new();
    program.tree.create("/acme").expect("a legal path").add(program.jobs, 3);
    let own = axum::routing::get(|| async { "the program's" });
    let app = Router::new().route("/", own).nest_service("/tenants", router(program.shown()));
    assert_eq!(ask(&app, "GET", "/", &[HOST]).await, (200, "the program's".to_owned()));
    for page in ["/tenants", "/tenants/"] {
        let (status, body) = ask(&app, "GET", page, &[HOST]).await;
        assert!(status == 200 && body.starts_with("<!doctype html>"), "{page}: {status}");
    }
    let (status, tree) = ask(&app, "GET", "/tenants/api/tree", &[HOST]).await;
    assert!(status == 200 && tree.contains("\"/acme\""), "{tree}");
    let (_, metrics) = ask(&app, "GET", "/tenants/metrics", &[HOST]).await;
    assert!(metrics.contains("program_jobs_total{group=\"/acme\"} 3\n"), "{metrics}");
    assert_eq!(ask(&app, "GET", "/api/tree", &[HOST]).await.0, 404);
}

#[tokio::test]
async fn over_http_2_the_host_is_that_of_the_target() {
    let app = router(Program::new().shown());
    for (host, origin, status) in [
        ("localhost:8080", None, 200),
        ("localhost:8080", Some("http://localhost:8080"), 200),
        ("localhost:8080", Some("http://evil.example"), 403),
        ("evil.example", None, 403),
    ] {
        let mut request = Request::get(format!("http://{host}/api/tree"));
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let request = request.version(Version::HTTP_2).body(Body::empty()).expect("a request");
        let Ok(answer) = app.clone().oneshot(request).await;
        assert_eq!(answer.status(), status, "{host} {origin:?}");
    }
}

/// Where another server listens, foreign names are refused and addresses are not.
#[tokio::test]
async fn names_are_refused_where_another_listens() {
    let app = router(Program::new().shown().host("ops.lan"));
    for host in ["localhost", "192.0.2.1:80", "[2001:db8::1]", "ops.lan"] {
        for scheme in ["http", "https"] {
            let origin = format!("{scheme}://{host}");
            let headers = [("host", host), ("origin", &*origin)];
            assert_eq!(ask(&app, "GET", "/api/tree", &headers).await.0, 200, "{origin}");
        }
    }
    for headers in [
        &[][..],
        &[("host", "evil.example")],
        &[("host", "192.0.2.1.evil.example")],
        &[("host", "ops.lan"), ("origin", "https://evil.example")],
        &[("host", "ops.lan"), ("origin", "null")],
        &[("host", "ops.lan"), ("origin", "ftp://ops.lan")],
    ] {
        let (status, why) = ask(&app, "GET", "/api/tree", headers).await;
        assert_eq!(status, 403, "{headers:?}");
        assert!(!why.contains("evil") || why.contains("evil.example"), "{why}");
    }
    let (_, why) = ask(&app, "GET", "/", &[("host", "evil.example")]).await;
    for part in
        ["evil.example", "start submeter serve with --http-host", "submeter_http::Dashboard::host"]
    {
        assert!(why.contains(part), "{why} names {part}");
    }
}

#[tokio::test]
async fn nothing_is_deleted_unless_the_program_asks() {
    let program = Program::new();
    drop(program.tree.create("/acme").expect("a legal path"));
    let meant = [HOST, ("x-submeter", "1")];
    let app = router(Dashboard::new("program", &program.tree));
    let (status, why) = ask(&app, "DELETE", "/api/group?path=/acme", &meant).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED.as_u16());
    assert!(why.contains("clients may not delete groups"), "{why}");
    assert!(program.tree.get("/acme").is_some());
    let app = router(program.shown());
    assert_eq!(ask(&app, "DELETE", "/api/group?path=/acme", &[HOST]).await.0, 403);
    assert!(program.tree.get("/acme").is_some());
    let gone = ask(&app, "DELETE", "/api/group?path=%2Facme", &meant).await;
    assert_eq!(gone, (200, "gone\n".to_owned()));
    assert!(program.tree.get("/acme").is_none());
    assert_eq!(ask(&app, "DELETE", "/api/group", &meant).await.0, 400);
}

/// A group goes with all below it, once nothing of theirs is stored; the answer says what holds on.
#[tokio::test(start_paused = true)]
async fn a_deletion_kills_purges_and_waits() {
    let program = Program::new();
    let (tree, meant) = (program.tree.clone(), [HOST, ("x-submeter", "1")]);
    let stored = Arc::new(Mutex::new(BTreeMap::new()));
    for path in ["/acme", "/acme/web", "/busy"] {
        let group = tree.get_or_create(path).expect("a legal path");
        let charge = group.try_charge(program.disk, 7).expect("no limit");
        stored.lock().insert(path.to_owned(), charge);
    }
    let (seen, purged) = (tree.clone(), Arc::clone(&stored));
    let app = router(Dashboard::new("program", &tree).deletes(move |killed| {
        assert!(seen.get(killed.path()).is_none(), "killed before its purge");
        drop(purged.lock().remove(killed.path()));
    }));
    let delete = |path: &str| format!("/api/group?path={path}");
    let gone = ask(&app, "DELETE", &delete("/acme"), &meant).await;
    assert_eq!(gone, (200, "deleted /acme\n".to_owned()));
    assert_eq!(stored.lock().keys().collect::<Vec<_>>(), ["/busy"]);
    assert_eq!(tree.root().usage(program.disk).current, 7);

    let request = tree.get("/busy").expect("it lives");
    let (status, held) = ask(&app, "DELETE", &delete("/busy"), &meant).await;
    assert!(status == 202 && held.starts_with("/busy is not released"), "{status} {held}");
    assert!(stored.lock().is_empty() && request.is_killed());
    assert_eq!(ask(&app, "DELETE", &delete("/busy"), &meant).await.0, 404);
    assert_eq!(ask(&app, "DELETE", &delete("/"), &meant).await.0, 409);
}

/// A tenant that comes back between kill and purge keeps what it stores: it has another number.
#[tokio::test]
async fn a_deletion_leaves_a_successors_items() {
    let program = Program::new();
    let (tree, meant) = (program.tree.clone(), [HOST, ("x-submeter", "1")]);
    let stored = Arc::new(Mutex::new(BTreeMap::new()));
    let disk = program.disk;
    let store = move |stored: &Mutex<BTreeMap<_, _>>, tree: &Tree, path: &str| {
        let group = tree.get_or_create(path).expect("a legal path");
        let charge = group.try_charge(disk, 7).expect("no limit");
        stored.lock().insert(group.id(), charge);
        group.id()
    };
    let old = ["/acme", "/acme/web"].map(|path| store(&stored, &tree, path));
    let (again, purged) = (tree.clone(), Arc::clone(&stored));
    let app = router(Dashboard::new("program", &tree).deletes(move |killed| {
        if killed.path() == "/acme/web" {
            store(&purged, &again, "/acme");
        }
        drop(purged.lock().remove(&killed.id()));
    }));
    let gone = ask(&app, "DELETE", "/api/group?path=/acme", &meant).await;
    assert_eq!(gone, (200, "deleted /acme\n".to_owned()));
    let new = tree.get("/acme").expect("it came back").id();
    assert_eq!(stored.lock().keys().collect::<Vec<_>>(), [&new]);
    assert!(!old.contains(&new));
}

/// If the purge of one group panics, the others are purged all the same, and the answer names it.
#[tokio::test(start_paused = true)]
async fn a_purge_that_panics_leaves_the_others_purged() {
    let program = Program::new();
    let (tree, meant) = (program.tree.clone(), [HOST, ("x-submeter", "1")]);
    for path in ["/acme/mail", "/acme/web", "/acme/web/img"] {
        drop(tree.get_or_create(path).expect("a legal path"));
    }
    let purged = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&purged);
    let app = router(Dashboard::new("program", &tree).deletes(move |killed| {
        assert_ne!(killed.path(), "/acme/web", "on purpose");
        notes.lock().push(killed.path().to_owned());
    }));
    let failed = ask(&app, "DELETE", "/api/group?path=/acme", &meant).await;
    assert_eq!(failed, (500, "the purge of /acme/web panicked\n".to_owned()));
    purged.lock().sort();
    assert_eq!(*purged.lock(), ["/acme", "/acme/mail", "/acme/web/img"]);
}

#[tokio::test]
async fn what_clients_may_change_is_listed_if_they_may() {
    let program = Program::new();
    let app = router(Dashboard::new("program", &program.tree));
    let (status, why) = ask(&app, "GET", "/nowhere", &[HOST]).await;
    assert_eq!(status, 404);
    assert!(!why.contains("DELETE") && !why.contains("/api/limits"), "{why}");
    let limited = program.shown().on_limits(|_| async { "set\n" });
    let (_, why) = ask(&router(limited), "GET", "/nowhere", &[HOST]).await;
    assert!(why.contains("DELETE /api/group?path=") && why.contains("POST /api/limits"), "{why}");
}

#[tokio::test]
async fn long_or_garbled_limits_are_refused_with_why() {
    let shown =
        Program::new().shown().on_limits(|text: String| async move { text.len().to_string() });
    let (app, meant) = (router(shown), [HOST, ("x-submeter", "1")]);
    let post = |body: Vec<u8>| send(&app, "POST", "/api/limits", &meant, Body::from(body));
    assert_eq!(post(vec![b'#'; 2 << 20]).await, (200, "2097152".to_owned()));
    let (status, why) = post(vec![b'#'; (2 << 20) + 1]).await;
    assert!(status == 413 && why.contains("longer than 2097152 bytes"), "{status} {why}");
    let (status, why) = post(vec![0xff]).await;
    assert!(status == 400 && why.contains("stay as they were") && why.contains("UTF-8"), "{why}");
}

#[tokio::test]
async fn a_group_that_is_not_there_is_shown_escaped() {
    let app = router(Program::new().shown());
    let (status, why) = ask(&app, "GET", "/api/group?path=/a%01b", &[HOST]).await;
    assert!(status == 404 && why.starts_with("no group \"/a\\u{1}b\":"), "{why}");
}

#[tokio::test]
async fn sampling_ends_with_the_last_router() {
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let app = router(Program::new().shown());
    let mounted = Router::<()>::new().nest_service("/tenants", app.clone());
    assert_eq!(tasks(), before + 1);
    drop(app);
    tokio::task::yield_now().await;
    assert_eq!(tasks(), before + 1, "one router is left");
    drop(mounted);
    // Bounded, generously: at once, except for a sample in progress.
    for _ in 0..6000 {
        if tasks() == before {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the sampler outlives its routers");
}

/// Any name is shown as it is, and begins metrics in a legal form.
#[test]
fn any_name_is_shown_as_it_is() {
    let tree = Program::new().tree;
    for (name, prefix) in [("my-service 2", "my_service_2"), ("2fast", "_2fast"), ("", "_")] {
        let shown = Dashboard::new(name, &tree);
        assert_eq!((shown.prefix.as_str(), shown.server.listen.as_str()), (prefix, name));
    }
}
