//! How long requests take, according to their tenants' figures.

use std::num::NonZero;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use submeter_cache::Config;

use crate::common::start_with;

#[test]
fn waits_behind_others_are_part_of_the_latency() {
    // The only worker serves a client for as long as this test wants: a hook holds it.
    let (held, holds) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let server = start_with(Config::default(), move |server| {
        let server = server.threads(NonZero::<usize>::MIN).expect("the system has threads");
        server.on_foreign(move |_| {
            held.send(()).expect("the test listens");
            released.lock().expect("one at a time").recv().expect("told");
        })
    });
    let (mut first, mut second, mut quiet) = (server.connect(), server.connect(), server.connect());
    for client in [&mut first, &mut second, &mut quiet] {
        assert_eq!(client.ask("mn\r\n"), "MN");
    }
    first.send(b"\x16\x03");
    holds.recv().expect("the worker is held");
    // Both have arrived when it looks next, in this order.
    second.send(b"\x16\x03");
    quiet.send("get quiet:k\r\n");
    release.send(()).expect("it waits");
    holds.recv().expect("the worker is held again");
    let began = Instant::now();
    std::thread::sleep(Duration::from_millis(50));
    let waits = u64::try_from(began.elapsed().as_nanos()).expect("short");
    release.send(()).expect("it waits");
    assert_eq!(quiet.line(), "END");
    let metrics = server.cache.metrics();
    let tenant = server.cache.tree().get("/quiet").expect("it was asked for");
    let waited = tenant.sum(metrics.waited);
    let latency = server.cache.tree().snapshot();
    let latency = latency.get("/quiet").expect("there").histogram(metrics.latency);
    assert!(waited >= waits, "{waited} ns of {waits}");
    assert_eq!(latency.count(), 1);
    assert!(latency.sum() >= waited, "{} ns, {waited} of them waited", latency.sum());
}
