//! Tenants with more to do than there is time for share the CPUs by their weights.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::client::{Service, of, text};

/// The CPU time that is observed: the turns of hundreds of jobs.
const LOOKED_AT_S: f64 = 2.0;

/// Two tenants with weights 1 and 3 have a quarter and three quarters of the CPUs.
#[test]
fn weights_1_and_3_share_the_cpus() {
    let service = Service::start("shares");
    let plan = "requests_per_s=1000000&memory_bytes=100000000&weight";
    let [light, heavy] = [("light", 100), ("heavy", 300)]
        .map(|(name, n)| service.create(name, &format!("{plan}={n}")));
    for key in [&light, &heavy] {
        assert_eq!(service.call(key, "PUT", "/documents/a", &text(200_000)).0, 201);
    }
    let used = || {
        let metrics = service.metrics();
        ["/light", "/heavy"].map(|group| of(&metrics, "cpu_seconds_total", group))
    };
    let ended = AtomicBool::new(false);
    let shares = std::thread::scope(|scope| {
        // Each asks again at once, so that jobs of both wait all the time.
        for key in [&light, &heavy].repeat(4) {
            scope.spawn(|| {
                // Relaxed: it orders nothing.
                while !ended.load(Ordering::Relaxed) {
                    assert_eq!(service.call(key, "POST", "/documents/a/words", &[]).0, 202);
                }
            });
        }
        let (began, start) = (Instant::now(), used());
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let now = used();
            let [light, heavy] = [0, 1].map(|at| now[at] - start[at]);
            if light + heavy > LOOKED_AT_S || began.elapsed() > Duration::from_secs(120) {
                // Relaxed: as above.
                ended.store(true, Ordering::Relaxed);
                break [light, heavy].map(|part| part / (light + heavy));
            }
        }
    });
    let [light, heavy] = shares.map(|share| share * 100.0);
    println!("{light:.1} % and {heavy:.1} % of the CPU time");
    let metrics = service.metrics();
    let waited = |group| of(&metrics, "turn_wait_seconds_total", group);
    assert!(waited("/light") > 0.0 && waited("/heavy") > 0.0, "both had to wait for their turns");
    assert!((20.0..30.0).contains(&light), "{light} % and {heavy} %");
}
