//! `submeter top` and `submeter stat` with a program that is not a cache and mounts its page.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use submeter::{Count, Schema, Tree};
use submeter_http::Dashboard;
use submeter_program::text;

use crate::support::SUBMETER;

/// Runs `act` beside a program whose page is mounted at `/tenants` and whose `/acme` works.
fn beside_a_program<T>(act: impl FnOnce(&str) -> T) -> T {
    /// Set when dropped, so that a test that fails in `act` does not hang.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            // Relaxed: a plain signal.
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let mut schema = Schema::builder();
    let jobs = schema.counter::<Count>("jobs", "Jobs done");
    let tree = Tree::new(schema.build().expect("distinct names")).expect("a tree");
    let acme = tree.create("/acme").expect("a legal path");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Relaxed: a plain signal.
            while !stop.load(Ordering::Relaxed) {
                let _entered = acme.enter();
                acme.inc(jobs);
            }
        });
        let _stop = Stop(&stop);
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let addr: SocketAddr = runtime.block_on(async {
            let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let addr = port.local_addr().expect("bound");
            let app = axum::Router::new()
                .nest_service("/tenants", submeter_http::router(Dashboard::new("worker", &tree)));
            tokio::spawn(async { axum::serve(port, app).await });
            addr
        });
        let result = act(&format!("http://{addr}/tenants"));
        runtime.shutdown_background();
        result
    })
}

#[test]
fn top_shows_what_its_schema_suggests() {
    let output = beside_a_program(|url| SUBMETER.run(&["top", "--once", url]));
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}{}", text(&output.stderr));
    let lines: Vec<&str> = out.lines().map(str::trim_start).collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert!(lines[0].contains("jobs/s"), "{out}");
    assert!(lines[1].starts_with('/') && lines[2].starts_with("acme"), "{out}");
}

/// Stat counts its groups and needs no list of events.
#[test]
fn stat_counts_its_groups_without_a_list() {
    let output = beside_a_program(|url| {
        SUBMETER.run(&["stat", "-x,", "-G", "acme", "--timeout", "300", url])
    });
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}{}", text(&output.stderr));
    // Events that a kernel counts on every machine, and one that needs a counter of the processor.
    for event in ["task-clock", "context-switches", "page-faults", "cycles", "instructions"] {
        assert!(out.contains(&format!(",{event},")), "{event} is missing: {out}");
    }
    let clock = out.lines().find(|line| line.contains(",task-clock,")).expect("found above");
    let value: f64 = clock.split(',').next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
    assert!(value > 0.0 && clock.contains("acme"), "{clock}");
}
